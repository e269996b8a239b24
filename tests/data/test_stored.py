"""Rows on disk against the arrays they were written from, and shards that are no good."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather

from pointdep.data.readers import read_pairs, read_side
from pointdep.data.row_source import ArrayRows
from pointdep.data.shards import by_numbers, open_rows, read_tables, require_partners
from pointdep.data.sides import as_side, as_source
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


def test_rows_can_be_looked_at(tmp_path, monkeypatch):
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


def test_shards_follow_their_numbers(tmp_path):
    for number in (2, 10, 1):
        np.save(tmp_path / f"part-{number}.npy", np.full((2, 2), float(number)))
    (tmp_path / "_SUCCESS").touch()
    assert open_rows(tmp_path).load()[:, 0].tolist() == [1, 1, 2, 2, 10, 10]
    assert sorted(["p1", "p01", "p2", "p001"], key=by_numbers) == ["p001", "p01", "p1", "p2"]


def test_sides_are_read_as_arrays_are(tmp_path):
    values = RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float16)
    one, other = as_side(open_rows(shards(tmp_path / "x", values), "e"), "X"), as_side(values, "X")
    np.testing.assert_array_equal(one.numeric, other.numeric)
    assert (one.names, one.named) == (other.names, other.named)
    values[45, 2] = np.nan
    source = open_rows(shards(tmp_path / "y", values), "e")
    refused("Y column 2 .* in row 4 of .*y/part-9.parquet", as_side, source, "Y")


def test_numbers_stay_where_they_are_and_categories_are_read(tmp_path):
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

    def test_damaged_within(self, tmp_path):
        folder = shards(tmp_path / "x", RANDOM.normal(size=(3000, WIDTH)), (1000, 2000))
        bad = folder / "part-8.parquet"
        content = bad.read_bytes()
        bad.write_bytes(content[:2000] + bytes(58000) + content[60000:])
        refused("part-8.parquet cannot be read", opened(folder).load)

    def test_another_column_schema_or_kind(self, folder):
        write(folder / "part-8.parquet", pa.table({"id": [1], "f": [[1.0] * WIDTH]}))
        refused("part-8.parquet.* 'e'", open_rows, folder, "e")
        for bad in (np.ones((3, 4), np.float32), np.ones((3, WIDTH))):
            write(folder / "part-8.parquet", pa.table({"e": lists(bad)}))
            refused("part-8.parquet has rows of .* where .*part-7", open_rows, folder, "e")
        (folder / "notes.txt").write_text("hello")
        refused("notes.txt is among the shards", open_rows, folder, "e")

    def test_other_columns_of_single_numbers(self, tmp_path):
        write(tmp_path / "1.parquet", pa.table({"a": [1.0], "b": [2.0]}))
        write(tmp_path / "2.parquet", pa.table({"a": [1.0], "b": [2]}).cast(MIXED))
        # Of both columns the common type is double; of the second file's it is float.
        message = r"2\.parquet has the columns a, b \(float32\) where .*1\.parquet has .*float64"
        refused(message, open_rows, tmp_path)

    def test_arrays_that_are_no_rows(self, tmp_path):
        path = tmp_path / "x.npy"
        for bad in (np.zeros((2, 3, 4)), np.array(["a", "b"])):
            np.save(path, bad)
            refused(r"x\.npy holds .*: shards are rows of numbers", open_rows, path)
        np.save(path, np.zeros((2, 3)))
        refused(r"x\.npy has no named columns: leave out columns=", open_rows, path, "e")

    def test_what_rows_cannot_be(self, tmp_path):
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

    def test_partners(self, tmp_path, folder):
        x, y = open_rows(folder, "e"), RANDOM.normal(size=(ROWS, 2))
        for sizes, message in (
            ((40, 1, 57), "part-9.* has 57 rows but its partner .*part-9.* has 59"),
            ((40, 30), "has 100 rows in 3 .* has 70 in 2: row i of each"),
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
