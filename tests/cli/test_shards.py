"""Folders of shards on the command line, streamed, and shards that are no good."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from made import lists
from pointdep.estimators import fit_rows

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
BOTH = "x y --x-columns e --y-columns e"


def write(path, rows):
    table = pa.table({"id": np.arange(len(rows)), "e": lists(rows)})
    pq.write_table(table, path, row_group_size=30)


@pytest.fixture
def shards(folder, pairs):
    """x and y as folders of three shards."""
    for name, rows in zip("xy", pairs, strict=True):
        (folder / name).mkdir()
        for number, part in enumerate(np.array_split(rows, 3)):
            write(folder / name / f"{number}.parquet", part)
    return folder


@pytest.fixture
def streamed(monkeypatch):
    monkeypatch.setattr(fit_rows, "IN_MEMORY", 0)


def test_small_shards_are_as_the_arrays(quick, shards):
    found = [quick("mi", files, "--json").json() for files in (BOTH, "x.npy y.npy")]
    assert found[0]["estimate"] == found[1]["estimate"]


@pytest.mark.parametrize("files", [BOTH, "x.npy y.npy"])
def test_streamed_from_fit_to_audit(quick, pointdep, shards, streamed, files):
    fit = quick("fit", files, "-o model --oof oof.parquet --json").json()
    assert fit["estimate"]["rows"] == 200
    assert not pd.read_parquet("oof.parquet")["pmi"].isna().any()
    assert pointdep("score model", files, "-o pmi.parquet").code == 0
    table = pd.read_parquet("pmi.parquet")
    assert table["row"].tolist() == list(range(200))
    assert np.corrcoef(table["pmi"], pd.read_parquet("oof.parquet")["pmi"])[0, 1] > 0.5
    assert quick("audit", files, "-o page.html --table rows.csv").code == 0
    assert sorted(pd.read_csv("rows.csv")["row"]) == list(range(200))


@pytest.mark.parametrize("command", ["mi", "fit -o model", "audit"])
@pytest.mark.parametrize(
    ("option", "limit", "streams"), [("--stream", 1 << 27, 1), ("--no-stream", 0, 0)]
)
def test_stream_or_not(quick, monkeypatch, command, option, limit, streams):
    monkeypatch.setattr(fit_rows, "IN_MEMORY", limit)
    asked, opened = [], fit_rows.stream_rows
    monkeypatch.setattr(fit_rows, "stream_rows", lambda *a, **b: asked.append(1) or opened(*a, **b))
    assert (quick(command, "x.npy y.npy", option).code, len(asked)) == (0, streams)


@pytest.mark.parametrize("how", ["--stream", "--no-stream"])
def test_the_model_remembers_the_column_of_lists(quick, pointdep, shards, how):
    quick("fit", BOTH, how, "-o model")
    assert pointdep("score model x y -o pmi.parquet").code == 0
    assert pointdep("score model x y -o scores").code == 0
    table = pd.read_parquet("pmi.parquet")
    many = pd.read_parquet("scores").sort_values("row", ignore_index=True)
    np.testing.assert_allclose(table["pmi"], many["pmi"], atol=1e-5)
    assert pointdep("retrieve model x y -o best.csv").code == 0
    assert pointdep("retrieve model x/0.parquet y/0.parquet -o some.csv").code == 0
    for name in "xy":  # other names are as before
        rows = pq.read_table(name)["e"].combine_chunks()
        pq.write_table(pa.table({"vector": rows}), f"{name}.parquet")
    assert pointdep("score model x.parquet y.parquet -o again.parquet").code == 0
    assert table.equals(pd.read_parquet("again.parquet"))


@pytest.mark.parametrize("command", ["fit -o model", "score -o pmi.parquet", "mi", "audit"])
def test_bad_shards(refused, saved_model, shards, streamed, pairs, command):
    command = command.replace("score", f"score {saved_model}")
    x, y = shards / "x" / "1.parquet", shards / "y" / "2.parquet"
    write(y, pairs[1][:60])
    refused("y/2.parquet has 60 rows but its partner x/2.parquet has 66", command, BOTH)
    write(y, np.ones((66, 2)))
    refused("y/2.parquet has rows of 2 numbers .* where y/0.parquet has rows of 3", command, BOTH)
    content = x.read_bytes()
    x.write_bytes(content[:4] + bytes(1496) + content[1500:])
    write(y, pairs[1][-66:])
    refused("x/1.parquet cannot be read", command, BOTH)
    x.write_bytes(content[:-50])
    refused("x/1.parquet cannot be read, it is truncated", command, BOTH)
