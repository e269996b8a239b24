"""The frozen encoder, what is refused, and a run that is killed and started again."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import safe_open

from pointdep import PointwiseDependency
from pointdep.contrastive import FrozenEncoder, load_encoder
from pointdep.contrastive.pretraining.loop import Training
from pointdep.data import storage
from pointdep.errors import DivergedError, FitWarning, ModelFileError
from pointdep.fitting.state import write_checkpoint
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
    lacking = [{k: about[k] for k in about if k != one} for one in ("settings", "shape", "classes")]
    for changed in (*lacking, {**about, "settings": {**about["settings"], "width": 17}}):
        storage.write_model(copied / "encoder", changed, tensors)
        unreadable("lacks a part or holds a wrong one", load_encoder, copied / "encoder")


STEPS = 6  # in the middle of the second of three epochs of four steps
STATE = "checkpoint.safetensors"
slow = pytest.mark.slow
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals are others there")


def same(first, second):
    ours, theirs = (done.encoder.recipe.state_dict() for done in (first, second))
    assert ours.keys() == theirs.keys()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def python(*arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, check=False, timeout=120, capture_output=True).returncode


@posix
@pytest.mark.parametrize(
    "model", ["shallow", *(pytest.param(m, marks=slow) for m in ("amdim", "simclr"))]
)
def test_the_weights_are_the_same_to_the_last_bit(model, tmp_path):
    run = tmp_path / "run"
    assert python(small.__file__, model, run, STEPS) == -signal.SIGKILL
    assert (run / STATE).exists()
    assert not (run / "run.json").exists()
    resumed, whole = small.train(model, run), small.train(model)
    assert same(resumed, whole)
    assert not same(whole, small.train(model, epochs=2))
    for ours, theirs in zip(resumed.history, whole.history, strict=True):
        timed = [key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)]
        assert all("second" in key for key in timed)
    assert not (run / STATE).exists()


def test_a_finished_run_is_read_and_not_trained_again(tmp_path, monkeypatch):
    first = small.train("shallow", tmp_path)
    monkeypatch.setattr(Training, "run", pytest.fail)
    again = small.train("shallow", tmp_path)
    assert same(first, again)
    assert again.outcomes == first.outcomes
    refused("finished run with epochs 3", small.train, "shallow", tmp_path, epochs=4)
    images, chosen = small.some_images(seed=1, side=8), small.settings("shallow")
    refused("other data", small.pretrain, images, chosen, folder=tmp_path, device="cpu")


def test_a_checkpoint_that_is_of_no_use(tmp_path):
    path = tmp_path / STATE
    write_checkpoint(path, "pointdep-pretraining-2", "another", {"weights": torch.zeros(100)})
    refused("other data or other settings", small.train, "shallow", tmp_path)
    path.write_bytes(path.read_bytes()[:50])
    unreadable("delete it to start over", small.train, "shallow", tmp_path)
    safetensors.torch.save_file({"weights": torch.zeros(3)}, path)
    unreadable("not a checkpoint of this version", small.train, "shallow", tmp_path)


SCRIPT = """
import sys, os, signal
sys.path.insert(0, sys.argv[2])
import small
from pointdep.contrastive.pretraining.loop import Training
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what runs in the background
step = Training.train_step
def told(self):
    if self.step == 5: os.kill(os.getpid(), int(sys.argv[3]))
    return step(self)
Training.train_step = told
small.pretrain(small.images_for('shallow'), small.settings('shallow'), folder=sys.argv[1],
               device='cpu', checkpoint_every=1e6)
"""


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=slow)])
def test_an_interrupted_run_is_kept_to_the_last_step(number, tmp_path):
    place, here = tmp_path / "run", Path(small.__file__).parent
    assert python("-c", SCRIPT, place, here, int(number)) in (-number, 130)
    with safe_open(str(place / STATE), framework="pt") as file:
        assert dict(json.loads(file.metadata()["state"])["items"])["step"] == 6
    assert (place / "history.csv").exists()
    assert same(small.train("shallow", place), small.train("shallow"))


def test_weights_that_are_not_finite_are_not_kept(tmp_path, monkeypatch):
    step = Training.train_step

    def spoiled(self):
        losses = step(self)
        if self.step == 5:
            with torch.no_grad():
                self.recipe.product.weight.fill_(torch.nan)
        return losses

    monkeypatch.setattr(Training, "train_step", spoiled)
    with pytest.raises(DivergedError):
        small.train("shallow", tmp_path)
    monkeypatch.undo()
    assert same(small.train("shallow", tmp_path), small.train("shallow"))
