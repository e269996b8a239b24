"""Pairs read from disk in any order: nothing lost, nothing twice, rows side by side."""

import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep.data.row_source import ArrayRows, ColumnMoments, ahead
from pointdep.data.shards import open_rows
from pointdep.data.sides import SideEncoder, as_side
from pointdep.data.stored_pairs import PairSource, paired_parts
from pointdep.errors import InputError
from refusals import refused


def numbered(rows, width=2):
    """Row i holds i, i + 0.5."""
    return np.arange(rows, dtype=np.float64)[:, None] + 0.5 * np.arange(width)


def parquet(folder, values, sizes, group):
    folder.mkdir()
    for number, part in enumerate(np.split(values, np.cumsum(sizes)[:-1])):
        column = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), part.shape[1])
        pq.write_table(pa.table({"e": column}), folder / f"{number}.parquet", row_group_size=group)
    return open_rows(folder, "e")


def side_by_side(chunks, rows):
    """Every row comes once, with its partner."""
    numbers = np.concatenate([chunk.numbers for chunk in chunks])
    assert sorted(numbers.tolist()) == list(range(rows))
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
    y = parquet(tmp_path / "y", -values, (700, 300, 1000), 70)
    pairs = PairSource(x, y)
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
    y = parquet(tmp_path / "y", -values, (20_000,), 201)
    pairs = PairSource(x, y)
    assert len(pairs.segments) >= 99
    chunks = list(pairs.shuffled(2_000, np.random.default_rng(0)))
    assert all(np.ptp(chunk.numbers) > 10_000 for chunk in chunks)
    side_by_side(chunks, 20_000)


def test_one_order_is_kept_and_numbers_alone_come_in_it(tmp_path):
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


def test_other_lengths_are_refused():
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
    before = threading.active_count()
    taken = ahead(iter(range(10**6)))
    next(taken)
    taken.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("size", [1e-300, 1e-170, 1e200, 1e300])
def test_scale_of_numbers_without_squares(size):
    """As in memory, up to the half range that stands for the deviation."""
    rows = size * np.random.default_rng(0).normal(size=(50, 2))
    moments = ColumnMoments(2)
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
