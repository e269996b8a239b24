"""Rows and pairs on disk against the arrays they were written from; shards that are no good."""

import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather

from made import write_shards
from pointdep.data.readers import read_pairs, read_side
from pointdep.data.row_source import ArrayRows, ColumnMoments, ahead
from pointdep.data.shards import by_numbers, open_rows, read_tables, require_partners
from pointdep.data.sides import SideEncoder, as_side, as_source
from pointdep.data.stored_pairs import PairSource, paired_parts
from pointdep.errors import InputError
from refusals import refused

RANDOM = np.random.default_rng(0)
ROWS, WIDTH = 100, 5
MIXED = pa.schema({"a": pa.float32(), "b": pa.int16()})


def lists(values, kind="fixed"):
    """(rows, width) as an Arrow column of lists."""
    flat = pa.array(values.reshape(-1))
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    ends = np.arange(0, values.size + 1, values.shape[1])
    array = pa.ListArray if kind == "list" else pa.LargeListArray
    return array.from_arrays(pa.array(ends, pa.int32() if kind == "list" else pa.int64()), flat)


def write(path, table, part=17):
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=part)
    elif path.suffix == ".feather":
        feather.write_feather(table, str(path), chunksize=part)
    else:
        new = pa.ipc.new_stream if path.suffix == ".ipc" else pa.ipc.new_file
        with new(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=part)
    return path


def shards(folder, values, sizes=(40, 1, 59), suffix=".parquet", kind="fixed"):
    folder.mkdir()
    for number, part in enumerate(np.split(values[: sum(sizes)], np.cumsum(sizes)[:-1])):
        path = folder / f"part-{7 + number}{suffix}"
        if suffix == ".npy":
            np.save(path, part)
        else:
            write(path, pa.table({"id": np.arange(len(part)), "e": lists(part, kind)}))
    return folder


def opened(folder):
    return open_rows(folder, None if next(folder.iterdir()).suffix == ".npy" else "e")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int64"])
@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather", ".ipc", ".npy"])
def test_a_folder_is_the_array_it_was_written_from(tmp_path, suffix, dtype):
    values = (100 * RANDOM.normal(size=(ROWS, WIDTH))).clip(0, 120).astype(dtype)
    found = opened(shards(tmp_path / "x", values, suffix=suffix))
    assert (found.rows, found.width, found.dtype) == (ROWS, WIDTH, np.dtype(dtype))
    np.testing.assert_array_equal(found.load(), values)
    some = RANDOM.permutation(ROWS)[:30]
    np.testing.assert_array_equal(found.take(some), values[some])


def test_lists_of_every_kind_and_names_of_columns(tmp_path):
    values = RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float16)
    for kind in ("fixed", "list", "large"):
        found = open_rows(shards(tmp_path / kind, values, kind=kind), "e")
        np.testing.assert_array_equal(found.load(), values)
        assert (found.names, found.named) == (tuple("01234"), False)
    table = pa.table({"a": pa.array([1, 2, 3], pa.int8()), "b": [0.5, 1.5, 2.5], "c": [*"uvw"]})
    found = open_rows(write(tmp_path / "t.parquet", table), ["b", "a"])
    np.testing.assert_array_equal(found.load(), [[0.5, 1], [1.5, 2], [2.5, 3]])
    assert (found.names, found.named) == (("b", "a"), True)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), suffix=st.sampled_from([".parquet", ".arrow", ".npy"]))
def test_reading_any_rows_in_any_step(tmp_path_factory, data, suffix):
    values = np.arange(ROWS * 2, dtype=np.int32).reshape(ROWS, 2)
    found = opened(shards(tmp_path_factory.mktemp("t") / "x", values, suffix=suffix))
    row = st.integers(0, ROWS) | st.sampled_from(found.cuts.tolist())
    start, stop = sorted(data.draw(st.lists(row, min_size=2, max_size=2)))
    step = data.draw(st.integers(1, 60))
    pieces = list(found.read(start, stop, step))
    assert all(0 < len(piece) <= step for piece in pieces)
    np.testing.assert_array_equal(np.concatenate([values[:0], *pieces]), values[start:stop])


def test_rows_can_be_looked_at_and_shards_follow_their_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float16)
    rows = open_rows(shards(tmp_path / "x", values).relative_to(tmp_path), "e")
    assert repr(rows) == (
        "ShardedRows(100 rows x 5 columns in the column 'e', float16, "
        "3 files x/part-7.parquet to part-9.parquet)"
    )
    np.testing.assert_array_equal(np.asarray(rows), values)
    assert np.asarray(rows, np.float64).dtype == np.float64
    every_third = np.arange(ROWS) % 3 == 0
    for asked in (3, -1, slice(5, 8), slice(38, 45), slice(95, 200), slice(9, 5), [41, 2],
                  slice(None, None, 30), every_third):  # fmt: skip
        np.testing.assert_array_equal(rows[asked], values[asked])
    np.testing.assert_array_equal(np.stack(list(rows)), values)
    with pytest.raises(IndexError):
        rows[ROWS]
    for number in (2, 10, 1):
        np.save(tmp_path / f"part-{number}.npy", np.full((2, 2), float(number)))
    (tmp_path / "_SUCCESS").touch()
    assert open_rows(tmp_path).load()[:, 0].tolist() == [1, 1, 2, 2, 10, 10]
    assert sorted(["p1", "p01", "p2", "p001"], key=by_numbers) == ["p001", "p01", "p1", "p2"]


def test_sides_are_read_as_arrays_are_and_numbers_stay_where_they_are(tmp_path):
    values = RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float16)
    one, other = as_side(open_rows(shards(tmp_path / "x", values), "e"), "X"), as_side(values, "X")
    np.testing.assert_array_equal(one.numeric, other.numeric)
    assert (one.names, one.named) == (other.names, other.named)
    values[45, 2] = np.nan
    source = open_rows(shards(tmp_path / "y", values), "e")
    refused("Y column 2 .* in row 4 of .*y/part-9.parquet", as_side, source, "Y")
    np.save(tmp_path / "x.npy", RANDOM.normal(size=(ROWS, WIDTH)))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    source = as_source(mapped, "X")
    assert isinstance(source, ArrayRows)
    assert np.shares_memory(source.values, mapped)
    assert isinstance(as_source(np.arange(900), "Y"), ArrayRows)
    for labels in (["a", "b"], [0, 1]):
        assert not isinstance(as_source(np.repeat(labels, 9), "Y"), ArrayRows)


class TestCommandLine:
    def test_two_folders(self, tmp_path):
        x, y = (RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float16) for _ in "xy")
        folders = [shards(tmp_path / name, side) for name, side in (("x", x), ("y", y))]
        a, b = read_pairs(folders, x_columns="e", y_columns="e")
        np.testing.assert_array_equal(a.load(), x)
        np.testing.assert_array_equal(b.load(), y)
        message = "part-7.* column 'e' of lists .* --x-columns.* id, e"
        refused(message, read_side, folders[0], columns=None, key="x", name="x")

    @pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.arrow"])
    def test_one_table_with_both(self, tmp_path, name):
        x = RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float32)
        labels = np.where(x[:, 0] > 0, "a", "b")
        path = write(tmp_path / name, pa.table({"e": lists(x), "label": labels}))
        a, b = read_pairs([path], x_columns="e", y_columns="label")
        np.testing.assert_array_equal(a.load(), x)
        assert b["label"].tolist() == labels.tolist()
        # A Parquet file of plain columns is a table.
        path = write(tmp_path / "t.parquet", pa.table({"a": [1.0, 2.0], "b": [3, 4]}))
        assert list(read_side(path, columns=None, key="x", name="x").columns) == ["a", "b"]


def floats(*rows):
    return pa.array(rows, pa.list_(pa.float32()))


class TestBadShards:
    @pytest.fixture
    def folder(self, tmp_path):
        return shards(tmp_path / "x", RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float32))

    @pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather", ".npy"])
    def test_truncated(self, tmp_path, suffix):
        folder = shards(tmp_path / "x", RANDOM.normal(size=(3000, WIDTH)), [1000] * 3, suffix)
        bad = folder / f"part-8{suffix}"
        bad.write_bytes(bad.read_bytes()[:-3000])
        refused(rf"part-8\{suffix} .*truncated", opened, folder)

    def test_damaged_within_and_no_rows(self, tmp_path):
        folder = shards(tmp_path / "x", RANDOM.normal(size=(3000, WIDTH)), (1000, 2000))
        bad = folder / "part-8.parquet"
        content = bad.read_bytes()
        bad.write_bytes(content[:2000] + bytes(58000) + content[60000:])
        refused("part-8.parquet cannot be read", opened(folder).load)
        path = tmp_path / "x.npy"
        for bad in (np.zeros((2, 3, 4)), np.array(["a", "b"])):
            np.save(path, bad)
            refused(r"x\.npy holds .*: shards are rows of numbers", open_rows, path)
        np.save(path, np.zeros((2, 3)))
        refused(r"x\.npy has no named columns: leave out columns=", open_rows, path, "e")

    def test_another_column_schema_or_kind(self, folder, tmp_path):
        write(folder / "part-8.parquet", pa.table({"id": [1], "f": [[1.0] * WIDTH]}))
        refused("part-8.parquet.* 'e'", open_rows, folder, "e")
        for bad in (np.ones((3, 4), np.float32), np.ones((3, WIDTH))):
            write(folder / "part-8.parquet", pa.table({"e": lists(bad)}))
            refused("part-8.parquet has rows of .* where .*part-7", open_rows, folder, "e")
        (folder / "notes.txt").write_text("hello")
        refused("notes.txt is among the shards", open_rows, folder, "e")
        write(tmp_path / "1.parquet", pa.table({"a": [1.0], "b": [2.0]}))
        write(tmp_path / "2.parquet", pa.table({"a": [1.0], "b": [2]}).cast(MIXED))
        # Of both columns the common type is double; of the second file's it is float.
        message = r"2\.parquet has the columns a, b \(float32\) where .*1\.parquet has .*float64"
        refused(message, open_rows, tmp_path)

    def test_what_rows_and_partners_cannot_be(self, tmp_path, folder):
        def bad(message, column):
            path = write(tmp_path / "t.parquet", pa.table({"e": column}))
            refused(f"t.parquet.* {message}", lambda: open_rows(path, "e").load())

        bad("list of 1 numbers in row 2.* 2", floats([1.0, 2.0], [1.0, 2.0], [1.0]))
        bad("'e' has an empty list in row 0", floats([], [1.0]))
        for column in (floats([1.0], None), floats([1.0], [None]), pa.array([1.0, None])):
            bad("'e' has a missing value in row 1", column)
        bad("missing value in row 0", floats(None, [1.0, 2.0]))
        bad("column 'e' is of type .*string", pa.array([["a"], ["b"]]))
        bad("is empty", pa.array([], pa.float32()))
        x, y = open_rows(folder, "e"), RANDOM.normal(size=(ROWS, 2))
        for sizes, message in (
            ((40, 1, 57), "part-9.* has 57 rows but its partner .*part-9.* has 59"),
            ((40, 30), "has 100 rows in 3 .* has 70 rows in 2.*: row i of each"),
        ):
            other = open_rows(shards(tmp_path / f"{len(sizes)} parts", y, sizes), "e")
            refused(message, require_partners, x, other)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather", ".ipc", ".npy"])
@pytest.mark.parametrize("sizes", [(0, 60, 40), (60, 0, 40), (60, 40, 0)])
def test_shards_without_rows(tmp_path, suffix, sizes):
    values = RANDOM.normal(size=(ROWS, WIDTH))
    rows = opened(shards(tmp_path / "x", values, sizes, suffix))
    np.testing.assert_array_equal(rows.load(), values)
    np.testing.assert_array_equal(np.concatenate(list(rows.read(50, 70, 7))), values[50:70])


def test_an_empty_record_batch(tmp_path):
    schema = pa.schema([("e", pa.list_(pa.float32()))])
    with pa.ipc.new_file(tmp_path / "x.arrow", schema) as file:
        for rows in (0, 5):
            file.write_batch(pa.record_batch([floats(*[[1.0, 2.0]] * rows)], schema=schema))
    assert open_rows(tmp_path / "x.arrow", "e").load().shape == (5, 2)


def test_categories_by_name(tmp_path):
    table = pa.table({"a": ["u", "v"], "b": ["p", "q"]})
    pq.write_table(table, tmp_path / "1.parquet")
    pq.write_table(table.select(["b", "a"]), tmp_path / "2.parquet")
    assert read_tables(tmp_path, None)["a"].tolist() == ["u", "v", "u", "v"]
    pq.write_table(table.rename_columns(["a", "c"]), tmp_path / "2.parquet")
    refused(r"2\.parquet has other columns", read_tables, tmp_path, None)


def numbered(rows, width=2):
    """Row i holds i, i + 0.5."""
    return np.arange(rows, dtype=np.float64)[:, None] + 0.5 * np.arange(width)


def parquet(folder, values, sizes, group):
    return open_rows(write_shards(folder, {"e": values}, sizes, group), "e")


def side_by_side(chunks, rows):
    """Every row comes once, with its partner."""
    assert sorted(np.concatenate([chunk.numbers for chunk in chunks]).tolist()) == list(range(rows))
    for chunk in chunks:
        assert (chunk.x[:, 0] == chunk.numbers).all()
        assert (chunk.y[:, 0] == -chunk.numbers).all()


def order(source, size, seed=0):
    return [c.numbers.tolist() for c in source.shuffled(size, np.random.default_rng(seed))]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(0, 5))
def test_a_shuffle_has_every_row_once(rows, size, seed):
    pairs = PairSource(ArrayRows(numbered(rows)), ArrayRows(-numbered(rows, 3)))
    chunks = list(pairs.shuffled(size, np.random.default_rng(seed)))
    side_by_side(chunks, rows)
    assert all(size <= len(chunk.numbers) < size + pairs.block for chunk in chunks[:-1])


def test_shards_cut_at_other_rows_stay_side_by_side(tmp_path):
    values = numbered(2000)
    x = parquet(tmp_path / "x", values, (1000, 1000), 130)
    pairs = PairSource(x, parquet(tmp_path / "y", -values, (700, 300, 1000), 70))
    ends = [*range(130, 1000, 130), 1000]  # of x: those of both are few
    assert pairs.segments[:, 1].tolist() == [*ends, *(1000 + end for end in ends)]
    for chunks in (pairs.read(0, 2000, 300), pairs.shuffled(300, np.random.default_rng(0))):
        side_by_side(list(chunks), 2000)


@pytest.mark.parametrize("kind", ["array", "parquet"])
def test_rows_sorted_on_disk_are_mixed(tmp_path, kind):
    """A chunk of an eighth of the rows has rows from all over the data."""
    rows, values = 1 << 14, numbered(1 << 14)
    x = ArrayRows(values) if kind == "array" else parquet(tmp_path / "x", values, (rows,), 256)
    chunks = list(PairSource(x, x).shuffled(rows // 8, np.random.default_rng(1)))
    for chunk in chunks:
        eighths = np.bincount(chunk.numbers * 8 // rows, minlength=8) / len(chunk.numbers)
        assert (eighths > 0.02).sum() >= 6
        assert eighths.max() < 0.35
        assert abs(chunk.numbers.mean() / rows - 0.5) < 0.12


def test_row_groups_that_do_not_line_up_are_shuffled(tmp_path):
    values = numbered(20_000)
    x = parquet(tmp_path / "x", values, (20_000,), 200)
    pairs = PairSource(x, parquet(tmp_path / "y", -values, (20_000,), 201))
    assert len(pairs.segments) >= 99
    chunks = list(pairs.shuffled(2_000, np.random.default_rng(0)))
    assert all(np.ptp(chunk.numbers) > 10_000 for chunk in chunks)
    side_by_side(chunks, 20_000)


def test_one_order_is_kept_and_other_lengths_are_refused(tmp_path):
    short = np.random.default_rng(0).integers(5, 50, 60)
    values, few = numbered(3000), numbered(int(short.sum()))
    sources = [ArrayRows(values), parquet(tmp_path / "x", values, (1000, 2000), 130)]
    sources.append(parquet(tmp_path / "short", few, short, 7))
    partners = [*sources[:2], parquet(tmp_path / "other", -few, short, 11)]
    for x, y in zip(sources, partners, strict=True):
        pairs = PairSource(x, y)
        assert order(pairs, 300) == order(pairs, 300) != order(pairs, 300, seed=1)
        assert order(pairs, 300, 3) == order(pairs.numbers_only(), 300, 3)
        bare = next(pairs.numbers_only().shuffled(300, np.random.default_rng(3)))
        assert bare.x.shape == (len(bare.numbers), 0)
        assert pairs.x is x
    five, four = ArrayRows(numbered(5)), ArrayRows(numbered(4))
    refused("X has 5 rows, Y has 4 rows", PairSource, five, four)
    refused("X has 5 rows, Y has 4 rows", next, paired_parts(five, four, 2))


def test_parts_of_sources_and_tables(tmp_path):
    values = numbered(1000)
    x = parquet(tmp_path / "x", values, (400, 600), 90)
    for y in (values, pd.DataFrame(values), x):
        firsts, *sides = zip(*paired_parts(x, y, 128), strict=True)
        assert list(firsts) == np.cumsum([0, *map(len, sides[0])])[:-1].tolist()
        for side in sides:
            np.testing.assert_array_equal(np.concatenate([np.asarray(p) for p in side]), values)


def test_reading_ahead():
    """An error comes where it happened, and whoever stops early leaves no thread."""
    assert list(ahead(iter(range(50)))) == list(range(50))

    def items():
        yield 1
        raise InputError("bad")

    taken = ahead(items())
    assert next(taken) == 1
    refused("bad", next, taken)
    before, taken = threading.active_count(), ahead(iter(range(10**6)))
    next(taken)
    taken.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("size", [1e-300, 1e-170, 1e200, 1e300])
def test_scale_of_numbers_without_squares(size):
    """As in memory, up to the half range that stands for the deviation."""
    rows, moments = size * np.random.default_rng(0).normal(size=(50, 2)), ColumnMoments(2)
    moments.add(torch.from_numpy(rows))
    known = SideEncoder.fit(as_side(rows, "X"), "X").scale
    assert np.abs(np.log(moments.scale() / known)).max() < np.log(4.0)
    moments.add(torch.full((5, 2), float(rows[0, 0]), dtype=torch.float64))
    assert np.isfinite([moments.mean, moments.scale()]).all()


SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(SIZES, st.floats(-1e6, 1e6), st.floats(1e-3, 1e3), st.integers(0, 100))
def test_moments_of_pieces_are_those_of_all(sizes, center, scale, seed):
    random = np.random.default_rng(seed)
    pieces = [center + scale * random.normal(size=(size, 3)) for size in sizes]
    found, merged = ColumnMoments(3), ColumnMoments(3)
    for piece in pieces:
        found.add(torch.from_numpy(piece))
        one = ColumnMoments(3)
        one.add(torch.from_numpy(piece))
        merged.merge(one)
    whole, rounding = np.concatenate(pieces), 1e-9 * abs(center)
    for moments in (found, merged):
        np.testing.assert_allclose(moments.mean, whole.mean(0), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(moments.scale(), whole.std(0), rtol=1e-6, atol=rounding)
        np.testing.assert_array_equal([moments.low, moments.high], [whole.min(0), whole.max(0)])
