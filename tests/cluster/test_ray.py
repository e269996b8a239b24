"""Ray's workers against this process: the same table, also when one of them is killed."""

import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pointdep import audit_shards
from pointdep.cluster import engines
from pointdep.cluster.engines import How, Scores, read_model
from pointdep.cluster.filesystem import storage_path
from pointdep.cluster.manifest import Work
from pointdep.cluster.shard_scoring import score_shards
from refusals import refused

from .conftest import kill_a_worker, read_scores, write_shards

ray = pytest.importorskip("ray", reason="the extra pointdep[ray] is not installed")

BOTH = {"x_columns": ["e"], "y_columns": ["e"], "progress": False}


@pytest.mark.slow
def test_killed_workers_lose_nothing(tmp_path, make_model):
    """From another process, as a user calls it: bad shards are named, and all others are done."""
    random = np.random.default_rng(0)
    x = random.normal(size=(60_000, 16)).astype(np.float16)
    y = (x + random.normal(size=x.shape)).astype(np.float16)
    model = make_model(x[:300], y[:300], hidden=(256, 256))
    for name, values in (("x", x), ("y", y)):
        write_shards(tmp_path / name, {"e": values}, [3_000] * 20, group=1_000)
    bad = tmp_path / "x" / "part-7.parquet"
    whole = bad.read_bytes()
    bad.write_bytes(whole[:100] + bytes(len(whole) // 2) + whole[100 + len(whole) // 2 :])
    command = [sys.executable, "-m", "pointdep", "score", model, "x", "y", "-o", "out", "--quiet"]
    options = ["--engine", "ray", "--workers", "2", "--batch-size", "1000"]
    out = tmp_path / "out"
    with (tmp_path / "err").open("w") as err:
        how = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": err}
        process = subprocess.Popen([*command, *options], **how)
        while process.poll() is None and len(list(out.glob("*.parquet"))) < 3:
            time.sleep(0.02)
        killed = kill_a_worker(process.pid)
        assert len(list(out.glob("*.parquet"))) < 19, "too late"
        printed, _ = process.communicate(timeout=120)
    said = (tmp_path / "err").read_text()
    assert (process.returncode, printed) == (2, b""), said
    assert "pointdep: x/part-7.parquet cannot be read" in said.splitlines()[-1]
    assert f"Worker PID: {killed}" in said
    wanted = [f"part-{number}.parquet" for number in range(20)]
    there = {path.name for path in out.iterdir()}
    assert there == {"_pointdep.json", *wanted} - {"part-7.parquet"}
    bad.write_bytes(whole)
    for name, there in (("out", 19), ("local", 0)):
        again = {"output": tmp_path / name, "batch_size": 1000, "progress": False}
        assert score_shards(model, tmp_path / "x", tmp_path / "y", **again).found == there
    found, expected = (read_scores(tmp_path / name, wanted) for name in ("out", "local"))
    pd.testing.assert_frame_equal(found, expected, rtol=1e-5, atol=1e-5)
    assert found["row"].tolist() == list(range(60_000))


@pytest.fixture(scope="module")
def cluster():
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.usefixtures("cluster")
class TestCluster:
    def test_the_same_table(self, folders, model, capfd):
        local = score_shards(model, "x", "y", output="local", **BOTH)
        shutil.copytree("local", "out")
        for name in ("part-0.parquet", "part-4.parquet"):
            Path("out", name).unlink()
        found = score_shards(model, "x", "y", output="out", engine="ray", workers=2, **BOTH)
        assert (found, capfd.readouterr().out) == (replace(local, found=3), "")
        pd.testing.assert_frame_equal(read_scores("out"), read_scores("local"), rtol=1e-5)
        assert ray.is_initialized(), "it was here before, and stays"

    @pytest.mark.slow
    def test_the_same_suspects(self, tmp_path, make_model):
        random = np.random.default_rng(0)
        x = random.normal(size=(900, 2)).astype(np.float32)
        y = (x + 0.3 * random.normal(size=x.shape)).astype(np.float32)
        y[100:110] = y[109:99:-1]
        model = make_model(x[600:], y[600:])
        for name, side in (("x", x), ("y", y)):
            write_shards(tmp_path / name, {"e": side[:600]}, (300, 300))
        places = {"x": tmp_path / "x", "y": tmp_path / "y", "progress": False}
        local = audit_shards(model, output=tmp_path / "local", **places)
        how = {"engine": "ray", "workers": 2}
        assert audit_shards(model, output=tmp_path / "ray", **places, **how) == local
        found, expected = (read_scores(tmp_path / name) for name in ("ray", "local"))
        pd.testing.assert_frame_equal(found, expected, rtol=1e-4)

    def test_a_shard_that_costs_too_many_workers(self, model):
        """As a worker sees it that gets the shard after all the others were lost."""
        task = SimpleNamespace(number=3, name="part-3.parquet")
        work = Work(read_model(storage_path(model)), Scores(), None, None, 1, How(device="cpu"))
        attempts = ray.remote(num_cpus=0)(engines._Attempts).remote()
        actor = engines._Actor(ray.put((work, {3: task})), attempts)
        for _ in range(engines._ATTEMPTS):
            ray.get(attempts.begin.remote(3))
        answer = actor({"number": [3]})
        assert answer["number"] == [3]
        assert "part-3.parquet was given up after 6 workers were lost" in answer["error"][0]
        assert answer["fatal"] == [False]

    def test_no_gpu(self, folders, model):
        if ray.cluster_resources().get("GPU"):
            pytest.skip("there is a GPU")
        how = {"output": "out", "engine": "ray", "gpus_per_worker": 1}
        refused("0 GPUs and 2 CPUs", score_shards, model, "x", "y", **how, **BOTH)


def test_without_ray(folders, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    how = {"output": "out", "engine": "ray"}
    needed = r"needs Ray .*pip install 'pointdep\[ray\]'"
    refused(needed, score_shards, model, "x", "y", **how, **BOTH)
