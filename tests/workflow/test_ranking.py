"""Columns ranked as they are, against closed forms, other libraries and counts by hand."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import chi2_contingency, norm
from sklearn.metrics import mutual_info_score

from pointdep import ClassicalDependency, rank_columns
from pointdep.workflow.ranking import _holm, _independence, _read
from refusals import refused

ROWS = 2000


@pytest.fixture(scope="module")
def table():
    """y = x + noise with x in many shapes; MI of x and y is log(2) / 2 nats."""
    random = np.random.default_rng(0)
    x, noise = random.standard_normal((2, ROWS))
    hours = np.floor(24 * norm.cdf(x))
    return pd.DataFrame(
        {
            "id": [f"row {n}" for n in range(ROWS)],
            "hour": pd.Timestamp("2020")
            + pd.to_timedelta(24 * random.integers(0, 900, ROWS) + hours, "h"),
            "exact": np.exp(x),
            "gaps": np.where(random.random(ROWS) < 0.25, np.nan, x),
            "sign": np.where(x > 0, "up", "down"),
            "noise": random.standard_normal(ROWS),
            "lattice": random.integers(0, 60, ROWS),
            "flag": pd.Series(random.random(ROWS) > 0.5)
            .astype(object)
            .where(random.random(ROWS) > 0.1),
            "note": [f"a sentence of number {n} of many" for n in range(ROWS)],
            "one": 1,
            "y": x + noise,
        }
    )


def lines(found):
    return found.table.set_index("column")


def test_a_table_as_it_is(table):
    found = rank_columns(table, "y", random_state=0, pairs=True)
    ranked = lines(found)
    whole = np.log(2) / 2
    half = ClassicalDependency("ksg").fit(table["sign"], table["y"]).mutual_information().nats
    for name, truth in (("exact", whole), ("hour", whole), ("gaps", 0.75 * whole), ("sign", half)):
        assert ranked.loc[name, "nats"] == pytest.approx(truth, abs=0.05), name
        assert ranked.loc[name, "p_adjusted"] < 1e-6
    for name in ("noise", "lattice", "flag"):
        assert ranked.loc[name, "low"] == 0.0 < ranked.loc[name, "high"]
        assert ranked.loc[name, "p_adjusted"] > 0.05
    assert list(found.table["column"][:4]) in (
        ["exact", "hour", "gaps", "sign"],
        ["hour", "exact", "gaps", "sign"],
    )
    assert ranked["notes"][["hour", "gaps", "one"]].tolist() == [
        "a date, by its time of day",
        f"{table['gaps'].isna().sum()} missing",
        "constant",
    ]
    assert set(found.table["column"][-3:]) == {"id", "note", "one"}
    assert ranked.loc["id", "notes"].startswith(("id", "texts"))
    assert ranked.loc["note", "notes"].startswith("texts, 2000 different ones")
    assert found.rows == ROWS
    assert found.entropy is None
    assert found.pairs.loc["exact", "y"] == found.pairs.loc["y", "exact"]
    assert found.pairs.loc["exact", "y"] == pytest.approx(whole, abs=0.05)
    # Nothing depends on names, units, the order of rows or the container.
    again = table.sample(frac=1, random_state=0).rename(columns={"exact": "other"})
    again["other"] *= 1000
    moved = lines(rank_columns(pl.from_pandas(again), "y", random_state=1))
    assert moved.loc["other", "nats"] == pytest.approx(ranked.loc["exact", "nats"], abs=0.01)


def test_categories_are_counted(table):
    city = table["exact"].rank().floordiv(ROWS / 12).astype(int).map("c{}".format)
    frame = table[["sign", "flag"]].assign(city=city, again=city.map(hash), target=city.str[-1])
    found = rank_columns(frame, "target", random_state=0)
    ranked = lines(found)
    sizes = [frame[name].nunique(dropna=False) for name in ("sign", "flag", "city", "target")]
    for name, size in zip(("sign", "flag", "city"), sizes, strict=False):
        own = frame[name].astype(object).fillna("none").astype(str)
        cells = len(set(zip(own, frame["target"], strict=True)))
        counted = mutual_info_score(own, frame["target"]) + (size + sizes[3] - cells - 1) / ROWS / 2
        assert ranked.loc[name, "nats"] == pytest.approx(max(counted, 0), abs=1e-9)
        p = chi2_contingency(pd.crosstab(own, frame["target"]), correction=False).pvalue
        assert ranked.loc[name, "p_value"] == pytest.approx(p, abs=1e-12)
    assert ranked.loc["again", "notes"] == "duplicate of city"
    assert ranked.loc["city", "share"] == pytest.approx(ranked.loc["city", "nats"] / found.entropy)
    assert ranked.loc["city", "share"] == pytest.approx(1, abs=0.02)  # it has its last letter


def test_p_values():
    """Of independent columns they are uniform, and those of Holm are by hand."""
    random = np.random.default_rng(3)
    found = []
    for _ in range(150):
        frame = {"a": random.standard_normal(200), "b": random.choice(list("uvw"), 200)}
        frame["c"] = np.where(random.random(200) < 0.1, np.nan, random.integers(0, 30, 200))
        a, b, c = (_read(name, values) for name, values in frame.items())
        found.append([_independence(a, b), _independence(a, c), _independence(c, b)])
    shares = np.mean(np.array(found) < 0.1, axis=0)
    assert (np.abs(shares - 0.1) < 0.075).all()
    even = np.random.default_rng(0).standard_normal(300)
    assert _independence(_read("x", even), _read("y", even**2)) < 1e-12  # not correlated
    np.testing.assert_allclose(
        _holm(np.array([0.04, np.nan, 0.01, 0.03])), [0.06, np.nan, 0.03, 0.06]
    )


@pytest.mark.filterwarnings("ignore::pointdep.PointdepWarning")
def test_groups_of_rows_and_of_columns(table):
    x = table[["exact", "noise", "y"]]
    twice = pd.concat([x, x], ignore_index=True)
    groups = np.tile(np.arange(ROWS), 2)
    np.testing.assert_allclose(
        lines(rank_columns(twice, "y", groups=groups, random_state=0))["nats"],
        lines(rank_columns(x, "y", random_state=0))["nats"],
        atol=0.03,
    )
    cca = ClassicalDependency("cca", progress=False)
    columns = {"both": ["exact", "noise"], "one": 1}
    found = rank_columns(x, "y", columns=columns, estimator=cca).table
    assert found["column"].tolist() == ["both", "one"]
    both = cca.fit(x[["exact", "noise"]], x["y"]).mutual_information()
    assert found.loc[0, ["nats", "low", "high"]].tolist() == [both.nats, *both.ci]
    refused("unknown target 'z'", rank_columns, x, "z")
    refused("'one' cannot be the target: constant", rank_columns, table, "one")
    refused("columns: 'y' is the target", rank_columns, x, "y", columns=["y"])
    refused("X has 2000 rows, but the target has 3", rank_columns, x, np.arange(3))
    many = rank_columns(table[["exact", "noise"]].to_numpy(), table["y"].to_numpy(), random_state=0)
    assert many.table["column"].tolist() == ["0", "1"]


def test_columns_with_few_values(table):
    few = table[["y", "sign", "exact"]].head(300).copy()
    few.loc[:19, "y"] = np.nan
    few["none"] = few["exact"].where(few["y"].isna())  # a value only if the target has none
    few["three"] = few["exact"].where(few.index >= 297)
    for target, names in (("y", ["none", "three"]), ("sign", ["three"])):
        found = rank_columns(few, target, random_state=0, pairs=True)
        assert (lines(found).loc[names, "nats"] < 0.02).all()
        assert (lines(found).loc[names, "p_adjusted"] > 0.05).all()
        assert found.pairs.loc["none", "three"] == 0.0
    few["name"] = table["id"]
    cca, names = ClassicalDependency("cca"), ["exact", "name"]
    fitted = rank_columns(few, "sign", columns=names, estimator=cca)
    assert lines(fitted).loc["name", "notes"] == "id: all values are different"


def test_on_the_command_line(table, tmp_path, monkeypatch, capsys):
    from pointdep.cli.app import run

    monkeypatch.chdir(tmp_path)
    table.to_csv("t.csv", index=False)
    written = ["--plot", "b.svg", "--pairs", "p.svg", "-o", "r.csv"]
    assert run(["rank", "t.csv", "--target", "y", *written, "--json", "-q"]) == 0
    content = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [content["plot"], content["pairs_plot"], content["output"]] == [
        "b.svg",
        "p.svg",
        "r.csv",
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv", "b.svg", "p.svg", "r.csv"}
    names = [line["column"] for line in content["columns"]]
    assert names == pd.read_csv("r.csv")["column"].tolist()
    assert {names[0], names[1]} == {"exact", "hour"}
    assert run(["rank", "t.csv", "--target", "sign", "--columns", "exact,noise", "-q"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "mutual information with sign in nats, 95% interval, 2000 rows"
    assert told[1].startswith("exact  0.6")
    assert "100% of H(sign), p < 0.001" in told[1]
    for message, options in (
        ("unknown --target 'z'", "--target z"),
        ("suffix", "--target y --plot b.txt"),
        ("unknown column 'z': choose from", "--target y --columns z"),
    ):
        assert run(["rank", "t.csv", *options.split()]) == 2
        assert message in capsys.readouterr().err
