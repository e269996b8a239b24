"""The frozen encoder: what it gives, how it is read back, and what is refused."""

import json
import shutil

import numpy as np
import pytest
import torch

from pointdep import PointwiseDependency
from pointdep.contrastive import FrozenEncoder, load_encoder
from pointdep.errors import FitWarning, InputError, ModelFileError

from . import small

IMAGES = {model: small.images_for(model).test for model in small.SMALL}


@pytest.fixture(scope="module", params=[*small.SMALL, "simclr cpc"])
def trained(request, tmp_path_factory):
    """What pretrain returned, its folder kept."""
    model, *objective = request.param.split()
    changed = {"objectives": tuple(objective)} if objective else {}
    return small.train(model, tmp_path_factory.mktemp("run"), epochs=1, **changed)


@pytest.fixture
def images(trained):
    return IMAGES[trained.settings.model]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run."""
    place = tmp_path_factory.mktemp("run")
    small.train("shallow", place, epochs=1)
    return place


@pytest.fixture
def saved(run, tmp_path):
    """A copy of an encoder's folder, to be damaged."""
    return shutil.copytree(run / "encoder", tmp_path / "encoder")


def test_it_comes_back_with_the_features_of_what_was_trained(trained, images):
    back = load_encoder(trained.folder / "encoder", "cpu")
    features = back.encode(images)
    assert torch.equal(features, trained.encoder.encode(images))
    recipe = trained.encoder.recipe
    with torch.no_grad():
        direct = recipe.encode(recipe.prepare_images(images)).float()
    assert torch.allclose(features, direct, rtol=1e-5, atol=1e-6)
    assert (back.settings, back.shape, back.classes) == (
        trained.settings, tuple(images.shape[1:]), ("a", "b", "c", "d"),
    )  # fmt: skip
    assert not any(parameter.requires_grad for parameter in back.recipe.parameters())
    assert not back.recipe.training
    ours, theirs = back.recipe.state_dict(), recipe.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_features_do_not_depend_on_the_batch(trained, images):
    whole = trained.encoder.encode(images)
    parts = trained.encoder.encode(images, batch_size=7)
    assert torch.allclose(whole, parts, rtol=1e-4, atol=1e-5)
    shallow = trained.settings.model == "shallow"
    assert whole.shape[:-1] == ((len(trained.settings.runs), 64) if shallow else (64,))


def test_arrays_and_tensors_are_the_same(trained, images):
    encode = trained.encoder.encode
    assert torch.equal(encode(images.numpy()), encode(images))
    assert torch.equal(encode(images[:1]), encode([*images[:1].numpy()]))


def test_saving_again_gives_the_same(trained, images, tmp_path):
    load_encoder(trained.folder / "encoder", "cpu").save(tmp_path / "again")
    again = load_encoder(tmp_path / "again", "cpu")
    assert isinstance(again, FrozenEncoder)
    assert torch.equal(again.encode(images), trained.encoder.encode(images))


@pytest.mark.parametrize("trained", ["simclr", "simclr cpc"], indirect=True)
def test_simclr_reads_pmi_out_of_views_after_it_came_back(trained, images):
    back = load_encoder(trained.folder / "encoder", "cpu").recipe
    generator = torch.Generator().manual_seed(0)
    rows = torch.arange(64)[None]
    first, second = back.batch(back.prepare_images(images), rows, rows, generator)
    found = back.pmi(first, second)
    assert found.shape == (64,)
    assert found.isfinite().all()
    assert torch.equal(found, trained.encoder.recipe.pmi(first, second))


def test_pmi_of_images(trained, images):
    if trained.settings.model != "simclr":
        with pytest.raises(InputError, match="has no PMI of two images"):
            trained.encoder.pmi(images, images)
        return
    found = trained.encoder.pmi(images, images.roll(1, 0), batch_size=7)
    assert found.shape == (len(images),)
    recipe, generator = trained.encoder.recipe, torch.Generator()
    views = (recipe.plain(part, generator) for part in (images, images.roll(1, 0)))
    expected = recipe.loss.pmi(*(recipe.head(recipe.encoder(view)) for view in views))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match="cannot be paired"):
        trained.encoder.pmi(images, images[1:])


def test_a_batch_of_no_images(trained, images):
    with pytest.raises(InputError, match="batch_size=0 must be at least 1"):
        trained.encoder.encode(images, batch_size=0)


@pytest.mark.parametrize(
    "images",
    [
        torch.zeros(2, 3, 8, 8),
        torch.zeros(2, 1, 8, 8, dtype=torch.uint8),
        torch.zeros(2, 3, 8, 7, dtype=torch.uint8),
        torch.zeros(3, 8, 8, dtype=torch.uint8),
        np.zeros((2, 8, 8, 3), np.uint8),
    ],
)
def test_images_of_another_kind_are_refused(images, saved):
    with pytest.raises(InputError, match=r"images are uint8 of shape \(n, 3, 8, 8\), got"):
        load_encoder(saved, "cpu").encode(images)


class TestDamage:
    def refused(self, message, place):
        with pytest.raises(ModelFileError, match=message):
            load_encoder(place, "cpu")

    def test_truncated_weights(self, saved):
        weights = saved / "weights.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
        self.refused("truncated, edited or of another model", saved)

    def test_missing_weights(self, saved):
        (saved / "weights.safetensors").unlink()
        self.refused("no readable weights", saved)

    def test_edited_settings(self, saved):
        text = (saved / "model.json").read_text()
        assert '"depth": 3' in text
        (saved / "model.json").write_text(text.replace('"depth": 3', '"depth": 4'))
        self.refused("edited or damaged", saved)

    def test_truncated_description(self, saved):
        text = (saved / "model.json").read_text()
        (saved / "model.json").write_text(text[:-20])
        self.refused("truncated or not JSON", saved)

    def test_nothing_there(self, saved):
        shutil.rmtree(saved)
        self.refused("no such folder", saved)

    def test_the_folder_of_the_run(self, run):
        self.refused("is not a model", run)

    @pytest.mark.parametrize("lacking", ["settings", "shape", "classes"])
    def test_a_part_is_missing(self, lacking, saved):
        from pointdep.data import storage

        about, tensors = storage.read_model(saved)
        del about[lacking]
        storage.write_model(saved, about, tensors)
        self.refused("lacks a part", saved)

    def test_weights_of_another_size(self, saved):
        from pointdep.data import storage

        about, tensors = storage.read_model(saved)
        about["settings"]["width"] = 17
        storage.write_model(saved, about, tensors)
        self.refused("lacks a part or holds a wrong one", saved)

    def test_a_run_whose_encoder_is_gone(self, run, tmp_path):
        shutil.copytree(run, tmp_path / "run")
        shutil.rmtree(tmp_path / "run" / "encoder")
        with pytest.raises(ModelFileError, match="no such folder"):
            small.train("shallow", tmp_path / "run", epochs=1)

    @pytest.mark.parametrize("damage", ["truncated", "foreign"])
    def test_a_damaged_description_of_the_run(self, damage, run, tmp_path):
        shutil.copytree(run, tmp_path, dirs_exist_ok=True)
        text = (tmp_path / "run.json").read_text()
        (tmp_path / "run.json").write_text(
            text[:-30] if damage == "truncated" else json.dumps([1, 2])
        )
        with pytest.raises(ModelFileError, match=r"run\.json cannot be read .*: delete it"):
            small.train("shallow", tmp_path, epochs=1)


def test_an_estimator_is_no_encoder_and_an_encoder_no_estimator(saved, tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 1))
    model = PointwiseDependency(
        critic="concat", hidden=(4,), folds=2, max_epochs=2, progress=False, random_state=0
    )
    with pytest.warns(FitWarning):
        model.fit(x, x + random.normal(size=(60, 1)))
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="is not an encoder of `pointdep pretrain`"):
        load_encoder(tmp_path / "model", "cpu")
    with pytest.raises(ModelFileError, match=r"is an encoder of .*load_encoder"):
        PointwiseDependency.load(saved)
