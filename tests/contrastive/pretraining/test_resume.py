"""A run that is killed and started again ends with the weights of one that was not."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from safetensors import safe_open

from pointdep.contrastive.pretraining.loop import Training
from pointdep.errors import DivergedError, ModelFileError
from pointdep.fitting.state import write_checkpoint
from refusals import refused

from . import small

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
    write_checkpoint(path, "pointdep-pretraining-1", "another", {"weights": torch.zeros(100)})
    refused("other data or other settings", small.train, "shallow", tmp_path)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ModelFileError, match="delete it to start over"):
        small.train("shallow", tmp_path)
    safetensors.torch.save_file({"weights": torch.zeros(3)}, path)
    with pytest.raises(ModelFileError, match="not a checkpoint of this version"):
        small.train("shallow", tmp_path)


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
