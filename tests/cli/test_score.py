"""`pointdep score` of files and folders of shards: the same PMI wherever it goes, and mistakes."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from made import write_shards
from pointdep import PointwiseDependency
from pointdep.auditing.report import wording
from pointdep.auditing.result import Contamination
from pointdep.cli.score import _summary


@pytest.fixture
def score(pointdep, saved_model):
    return lambda *words: pointdep("score", saved_model, *words)


@pytest.fixture
def expected(saved_model, pairs):
    """The columns by the library."""
    model = PointwiseDependency.load(saved_model)
    pmi, npmi = model.pmi(*pairs), model.npmi(*pairs)
    assert np.ptp(pmi) > 0.1
    beside = {"stderr": model.pmi_stderr(*pairs), "outside": model.outside(*pairs)}
    return pd.DataFrame({"row": np.arange(200), "pmi": pmi, "npmi": npmi, **beside})


def test_files_and_standard_output(score, expected, pairs, folder):
    outcome = score("x.npy y.npy")
    assert (outcome.code, outcome.err) == (0, "")
    printed = pd.read_csv(io.StringIO(outcome.out))
    pd.testing.assert_frame_equal(printed, expected, check_dtype=False, rtol=1e-5)
    assert sorted(p.name for p in folder.iterdir()) == ["x.npy", "y.npy"]
    Path("pmi.npy").write_bytes(b"older")  # is replaced
    for path in ("pmi.csv", "pmi.parquet", "pmi.npy"):
        outcome = score("x.npy y.npy -o", path)
        assert (outcome.code, outcome.err) == (0, "")
    np.testing.assert_array_equal(np.load("pmi.npy"), expected["pmi"])
    table = pd.DataFrame(np.column_stack(pairs), columns=list("abcde"))
    table.to_parquet("pairs.parquet")  # both sides in one
    assert score("pairs.parquet --x-columns a,b --y-columns c,d,e -o pmi.npy").code == 0
    np.testing.assert_array_equal(np.load("pmi.npy"), expected["pmi"])
    for found in (pd.read_csv("pmi.csv"), pd.read_parquet("pmi.parquet")):
        pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-6)
    written = {"pmi.csv", "pmi.npy", "pmi.parquet", "pairs.parquet", "x.npy", "y.npy"}
    assert {p.name for p in folder.iterdir()} == written


@pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
def test_single_pairs_and_models(score, pointdep, expected, like_quick, pairs):
    like_quick().set_params(folds=1).fit(*pairs).save("single")
    outcome = pointdep("score single x.npy y.npy")  # one model has no standard error
    assert outcome.code == 0
    assert pd.read_csv(io.StringIO(outcome.out))["stderr"].isna().all()
    for name, values in zip("xy", pairs, strict=True):
        np.save(f"{name}.npy", values[17:18])
    assert score("x.npy y.npy -o one.npy --json").json()["rows"] == 1
    np.testing.assert_allclose(np.load("one.npy"), expected["pmi"][17:18], rtol=1e-5)


def test_rows_that_are_more_than_memory_should_hold(score, expected, monkeypatch):
    monkeypatch.setattr("pointdep.estimators.fit_rows.IN_MEMORY", 0)
    monkeypatch.setattr("pointdep.estimators.pointwise._PART", 5 * 30)
    assert score("x.npy y.npy -o pmi.parquet").code == 0
    found = pd.read_parquet("pmi.parquet")
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-4, atol=1e-5)


def test_for_a_program_and_a_person(score, expected, check_json):
    for option, output in (("", None), ("-o pmi.csv", "pmi.csv")):
        content = score("x.npy y.npy --json", option).json()
        check_json("score", content)
        assert (content["command"], content["rows"], content["outside"]) == ("score", 200, 0)
        assert content["mean_pmi"] == pytest.approx(expected["pmi"].mean(), abs=1e-6)
        assert (content["below_zero"], content["output"]) == ((expected["pmi"] < 0).sum(), output)
    outcome, below = score("x.npy y.npy -o pmi.csv"), int((expected["pmi"] < 0).sum())
    assert outcome.out.splitlines() == [
        "pairs       200",
        f"mean PMI    {expected['pmi'].mean():.3f} nats",
        f"below zero  {below} ({below / 200:.2%}), together less often than chance",
        "outside     0 (0.00%), unlike any pair of the fit",
        "written     pmi.csv",
    ]


def test_pairs_unlike_those_of_the_fit(score, pairs):
    far = pairs[0].copy()
    far[:5] *= 1000
    np.save("far.npy", far)
    outcome = score("far.npy y.npy -o pmi.csv")
    assert outcome.err.startswith("warning: 5 of 200 pairs lie outside the data of the fit: ")
    assert "the column outside says which" in outcome.err
    assert "outside     5 (2.50%), unlike any pair of the fit\n" in outcome.out
    assert pd.read_csv("pmi.csv")["outside"].tolist() == [True] * 5 + [False] * 195
    far[1:5] = pairs[0][1:5]  # one in two hundred is no cause for a warning
    np.save("far.npy", far)
    outcome = score("far.npy y.npy --json")
    assert (outcome.err, outcome.json()["outside"]) == ("", 1)


def test_places_where_no_table_goes(refused, saved_model, folder, monkeypatch):
    command = ("score", saved_model, "x.npy y.npy -o")
    (folder / "folder.csv").mkdir()
    for place, cause in (
        ("pmi.txt", r"unknown suffix '\.txt': .*\.csv, \.npy, \.parquet"),
        ("folder.csv", r"folder\.csv is a folder"),
        ("nowhere/pmi.csv", "nowhere does not exist"),
        ("x.npy/pmi.csv", r"x\.npy does not exist"),
    ):
        refused(cause, *command, place)
    monkeypatch.setattr("os.access", lambda path, mode: not mode & os.W_OK)
    refused(r"pmi\.csv cannot be written: .* read-only", *command, "pmi.csv")


@pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
def test_pairs_that_do_not_fit_the_model(refused, saved_model, like_quick, pairs):
    broken = pairs[0].copy()
    broken[3, 1] = np.nan
    np.save("nan.npy", broken)
    np.save("short.npy", pairs[1][:-1])
    for cause, files in (
        ("X has 3 features, but .* expecting 2 features", "y.npy y.npy"),
        ("Y has 2 features, but .* expecting 3 features", "x.npy x.npy"),
        ("X has 200 rows, Y has 199 rows", "x.npy short.npy"),
        ("X column 1 holds 1 NaN value.* row 3", "nan.npy y.npy --strict"),
    ):
        refused(cause, "score", saved_model, files)
    table = pd.DataFrame({"word": np.where(pairs[0][:, 0] > 0, "up", "down"), "y": pairs[1][:, 0]})
    like_quick().fit(table[["word"]], table[["y"]]).save("words")
    table.loc[[5, 9], "word"] = "sideways"
    table.assign(term=table["word"]).to_csv("pairs.csv", index=False)
    for column, cause in (("word", "'sideways' in row 5"), ("term", "'term' but was 'word'")):
        refused(cause, "score words pairs.csv --strict --y-columns y --x-columns", column)


@pytest.mark.filterwarnings("ignore::pointdep.PointdepWarning")
def test_a_nightly_table(pointdep, folder, like_quick, pairs, check_json):
    """The model knows its columns; what it cannot score has a reason; columns are copied."""
    table = pd.DataFrame({"n": pairs[0][:, 0], "y": pairs[1][:, 0], "name": "a"})
    table["word"] = np.where(pairs[0][:, 1] > 0, "up", "down")
    table["day"] = pd.date_range("2024-01-01", periods=200, freq="19h").astype(str)
    model = like_quick(missing="error").fit(table[["word", "n", "day"]], table[["y"]])
    model.save("model")
    table["name"] = [f"row {n}" for n in range(200)]
    table.to_csv("new.csv", index=False)
    plain = pointdep("score model new.csv --carry name,word -o plain.csv --show-columns")
    assert "X day: date, time of day, weekday\n" in plain.err
    whole = pd.read_csv("plain.csv")
    assert [*whole] == ["row", "name", "word", "pmi", "npmi", "stderr", "outside"]
    np.testing.assert_allclose(
        whole["pmi"], model.pmi(table[["word", "n", "day"]], table[["y"]]), rtol=1e-5
    )
    broken = table.astype({"n": object})
    broken.loc[3, "word"], broken.loc[4, "n"], broken.loc[4, "word"] = "sideways", "oops", None
    broken.loc[7, "y"] = None
    broken[["name", "y", "n", "word", "day"]].to_csv("new.csv", index=False)
    content = pointdep("score model new.csv --carry name -o some.csv --json").json()
    check_json("score", content)
    assert (content["rows"], content["not_scored"]) == (200, 3)
    some = pd.read_csv("some.csv").fillna({"reason": ""})
    assert some["reason"][[3, 4, 7]].tolist() == [
        "X column 'word': a category unseen in training",
        "X column 'n': no number; X column 'word': a missing value",
        "Y column 'y': a missing value",
    ]
    fine = some["reason"] == ""
    assert some["pmi"].notna().equals(fine)
    assert fine.sum() == 197
    np.testing.assert_allclose(some["pmi"][fine], whole["pmi"][fine], rtol=1e-5)
    printed = pd.read_csv(io.StringIO(pointdep("score model new.csv").out))
    np.testing.assert_allclose(printed["pmi"], some["pmi"], rtol=1e-5)


@pytest.mark.filterwarnings("ignore::pointdep.PointdepWarning")
def test_columns_that_are_not_there(refused, folder, like_quick, pairs):
    table = pd.DataFrame(np.column_stack(pairs), columns=list("abcde"))
    like_quick().fit(table[["a", "b"]], table[["c"]]).save("model")
    table[["a", "d"]].to_csv("new.csv", index=False)
    refused(
        "2 problems: .*no column 'b': .*fitted on a, b of x; .*no column 'c'", "score model new.csv"
    )
    table.to_csv("new.csv", index=False)
    for message, options in (
        ("in --carry: 'z': choose from a, b, c, d, e", "--carry z"),
        ("--carry row: the output has a column", "--carry row"),
        ("--carry: p.npy holds pmi alone", "--carry d -o p.npy"),
        ("--carry and --strict are for files", "--strict -o scores/"),
    ):
        refused(message, "score model new.csv", options)


def test_models_that_are_none(refused, saved_model, folder):
    """How models are damaged is in tests/estimator."""
    shutil.copytree(saved_model, folder / "model")
    about = folder / "model" / "model.json"
    about.write_text(about.read_text()[:-10])
    refused("no model at nothing", "score nothing x.npy y.npy")
    refused(r"x\.npy is a file; a model is a folder", "score x.npy x.npy y.npy")
    refused(r"model\.json is truncated or not JSON", "score model x.npy y.npy")


@pytest.mark.parametrize("rows", [200, 20_000])  # below and above what a pipe holds back
def test_a_closed_pipe_is_no_error(folder, saved_model, pairs, rows):
    for name, values in zip("xy", pairs, strict=True):
        np.save(f"{name}.npy", np.resize(values, (rows, values.shape[1])))
    command = [sys.executable, "-m", "pointdep", "score", str(saved_model), "x.npy", "y.npy"]
    # Held back, as is usual: a short output meets the closed pipe only at the end.
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=buffered) as process:
        if rows > 200:
            assert process.stdout.readline() == b"row,pmi,npmi,stderr,outside\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.fixture
def shards(folder, pairs):
    """x/ and y/, of four shards each."""
    for name, values in zip("xy", pairs, strict=True):
        write_shards(name, {"e": values}, [50] * 4, 50)
    return folder


def read_parts(count):
    return pd.concat([pd.read_parquet(f"out/part-{part}.parquet") for part in range(count)])


def test_a_folder_of_as_many_shards(score, saved_model, shards, pairs, check_json):
    outcome = score("x y/ -o out/ --json")
    content = outcome.json()
    check_json("score", content)
    assert (content["rows"], content["output"], outcome.err) == (200, "out/", "")
    found = read_parts(4)
    assert found["row"].tolist() == list(range(200))
    fitted = PointwiseDependency.load(saved_model)
    assert found["pmi"].to_numpy() == pytest.approx(fitted.pmi(*pairs), rel=1e-5)
    before = {path: path.stat().st_mtime_ns for path in Path("out").iterdir()}
    again = score("x y -o out --engine local")
    assert again.code == 0
    assert again.out.startswith("pairs       200\n")
    assert again.out.endswith("written     out, where nothing was missing\n")
    assert {path: path.stat().st_mtime_ns for path in Path("out").iterdir()} == before
    Path("out/part-1.parquet").unlink()
    again = score("x y -o out")
    assert again.out.endswith("written     out: 1 shards; 3 were there\n")
    shutil.rmtree("out")
    assert score("x y -o out").out.endswith("written     out\n")


def test_suspects(score, saved_model, shards, check_json, refused):
    """The pairs are too few for it, and twice as many are enough."""
    command = "x y -o out/ --suspects --quiet"
    refused("x has 200 rows: an audit of shards needs at least 256", "score", saved_model, command)
    for name in "xy":
        for part in range(4):
            shutil.copy(f"{name}/part-{part}.parquet", f"{name}/part-{4 + part}.parquet")
    content = score(command, "--json").json()
    check_json("score", content)
    assert content["suspects"] == read_parts(8)["suspect"].sum()
    assert 0 < content["contamination"] <= 1
    outcome = score(command, "--fdr 0.5")
    assert outcome.code == 0
    more = read_parts(8)["suspect"].sum()
    assert f"suspects    {more}, of which about 50% may be right pairs" in outcome.out
    assert more >= content["suspects"]


def test_bad_shards(refused, saved_model, shards):
    command = ("score", saved_model, "x y -o out/")
    shard = Path("y/part-2.parquet")
    shard.write_bytes(shard.read_bytes()[:-9])
    refused("y/part-2.parquet is truncated", *command)
    shutil.copy("x/part-2.parquet", shard)
    refused("y/part-2.parquet has rows of 2 numbers", *command)
    pq.write_table(pq.read_table("y/part-0.parquet").slice(3), shard)
    refused("y/part-2.parquet has 47 rows but its partner x/part-2.parquet has 50", *command)
    shard.unlink()
    refused("x has 200 rows .* and y has 150", *command)


def test_options_and_shards_that_do_not_go_together(refused, saved_model, shards, score, pairs):
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
        refused(message, "score", saved_model, arguments)
    refused("no model at nothing", "score nothing x y -o out/")
    assert not Path("out").exists()
    for name, rows in zip("ab", pairs, strict=True):
        Path(name).mkdir()
        np.save(f"{name}/part-0.npy", rows)
    other = "a/part-0.npy is among the shards of a, but no .parquet file"
    refused(other, "score", saved_model, "a b -o out")
    assert score("a b -o pmi.parquet").code == 0


@pytest.mark.parametrize(
    ("suspects", "stderr", "unlisted"), [(54, 0.002, 151), (54, 0.008, 0), (300, None, 0)]
)
def test_more_by_chance_than_are_listed(suspects, stderr, unlisted):
    """1.71 % of 12,000 pairs are 205."""
    share = Contamination(0.0171, given=stderr is None, stderr=stderr)
    assert wording.unlisted(share, 12_000, suspects) == unlisted
    counts = dict.fromkeys(("rows", "below_zero", "outside", "shards", "mean_pmi"), 1)
    found = {**counts, "found": 0, "suspects": 1, "contamination": 0.1, "unlisted": unlisted}
    assert ("about 150 more" in _summary(found, "out/", 0.1)["by chance"]) == (unlisted > 0)
