"""A run that is killed and started again ends with the weights of one that was not."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pointdep.contrastive.pretraining.snapshot import read_snapshot, write_snapshot
from safetensors import safe_open

from pointdep.contrastive.pretraining.loop import Training
from pointdep.errors import DivergedError, InputError, ModelFileError

from . import small

SIGKILL = 9
STEPS = 6  # in the middle of the second of three epochs of four steps


def same(first, second):
    ours, theirs = (done.encoder.recipe.state_dict() for done in (first, second))
    assert ours.keys() == theirs.keys()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize(
    "model",
    [pytest.param(m, marks=pytest.mark.slow if m != "shallow" else ()) for m in small.SMALL],
)
def test_the_weights_are_the_same_to_the_last_bit(model, tmp_path):
    killed = subprocess.run(
        [sys.executable, small.__file__, model, str(tmp_path / "run"), str(STEPS)],
        check=False,
        timeout=120,
    )
    assert killed.returncode == -SIGKILL
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert not (tmp_path / "run" / "run.json").exists()
    resumed, whole = small.train(model, tmp_path / "run"), small.train(model)
    assert same(resumed, whole)
    assert not same(whole, small.train(model, epochs=2))
    untimed = [
        [{k: v for k, v in entry.items() if "second" not in k} for entry in done.history]
        for done in (resumed, whole)
    ]
    assert untimed[0] == untimed[1]
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_a_finished_run_is_read_and_not_trained_again(tmp_path, monkeypatch):
    first = small.train("shallow", tmp_path)
    monkeypatch.setattr("pointdep.contrastive.pretraining.loop.Training.run", pytest.fail)
    again = small.train("shallow", tmp_path)
    assert same(first, again)
    assert again.outcomes == first.outcomes


def test_other_settings_are_refused(tmp_path):
    small.train("shallow", tmp_path)
    with pytest.raises(InputError, match=r"holds a finished run with epochs 3: choose"):
        small.train("shallow", tmp_path, epochs=4)
    chosen = small.settings("shallow")
    with pytest.raises(InputError, match="with other data or another number of processes"):
        small.pretrain(small.some_images(seed=1, side=8), chosen, folder=tmp_path, device="cpu")


def test_a_snapshot_of_another_run_is_refused(tmp_path):
    path = tmp_path / "state"
    write_snapshot(path, {"step": 1}, "one")
    with pytest.raises(InputError, match="other data or other settings"):
        read_snapshot(path, "two")


def test_a_snapshot_holds_any_nest(tmp_path):
    shared = torch.arange(6.0).view(2, 3)
    state = {"a": [shared, {3: shared.T}], "b": None, "c": "text", "d": [1, 2.5, True]}
    write_snapshot(tmp_path / "state", state, "mine")
    found = read_snapshot(tmp_path / "state", "mine")
    assert torch.equal(found["a"][0], shared)
    assert torch.equal(found["a"][1][3], shared.T)
    assert {key: found[key] for key in "bcd"} == {key: state[key] for key in "bcd"}


@pytest.mark.parametrize("damage", ["truncate", "foreign"])
def test_a_damaged_snapshot_is_one_clear_error(damage, tmp_path):
    path = tmp_path / "state"
    write_snapshot(path, {"weights": torch.zeros(100)}, "mine")
    if damage == "truncate":
        path.write_bytes(path.read_bytes()[:50])
    else:
        from safetensors.torch import save_file

        save_file({"weights": torch.zeros(3)}, path)
    with pytest.raises(ModelFileError, match="delete it to start over"):
        read_snapshot(path, "mine")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are others there")
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_an_interrupted_run_is_kept_to_the_last_step(number, tmp_path):
    script = (
        "import sys, os, signal; sys.path.insert(0, sys.argv[2]); import small\n"
        # What runs in the background inherits that it is to be ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from pointdep.contrastive.pretraining.loop import Training\n"
        "step = Training.train_step\n"
        "def told(self):\n"
        "    if self.step == 5: os.kill(os.getpid(), int(sys.argv[3]))\n"
        "    return step(self)\n"
        "Training.train_step = told\n"
        "small.pretrain(small.images_for('shallow'), small.settings('shallow'),\n"
        "    folder=sys.argv[1], device='cpu', checkpoint_every=1e6)\n"
    )
    place, here = tmp_path / "run", Path(small.__file__).parent
    ended = subprocess.run(
        [sys.executable, "-c", script, str(place), str(here), str(int(number))],
        check=False,
        timeout=120,
        capture_output=True,
    )
    assert ended.returncode in (-number, 130)
    with safe_open(str(place / "checkpoint.safetensors"), framework="pt") as file:
        items = dict(json.loads(file.metadata()["state"])["items"])
    assert items["step"] == 6
    assert (place / "history.csv").exists()
    images, chosen = small.images_for("shallow"), small.settings("shallow")
    resumed, whole = (
        small.pretrain(images, chosen, folder=folder, device="cpu") for folder in (place, None)
    )
    assert same(resumed, whole)


def test_weights_that_are_not_finite_are_not_kept(tmp_path, monkeypatch):
    """A checkpoint of them would make the run diverge for ever."""
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
