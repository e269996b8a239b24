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

from . import gloo, killed

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
FIT = ("fit", "x.npy", "y.npy", "--folds", "2", "--max-epochs", "8", "--seed", "3", "--json",
       "--device", "cpu", "--checkpoint", "state")  # fmt: skip


def torchrun(folder, *arguments, code=0):
    """The command in two processes."""
    done = subprocess.run(
        [sys.executable, *TORCHRUN, *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode == 0) == (code == 0), done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("torchrun")
    x, y = gloo.pairs(400, (2, 2))
    np.save(place / "x.npy", x)
    np.save(place / "y.npy", y)
    return place


@pytest.fixture(scope="module")
def after_a_kill(folder):
    """What was printed by a fit of which a process was killed and all were started again."""
    script = Path(killed.__file__)
    return torchrun(
        folder, "--max-restarts", "1", str(script), str(folder), *FIT, "-o", "restarted"
    )


def same(one, other):
    """Whether the models of two folders are the same to the last bit."""
    states = [PointwiseDependency.load(path, device="cpu").model_.state_dict()
              for path in (one, other)]  # fmt: skip
    return states[0].keys() == states[1].keys() and all(
        torch.equal(value, states[1][name]) for name, value in states[0].items()
    )


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
    ours, theirs = (json.loads(t)["estimate"] for t in (capsys.readouterr().out,
                                                        after_a_kill.stdout))  # fmt: skip
    assert ours["nats"] == pytest.approx(theirs["nats"], abs=1e-5)
    assert len(PointwiseDependency.load("alone", device="cpu").history_) > killed.EPOCH


@pytest.mark.slow
def test_a_mistake_is_told_once(folder):
    done = torchrun(folder, "-m", "pointdep", "fit", "x.npy", "no.npy", "-o", "none", code=2)
    told = [line for line in done.stderr.splitlines() if line.startswith("pointdep: ")]
    assert len(told) == 1
    assert "no.npy" in told[0]


def test_without_lightning(monkeypatch):
    from pointdep.errors import InputError
    from pointdep.fitting.rendezvous import join_processes

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setitem(sys.modules, "lightning.fabric", None)
    with pytest.raises(InputError, match=r'needs lightning: pip install "pointdep\[distributed\]"'):
        join_processes("cpu")
