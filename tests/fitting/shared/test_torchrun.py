"""``torchrun -m pointdep fit``: one model from two processes, also when one of them is killed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from pointdep import PointwiseDependency
from pointdep.cli.app import run
from pointdep.fitting.rendezvous import join_processes
from refusals import refused

from . import gloo, killed

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
FIT = ("fit", "x.npy", "y.npy", "--folds", "2", "--max-epochs", "8", "--seed", "3", "--json",
       "--device", "cpu", "--checkpoint", "state")  # fmt: skip


def torchrun(folder, *arguments, code=0):
    """The command in two processes."""
    command = [sys.executable, *TORCHRUN, *arguments]
    given = {"cwd": folder, "env": {**os.environ, "OMP_NUM_THREADS": "1"}, "timeout": 300}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **given)
    assert (done.returncode == 0) == (code == 0), done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("torchrun")
    for name, side in zip("xy", gloo.pairs(400, (2, 2)), strict=True):
        np.save(place / f"{name}.npy", side)
    return place


@pytest.fixture(scope="module")
def after_a_kill(folder):
    """What was printed by a fit of which a process was killed and all were started again."""
    script = str(Path(killed.__file__))
    return torchrun(folder, "--max-restarts", "1", script, str(folder), *FIT, "-o", "restarted")


def same(one, other):
    """Whether the models of two folders are the same to the last bit."""
    models = (PointwiseDependency.load(path, device="cpu").model_ for path in (one, other))
    ours, theirs = (model.state_dict() for model in models)
    return ours.keys() == theirs.keys() and all(map(torch.equal, ours.values(), theirs.values()))


def test_a_killed_process(after_a_kill, folder):
    found = json.loads(after_a_kill.stdout)  # of one process, and of one attempt
    assert (folder / "dead").read_text() == f"1 {killed.EPOCH}"
    assert not (folder / "state").exists()
    with safe_open(folder / "kept", framework="pt") as file:
        epoch = dict(json.loads(file.metadata()["state"])["items"])["epoch"]
    assert killed.EPOCH - 1 <= epoch <= killed.EPOCH
    model = PointwiseDependency.load(folder / "restarted", device="cpu")
    assert len(model.history_) > killed.EPOCH
    assert found["estimate"]["nats"] == model.mutual_information().nats


def test_it_equals_a_run_from_the_same_checkpoint(after_a_kill, folder):
    shutil.copy(folder / "kept", folder / "state")
    again = torchrun(folder, "-m", "pointdep", *FIT, "-o", "again")
    assert json.loads(again.stdout)["estimate"] == json.loads(after_a_kill.stdout)["estimate"]
    assert same(folder / "restarted", folder / "again")


def test_one_process_goes_on_where_two_were(after_a_kill, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    shutil.copy(folder / "kept", folder / "state")
    assert run([*FIT, "-o", "alone"]) == 0
    told = capsys.readouterr().out, after_a_kill.stdout
    ours, theirs = (json.loads(text)["estimate"] for text in told)
    assert ours["nats"] == pytest.approx(theirs["nats"], abs=1e-5)
    assert len(PointwiseDependency.load("alone", device="cpu").history_) > killed.EPOCH


@pytest.mark.slow
def test_a_mistake_is_told_once(folder):
    done = torchrun(folder, "-m", "pointdep", "fit", "x.npy", "no.npy", "-o", "none", code=2)
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("pointdep: ")]
    assert "no.npy" in told


def test_without_lightning(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setitem(sys.modules, "lightning.fabric", None)
    refused(r'needs lightning: pip install "pointdep\[distributed\]"', join_processes, "cpu")
