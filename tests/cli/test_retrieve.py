"""`pointdep retrieve`: what the library finds, wherever it goes, and what cannot be found."""

import io
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pointdep import PointwiseDependency
from pointdep.cli.retrieve import _held_out
from pointdep.data.sides import SideEncoder, as_side


@pytest.fixture
def model(saved_model):
    return PointwiseDependency.load(saved_model)


@pytest.fixture
def retrieve(pointdep, saved_model):
    return lambda *words: pointdep("retrieve", saved_model, *words)


@pytest.fixture
def expected(model, pairs):
    """The table by the library, k = 10."""
    return as_table(model.retrieve(*pairs))


def as_table(found):
    rows, k = found.indices.shape
    columns = {"query": np.repeat(np.arange(rows), k), "position": np.tile(np.arange(k) + 1, rows)}
    return pd.DataFrame({**columns, "candidate": found.indices.ravel(), "pmi": found.pmi.ravel()})


def assert_table(found, expected):
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-5)


def test_tables_and_standard_output(retrieve, expected):
    for path, read in (("best.csv", pd.read_csv), ("best.parquet", pd.read_parquet)):
        outcome = retrieve("x.npy y.npy -o", path)
        assert (outcome.code, outcome.err) == (0, "")
        assert_table(read(path), expected)
    outcome = retrieve("x.npy y.npy")
    assert outcome.code == 0
    assert_table(pd.read_csv(io.StringIO(outcome.out)), expected)
    assert outcome.err.startswith("queries: 200, the best 10 of 200 candidates for each\n")
    quiet = retrieve("x.npy y.npy --quiet")
    assert (quiet.out, quiet.err) == (outcome.out, "")


def test_other_files_and_directions(retrieve, model, pairs, expected):
    np.savez("both.npz", x=pairs[0], y=pairs[1])
    pd.DataFrame(np.column_stack(pairs), columns=list("abcde")).to_csv("both.csv", index=False)
    for arguments, wanted in (
        ("y.npy x.npy --queries y -k 3", as_table(model.retrieve(*pairs[::-1], 3, queries="y"))),
        ("both.npz", expected),
        ("both.csv --query-columns a,b --candidate-columns c,d,e", expected),
        ("x.npy y.npy --save-index index", expected),
        ("x.npy --candidates-index index", expected),
    ):
        assert retrieve(arguments, "-o best.csv").code == 0
        assert_table(pd.read_csv("best.csv"), wanted)


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_faster_indexes(retrieve, expected, kind):
    pytest.importorskip("faiss")
    content = retrieve("x.npy y.npy -o best.csv --json --index", kind).json()
    assert kind in content["searched"] or content["exact"]
    assert content["exact"] or content["recall_queries"] > 0
    found = pd.read_csv("best.csv").merge(expected, on=["query", "candidate"])
    recall = 1.0 if content["exact"] else content["recall"]
    assert len(found) / len(expected) == pytest.approx(recall, abs=0.05)


@pytest.mark.parametrize("options", ["", "--paired -o best.csv --save-index index"])
def test_json(retrieve, model, pairs, check_json, options):
    content = retrieve("x.npy y.npy --json", options).json()
    check_json("retrieve", content)
    found = model.retrieve(*pairs)
    assert (content["queries"], content["candidates"], content["k"]) == (200, 200, 10)
    assert content["exact"] is True
    assert content["without_partner"] == found.without_partner
    if not options:
        assert [row["query"] for row in content["found"]] == list(range(200))
        assert [row["candidates"] for row in content["found"]] == found.indices.tolist()
        assert [row["pmi"] for row in content["found"]] == found.pmi.tolist()
        assert content["output"] is content["index"] is content["pairs"] is None
        return
    assert (content["output"], content["index"]) == ("best.csv", "index")
    assert content["found"] is None
    metrics = model.retrieval_metrics(*pairs)
    assert content["pairs"]["mrr"] == pytest.approx(metrics.mrr)
    assert {r["k"]: r["share"] for r in content["pairs"]["recall"]} == metrics.recall
    assert content["pairs"]["matching"] == [{"size": 5, "share": metrics.matching[5]}]


def test_what_a_person_reads(retrieve, model, pairs):
    outcome = retrieve("x.npy y.npy --paired --exact -k 2 -o best.csv")
    found, metrics = model.retrieve(*pairs, 2), model.retrieval_metrics(*pairs)
    lines = outcome.out.splitlines()
    assert lines[0] == "queries     200, the best 2 of 200 candidates for each"
    assert lines[1].startswith("searched    ")
    assert lines[1].endswith(": exact")
    alone = f"{found.without_partner} ({found.without_partner / 200:.2%})"
    assert lines[2] == f"no partner  {alone}, whose best has PMI of 0 or less"
    assert " ".join(" ".join(lines[3:-1]).split()) == f"pairs {str(metrics).partition(': ')[2]}"
    assert lines[-1] == "written     best.csv"


@pytest.mark.parametrize("options", ["", "--quiet"])
def test_pairs_alone_are_an_answer_and_no_table(retrieve, pairs, options):
    """As with a file, which is the last line then."""
    outcome = retrieve("x.npy y.npy --paired", options)
    filed = retrieve("x.npy y.npy --paired -o best.csv", options)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == filed.out.removesuffix("written     best.csv\n")
    assert "1:5 matching" in outcome.out
    for name, values in zip("xy", pairs, strict=True):
        np.save(f"{name}.npy", values[:3])
    content = retrieve("x.npy y.npy --paired --json").json()  # of few candidates
    assert (content["k"], content["pairs"]["matching"]) == (3, [])


@pytest.mark.filterwarnings("ignore::pointdep.errors.PointdepWarning")
def test_a_model_takes_the_columns_it_knows_from_wider_files(pointdep, refused, pairs, like_quick):
    table = pd.DataFrame(np.column_stack(pairs), columns=list("abcde"))
    table.insert(1, "note", 1.5)
    table.to_csv("both.csv", index=False)
    table[["e", "d", "c"]].to_parquet("y.parquet")
    sides = table[["a", "b"]], table[["c", "d", "e"]]
    model = like_quick().fit(*sides)
    model.save("named")
    for files in ("both.csv", "both.csv y.parquet"):
        outcome = pointdep("retrieve named", files, "-o best.csv")
        assert outcome.code == 0, outcome.err
        assert_table(pd.read_csv("best.csv"), as_table(model.retrieve(*sides)))
    absent = r"y\.parquet has no column 'a': the model was fitted on the columns a, b of x"
    refused(rf"{absent}; did you mean --queries y\?$", "retrieve named y.parquet both.csv")
    refused(f"{absent}$", "retrieve named y.parquet y.parquet --queries y")


def test_refused(refused, retrieve, saved_model, pairs):
    np.save("short.npy", pairs[1][:50])
    for arguments, message in (
        ("x.npy", "CANDIDATES is missing"),
        ("x.npy y.npy -k 201", "-k 201 .* 200 candidates"),
        ("x.npy y.npy --queries z", "unknown --queries 'z'"),
        ("x.npy y.npy --index hnws", "unknown --index 'hnws': did you mean 'hnsw'"),
        ("x.npy y.npy --shortlist 2 -k 3", "--shortlist 2 must be at least 3"),
        ("x.npy y.npy --exact --index ivf", "--exact looks.* --index ivf does"),
        ("x.npy y.npy -o best.npy", r"\.csv, \.parquet$"),
        ("x.npy y.npy -o no/best.csv", "does not exist"),
        ("x.npy y.npy --candidates-index i", "--candidates-index and CANDIDATES"),
        ("x.npy --candidates-index i --paired", "--candidates-index and --paired"),
        ("x.npy --candidates-index nowhere", "no index at nowhere"),
        ("x.npy y.npy --save-index x.npy", "--save-index x.npy would overwrite x.npy"),
        ("x.npy z.npy", "z.npy"),
        ("x.npy short.npy --paired", "--paired: 200 queries and 50 candidates"),
        ("x.npy x.npy", "Y has 2 features.*expecting 3 features as input$"),
        ("y.npy x.npy", r"X has 3 features.*; did you mean --queries y\?$"),
        ("y.npy x.npy --save-index i", r"; did you mean --queries y\?$"),
    ):
        refused(message, "retrieve", saved_model, arguments)
    refused("no model at", "retrieve nowhere x.npy y.npy")
    retrieve("x.npy y.npy --save-index index --quiet")
    options = "y.npy --candidates-index index --queries y"
    refused("index holds y, .* set --queries x", "retrieve", saved_model, options)


def test_held_out_rows_of_a_table_with_dates(folder):
    table = pd.DataFrame({"day": pd.date_range("2020", periods=40), "a": range(40), "b": range(40)})
    table.to_csv("t.csv", index=False)
    of_x, of_y = (
        SideEncoder.fit(as_side(table[names], side), side)
        for side, names in (("X", ["day", "a"]), ("Y", ["b"]))
    )
    fitted = SimpleNamespace(encoder_x_=of_x, encoder_y_=of_y)
    x, y = _held_out(fitted, folder / "t.csv", None)
    assert list(x.columns) == ["day", "a"]
    assert list(y.columns) == ["b"]


def test_queries_to_which_nothing_belongs(retrieve, model, pairs, refused, saved_model, check_json):
    x, y = pairs
    np.save("far.npy", -x)
    expected = model.retrieve(-x, y, 3, min_pmi=1.0, held_out=(x, y))
    alone = expected.indices[:, 0] < 0
    assert 0 < alone.sum() < 200
    said = retrieve("far.npy y.npy -k 3 --min-pmi 1 --held-out x.npy --held-out-y y.npy -o t.csv")
    assert said.code == 0, said.err
    assert expected.false_match_rate in " ".join(said.out.split())
    table = pd.read_csv("t.csv")
    assert list(table["candidate"]) == list(expected.indices.ravel())
    assert list(table["pmi"].isna()) == list(np.isnan(expected.pmi.ravel()))
    found = retrieve("far.npy y.npy -k 3 --min-pmi 1 --json").json()
    check_json("retrieve", found)
    assert (found["false_matches"], found["without_partner"]) == (None, alone.sum())
    counts = (expected.indices >= 0).sum(1)
    assert [len(one["candidates"]) for one in found["found"]] == counts.tolist()
    paired = retrieve("x.npy y.npy --min-pmi 1 --paired --json").json()
    assert paired["false_matches"] == pytest.approx(expected.false_matches)
    for message, options in (
        ("give --min-pmi too", "--held-out x.npy --held-out-y y.npy"),
        ("give --held-out as well", "--held-out-y y.npy"),
        ("--min-pmi nan must be|--min-pmi=nan must be a number", "--min-pmi nan"),
    ):
        refused(message, "retrieve", saved_model, "x.npy y.npy", options)
