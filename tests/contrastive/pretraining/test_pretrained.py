"""The frozen encoder: what it gives, how it is read back, and what is refused."""

import json
import shutil

import numpy as np
import pytest
import torch

from pointdep import PointwiseDependency
from pointdep.contrastive import FrozenEncoder, load_encoder
from pointdep.data import storage
from pointdep.errors import FitWarning, ModelFileError
from refusals import refused

from . import small


@pytest.fixture(scope="module", params=[*small.SMALL, "simclr cpc"])
def trained(request, tmp_path_factory):
    model, *objective = request.param.split()
    changed = {"objectives": tuple(objective)} if objective else {}
    return small.train(model, tmp_path_factory.mktemp("run"), epochs=1, **changed)


@pytest.fixture
def images(trained):
    return small.images_for(trained.settings.model).test


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("run")
    small.train("shallow", place, epochs=1)
    return place


@pytest.fixture
def copied(run, tmp_path):
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
    torch.testing.assert_close(ours, theirs, atol=0, rtol=0)
    back.save(tmp_path / "again")
    again = load_encoder(tmp_path / "again", "cpu")
    assert isinstance(again, FrozenEncoder)
    assert torch.equal(again.encode(images), features)
    encode = trained.encoder.encode
    whole = encode(images)
    assert torch.allclose(whole, encode(images, batch_size=7), rtol=1e-4, atol=1e-5)
    shallow = trained.settings.model == "shallow"
    assert whole.shape[:-1] == ((len(trained.settings.runs), 64) if shallow else (64,))
    assert torch.equal(encode(images.numpy()), whole)
    assert torch.equal(encode(images[:1]), encode([*images[:1].numpy()]))
    refused("batch_size=0", encode, images, batch_size=0)


def test_pmi_of_images(trained, images):
    if trained.settings.model != "simclr":
        refused("no PMI of two images", trained.encoder.pmi, images, images)
        return
    found = trained.encoder.pmi(images, images.roll(1, 0), batch_size=7)
    assert found.shape == (len(images),)
    recipe, generator = trained.encoder.recipe, torch.Generator()
    views = (recipe.plain(part, generator) for part in (images, images.roll(1, 0)))
    expected = recipe.loss.pmi(*(recipe.head(recipe.encoder(view)) for view in views))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    refused("cannot be paired", trained.encoder.pmi, images, images[1:])
    # Of augmented views too, after it came back.
    back = load_encoder(trained.folder / "encoder", "cpu").recipe
    rows, generator = torch.arange(64)[None], torch.Generator().manual_seed(0)
    first, second = back.two_views(back.prepare_images(images), rows, generator)
    again = back.pmi(first, second)
    assert again.isfinite().all()
    assert torch.equal(again, recipe.pmi(first, second))


def test_other_images_and_other_models(run, tmp_path):
    encode = load_encoder(run / "encoder", "cpu").encode
    bytes_ = [torch.zeros(shape, dtype=torch.uint8) for shape in ((2, 1, 8, 8), (3, 8, 8))]
    for images in (torch.zeros(2, 3, 8, 8), *bytes_, np.zeros((2, 8, 8, 3), np.uint8)):
        refused(r"uint8 of shape \(n, 3, 8, 8\)", encode, images)
    for shape in ((2, 1, 8, 8), (3, 8, 8), (2, 8, 8, 3)):
        refused(r"uint8 of shape \(n, 3, 8, 8\)", encode, np.zeros(shape, np.uint8))
    x, noise = np.random.default_rng(0).normal(size=(2, 60, 1))
    sizes = {"critic": "concat", "hidden": (4,), "folds": 2, "max_epochs": 2}
    with pytest.warns(FitWarning):
        model = PointwiseDependency(**sizes, progress=False, random_state=0).fit(x, x + noise)
    model.save(tmp_path / "model")
    unreadable("is not an encoder", load_encoder, tmp_path / "model", "cpu")
    unreadable(r"is an encoder: .*load_encoder", PointwiseDependency.load, run / "encoder")


def unreadable(message, read, *arguments, **options):
    with pytest.raises(ModelFileError, match=message):
        read(*arguments, **options)


def test_damaged_files(copied):
    unreadable("is not a model", load_encoder, copied)
    place = copied / "encoder"
    text = (place / "model.json").read_text()
    assert '"depth": 3' in text
    (place / "model.json").write_text(text.replace('"depth": 3', '"depth": 4'))
    unreadable("edited or damaged", load_encoder, place)
    shutil.rmtree(place)
    unreadable("no such folder", load_encoder, place)
    unreadable("no such folder", small.train, "shallow", copied, epochs=1)
    about = copied / "run.json"
    for damaged in (about.read_text()[:-30], json.dumps([1, 2])):
        about.write_text(damaged)
        unreadable(r"run\.json cannot be read", small.train, "shallow", copied, epochs=1)


def test_a_part_is_missing_or_of_another_size(copied):
    about, tensors = storage.read_model(copied / "encoder")
    lacking = [
        {k: about[k] for k in about if k != part} for part in ("settings", "shape", "classes")
    ]
    for changed in (*lacking, {**about, "settings": {**about["settings"], "width": 17}}):
        storage.write_model(copied / "encoder", changed, tensors)
        unreadable("lacks a part or holds a wrong one", load_encoder, copied / "encoder")
