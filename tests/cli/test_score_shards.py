"""`pointdep score` on folders of shards."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pointdep import PointwiseDependency
from pointdep.auditing.report import wording
from pointdep.auditing.result import Contamination
from pointdep.cli.score import _summary


@pytest.fixture
def shards(folder, pairs):
    """x/ and y/, of four shards each."""
    for name, values in zip("xy", pairs, strict=True):
        Path(name).mkdir()
        for part in range(4):
            rows = values[50 * part : 50 * part + 50]
            column = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
            pq.write_table(pa.table({"e": column}), f"{name}/part-{part}.parquet")
    return folder


def test_a_folder_of_as_many(pointdep, saved_model, shards, pairs, check_json):
    outcome = pointdep("score", saved_model, "x", "y/", "-o", "out/", "--json")
    content = outcome.json()
    check_json("score", content)
    assert (content["rows"], content["output"]) == (200, "out/")
    assert outcome.err == ""
    found = pd.concat([pd.read_parquet(f"out/part-{part}.parquet") for part in range(4)])
    assert found["row"].tolist() == list(range(200))
    fitted = PointwiseDependency.load(saved_model)
    assert found["pmi"].to_numpy() == pytest.approx(fitted.pmi(*pairs), rel=1e-5)
    before = {path: path.stat().st_mtime_ns for path in Path("out").iterdir()}
    again = pointdep("score", saved_model, "x", "y", "-o", "out", "--engine", "local")
    assert again.code == 0
    assert again.out.startswith("pairs       200\n")
    assert {path: path.stat().st_mtime_ns for path in Path("out").iterdir()} == before


def test_suspects(pointdep, saved_model, shards, check_json, refused):
    """The pairs are too few for it, and twice as many are enough."""
    command = ("score", saved_model, "x", "y", "-o", "out/", "--suspects", "--quiet")
    refused("x has 200 rows: an audit of shards needs at least 256", *command)
    for name in "xy":
        for part in range(4):
            shutil.copy(f"{name}/part-{part}.parquet", f"{name}/part-{4 + part}.parquet")
    content = pointdep(*command, "--json").json()
    check_json("score", content)
    table = pd.concat([pd.read_parquet(f"out/part-{part}.parquet") for part in range(8)])
    assert content["suspects"] == table["suspect"].sum()
    assert 0 < content["contamination"] <= 1
    outcome = pointdep(*command, "--fdr", 0.5)
    assert outcome.code == 0
    more = sum(pd.read_parquet(f"out/part-{part}.parquet")["suspect"].sum() for part in range(8))
    assert f"suspects    {more}, of which about 50% may be right pairs" in outcome.out
    assert more >= content["suspects"]


def test_bad_shards(refused, saved_model, shards):
    command = ("score", saved_model, "x", "y", "-o", "out/")
    shard = Path("y/part-2.parquet")
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-9])
    refused("y/part-2.parquet is truncated", *command)
    shutil.copy("x/part-2.parquet", shard)
    refused("y/part-2.parquet has rows of 2 numbers", *command)
    pq.write_table(pq.read_table("y/part-0.parquet").slice(3), shard)
    refused("y/part-2.parquet has 47 rows but its partner x/part-2.parquet has 50", *command)
    shard.unlink()
    refused("x has 200 rows .* and y has 150", *command)


def test_options_that_do_not_go_together(refused, saved_model, shards):
    for message, arguments in (
        ("--engine .* give -o FOLDER", "x y --engine local"),
        ("unknown engine 'dask'", "x y -o out --engine dask"),
        ("--batch-size is for an output in shards: give a fold", "x y --batch-size 5"),
        ("--suspects is for an output in shards", "x y --suspects -o pmi.csv"),
        ("x.npy is not: .* pointdep audit finds", "x.npy y.npy -o a.csv --suspects"),
        ("--fdr is for --suspects", "x y -o out --fdr 0.2"),
        ("nowhere does not exist", "x nowhere -o out/"),
        ("are for engine 'ray'", "x y -o out --workers 2"),
        ("not 3", "x y y -o out"),
        ("x.npy is no .parquet file", "x.npy y.npy -o out/"),
        ("names a column twice", "x y -o out --x-columns e,e"),
    ):
        refused(message, "score", saved_model, *arguments.split())
    refused("no model at nothing", "score", "nothing", "x", "y", "-o", "out/")
    assert not Path("out").exists()


def test_shards_of_other_kinds(refused, pointdep, saved_model, shards, pairs):
    for name, rows in zip("ab", pairs, strict=True):
        Path(name).mkdir()
        np.save(f"{name}/part-0.npy", rows)
    command = ("score", saved_model, "a", "b", "-o")
    refused(
        "part-0.npy is among .* from .parquet files alone; with -o pmi.parquet", *command, "out"
    )
    assert pointdep(*command, "pmi.parquet").code == 0


def test_a_finished_folder(pointdep, saved_model, shards):
    command = ("score", saved_model, "x", "y", "-o", "out")
    assert pointdep(*command).out.endswith("written     out\n")
    assert pointdep(*command).out.endswith("written     out, where nothing was missing\n")
    Path("out/part-1.parquet").unlink()
    assert pointdep(*command).out.endswith("written     out: 1 shards; 3 were there\n")


@pytest.mark.parametrize(
    ("suspects", "stderr", "unlisted"), [(54, 0.002, 151), (54, 0.008, 0), (300, None, 0)]
)
def test_more_by_chance_than_are_listed(suspects, stderr, unlisted):
    """1.71 % of 12,000 pairs are 205."""
    share = Contamination(0.0171, given=stderr is None, stderr=stderr)
    assert wording.unlisted(share, 12_000, suspects) == unlisted
    counts = dict.fromkeys(("rows", "below_zero", "outside", "shards", "mean_pmi"), 1)
    found = {**counts, "found": 0, "suspects": 1, "contamination": 0.1, "unlisted": unlisted}
    told = _summary(found, "out/", 0.1)["by chance"]
    assert ("about 150 more" in told) == (unlisted > 0)
