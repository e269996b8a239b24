"""Shards scored into shards: the same numbers as from arrays, each row once, nothing twice."""

import itertools
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import fsspec
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pointdep import PointwiseDependency
from pointdep.cluster import filesystem, shard_scoring
from pointdep.cluster.engines import without_lines
from refusals import refused

from .conftest import SIZES, read_scores, write_shards

BOTH = {"x_columns": ["e"], "y_columns": ["e"]}
PARTS = [f"part-{number}.parquet" for number in range(len(SIZES))]


def score_shards(*places, output="out", **options):
    return shard_scoring.score_shards(*places, output=output, progress=False, **options)


@pytest.fixture(scope="session")
def expected(model, pairs):
    """The table by the library, each column by its own call."""
    fitted = PointwiseDependency.load(model, device="cpu")
    fitted.progress = False
    columns = {"pmi": fitted.pmi, "npmi": fitted.npmi, "stderr": fitted.pmi_stderr}
    columns = {name: call(*pairs) for name, call in columns.items()}
    assert np.ptp(columns["pmi"]) > 0.1
    return pd.DataFrame({"row": np.arange(100), **columns, "outside": fitted.outside(*pairs)})


def same(found, expected):
    pd.testing.assert_frame_equal(found, expected, rtol=1e-5, atol=1e-6)


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def stamps(folder):
    return {path.name: path.stat().st_mtime_ns for path in Path(folder).glob("*.parquet")}


def test_each_output_shard_has_the_rows_of_its_input(folders, model, expected, pairs):
    found = score_shards(model, "x", "y", **BOTH)
    assert names("out") == ["_pointdep.json", *PARTS]
    same(read_scores("out"), expected)
    assert tuple(pq.read_metadata(f"out/{name}").num_rows for name in PARTS) == SIZES
    assert (found.rows, found.shards, found.found) == (100, 5, 0)
    assert found.mean_pmi == pytest.approx(expected["pmi"].mean(), rel=1e-5)
    assert found.below_zero == (expected["pmi"] < 0).sum()
    assert found.outside == expected["outside"].sum()
    manifest = json.loads(Path("out/_pointdep.json").read_text())
    assert manifest["rows"] == 100
    found = [(shard["first_row"], shard["rows"]) for shard in manifest["shards"]]
    assert found == list(zip(np.cumsum([0, *SIZES[:-1]]), SIZES, strict=True))
    for side, shard in itertools.product("xy", manifest["shards"]):
        for source in shard[side]:
            assert source["bytes"] == Path(side, source["file"]).stat().st_size
    # By number, and of one folder that holds both sides.
    write_shards("both", {"y": pairs[1], "x": pairs[0]}, [5] * 20)
    score_shards(model, "both", output="apart", x_columns=["x"], y_columns=["y"])
    same(read_scores("apart", [f"part-{k}.parquet" for k in range(20)]), expected)


@settings(max_examples=15, deadline=None)
@given(
    st.tuples(*[st.lists(st.integers(0, 100), max_size=4)] * 2),
    st.integers(1, 40),
    st.integers(1, 60),
)
def test_sides_cut_at_other_places(tmp_path_factory, model, pairs, expected, cuts, group, batch):
    assume(len(cuts[0]) != len(cuts[1]))
    place = tmp_path_factory.mktemp("cut")
    for name, values, own in zip("xy", pairs, cuts, strict=True):
        write_shards(place / name, {"e": values}, np.diff([0, *sorted(own), 100]), group)
    score_shards(model, place / "x", place / "y", output=place / "out", batch_size=batch)
    same(read_scores(place / "out"), expected)


def test_names_and_categories(tmp_path, make_model):
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"a": random.normal(size=90), "b": random.integers(0, 9, 90)})
    frame["word"] = np.where(frame["a"] + random.normal(size=90) > 0, "yes", "no")
    sides = frame[["a", "b"]], frame["word"]
    place = make_model(sides[0], frame[["word"]])
    write_shards(tmp_path / "t", {name: frame[name].to_numpy() for name in frame}, (40, 50))
    columns = {"x_columns": ["a", "b"], "y_columns": ["word"]}
    score_shards(place, tmp_path / "t", output=tmp_path / "out", **columns)
    fitted, found = PointwiseDependency.load(place, device="cpu"), read_scores(tmp_path / "out")
    for name in ("pmi", "npmi"):
        np.testing.assert_allclose(found[name], getattr(fitted, name)(*sides), 1e-4)


def test_other_file_systems_and_uris(folders, model, expected):
    memory = fsspec.filesystem("memory")
    for name, place in (("x", folders / "x"), ("y", folders / "y"), ("model", model)):
        memory.put(str(place), f"/here/{name}", recursive=True)
    places = [f"memory://here/{name}" for name in ("model", "x", "y")]
    try:
        for _ in range(2):  # once anew, once over what is there
            found = score_shards(*places, output="memory://here/out", **BOTH)
        assert found.found == 5
        memory.get("/here/out", str(folders / "out"), recursive=True)
    finally:
        memory.rm("/here", recursive=True)
    assert names("out") == ["_pointdep.json", *PARTS]
    same(read_scores("out"), expected)
    uris = [(folders / name).as_uri() for name in "xy"]
    score_shards(model, *uris, output=(folders / "an out%put").as_uri(), **BOTH)
    same(read_scores(folders / "an out%put"), expected)
    assert score_shards(model, "x", "y", output="an out%put", **BOTH).found == 5


class TestResume:
    """A second run does what is missing, and refuses what has another origin."""

    @pytest.fixture(autouse=True)
    def done(self, folders, model):
        score_shards(model, "x", "y", **BOTH)

    def refuse(self, message, *arguments, **options):
        before = {path: path.read_bytes() for path in Path("out").iterdir()}
        refused(message, score_shards, *arguments, **{**BOTH, **options})
        assert {path: path.read_bytes() for path in Path("out").iterdir()} == before

    def test_only_what_is_missing(self, model, expected):
        before = stamps("out")
        shutil.copytree("x", "elsewhere")
        for x in ("x", "elsewhere"):
            assert score_shards(model, x, "y", **BOTH).found == 5
        assert stamps("out") == before
        Path("out/part-2.parquet").unlink()
        table = pq.read_table("x/part-2.parquet")
        pq.write_table(table, "x/part-2.parquet", row_group_size=3)  # other bytes, the same rows
        damaged = Path("out/part-4.parquet")
        damaged.write_bytes(damaged.read_bytes()[:-20])
        Path("out/.pointdep-0123-part-2.parquet.tmp").write_bytes(b"half")
        assert score_shards(model, "x", "y", **BOTH).found == 3
        changed = {name for name, stamp in stamps("out").items() if stamp != before[name]}
        assert changed == {"part-2.parquet", "part-4.parquet"}
        same(read_scores("out"), expected)
        assert len(names("out")) == 6

    def test_another_origin_and_foreign_files(self, model, make_model, pairs):
        self.refuse("another model", make_model(*pairs, seed=1), "x", "y")
        self.refuse("other rows or columns", model, "x", "y", y_columns=["id"])
        Path("out/notes.txt").write_text("mine")
        self.refuse("out holds other files, such as notes.txt", model, "x", "y")
        Path("out/notes.txt").unlink()
        Path("out/_pointdep.json").unlink()
        self.refuse("out holds other files, such as part-0.parquet", model, "x", "y")
        Path("out/_pointdep.json").write_text("{")
        self.refuse("_pointdep.json is damaged", model, "x", "y")
        Path("file").write_text("mine")
        self.refuse("file is a file", model, "x", "y", output="file")

    def test_other_rows(self, model, pairs):
        """Two rows that changed places leave the sizes and the extremes as they were."""
        changed = pairs[0].copy()
        changed[[60, 61]] = changed[[61, 60]]
        before = {path.name: path.stat() for path in Path("x").iterdir()}
        shutil.rmtree("x")
        write_shards("x", {"id": np.arange(100), "e": changed}, SIZES)
        assert all(path.stat().st_size == before[path.name].st_size for path in Path("x").iterdir())
        for name in sorted(before)[:-1]:
            os.utime(Path("x", name), ns=(0, before[name].st_mtime_ns))
        self.refuse("out/part-4.parquet .* other rows .* x/part-4.parquet", model, "x", "y")


class TestBadInput:
    """Named in a sentence, and nothing is written."""

    @pytest.fixture
    def refuse(self, folders, model):
        def check(message, x="x", y="y", **options):
            refused(message, score_shards, model, x, y, **{**BOTH, **options})
            assert not Path("out").exists()

        return check

    def test_shards(self, refuse):
        shard = Path("y/part-2.parquet")
        whole, table = shard.read_bytes(), pq.read_table(shard)
        for content in (whole[:-30], b"", b"PAR1" + bytes(20) + b"PAR1"):
            shard.write_bytes(content)
            refuse("y/part-2.parquet .*is truncated.* no Parquet file")
        shutil.copy("x/part-2.parquet", shard)
        refuse(r"y/part-2.parquet has rows of 3 numbers .* where y/part-0.parquet has rows of 2")
        pq.write_table(table.rename_columns(["id", "f"]), shard)
        refuse("y/part-2.parquet: unknown column 'e'")
        pq.write_table(table.slice(1), shard)
        refuse("y/part-2.parquet has 32 rows but its partner x/part-2.parquet has 33")
        Path("y/part-3.parquet").unlink()
        refuse("x has 100 rows in 5 .* and y has 99 rows in 4")

    def test_places_columns_and_options(self, refuse):
        Path("empty").mkdir()
        for message, options in (
            ("x/part-0.parquet, rows 0 to 0: Y has 3 features", {"y": "x"}),
            ("nothing does not exist", {"x": "nothing"}),
            ("empty holds no .parquet files", {"x": "empty"}),
            ("what://x cannot be read: Protocol not known", {"x": "what://x"}),
            ("x holds both sides", {"y": None, "y_columns": None}),
            ("column 'e' is on both sides", {"y": None}),
            ("column 'e' of lists beside others", {"x_columns": None}),
            ("unknown engine 'rax': did you mean 'ray'", {"engine": "rax"}),
            ("workers .* engine 'ray'", {"workers": 2}),
            ("batch_size=0", {"batch_size": 0}),
            ("gpus_per_worker=-1", {"engine": "ray", "gpus_per_worker": -1}),
        ):
            refuse(message, **options)
        Path("x/notes.txt").write_text("mine")
        refuse("x/notes.txt is among the shards of x")
        refuse("notes.txt is no .parquet file", x="x/notes.txt")


@pytest.mark.parametrize("bad", [0, 2])
def test_a_shard_that_breaks_while_it_is_read(folders, model, expected, bad):
    shard, start = Path("x", PARTS[bad]), int(np.sum(SIZES[:bad]))
    whole = shard.read_bytes()  # zeros in its middle, and an end that says what it held
    shard.write_bytes(whole[:40] + bytes(len(whole) // 3) + whole[40 + len(whole) // 3 :])
    message = f"{shard} cannot be read.*; 4 of 5 shards are in out"
    refused(message, score_shards, model, "x", "y", **BOTH)
    assert names("out") == ["_pointdep.json", *PARTS[:bad], *PARTS[bad + 1 :]]
    same(read_scores("out"), expected.drop(range(start, start + SIZES[bad])).reset_index(drop=True))
    shard.write_bytes(whole)
    assert score_shards(model, "x", "y", **BOTH).found == 4
    same(read_scores("out"), expected)


def test_a_value_that_is_no_number_and_a_full_disk(folders, model, pairs, monkeypatch):
    broken = pairs[1].copy()
    broken[70] = np.nan
    write_shards("z", {"e": broken}, (50, 50))
    where = "z/part-1.parquet, rows 18 to 21: Y column"
    message = rf"^2 problems: \(1\) {where} 0 .*NaN.* in row 20: .*\(2\) {where} 1 .* in row 20: "
    refused(message, score_shards, model, "x", "z", x_columns=["e"], batch_size=6)
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(filesystem, "_to_disk", full)
    said = "cannot be written: No space left on device"
    refused(said, score_shards, model, "x", "y", output="full", **BOTH)
    assert names("full") == []


def test_lines_of_others_are_left_out(capfd):
    with without_lines(b"LOG_LEVEL"):
        os.write(2, b"one: Set LOG_LEVEL to 3\nanother\n")
    os.write(2, b"LOG_LEVEL later\n")
    assert capfd.readouterr().err == "another\nLOG_LEVEL later\n"


@pytest.mark.parametrize(("engine", "told"), [("local", [0, 5, 11, 18]), ("ray", [11, 18])])
def test_the_time_left_does_not_count_a_slow_start(engine, told, monkeypatch):
    done, work = [], SimpleNamespace(how=SimpleNamespace(engine=engine))
    shown = SimpleNamespace(update=lambda rows, total, detail="": done.append(rows))
    tasks = [SimpleNamespace(number=k, rows=rows) for k, rows in enumerate((5, 6, 7))]
    ended = [(task.number, "") for task in tasks]
    monkeypatch.setattr(shard_scoring.engines, f"run_{engine}", lambda *_: ended)
    shard_scoring._follow(work, tasks, tasks, shown)
    assert done == told
