"""Pairs, a model of them, folders of their shards, and the processes of a Ray of a test."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from made import write_shards
from pointdep import PointwiseDependency
from refusals import quietly

SIZES = (20, 1, 33, 0, 46)


@pytest.fixture(scope="session")
def pairs():
    """x: (100, 3), y: (100, 2), as float16 holds them."""
    random = np.random.default_rng(0)
    x = random.normal(size=(100, 3)).astype(np.float16)
    return x, (x[:, :2] + random.normal(size=(100, 2))).astype(np.float16)


@pytest.fixture(scope="session")
def make_model(tmp_path_factory):
    """Fit on any pairs with next to no training, and save."""

    def make(x, y, seed=0, **options):
        place = tmp_path_factory.mktemp("models") / "model"
        common = {"hidden": (8,), "folds": 2, "max_epochs": 2, "progress": False}
        with quietly():
            PointwiseDependency(**{**common, **options}, random_state=seed).fit(x, y).save(place)
        return place

    return make


@pytest.fixture(scope="session")
def model(make_model, pairs):
    return make_model(*pairs)


@pytest.fixture
def folders(tmp_path, monkeypatch, pairs):
    """The working folder, with x/ and y/ in it, of five shards each, one of them empty."""
    monkeypatch.chdir(tmp_path)
    for name, values in zip("xy", pairs, strict=True):
        write_shards(name, {"id": np.arange(100), "e": values}, SIZES)
    return tmp_path


def read_scores(folder, names=None):
    names = names or sorted(path.name for path in Path(folder).glob("*.parquet"))
    tables = [pq.read_table(Path(folder) / name).replace_schema_metadata() for name in names]
    return pa.concat_tables(tables).to_pandas()


def kill_a_worker(owner, seconds=120):
    """SIGKILL one scoring process of the Ray that process `owner` started, when it is there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for worker in workers_of(owner):
            os.kill(worker, signal.SIGKILL)
            return worker
        time.sleep(0.05)
    raise AssertionError("there was no worker to kill")


def workers_of(owner):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and b"MapWorker(MapBatches(_Actor))" in _read(entry / "cmdline"):
            found += [int(entry.name)] if owner in _ancestors(int(entry.name)) else []
    return found


def _ancestors(process):
    while process > 1:
        yield process
        status = _read(Path(f"/proc/{process}/stat")).rpartition(b")")[2].split()
        process = int(status[1]) if len(status) > 1 else 0


def _read(path):
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""
