"""Suspects among the pairs of shards, by a model of other rows."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

from made import write_shards
from pointdep import PointwiseDependency, audit_shards, score_shards
from pointdep.auditing import sharded_audit as pool_module
from pointdep.auditing.sharded_audit import Pool, stand
from pointdep.errors import DataWarning
from refusals import quietly, refused

ROWS, WRONG = 3_000, 60


def draw(rows, seed, noise=0.3):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 3)).astype(np.float32)
    return x, (x + noise * random.normal(size=x.shape)).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    place = tmp_path_factory.mktemp("model") / "model"
    with quietly():
        options = {"hidden": (16,), "folds": 2, "max_epochs": 5, "progress": False}
        PointwiseDependency(**options, random_state=0).fit(*draw(2_000, 1)).save(place)
    return place


@pytest.fixture
def shards(tmp_path, monkeypatch):
    """The working folder with x/ and y/, sorted, and which rows got the y of another."""
    monkeypatch.chdir(tmp_path)
    x, y = draw(ROWS, 2)
    order = np.argsort(x[:, 0])  # rows that lie together are alike
    x, y = x[order], y[order]
    wrong = np.random.default_rng(3).choice(ROWS, WRONG, replace=False)
    y[wrong] = y[np.roll(wrong, 1)]
    for name, side in (("x", x), ("y", y)):
        write_shards(tmp_path / name, {"e": side}, (1_000, 0, 700, 1_300), 500)
    return wrong


def read(folder):
    files = [f"part-{number}.parquet" for number in range(4)]
    return pd.concat([pd.read_parquet(Path(folder, file)) for file in files], ignore_index=True)


def judge(model, output, x="x", y="y", **options):
    return audit_shards(model, x, y, output=output, progress=False, **options)


def test_wrong_pairs_are_found(shards, model):
    found, table = judge(model, "out"), read("out")
    assert table["row"].tolist() == list(range(ROWS))
    suspect = table["suspect"].to_numpy()
    assert found.suspects == suspect.sum()
    assert np.isin(np.flatnonzero(suspect), shards).mean() > 0.8
    assert suspect[shards].mean() > 0.7
    assert found.contamination.share == pytest.approx(WRONG / ROWS, rel=0.6)
    assert table["rank"].tolist() == table["pmi"].rank(method="first").tolist()
    assert (table["below_zero"] == (table["pmi"] < 0)).all()
    assert not table["outside"].all()
    scored = score_shards(model, "x", "y", output="scores", progress=False)
    same = ["row", "pmi", "npmi", "stderr", "outside"]
    pd.testing.assert_frame_equal(table[same], read("scores")[same])
    for name in ("rows", "mean_pmi", "below_zero", "outside", "shards", "found"):
        assert getattr(found, name) == getattr(scored, name)
    refused("scores holds results of score, not of suspects", judge, model, "scores")
    judge(model, "two", batch_size=333)  # batches do not matter
    columns = ["posterior", "q_value"]
    pd.testing.assert_frame_equal(table[columns], read("two")[columns], atol=1e-4)


def test_only_what_is_missing_and_what_is_refused(shards, model):
    """Another fdr asks nobody again."""
    first, table = judge(model, "out"), read("out")
    before = {path: path.stat().st_mtime_ns for path in Path("out/_evidence").iterdir()}
    second = judge(model, "out", fdr=0.001)
    assert second.found == second.shards == 4
    assert second.suspects < first.suspects
    assert read("out")["suspect"].sum() == second.suspects
    assert {path: path.stat().st_mtime_ns for path in Path("out/_evidence").iterdir()} == before
    Path("out/_evidence/part-2.parquet").unlink()
    Path("out/part-3.parquet").unlink()
    assert judge(model, "out").found == 3
    pd.testing.assert_frame_equal(read("out"), table)
    for name, seed, rows in (("a", 4, 500), ("b", 5, 500), ("few", 1, 20)):
        write_shards(name, {"e": draw(rows, seed)[0]}, (rows,), 500)
    refused("fdr=2 must lie between 0 and 1", judge, model, "new", fdr=2)
    few = "few has 20 rows: an audit of shards needs at least 256"
    refused(few, judge, model, "new", "few", "few")
    assert not Path("new").exists()
    with pytest.warns(DataWarning, match="no suspects are named"):
        assert judge(model, "new", "a", "b").suspects == 0


class TestStanding:
    def test_against_a_loop_over_every_pair(self, model):
        fitted = PointwiseDependency.load(model, device="cpu")
        x, y, _, _ = fitted._encode(*draw(300, 6))
        numbers = np.arange(1000, 1090)
        found = stand(fitted.model_, x[40:240], y[40:240], 1040, Pool(x[:90], y[:90], numbers))
        for row in (0, 5, 49, 50, 120, 199):
            one = fitted.model_.select([(1040 + row) // 128 % 2])
            others = [k for k in range(90) if numbers[k] != 1040 + row]  # fewer than a block: all

            def log_ratio(a, b, one=one):
                return one.log_ratio_pairs(x[None, a : a + 1], y[None, b : b + 1]).item()

            own = log_ratio(40 + row, 40 + row)
            of_x = np.mean([log_ratio(40 + row, k) <= own for k in others])
            of_y = np.mean([log_ratio(k, 40 + row) <= own for k in others])
            assert found[row] == pytest.approx(max(of_x, of_y), abs=1e-6)

    def test_chance_pairs_stand_as_mismatched_ones(self, model):
        """Else the one could not be judged by the other."""
        fitted = PointwiseDependency.load(model, device="cpu")
        x, y, _, _ = fitted._encode(*draw(9_000, 7))
        pool = Pool(x[:4096], y[:4096], np.arange(4096))
        far = stand(fitted.model_, x[5000:8000], y[6000:9000], 5000, pool)
        beside = pool.mismatched(fitted.model_, far)
        for level in (0.1, 0.5, 0.9, 0.99):
            share = np.mean(beside.standings <= level)
            assert np.mean(far <= level) == pytest.approx(share, abs=0.03)


def test_the_pool_is_of_all_shards_alike(monkeypatch, shards, model):
    monkeypatch.setattr(pool_module, "_ROWS", 600)
    drawn, draw_pool = [], pool_module.draw_pool

    def spy(*arguments):
        drawn.append(draw_pool(*arguments))
        return drawn[0]

    monkeypatch.setattr(pool_module, "draw_pool", spy)
    judge(model, "out")
    numbers = drawn[0].numbers
    assert len(np.unique(numbers)) == 600
    assert np.histogram(numbers, [0, 1000, 1700, 3000])[0] == pytest.approx([200, 140, 260], abs=40)
    x = np.concatenate([pq.read_table(f"x/part-{k}.parquet")["e"].to_numpy() for k in range(4)])
    fitted = PointwiseDependency.load(model, device="cpu")
    expected = fitted._encode(np.stack(x)[numbers], np.stack(x)[numbers])[0]
    torch.testing.assert_close(drawn[0].x, expected)
