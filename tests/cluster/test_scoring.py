"""Shards scored into shards: the same numbers as from arrays, each row once, nothing twice."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import fsspec
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep import PointwiseDependency
from pointdep.cluster import filesystem, shard_scoring
from pointdep.cluster.engines import without_lines
from pointdep.cluster.shard_scoring import score_shards
from pointdep.errors import InputError

from .conftest import SIZES
from .helpers import read_scores, write_shards

BOTH = {"x_columns": ["e"], "y_columns": ["e"], "progress": False}


@pytest.fixture(scope="session")
def expected(model, pairs):
    """The table by the library, each column by its own call."""
    fitted = PointwiseDependency.load(model, device="cpu")
    fitted.progress = False
    columns = {
        "row": np.arange(100),
        "pmi": fitted.pmi(*pairs),
        "npmi": fitted.npmi(*pairs),
        "stderr": fitted.pmi_stderr(*pairs),
        "outside": fitted.outside(*pairs),
    }
    assert np.ptp(columns["pmi"]) > 0.1
    return pd.DataFrame(columns)


def same(found, expected):
    pd.testing.assert_frame_equal(found, expected, rtol=1e-5, atol=1e-6)


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def stamps(folder):
    return {path.name: path.stat().st_mtime_ns for path in Path(folder).glob("*.parquet")}


def test_each_output_shard_has_the_rows_of_its_input(folders, model, expected):
    found = score_shards(model, "x", "y", output="out", **BOTH)
    assert names("out") == [
        "_pointdep.json",
        *(f"part-{number}.parquet" for number in range(len(SIZES))),
    ]
    same(read_scores("out"), expected)
    sizes = [pq.read_metadata(f"out/part-{k}.parquet").num_rows for k in range(len(SIZES))]
    assert tuple(sizes) == SIZES
    assert (found.rows, found.shards, found.found) == (100, 5, 0)
    assert found.mean_pmi == pytest.approx(expected["pmi"].mean(), rel=1e-5)
    assert found.below_zero == (expected["pmi"] < 0).sum()
    assert found.outside == expected["outside"].sum()


def test_shards_go_by_number(tmp_path, model, pairs, expected):
    for name, values in zip("xy", pairs, strict=True):
        write_shards(tmp_path / name, {"e": values}, [5] * 20)
    score_shards(model, tmp_path / "x", tmp_path / "y", output=tmp_path / "out", progress=False)
    same(read_scores(tmp_path / "out", [f"part-{k}.parquet" for k in range(20)]), expected)


def test_the_manifest_says_the_order(folders, model):
    score_shards(model, "x", "y", output="out", **BOTH)
    manifest = json.loads(Path("out/_pointdep.json").read_text())
    firsts = np.cumsum([0, *SIZES])
    assert [s["first_row"] for s in manifest["shards"]] == firsts[:-1].tolist()
    assert [s["rows"] for s in manifest["shards"]] == list(SIZES)
    assert manifest["rows"] == 100
    for shard in manifest["shards"]:
        for side in "xy":
            for source in shard[side]:
                assert source["bytes"] == Path(side, source["file"]).stat().st_size


def test_one_folder_with_both_sides(tmp_path, model, pairs, expected):
    write_shards(tmp_path / "both", {"y": pairs[1], "x": pairs[0]}, SIZES)
    options = {"x_columns": ["x"], "y_columns": ["y"], "progress": False}
    score_shards(model, tmp_path / "both", output=tmp_path / "out", **options)
    same(read_scores(tmp_path / "out"), expected)


@settings(max_examples=15, deadline=None)
@given(
    cuts=st.tuples(*[st.lists(st.integers(0, 100), max_size=4)] * 2).filter(
        lambda cuts: len(cuts[0]) != len(cuts[1])
    ),
    group=st.integers(1, 40),
    batch=st.integers(1, 60),
)
def test_sides_cut_at_other_places(tmp_path_factory, model, pairs, expected, cuts, group, batch):
    place = tmp_path_factory.mktemp("cut")
    for name, values, own in zip("xy", pairs, cuts, strict=True):
        sizes = np.diff([0, *sorted(own), 100])
        write_shards(place / name, {"e": values}, sizes, group)
    options = {"batch_size": batch, "progress": False}
    score_shards(model, place / "x", place / "y", output=place / "out", **options)
    same(read_scores(place / "out"), expected)


def test_names_and_categories(tmp_path, make_model):
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"a": random.normal(size=90), "b": random.integers(0, 9, 90)})
    frame["word"] = np.where(frame["a"] + random.normal(size=90) > 0, "yes", "no")
    place = make_model(frame[["a", "b"]], frame[["word"]])
    write_shards(tmp_path / "t", {name: frame[name].to_numpy() for name in frame}, (40, 50))
    options = {"x_columns": ["a", "b"], "y_columns": ["word"], "progress": False}
    score_shards(place, tmp_path / "t", output=tmp_path / "out", **options)
    fitted = PointwiseDependency.load(place, device="cpu")
    found = read_scores(tmp_path / "out")
    np.testing.assert_allclose(found["pmi"], fitted.pmi(frame[["a", "b"]], frame["word"]), 1e-4)
    np.testing.assert_allclose(found["npmi"], fitted.npmi(frame[["a", "b"]], frame["word"]), 1e-4)


def test_other_file_systems(folders, model, expected):
    memory = fsspec.filesystem("memory")
    for name in "xy":
        memory.put(str(folders / name), f"/here/{name}", recursive=True)
    memory.put(str(model), "/here/model", recursive=True)
    places = [f"memory://here/{name}" for name in ("model", "x", "y")]
    try:
        for _ in range(2):  # once anew, once over what is there
            found = score_shards(*places, output="memory://here/out", **BOTH)
        assert found.found == 5
        there = sorted(name.rsplit("/", 1)[-1] for name in memory.ls("/here/out", detail=False))
        memory.get("/here/out", str(folders / "out"), recursive=True)
    finally:
        memory.rm("/here", recursive=True)
    assert there == ["_pointdep.json", *(f"part-{k}.parquet" for k in range(5))]
    same(read_scores("out"), expected)


def test_file_uris(folders, model, expected):
    uris = [(folders / name).as_uri() for name in "xy"]
    score_shards(model, *uris, output=(folders / "an out%put").as_uri(), **BOTH)
    same(read_scores(folders / "an out%put"), expected)
    score_shards(model, "x", "y", output="an out%put", **BOTH)  # the same place by its path


class TestResume:
    """A second run does what is missing, and nothing with what is of something else."""

    @pytest.fixture(autouse=True)
    def done(self, folders, model):
        score_shards(model, "x", "y", output="out", **BOTH)

    def refuse(self, message, *arguments, **options):
        before = {path: path.read_bytes() for path in Path("out").iterdir()}
        with pytest.raises(InputError, match=message):
            score_shards(*arguments, output="out", **{**BOTH, **options})
        assert {path: path.read_bytes() for path in Path("out").iterdir()} == before

    def test_nothing_is_missing(self, model):
        before = stamps("out")
        assert score_shards(model, "x", "y", output="out", **BOTH).found == 5
        assert stamps("out") == before

    def test_only_what_is_missing(self, model, expected):
        before = stamps("out")
        Path("out/part-2.parquet").unlink()
        damaged = Path("out/part-4.parquet")
        damaged.write_bytes(damaged.read_bytes()[:-20])
        Path("out/.pointdep-0123-part-2.parquet.tmp").write_bytes(b"half")
        assert score_shards(model, "x", "y", output="out", **BOTH).found == 3
        after = stamps("out")
        assert {name for name in before if after[name] != before[name]} == {
            "part-2.parquet",
            "part-4.parquet",
        }
        same(read_scores("out"), expected)
        assert len(names("out")) == 6

    def test_a_moved_input_is_the_same(self, model):
        shutil.copytree("x", "elsewhere")
        assert score_shards(model, "elsewhere", "y", output="out", **BOTH).found == 5

    def test_another_model(self, make_model, pairs):
        self.refuse("out holds results of another model", make_model(*pairs, seed=1), "x", "y")

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
        message = "out/part-4.parquet was made from other rows or columns than x/part-4.parquet"
        self.refuse(message, model, "x", "y")

    def test_other_columns(self, model):
        self.refuse("made from other rows or columns", model, "x", "y", y_columns=["id"])

    def test_a_shard_that_was_missing_may_change(self, model, expected):
        Path("out/part-2.parquet").unlink()
        table = pq.read_table("x/part-2.parquet")
        pq.write_table(table, "x/part-2.parquet", row_group_size=3)  # other bytes, the same rows
        assert score_shards(model, "x", "y", output="out", **BOTH).found == 4
        same(read_scores("out"), expected)

    def test_a_foreign_file(self, model):
        Path("out/notes.txt").write_text("mine")
        self.refuse("out holds other files, such as notes.txt", model, "x", "y")

    def test_no_manifest(self, model):
        Path("out/_pointdep.json").unlink()
        self.refuse("out holds other files, such as part-0.parquet", model, "x", "y")
        Path("out/_pointdep.json").write_text("{")
        self.refuse("_pointdep.json is damaged", model, "x", "y")

    def test_a_file_in_its_place(self, model):
        Path("file").write_text("mine")
        with pytest.raises(InputError, match="file is a file"):
            score_shards(model, "x", "y", output="file", **BOTH)


class TestBadInput:
    """Named in a sentence, and nothing is written."""

    @pytest.fixture
    def refuse(self, folders, model):
        def check(message, x="x", y="y", **options):
            with pytest.raises(InputError, match=message) as caught:
                score_shards(model, x, y, output="out", **{**BOTH, **options})
            assert "\n" not in str(caught.value)
            assert not Path("out").exists()

        return check

    def test_truncated(self, refuse):
        shard = Path("y/part-2.parquet")
        shard.write_bytes(shard.read_bytes()[:-30])
        refuse("y/part-2.parquet is truncated or no Parquet file")
        shard.write_bytes(b"")
        refuse("y/part-2.parquet is truncated or no Parquet file")
        shard.write_bytes(b"PAR1" + bytes(20) + b"PAR1")
        refuse("y/part-2.parquet cannot be read, it is truncated, damaged or no Parquet file")

    def test_another_schema(self, refuse, pairs):
        shutil.copy("x/part-2.parquet", "y/part-2.parquet")
        refuse(r"y/part-2.parquet has rows of 3 numbers .* where y/part-0.parquet has rows of 2")
        table = pq.read_table("y/part-1.parquet").rename_columns(["id", "f"])
        pq.write_table(table, "y/part-1.parquet")
        refuse("y/part-1.parquet: unknown column 'e'")

    def test_fewer_rows_than_its_partner(self, refuse):
        table = pq.read_table("y/part-2.parquet")
        pq.write_table(table.slice(1), "y/part-2.parquet")
        refuse("y/part-2.parquet has 32 rows but its partner x/part-2.parquet has 33")
        Path("y/part-3.parquet").unlink()
        refuse("x has 100 rows in 5 .* and y has 99 rows in 4")

    def test_other_rows_than_the_model_knows(self, refuse):
        refuse("x/part-0.parquet, rows 0 to 0: Y has 3 features", y="x")

    def test_places(self, refuse, folders):
        refuse("nothing does not exist", x="nothing")
        Path("empty").mkdir()
        refuse("empty holds no .parquet files", x="empty")
        Path("x/notes.txt").write_text("mine")
        refuse("x/notes.txt is among the shards of x")
        refuse("notes.txt is no .parquet file", x="x/notes.txt")
        refuse("what://x cannot be read: Protocol not known", x="what://x")

    def test_columns(self, refuse):
        refuse("x holds both sides", y=None, y_columns=None)
        refuse("column 'e' is on both sides", y=None)
        refuse("column 'e' of lists beside others", x_columns=None)

    def test_options(self, refuse):
        refuse("unknown engine 'rax': did you mean 'ray'", engine="rax")
        refuse("workers and gpus_per_worker are for engine 'ray'", workers=2)
        refuse("batch_size=0 must be at least 1", batch_size=0)
        refuse("gpus_per_worker=-1 must be 0 or more", engine="ray", gpus_per_worker=-1)


def damage(shard):
    """Zeros in the middle of a file, whose end still says what it holds; what it was."""
    whole = shard.read_bytes()
    shard.write_bytes(whole[:40] + bytes(len(whole) // 3) + whole[40 + len(whole) // 3 :])
    return whole


def test_a_shard_that_breaks_while_it_is_read(folders, model, expected):
    shard = Path("x/part-2.parquet")
    whole = damage(shard)
    message = r"x/part-2.parquet cannot be read.*; 4 of 5 shards are in out, and the same command"
    with pytest.raises(InputError, match=message):
        score_shards(model, "x", "y", output="out", **BOTH)
    left = ["part-0.parquet", "part-1.parquet", "part-3.parquet", "part-4.parquet"]
    assert names("out") == ["_pointdep.json", *left]
    same(read_scores("out"), expected.drop(range(21, 54)).reset_index(drop=True))
    shard.write_bytes(whole)
    assert score_shards(model, "x", "y", output="out", **BOTH).found == 4
    same(read_scores("out"), expected)


def test_the_first_shard_breaks_while_it_is_read(folders, model):
    """It is from a shard that can be read that a row is tried."""
    damage(Path("x/part-0.parquet"))
    message = r"x/part-0.parquet cannot be read.*; 4 of 5 shards are in out"
    with pytest.raises(InputError, match=message):
        score_shards(model, "x", "y", output="out", **BOTH)
    assert names("out") == ["_pointdep.json", *(f"part-{k}.parquet" for k in (1, 2, 3, 4))]


def test_a_value_that_is_no_number(folders, model, pairs):
    shutil.rmtree("x")
    broken = pairs[0].copy()
    broken[30] = np.nan
    write_shards("x", {"e": broken}, SIZES)
    with pytest.raises(InputError, match=r"x/part-2.parquet, rows 0 to 32: X .*NaN"):
        score_shards(model, "x", "y", output="out", x_columns=["e"], y_columns=["e"])


def test_the_shard_that_holds_it_is_named(folders, model, pairs):
    broken = pairs[1].copy()
    broken[70] = np.nan
    write_shards("z", {"e": broken}, (50, 50))
    message = r"^z/part-1.parquet, rows 18 to 21: Y column 0 .* in row 20: "
    with pytest.raises(InputError, match=message):
        score_shards(model, "x", "z", output="out", x_columns=["e"], batch_size=6)


def test_lines_of_others_are_left_out(capfd):
    with without_lines(b"LOG_LEVEL"):
        os.write(2, b"one: Set LOG_LEVEL to 3\nanother\n")
    os.write(2, b"LOG_LEVEL later\n")
    assert capfd.readouterr().err == "another\nLOG_LEVEL later\n"


def test_the_time_left_does_not_count_a_slow_start():
    class Recorded:
        def __init__(self):
            self.done = []

        def update(self, done, total, detail=""):
            self.done.append(done)

    tasks = [SimpleNamespace(rows=5), SimpleNamespace(rows=6), SimpleNamespace(rows=7)]
    for slow, told in ((False, [0, 5, 11, 18]), (True, [11, 18])):
        shown = Recorded()
        report = shard_scoring._Report(None, tasks, (), shown)
        report.follow(iter([(0, ""), (1, ""), (2, "")]), starts_slowly=slow)
        assert shown.done == told


def test_a_full_disk_ends_the_run(folders, model, monkeypatch):
    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(filesystem, "_to_disk", full)
    with pytest.raises(InputError, match=r"cannot be written: No space left on device"):
        score_shards(model, "x", "y", output="out", **BOTH)
    assert names("out") == []
