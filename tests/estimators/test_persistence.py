"""Saved models: everything comes back, nothing is executed, nothing half-written shows."""

import hashlib
import json
import os
import pickle
import shutil
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from sklearn.model_selection import KFold
from torch import nn

from estimators.pointwise.helpers import small
from pointdep import METHODS, PointwiseDependency, from_embeddings, from_logits
from pointdep.core.critics import CRITICS
from pointdep.data import atomic, storage
from pointdep.data.sides import as_side
from pointdep.errors import DataWarning, InputError, ModelFileError
from pointdep.estimators import persistence
from pointdep.estimators.pointwise import data_of_rows
from refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 3)).astype(np.float32)
Y = X + RANDOM.normal(size=(120, 3)).astype(np.float32)
fitted = partial(small, max_epochs=2)
FILES = ["model.json", "weights.safetensors"]
NEW_X, NEW_Y = X[::-1][:30].copy(), Y[:30]


class Bilinear(nn.Module):
    """A critic of the user's own."""

    def __init__(self, width=3):
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.eye(3, width))
        self.steps = nn.Buffer(torch.zeros(1))

    def forward(self, x, y):
        return ((x @ self.weight) * y).sum(-1)


@pytest.fixture(scope="module")
def model():
    return fitted().fit(X, Y)


def test_streamed_rows_are_known_by_their_number_and_columns(model):
    told = data_of_rows(fitted(stream=True), X, Y)
    assert told == {**persistence.data_of(model), "digests": None}
    assert data_of_rows(fitted(), X, Y) == persistence.data_of(model)


@pytest.fixture
def saved(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def round_trip(model, path, x=NEW_X, y=NEW_Y, **options):
    """Load what was saved, and compare every answer bit by bit."""
    model.save(path, overwrite=True)
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
        assert round_trip(fitted(critic=critic).fit(X, Y), tmp_path / "model").critic == critic

    @pytest.mark.parametrize("method", ["pc", "dv", "cpc"])
    def test_the_default_critic_and_a_label(self, tmp_path, method):
        """With its maps, correlations and correction; rows far out show the ends of the maps."""
        model = fitted(critic="auto", hidden="auto", method=method).fit(X, Y)
        loaded = round_trip(model, tmp_path / "model")
        assert loaded.hidden == "auto"
        assert tuple(loaded.hidden_) == tuple(model.hidden_) == (128, 32)
        assert loaded.mutual_information().correction == model.mutual_information().correction
        assert (loaded.mutual_information().correction > 0) == (method == "pc")
        assert torch.isfinite(loaded.model_.seen).all()
        assert loaded.model_.critic.correlations.any()
        for ask in ("outside", "pmi_stderr"):
            one, other = (getattr(each, ask)(40 * X, Y) for each in (loaded, model))
            np.testing.assert_array_equal(one, other)
        with pytest.warns(DataWarning, match="outside the data"):
            far = model.pmi(40 * X, Y)
        with pytest.warns(DataWarning, match="outside the data"):
            np.testing.assert_array_equal(loaded.pmi(40 * X, Y), far)
        label = np.digitize(Y[:, 0], [-0.5, 0.5])
        for number, data in enumerate(((X, label), (label, Y))):
            model = fitted(critic="auto", method=method).fit(*data)
            new = (side[:30] for side in data)
            loaded = round_trip(model, tmp_path / str(number), *new)
            assert loaded.model_.critic.label == model.model_.critic.label == "yx"[number]

    @pytest.mark.parametrize("method", METHODS)
    def test_methods(self, tmp_path, method):
        assert round_trip(fitted(method=method).fit(X, Y), tmp_path / "model").method == method

    def test_settings_categories_and_names(self, tmp_path):
        options = {"method": "drf_relative", "method_options": {"alpha": 0.05}, "link": "log_ratio"}
        options |= {"hidden": [8, 4], "activation": "relu", "batch_size": 16, "weight_decay": 0.01}
        loaded = round_trip(fitted(**options, folds=1).fit(X, Y), tmp_path / "model")
        assert np.isnan(loaded.oof_pmi_).sum() == 96  # which no model reports
        found = loaded.get_params()
        assert {name: found[name] for name in options} == {**options, "hidden": (8, 4)}
        assert found["random_state"] == 0
        model = fitted(cv=KFold(3), random_state=np.random.RandomState(0)).fit(X, Y)
        loaded = round_trip(model, tmp_path / "model")
        assert loaded.n_replicas_ == 3
        assert (loaded.cv, loaded.random_state) == (None, None)
        x = pd.DataFrame({"word": np.where(X[:, 0] > 0, "up", "döwn"), "size": X[:, 1]})
        y = pd.DataFrame({"on": Y[:, 0] > 0})
        loaded = round_trip(fitted().fit(x, y), tmp_path / "model", x[:30], y[:30])
        with pytest.raises(InputError, match="'sideways' in row 0, a category unseen"):
            loaded.pmi(x[:1].assign(word="sideways"), y[:1])
        with pytest.raises(InputError, match="column 0 is 'term' but was 'word'"):
            loaded.pmi(x[:1].rename(columns={"word": "term"}), y[:1])

    def test_a_model_that_was_loaded_before(self, model, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        round_trip(round_trip(model, "once/"), "twice")  # paths as text and relative
        assert names(tmp_path) == ["once", "twice"]
        for name in FILES:
            assert Path("once", name).read_bytes() == Path("twice", name).read_bytes()


@pytest.mark.parametrize(
    ("critic", "wrong", "kind"),
    [
        (Bilinear(), (Bilinear(2), nn.Bilinear(3, 3, 1)), "module"),
        ((nn.Linear(3, 2), nn.Linear(3, 2)), (), "encoders"),
    ],
)
def test_own_critics_must_be_given_again_and_be_the_same(critic, wrong, kind, saved, tmp_path):
    path = tmp_path / "own"
    round_trip(fitted(critic=critic).fit(X, Y), path, critic=critic)
    refused(rf"with your own {kind}: .*load\(path, critic", PointwiseDependency.load, path)
    for other in wrong:
        with pytest.raises(ModelFileError, match="critic does not fit") as caught:
            PointwiseDependency.load(path, critic=other)
        assert "\n" not in str(caught.value)
    said = "has a 'concat' critic: leave `critic` out"
    refused(said, PointwiseDependency.load, saved, critic=critic)


def unreadable(path, message):
    with pytest.raises(ModelFileError, match=message) as caught:
        PointwiseDependency.load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


class TestDamage:
    PARTS = ("encoder_x", "rows", "flags", "history", "bias", "jackknife", "hidden")

    def test_nothing_there_a_file_and_another_format(self, tmp_path, saved):
        unreadable(tmp_path / "other", "there is no such folder")
        (tmp_path / "other").write_text("{}")
        unreadable(tmp_path / "other", "is a file; a model is a folder")
        path = saved / "model.json"
        about = json.loads(path.read_text("utf-8"))
        for version, said in (
            (3, r"newer pointdep \(format 3, this version reads 2\): upgrade"),
            (1, r"earlier pointdep \(format 1, this version reads 2\): fit again"),
            ("2", "names no format version"),
        ):
            path.write_text(json.dumps({**about, "format_version": version}))
            unreadable(saved, said)

    @pytest.mark.parametrize("name", FILES)
    def test_truncated_and_missing(self, saved, name):
        content = (saved / name).read_bytes()
        for kept in (0.0, 0.1, 0.5, 0.999):
            (saved / name).write_bytes(content[: int(kept * len(content))])
            unreadable(saved, f"{name} is truncated")
        (saved / name).unlink()
        unreadable(saved, name)

    def test_other_weights(self, saved, tmp_path):
        content = bytearray((saved / FILES[1]).read_bytes())
        content[-1] ^= 1
        (saved / FILES[1]).write_bytes(content)
        unreadable(saved, "truncated, edited or of another model")
        fitted(random_state=1).fit(X, Y).save(tmp_path / "other")
        shutil.copy(tmp_path / "other" / FILES[1], saved)
        unreadable(saved, "of another model")

    def test_edited_json(self, saved):
        path = saved / "model.json"
        text = path.read_text("utf-8")
        rows, method = ('"rows": 120', '"rows": 121'), ('"method": "pc"', '"method": "js"')
        for old, new in (rows, method, ("}", ', "a": 1}')):
            head, _, tail = text.rpartition(old)
            assert head
            path.write_text(head + new + tail, "utf-8")
            unreadable(saved, "was edited or damaged")

    @pytest.mark.parametrize(
        "text", ["[]", "null", "{}", '{"format": "onnx"}', '{"format": null}', "[" * 100_000]
    )
    def test_foreign_json(self, saved, text):
        (saved / "model.json").write_text(text)
        unreadable(saved, r"model\.json is (not a pointdep model|truncated or not JSON)")

    def test_a_pickle_for_weights_is_not_loaded(self, saved, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

        class Trap:
            def __reduce__(self):
                return (Path.touch, (Path("executed"),))

        trap = pickle.dumps(Trap())
        (saved / "weights.safetensors").write_bytes(trap)
        unreadable(saved, "truncated, edited or of another model")
        # Even with digests that say all is well.
        about = json.loads((saved / "model.json").read_text("utf-8"))
        del about["about_sha256"]
        about["weights_sha256"] = hashlib.sha256(trap).hexdigest()
        about["about_sha256"] = storage.digest_of(about)
        (saved / "model.json").write_text(json.dumps(about), "utf-8")
        unreadable(saved, r"weights\.safetensors cannot be read")
        assert not (tmp_path / "executed").exists()
        pickle.loads(trap)
        assert (tmp_path / "executed").exists()  # the trap would have worked

    @pytest.mark.parametrize("lost", ["oof_pmi", "oof_values", "model.constant", *PARTS])
    def test_a_part_is_missing(self, saved, lost):
        parts = storage.read_model(saved)
        about, tensors = ({k: v for k, v in part.items() if k != lost} for part in parts)
        shutil.rmtree(saved)
        storage.write_model(saved, about, tensors)
        unreadable(saved, lost.removeprefix("model."))


class TestForeign:
    """Models that someone made up, with digests that say all is well."""

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"params.checkpoint": "/tmp/mine"}, "checkpoint='/tmp/mine'"),
            ({"params.device": "cuda"}, "device="),
            ({"params.folds": "many"}, "folds='many'"),
            ({"params.critic": 7}, "critic=7"),
            ({"bias.neighbours": [0.5]}, "neighbours="),
            ({"params.method_options": 3}, "method_options=3"),
            ({"params.hidden": [8, "8"]}, "hidden="),
            ({"hidden": [10**12]}, "needs the shape"),
            ({"hidden": [1] * 2000}, "other weights"),
            ({"replicas": 10**9}, "other weights"),
            ({"replicas": True}, "replicas=True"),
            ({"rows": "120"}, "rows='120'"),
            ({"rows": 121}, "is not one number for each of 121 rows"),
            ({"bias.network": "0"}, "network='0'"),
            ({"history": [7]}, "history"),
            ({"flags": [["few_rows"]]}, "expected 3"),
            ({"encoder_x.center": [0.0]}, "not a saved encoder"),
        ],
    )
    def test_what_no_fit_writes_is_refused_before_it_takes_memory(self, saved, change, said):
        about, tensors = storage.read_model(saved)
        for name, value in change.items():
            part, _, entry = name.rpartition(".")
            (about[part] if part else about)[entry] = value
        shutil.rmtree(saved)
        storage.write_model(saved, about, tensors)
        unreadable(saved, said)

    @pytest.mark.parametrize("value", [torch.nan, torch.inf])
    def test_weights_that_are_not_finite(self, saved, value):
        about, tensors = storage.read_model(saved)
        name = next(name for name in tensors if name.endswith("weight"))
        tensors[name].view(-1)[3] = value
        shutil.rmtree(saved)
        storage.write_model(saved, about, tensors)
        unreadable(saved, f"holds numbers that are not finite in {name}")


class TestPlaces:
    def test_an_older_model_is_replaced_and_a_link_followed(self, saved, model, tmp_path):
        fitted(method="js").fit(X, Y).save(saved)
        assert PointwiseDependency.load(saved).method == "js"
        assert (names(saved), names(saved.parent)) == (FILES, ["model"])
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        round_trip(model, tmp_path / "link")
        assert (tmp_path / "link").is_symlink()
        assert names(tmp_path / "real") == FILES

    @pytest.mark.parametrize("name", ["notes.txt", *FILES])
    def test_a_folder_of_other_files(self, model, tmp_path, name):
        (tmp_path / name).write_text('{"format": "mine"}')
        refused(f"holds other files, such as {name}", model.save, tmp_path)
        assert names(tmp_path) == [name]

    def test_places_that_cannot_be(self, model, tmp_path, monkeypatch):
        (tmp_path / "file").write_text("mine")
        for place, said in (
            ("file", "is a file; a model is saved as a folder"),
            ("nowhere/model", "nowhere does not exist: make it first"),
            ("file/model", "file is a file, not a folder"),
        ):
            refused(said, model.save, tmp_path / place)
        assert (names(tmp_path), (tmp_path / "file").read_text()) == (["file"], "mine")
        # Root may write where the permission bits say no.
        monkeypatch.setattr(os, "mkdir", Mock(side_effect=PermissionError(13, "Permission denied")))
        message = r"nothing can be written in .* \(Permission denied\): choose another place"
        refused(message, model.save, tmp_path / "model")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left")])
@pytest.mark.parametrize("step", ["write_bytes", "write_text", "replace"])
@pytest.mark.parametrize("older", [True, False])
def test_an_interruption_leaves_things_as_they_were(
    model, tmp_path, monkeypatch, error, step, older
):
    place = tmp_path / "model"
    if older:
        model.save(place)
    before = {path.name: path.read_bytes() for path in place.glob("*")}
    actual = getattr(Path, step)

    def fail(path, *args):
        # Without an exchange, the first move, of the old model aside, goes well.
        if step == "replace" and path.name != "new":
            return actual(path, *args)
        raise error

    other = fitted(method="js").fit(X, Y)
    raised = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else InputError
    with monkeypatch.context() as patch:
        patch.setattr(Path, step, fail)
        patch.setattr(atomic, "_exchanged", lambda one, other: False)
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
    values = [paired.x.flatten(), paired.y.flatten()]
    for encoder, side in ((made.encoder_x_, X[:ODD]), (made.encoder_y_, Y[:ODD])):
        if side.shape[1] == len(encoder.names):  # as networks get them, before ranks
            values.append(torch.from_numpy(encoder.encode(as_side(side, encoder.side))).flatten())
    rows, found = torch.cat(values).unique(), set()
    for name, tensor in load_file(tmp_path / "model" / "weights.safetensors").items():
        held = torch.isin(tensor.float(), rows[rows.abs() > 1e-3]).float().mean()
        if ODD in tensor.shape or held > 0.01:
            found.add(name.removeprefix("model."))
    assert {"default": "x_front.values", "matrix": "logits"}.get(kind, "reference") in found
    assert "oof_pmi" in found
    assert not {name for name in found if f"`{name}`" not in told}
