"""The frozen encoder: what it gives, how it is read back, and what is refused."""

import json
import shutil

import numpy as np
import pytest
import torch

from pointdep import PointwiseDependency
from pointdep.contrastive import FrozenEncoder, load_encoder
from pointdep.data import storage
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
def copied(run, tmp_path):
    """A copy of it, to be damaged."""
    return shutil.copytree(run, tmp_path / "run")


def test_it_comes_back_with_the_features_of_what_was_trained(trained, images, tmp_path):
    back = load_encoder(trained.folder / "encoder", "cpu")
    features = back.encode(images)
    assert torch.equal(features, trained.encoder.encode(images))
    recipe = trained.encoder.recipe
    with torch.no_grad():
        direct = recipe.encode(recipe.prepare_images(images)).float()
    assert torch.allclose(features, direct, rtol=1e-5, atol=1e-6)
    shape = tuple(images.shape[1:])
    assert (back.settings, back.shape, back.classes) == (trained.settings, shape, tuple("abcd"))
    assert not any(parameter.requires_grad for parameter in back.recipe.parameters())
    assert not back.recipe.training
    ours, theirs = back.recipe.state_dict(), recipe.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    back.save(tmp_path / "again")
    again = load_encoder(tmp_path / "again", "cpu")
    assert isinstance(again, FrozenEncoder)
    assert torch.equal(again.encode(images), features)


def test_features_do_not_depend_on_batch_and_container(trained, images):
    encode = trained.encoder.encode
    whole = encode(images)
    assert torch.allclose(whole, encode(images, batch_size=7), rtol=1e-4, atol=1e-5)
    shallow = trained.settings.model == "shallow"
    assert whole.shape[:-1] == ((len(trained.settings.runs), 64) if shallow else (64,))
    assert torch.equal(encode(images.numpy()), whole)
    assert torch.equal(encode(images[:1]), encode([*images[:1].numpy()]))
    with pytest.raises(InputError, match="batch_size=0"):
        encode(images, batch_size=0)


def test_pmi_of_images(trained, images):
    if trained.settings.model != "simclr":
        with pytest.raises(InputError, match="no PMI of two images"):
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
    # Of augmented views too, after it came back.
    back = load_encoder(trained.folder / "encoder", "cpu").recipe
    rows, generator = torch.arange(64)[None], torch.Generator().manual_seed(0)
    first, second = back.two_views(back.prepare_images(images), rows, generator)
    again = back.pmi(first, second)
    assert again.isfinite().all()
    assert torch.equal(again, recipe.pmi(first, second))


@pytest.mark.parametrize(
    "images",
    [
        torch.zeros(2, 3, 8, 8),
        torch.zeros(2, 1, 8, 8, dtype=torch.uint8),
        torch.zeros(3, 8, 8, dtype=torch.uint8),
        np.zeros((2, 8, 8, 3), np.uint8),
    ],
)
def test_images_of_another_kind_are_refused(images, run):
    with pytest.raises(InputError, match=r"uint8 of shape \(n, 3, 8, 8\)"):
        load_encoder(run / "encoder", "cpu").encode(images)


class TestDamage:
    def refused(self, message, place):
        with pytest.raises(ModelFileError, match=message):
            load_encoder(place, "cpu")

    def test_files(self, copied):
        self.refused("is not a model", copied)
        place = copied / "encoder"
        about = place / "model.json"
        text = about.read_text()
        assert '"depth": 3' in text
        about.write_text(text.replace('"depth": 3', '"depth": 4'))
        self.refused("edited or damaged", place)
        shutil.rmtree(place)
        self.refused("no such folder", place)
        with pytest.raises(ModelFileError, match="no such folder"):
            small.train("shallow", copied, epochs=1)

    @pytest.mark.parametrize("part", ["settings", "shape", "classes", "width"])
    def test_a_part_is_missing_or_of_another_size(self, part, copied):
        about, tensors = storage.read_model(copied / "encoder")
        if part == "width":
            about["settings"]["width"] = 17
        else:
            del about[part]
        storage.write_model(copied / "encoder", about, tensors)
        self.refused("lacks a part or holds a wrong one", copied / "encoder")

    @pytest.mark.parametrize("damage", [lambda text: text[:-30], lambda _: json.dumps([1, 2])])
    def test_the_description_of_the_run(self, damage, copied):
        about = copied / "run.json"
        about.write_text(damage(about.read_text()))
        with pytest.raises(ModelFileError, match=r"run\.json cannot be read"):
            small.train("shallow", copied, epochs=1)


def test_an_estimator_is_no_encoder_and_an_encoder_no_estimator(run, tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 1))
    model = PointwiseDependency(
        critic="concat", hidden=(4,), folds=2, max_epochs=2, progress=False, random_state=0
    )
    with pytest.warns(FitWarning):
        model.fit(x, x + random.normal(size=(60, 1)))
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="is not an encoder"):
        load_encoder(tmp_path / "model", "cpu")
    with pytest.raises(ModelFileError, match=r"is an encoder of .*load_encoder"):
        PointwiseDependency.load(run / "encoder")
