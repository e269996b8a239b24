"""`pointdep score`: the same PMI wherever it goes, and models and pairs that do not fit."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pointdep import PointwiseDependency


@pytest.fixture
def expected(saved_model, pairs):
    """The columns by the library."""
    model = PointwiseDependency.load(saved_model)
    pmi, npmi = model.pmi(*pairs), model.npmi(*pairs)
    assert np.ptp(pmi) > 0.1
    beside = {"stderr": model.pmi_stderr(*pairs), "outside": model.outside(*pairs)}
    return pd.DataFrame({"row": np.arange(200), "pmi": pmi, "npmi": npmi, **beside})


def test_files(pointdep, saved_model, expected, pairs, folder):
    Path("pmi.npy").write_bytes(b"older")  # is replaced
    for path in ("pmi.csv", "pmi.parquet", "pmi.npy"):
        outcome = pointdep("score", saved_model, "x.npy", "y.npy", "-o", path)
        assert (outcome.code, outcome.err) == (0, "")
    np.testing.assert_array_equal(np.load("pmi.npy"), expected["pmi"])
    table = pd.DataFrame(np.column_stack(pairs), columns=list("abcde"))
    table.to_parquet("pairs.parquet")  # both sides in one
    options = ("--x-columns", "a,b", "--y-columns", "c,d,e", "-o", "pmi.npy")
    assert pointdep("score", saved_model, "pairs.parquet", *options).code == 0
    np.testing.assert_array_equal(np.load("pmi.npy"), expected["pmi"])
    for found in (pd.read_csv("pmi.csv"), pd.read_parquet("pmi.parquet")):
        pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-6)
    written = {"pmi.csv", "pmi.npy", "pmi.parquet", "pairs.parquet", "x.npy", "y.npy"}
    assert {p.name for p in folder.iterdir()} == written


def test_rows_that_are_more_than_memory_should_hold(pointdep, saved_model, expected, monkeypatch):
    from pointdep.estimators import fit_rows, pointwise

    monkeypatch.setattr(fit_rows, "IN_MEMORY", 0)
    monkeypatch.setattr(pointwise, "_PART", 5 * 30)
    assert pointdep("score", saved_model, "x.npy", "y.npy", "-o", "pmi.parquet").code == 0
    found = pd.read_parquet("pmi.parquet")
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-4, atol=1e-5)


def test_standard_output(pointdep, saved_model, expected, folder):
    outcome = pointdep("score", saved_model, "x.npy", "y.npy")
    assert (outcome.code, outcome.err) == (0, "")
    printed = pd.read_csv(io.StringIO(outcome.out))
    pd.testing.assert_frame_equal(printed, expected, check_dtype=False, rtol=1e-5)
    assert sorted(p.name for p in folder.iterdir()) == ["x.npy", "y.npy"]


def test_pairs_are_scored_alone(pointdep, saved_model, expected, pairs):
    for name, values in zip("xy", pairs, strict=True):
        np.save(f"{name}.npy", values[17:18])
    outcome = pointdep("score", saved_model, "x.npy", "y.npy", "-o", "one.npy", "--json")
    assert outcome.json()["rows"] == 1
    np.testing.assert_allclose(np.load("one.npy"), expected["pmi"][17:18], rtol=1e-5)


@pytest.mark.parametrize("output", [None, "pmi.csv"])
def test_json(pointdep, saved_model, expected, check_json, output):
    option = () if output is None else ("-o", output)
    content = pointdep("score", saved_model, "x.npy", "y.npy", "--json", *option).json()
    check_json("score", content)
    assert content["command"] == "score"
    assert content["rows"] == 200
    assert content["mean_pmi"] == pytest.approx(expected["pmi"].mean(), abs=1e-6)
    assert content["below_zero"] == (expected["pmi"] < 0).sum()
    assert content["outside"] == 0
    assert content["output"] == output


def test_what_a_person_reads(pointdep, saved_model, expected):
    outcome = pointdep("score", saved_model, "x.npy", "y.npy", "-o", "pmi.csv")
    below = int((expected["pmi"] < 0).sum())
    assert outcome.out.splitlines() == [
        "pairs       200",
        f"mean PMI    {expected['pmi'].mean():.3f} nats",
        f"below zero  {below} ({below / 200:.2%}), together less often than chance",
        "outside     0 (0.00%), unlike any pair of the fit",
        "written     pmi.csv",
    ]


def test_pairs_unlike_those_of_the_fit(pointdep, saved_model, pairs):
    far = pairs[0].copy()
    far[:5] *= 1000
    np.save("far.npy", far)
    outcome = pointdep("score", saved_model, "far.npy", "y.npy", "-o", "pmi.csv")
    assert outcome.err == (
        "warning: 5 of 200 pairs lie outside the data of the fit: their pmi is an extrapolation, "
        "and the column outside says which they are\n"
    )
    assert "outside     5 (2.50%), unlike any pair of the fit\n" in outcome.out
    assert pd.read_csv("pmi.csv")["outside"].tolist() == [True] * 5 + [False] * 195
    far[1:5] = pairs[0][1:5]  # one in two hundred is no cause for a warning
    np.save("far.npy", far)
    outcome = pointdep("score", saved_model, "far.npy", "y.npy", "--json")
    assert outcome.err == ""
    assert outcome.json()["outside"] == 1


@pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
def test_a_single_model_has_no_standard_error(pointdep, like_quick, pairs):
    like_quick().set_params(folds=1).fit(*pairs).save("single")
    outcome = pointdep("score", "single", "x.npy", "y.npy")
    assert outcome.code == 0
    assert pd.read_csv(io.StringIO(outcome.out))["stderr"].isna().all()


def test_places_where_no_table_goes(refused, saved_model, folder, monkeypatch):
    command = ("score", saved_model, "x.npy", "y.npy", "-o")
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
        ("X has 3 features, but .* expecting 2 features", ("y.npy", "y.npy")),
        ("Y has 2 features, but .* expecting 3 features", ("x.npy", "x.npy")),
        ("X has 200 rows, Y has 199 rows", ("x.npy", "short.npy")),
        ("X column 1 holds 1 NaN value.* row 3", ("nan.npy", "y.npy")),
    ):
        refused(cause, "score", saved_model, *files)
    table = pd.DataFrame({"word": np.where(pairs[0][:, 0] > 0, "up", "down"), "y": pairs[1][:, 0]})
    like_quick().fit(table[["word"]], table[["y"]]).save("words")
    table.loc[[5, 9], "word"] = "sideways"
    table.assign(term=table["word"]).to_csv("pairs.csv", index=False)
    for column, cause in (("word", "'sideways' in row 5"), ("term", "'term' but was 'word'")):
        columns = ("--x-columns", column, "--y-columns", "y")
        refused(cause, "score", "words", "pairs.csv", *columns)


def test_models_that_are_none(refused, saved_model, folder):
    """How models are damaged is in tests/estimator."""
    shutil.copytree(saved_model, folder / "model")
    about = folder / "model" / "model.json"
    about.write_text(about.read_text()[:-10])
    for name, message in (
        ("nothing", "no model at nothing"),
        ("x.npy", r"x\.npy is a file; a model is a folder"),
        ("model", r"model\.json is truncated or not JSON"),
    ):
        refused(message, "score", name, "x.npy", "y.npy")


@pytest.mark.parametrize("rows", [200, 20_000])  # below and above what a pipe holds back
def test_a_closed_pipe_is_no_error(folder, saved_model, pairs, rows):
    for name, values in zip("xy", pairs, strict=True):
        np.save(f"{name}.npy", np.resize(values, (rows, values.shape[1])))
    command = [sys.executable, "-m", "pointdep", "score", str(saved_model), "x.npy", "y.npy"]
    # Held back, as is usual: a short output meets the closed pipe only at the end.
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered
    ) as process:
        if rows > 200:
            assert process.stdout.readline() == b"row,pmi,npmi,stderr,outside\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
