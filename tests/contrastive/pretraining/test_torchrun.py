"""Two processes under torchrun: one result, that of a single process with the whole batch."""

import json
import os
import subprocess
import sys

import pytest
import torch

from pointdep.cli.app import run
from pointdep.contrastive import load_encoder
from pointdep.data.images import load_images

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
REPLICAS = 3  # the encoder of CPC's lower halves comes after those of all upper ones
COMMON = ("--limit", "96", "--batch-size", "32", "--epochs", "2", "--device", "cpu", "--quiet")


def torchrun(folder, *arguments):
    command = [sys.executable, *TORCHRUN, "-m", "pointdep", "pretrain", *arguments]
    how = {"env": {**os.environ, "OMP_NUM_THREADS": "1"}, "capture_output": True, "text": True}
    done = subprocess.run(command, cwd=folder, timeout=300, check=False, **how)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_shallow_is_trained_as_by_one_process(tmp_path, capsys):
    options = ("digits", "--width", "16", "--depth", "3", "--objective", "cpc,drfc,dm1", *COMMON)
    done = torchrun(tmp_path, *options, "-o", "two")
    assert run(["pretrain", *options, "-o", str(tmp_path / "one")]) == 0
    printed = [text.replace(str(tmp_path / "one"), "two") for text in capsys.readouterr()]
    tables = [text.splitlines() for text in (done.stdout, printed[0])]
    assert [line.split()[:5] for line in tables[0]] == [line.split()[:5] for line in tables[1]]
    two, one = (load_encoder(tmp_path / name / "encoder", "cpu") for name in ("two", "one"))
    states = two.recipe.state_dict(), one.recipe.state_dict()
    for name in states[0]:
        # CPC does not depend on shifts of the second side: of the rounding of a gradient that is
        # zero, Adam makes whole steps, and the weights around them follow.
        stable = [r for r in range(len(states[0][name])) if r != REPLICAS]
        ours, theirs = (state[name][stable].double() for state in states)
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-5), name
    images = load_images("digits").test
    assert torch.allclose(two.encode(images), one.encode(images), rtol=0, atol=1e-5)
    texts = [(tmp_path / name / "run.json").read_text() for name in ("two", "one")]
    histories = [json.loads(text)["history"] for text in texts]
    for ours, theirs in zip(*histories, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
        assert (ours["epoch"], ours["step"]) == (theirs["epoch"], theirs["step"])


@pytest.mark.slow
def test_simclr_runs_one_after_another(tmp_path):
    options = ("--model", "simclr", "--width", "4", "--objective", "cpc,drfc", "-o", "run")
    done = torchrun(tmp_path, "digits", *COMMON, *options, "--json")
    found = json.loads(done.stdout)  # of one process
    assert [entry["objective"] for entry in found["runs"]] == ["cpc", "drfc"]
    for name in ("cpc-0", "drfc-0"):
        place = tmp_path / "run" / name
        names = sorted(path.name for path in place.iterdir())
        assert names == ["encoder", "history.csv", "run.json", "tensorboard"]
        assert len(list((place / "tensorboard").iterdir())) == 1
        features = load_encoder(place / "encoder", "cpu").encode(load_images("digits").test)
        assert features.isfinite().all()
