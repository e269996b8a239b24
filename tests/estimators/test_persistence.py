"""Saved models: everything comes back, nothing is executed, nothing half-written shows."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from pointdep import METHODS, PointwiseDependency, from_embeddings, from_logits
from pointdep.core.critics import CRITICS
from pointdep.data import storage
from pointdep.data.sides import as_side
from pointdep.errors import DataWarning, InputError, ModelFileError

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 3)).astype(np.float32)
Y = X + RANDOM.normal(size=(120, 3)).astype(np.float32)
NEW_X, NEW_Y = X[::-1][:30].copy(), Y[:30]


class Bilinear(nn.Module):
    """A critic of the user's own."""

    def __init__(self, width=3):
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.eye(3, width))
        self.steps = nn.Buffer(torch.zeros(1))

    def forward(self, x, y):
        return ((x @ self.weight) * y).sum(-1)


def fitted(**options):
    common = {"critic": "concat", "hidden": (8,), "embedding_dim": 4, "folds": 2, "max_epochs": 2}
    return PointwiseDependency(**{**common, "progress": False, "random_state": 0, **options})


@pytest.fixture(scope="module")
def model():
    return fitted().fit(X, Y)


@pytest.fixture
def saved(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def round_trip(model, path, x=NEW_X, y=NEW_Y, **options):
    """Load what was saved, and compare every answer bit by bit."""
    model.save(path)
    loaded = PointwiseDependency.load(path, device="cpu", **options)
    np.testing.assert_array_equal(loaded.oof_pmi_, model.oof_pmi_)
    for ask in ("pmi", "npmi", "pmi_matrix", "outside", "mutual_information", "score"):
        np.testing.assert_array_equal(getattr(loaded, ask)(x, y), getattr(model, ask)(x, y))
    assert loaded.mutual_information() == model.mutual_information()
    for name in ("flags_", "history_", "n_rows_", "n_replicas_", "n_features_in_", "bias_"):
        assert getattr(loaded, name) == getattr(model, name)
    assert torch.equal(loaded.model_.seen, model.model_.seen)
    return loaded


class TestRoundTrip:
    @pytest.mark.parametrize("critic", CRITICS)
    def test_critics(self, tmp_path, critic):
        loaded = round_trip(fitted(critic=critic).fit(X, Y), tmp_path / "model")
        assert loaded.critic == critic

    @pytest.mark.parametrize("method", ["pc", "dv", "cpc"])
    def test_the_default_critic(self, tmp_path, method):
        """With its maps, correlations and correction; rows far out show the ends of the maps."""
        model = fitted(critic="auto", hidden="auto", method=method).fit(X, Y)
        loaded = round_trip(model, tmp_path / "model")
        assert loaded.hidden == "auto"
        assert tuple(loaded.hidden_) == tuple(model.hidden_) == (128, 32)
        assert loaded.mutual_information().correction == model.mutual_information().correction
        assert (loaded.mutual_information().correction > 0) == (method == "pc")
        assert torch.isfinite(loaded.model_.seen).all()
        assert loaded.model_.critic.correlations.any()
        np.testing.assert_array_equal(loaded.outside(40 * X, Y), model.outside(40 * X, Y))
        np.testing.assert_array_equal(
            loaded.pmi_stderr(NEW_X, NEW_Y), model.pmi_stderr(NEW_X, NEW_Y)
        )
        with pytest.warns(DataWarning, match="outside the data"):
            far = model.pmi(40 * X, Y)
        with pytest.warns(DataWarning, match="outside the data"):
            np.testing.assert_array_equal(loaded.pmi(40 * X, Y), far)

    @pytest.mark.parametrize("method", METHODS)
    def test_methods(self, tmp_path, method):
        loaded = round_trip(fitted(method=method).fit(X, Y), tmp_path / "model")
        assert loaded.method == method

    def test_settings(self, tmp_path):
        options = {
            "method": "drf_relative",
            "method_options": {"alpha": 0.05},
            "link": "log_ratio",
            "hidden": [8, 4],
            "activation": "relu",
            "batch_size": 16,
            "weight_decay": 0.01,
        }
        loaded = round_trip(fitted(**options).fit(X, Y), tmp_path / "model")
        found = loaded.get_params()
        assert {name: found[name] for name in options} == {**options, "hidden": (8, 4)}
        assert found["random_state"] == 0

    def test_options_that_cannot_be_written_are_left_out(self, tmp_path):
        from sklearn.model_selection import KFold

        model = fitted(cv=KFold(3), random_state=np.random.RandomState(0)).fit(X, Y)
        loaded = round_trip(model, tmp_path / "model")
        assert loaded.n_replicas_ == 3
        assert (loaded.cv, loaded.random_state) == (None, None)

    def test_categories_and_names(self, tmp_path):
        x = pd.DataFrame({"word": np.where(X[:, 0] > 0, "up", "döwn"), "size": X[:, 1]})
        y = pd.DataFrame({"on": Y[:, 0] > 0})
        loaded = round_trip(fitted().fit(x, y), tmp_path / "model", x[:30], y[:30])
        with pytest.raises(InputError, match="'sideways' in row 0, a category unseen"):
            loaded.pmi(x[:1].assign(word="sideways"), y[:1])
        with pytest.raises(InputError, match="column 0 is 'term' but was 'word'"):
            loaded.pmi(x[:1].rename(columns={"word": "term"}), y[:1])

    def test_rows_without_an_out_of_fold_value(self, tmp_path):
        model = fitted(folds=1).fit(X, Y)
        assert np.isnan(model.oof_pmi_).sum() == 96
        round_trip(model, tmp_path / "model")

    def test_a_model_that_was_loaded_before(self, model, tmp_path):
        once = round_trip(model, tmp_path / "once")
        round_trip(once, tmp_path / "twice")
        for name in ("model.json", "weights.safetensors"):
            assert (tmp_path / "once" / name).read_bytes() == (
                tmp_path / "twice" / name
            ).read_bytes()

    def test_a_path_as_text_and_relative(self, model, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        round_trip(model, "model/")
        assert names(tmp_path) == ["model"]


class TestOwnCritic:
    @pytest.fixture
    def own(self, tmp_path):
        model = fitted(critic=Bilinear()).fit(X, Y)
        round_trip(model, tmp_path / "model", critic=Bilinear())
        return tmp_path / "model"

    def test_encoders(self, tmp_path):
        model = fitted(critic=(nn.Linear(3, 2), nn.Linear(3, 2))).fit(X, Y)
        path = tmp_path / "model"
        round_trip(model, path, critic=(nn.Linear(3, 2), nn.Linear(3, 2)))
        with pytest.raises(InputError, match=r"your own encoders: .*load\(path, critic"):
            PointwiseDependency.load(path)

    def test_must_be_given_again(self, own):
        with pytest.raises(InputError, match=r"fitted with your own module: .*load\(path, critic"):
            PointwiseDependency.load(own)

    @pytest.mark.parametrize("wrong", [Bilinear(2), nn.Bilinear(3, 3, 1)])
    def test_must_be_the_same(self, own, wrong):
        with pytest.raises(ModelFileError, match="critic does not fit") as caught:
            PointwiseDependency.load(own, critic=wrong)
        assert "\n" not in str(caught.value)

    def test_is_not_for_a_named_critic(self, saved):
        with pytest.raises(InputError, match="has a 'concat' critic: leave `critic` out"):
            PointwiseDependency.load(saved, critic=Bilinear())


def refused(path, message):
    with pytest.raises(ModelFileError, match=message) as caught:
        PointwiseDependency.load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


class TestDamage:
    def test_nothing_there(self, tmp_path):
        refused(tmp_path / "model", "there is no such folder")

    def test_a_file(self, tmp_path):
        (tmp_path / "model").write_text("{}")
        refused(tmp_path / "model", "is a file; a model is a folder")

    @pytest.mark.parametrize("name", ["model.json", "weights.safetensors"])
    def test_a_file_is_missing(self, saved, name):
        (saved / name).unlink()
        refused(saved, name)

    @pytest.mark.parametrize("name", ["model.json", "weights.safetensors"])
    @pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.999])
    def test_truncated(self, saved, name, kept):
        content = (saved / name).read_bytes()
        (saved / name).write_bytes(content[: int(kept * len(content))])
        refused(saved, f"{name} is truncated")

    def test_one_bit_of_the_weights(self, saved):
        path = saved / "weights.safetensors"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        refused(saved, "truncated, edited or of another model")

    def test_weights_of_another_model(self, saved, tmp_path):
        fitted(random_state=1).fit(X, Y).save(tmp_path / "other")
        shutil.copy(tmp_path / "other" / "weights.safetensors", saved)
        refused(saved, "of another model")

    @pytest.mark.parametrize(
        ("old", "new"),
        [('"rows": 120', '"rows": 121'), ('"method": "pc"', '"method": "js"'), ("}", ', "a": 1}')],
    )
    def test_edited_json(self, saved, old, new):
        path = saved / "model.json"
        text = path.read_text("utf-8")
        head, _, tail = text.rpartition(old)
        assert head
        path.write_text(head + new + tail, "utf-8")
        refused(saved, "was edited or damaged")

    @pytest.mark.parametrize(
        "text", ["[]", "null", "{}", '{"format": "onnx"}', '{"format": null}', "[" * 100_000]
    )
    def test_foreign_json(self, saved, text):
        (saved / "model.json").write_text(text)
        refused(saved, r"model\.json is (not a pointdep model|truncated or not JSON)")

    def test_another_format(self, saved):
        path = saved / "model.json"
        about = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps({**about, "format_version": 3}))
        refused(saved, r"newer pointdep \(format 3, this version reads 2\): upgrade")
        path.write_text(json.dumps({**about, "format_version": 1}))
        refused(saved, r"earlier pointdep \(format 1, this version reads 2\): fit again")
        path.write_text(json.dumps({**about, "format_version": "2"}))
        refused(saved, "names no format version")

    def test_a_pickle_for_weights_is_not_loaded(self, saved, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

        class Trap:
            def __reduce__(self):
                return (Path.touch, (Path("executed"),))

        trap = pickle.dumps(Trap())
        (saved / "weights.safetensors").write_bytes(trap)
        refused(saved, "truncated, edited or of another model")
        # Even with digests that say all is well.
        about = json.loads((saved / "model.json").read_text("utf-8"))
        del about["about_sha256"]
        about["weights_sha256"] = hashlib.sha256(trap).hexdigest()
        about["about_sha256"] = storage._digest(about)
        (saved / "model.json").write_text(json.dumps(about), "utf-8")
        refused(saved, r"weights\.safetensors cannot be read")
        assert not (tmp_path / "executed").exists()
        pickle.loads(trap)
        assert (tmp_path / "executed").exists()  # the trap would have worked

    @pytest.mark.parametrize("lost", ["oof_pmi", "oof_values", "model.constant"])
    def test_a_tensor_is_missing(self, saved, lost):
        about, tensors = storage.read_model(saved)
        shutil.rmtree(saved)
        storage.write_model(saved, about, {k: t for k, t in tensors.items() if k != lost})
        refused(saved, lost.removeprefix("model."))

    @pytest.mark.parametrize(
        "lost", ["encoder_x", "rows", "flags", "history", "bias", "jackknife", "hidden"]
    )
    def test_a_part_is_missing(self, saved, lost):
        about, tensors = storage.read_model(saved)
        shutil.rmtree(saved)
        storage.write_model(saved, {k: v for k, v in about.items() if k != lost}, tensors)
        refused(saved, lost)


class TestPlaces:
    def test_an_older_model_is_replaced(self, saved):
        fitted(method="js").fit(X, Y).save(saved)
        assert PointwiseDependency.load(saved).method == "js"
        assert names(saved) == ["model.json", "weights.safetensors"]
        assert names(saved.parent) == ["model"]

    def test_a_link_is_followed(self, model, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        round_trip(model, tmp_path / "link")
        assert (tmp_path / "link").is_symlink()
        assert names(tmp_path / "real") == ["model.json", "weights.safetensors"]

    def test_a_file(self, model, tmp_path):
        (tmp_path / "model").write_text("mine")
        with pytest.raises(InputError, match="is a file; a model is saved as a folder"):
            model.save(tmp_path / "model")
        assert (tmp_path / "model").read_text() == "mine"

    @pytest.mark.parametrize("name", ["notes.txt", "model.json", "weights.safetensors"])
    def test_a_folder_of_other_files(self, model, tmp_path, name):
        (tmp_path / name).write_text('{"format": "mine"}')
        with pytest.raises(InputError, match=f"holds other files, such as {name}"):
            model.save(tmp_path)
        assert names(tmp_path) == [name]

    def test_no_parent(self, model, tmp_path):
        with pytest.raises(InputError, match="nowhere does not exist: make it first"):
            model.save(tmp_path / "nowhere" / "model")
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="file is a file, not a folder"):
            model.save(tmp_path / "file" / "model")
        assert names(tmp_path) == ["file"]

    def test_a_parent_that_is_read_only(self, model, tmp_path, monkeypatch):
        # Root may write where the permission bits say no.
        def refuse(*args, **kwargs):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "mkdir", refuse)
        message = r"nothing can be written in .* \(Permission denied\): choose another place"
        with pytest.raises(InputError, match=message):
            model.save(tmp_path / "model")


class TestInterruption:
    STEPS = ("write_bytes", "write_text", "replace")

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left")])
    @pytest.mark.parametrize("step", STEPS)
    @pytest.mark.parametrize("older", [True, False])
    def test_leaves_things_as_they_were(self, model, tmp_path, monkeypatch, error, step, older):
        place = tmp_path / "model"
        if older:
            model.save(place)
        before = {path.name: path.read_bytes() for path in place.glob("*")}
        actual = getattr(Path, step)

        def fail(path, *args):
            # The first move, of the old model aside, goes well: it is the second that counts.
            if step == "replace" and path.name != "new":
                return actual(path, *args)
            raise error

        other = fitted(method="js").fit(X, Y)
        with monkeypatch.context() as patch:
            patch.setattr(Path, step, fail)
            raised = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else InputError
            with pytest.raises(raised) as caught:
                other.save(place)
        if raised is InputError:
            assert str(caught.value) == f"cannot write {place}: No space left"
        assert names(tmp_path) == (["model"] if older else [])
        assert {path.name: path.read_bytes() for path in place.glob("*")} == before
        if older:
            assert PointwiseDependency.load(place).method == "pc"
        other.save(place)
        assert PointwiseDependency.load(place).method == "js"


def test_the_folder_is_plain_json_and_safetensors(saved, model):
    about = json.loads((saved / "model.json").read_text("utf-8"))
    assert (about["format"], about["format_version"]) == ("pointdep-model", 2)
    assert about["params"]["method"] == "pc"
    tensors = load_file(saved / "weights.safetensors")
    np.testing.assert_array_equal(tensors["oof_pmi"].numpy(), model.oof_pmi_)
    weights = (saved / "weights.safetensors").read_bytes()
    assert about["weights_sha256"] == hashlib.sha256(weights).hexdigest()


ODD = 59  # rows: a number that is no width of a layer
GROUPED = np.arange(ODD) // 2
KEPT = {
    "default": lambda: fitted(critic="auto").fit(X[:ODD], Y[:ODD], groups=GROUPED),
    "cpc": lambda: fitted(method="cpc", reference_size=20).fit(X[:ODD], Y[:ODD]),
    "one-sided": lambda: from_embeddings(
        X[:ODD], Y[:ODD], loss="softmax_one_sided", progress=False
    ),
    "matrix": lambda: from_logits(X[:ODD] @ Y[:ODD].T, progress=False),
}


@pytest.mark.parametrize("kind", KEPT)
def test_what_of_the_rows_is_kept_is_said(kind, tmp_path):
    """A tensor with one entry a row, or with values of the rows, is on the page about saving."""
    page = Path(__file__).parents[2] / "docs/howto/save-and-load.md"
    told = page.read_text("utf-8").split("## What of the rows is in it?")[1].split("##")[0]
    made = KEPT[kind]()
    made.save(tmp_path / "model")
    paired = made.training_rows_.paired
    rows = torch.cat([paired.x.flatten(), paired.y.flatten(), *_encoded(made)]).unique()
    found = set()
    for name, tensor in load_file(tmp_path / "model" / "weights.safetensors").items():
        held = torch.isin(tensor.float(), rows[rows.abs() > 1e-3]).float().mean()
        if ODD in tensor.shape or held > 0.01:
            found.add(name.removeprefix("model."))
    assert {"default": "x_front.values", "matrix": "logits"}.get(kind, "reference") in found
    assert "oof_pmi" in found
    assert not {name for name in found if f"`{name}`" not in told}


def _encoded(made):
    """The values of both sides as networks get them, before ranks take their place."""
    for encoder, side in ((made.encoder_x_, X), (made.encoder_y_, Y)):
        if side.shape[1] == len(encoder.names):
            yield torch.from_numpy(encoder.encode(as_side(side[:ODD], encoder.side))).flatten()
