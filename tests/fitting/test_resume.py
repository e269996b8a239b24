"""A fit that is killed and started again gives the numbers of one that was not."""

import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors import safe_open
from sklearn.model_selection import KFold

from pointdep.errors import InputError, ModelFileError
from pointdep.fitting import engine
from pointdep.fitting.state import sole_writer
from refusals import refused

from . import interrupted
from .interrupted import KINDS, SAVES, data, estimator, fit

SIGKILL = 9
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A folder with the checkpoints that killed fits have left."""
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, str(Path(interrupted.__file__)), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.splitlines() == [f"{kind} {SIGKILL}" for kind in KINDS], done.stderr
    return folder


@pytest.fixture
def checkpoint(killed, tmp_path):
    """A copy of the checkpoint of a kind of fit."""

    def copied(kind):
        return Path(shutil.copy(killed / f"{kind}.checkpoint", tmp_path / "fit.checkpoint"))

    return copied


def epoch_of(path):
    with safe_open(str(path), framework="pt") as file:
        return dict(json.loads(file.metadata()["state"])["items"])["epoch"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_are_the_same_to_the_last_bit(kind, checkpoint):
    path = checkpoint(kind)
    assert epoch_of(path) == (SAVES - 1 if kind == "half written" else SAVES)
    resumed, whole = fit(kind, path), fit(kind, None)
    assert resumed.history_ == whole.history_
    assert len(whole.history_) > SAVES
    assert np.array_equal(resumed.oof_pmi_, whole.oof_pmi_)
    assert np.array_equal(resumed.oof_values_, whole.oof_values_)
    assert resumed.curve_ == whole.curve_
    assert (whole.curve_ is None) == (kind == "mine")  # which does not average log r
    assert resumed.mutual_information() == whole.mutual_information()
    for name, tensor in whole.model_.state_dict().items():
        assert torch.equal(resumed.model_.state_dict()[name], tensor), name
    assert not path.exists()


def test_a_resumed_fit_does_not_start_over(checkpoint, monkeypatch):
    epochs, trained = [], engine.Crew.train_epoch
    monkeypatch.setattr(
        engine.Crew, "train_epoch", lambda crew: epochs.append(crew.state.epoch) or trained(crew)
    )
    fit("pc", checkpoint("pc"))
    assert epochs[0] == SAVES + 1


def test_a_checkpoint_of_other_settings_data_or_modules(checkpoint):
    changes = {"random_state": 6, "max_epochs": 9, "method": "js", "hidden": (9,), "cv": KFold(3)}
    path = checkpoint("pc")
    for name, value in changes.items():
        cause = "other data or other settings" if name == "cv" else f"a fit with .*{name}=.*not"
        refused(cause, fit, "pc", path, **{name: value})
        assert path.exists()
    x, y = data()
    x[3, 1] += 0.5
    for arguments in [(x, y), (y, data()[0]), (*data(), np.arange(180) // 2)]:
        refused("other data", estimator("pc", checkpoint("pc")).fit, *arguments)
    dropping, moved = interrupted.DropoutNet(), interrupted.DropoutNet()
    dropping.net[1].p = 0.2
    moved.net[0].weight.data[0, 0] += 1.0
    for other in (dropping, moved):
        refused("other data or other settings", fit, "dropout", checkpoint("dropout"), critic=other)


def test_something_else_at_the_place_of_the_checkpoint(checkpoint, tmp_path):
    path = checkpoint("pc")
    content = path.read_bytes()
    for share in (0.0, 0.001, 0.3, 0.99):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(ModelFileError, match=r"cannot be read .*delete it to start over"):
            fit("pc", path)
    path.write_text("notes of mine")
    with pytest.raises(ModelFileError, match="delete it"):
        fit("pc", path)
    assert path.read_text() == "notes of mine"
    for place, cause in ((tmp_path, "is a folder"), (path.parent / "no" / "a", "does not exist")):
        refused(cause, fit, "pc", place)


def test_nothing_is_left_behind_and_other_splits(tmp_path, monkeypatch):
    saving = Mock(side_effect=engine.save_state)
    monkeypatch.setattr(engine, "_CHECKPOINT_EVERY_S", 0.0)
    monkeypatch.setattr(engine, "save_state", saving)
    path = tmp_path / "fit.checkpoint"
    fit("pc", path)
    assert (saving.call_count > SAVES, list(tmp_path.iterdir())) == (True, [])
    monkeypatch.setattr(engine.Engine, "_require_finite", Mock(side_effect=KeyboardInterrupt))
    for cv in (KFold(3), KFold(3, shuffle=True, random_state=1)):
        with pytest.raises(KeyboardInterrupt if cv.random_state is None else InputError):
            fit("pc", path, cv=cv)


def test_two_fits_with_one_checkpoint(checkpoint):
    path = checkpoint("pc")
    with sole_writer(path):
        refused("is being written by another fit", fit, "pc", path)
    assert len(fit("pc", path).history_) > SAVES
    assert list(path.parent.iterdir()) == []


def test_a_full_disk_takes_the_checkpoint_and_not_the_fit(tmp_path, monkeypatch):
    """With files of 4 kB at most, as on a disk that is nearly full."""
    import resource

    monkeypatch.setattr(engine, "_CHECKPOINT_EVERY_S", 0.0)
    path, kept = tmp_path / "fit.checkpoint", resource.getrlimit(resource.RLIMIT_FSIZE)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, kept[1]))
            model = estimator("pc", path).fit(*data())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, kept)
    said = [str(w.message) for w in warned if "training goes on" in str(w.message)]
    assert len(said) == 1
    assert "File too large" in said[0]
    assert np.array_equal(model.oof_pmi_, fit("pc", None).oof_pmi_)
    assert list(tmp_path.iterdir()) == []
