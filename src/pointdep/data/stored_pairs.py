"""Two sources whose rows belong together, read side by side."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from pointdep.data.raw import Array, require_same_length
from pointdep.data.row_source import PIECE_NUMBERS, ArrayRows, Rows, RowSource
from pointdep.data.shards import require_partners

BLOCKS = 512
"""Blocks of adjacent rows in a full chunk: what is read at once, from wherever it lies."""

_LEAST_BLOCK = 16  # rows
_OPEN = 32  # stretches of shards that are read side by side
_CHUNK_NUMBERS = 1 << 25  # numbers in a chunk, both sides together


class Chunk(NamedTuple):
    """Some rows: their numbers (n,), and x: (n, dx) and y: (n, dy) as they were stored."""

    numbers: Rows
    x: Array
    y: Array


class PairSource:
    """Row i of x with row i of y.

    block: adjacent rows that a shuffle may leave together, of which a chunk holds 512, or fewer
    where a block would be shorter than 16 rows. segments: (k, 2), the stretches [start, stop) that
    a shuffle puts in any order: a block each for rows in memory or memory-mapped; for shards what
    is between two cuts, such as a row group, of any length.
    """

    def __init__(self, x: RowSource, y: RowSource) -> None:
        require_partners(x, y)
        require_same_length(x, y)
        self.x, self.y, self.rows = x, y, x.rows
        self.width = x.width + y.width
        self.block = max(_LEAST_BLOCK, self.chunk_rows() // BLOCKS)
        self.segments = _segments(self.rows, self.block, x.cuts, y.cuts)

    def numbers_only(self) -> PairSource:
        """The same rows in the same chunks and shuffles, without what is in them."""
        found = copy(self)
        found.x = found.y = ArrayRows(np.empty((self.rows, 0), np.float32))
        return found

    def step(self) -> int:
        """Rows that make a piece of a few megabytes."""
        return max(1, PIECE_NUMBERS // self.width)

    def read(self, start: int, stop: int, step: int) -> Iterator[Chunk]:
        """The pairs from start to stop, in order, at most `step` at a time."""
        for x, y in side_by_side(self.x.read(start, stop, step), self.y.read(start, stop, step)):
            yield Chunk(np.arange(start, start + len(x)), x, y)
            start += len(x)

    def chunk_rows(self, least: int = 1, readers: int = 1) -> int:
        """Rows of each of equally large chunks; at least so many, where there are.

        readers: that hold parts of a chunk.
        """
        most = max(readers * _CHUNK_NUMBERS // self.width, least, 1)
        return -(-self.rows // max(1, -(-self.rows // most)))

    def shuffled(
        self, rows: int, random: Generator, most: int | None = None, part: slice | None = None
    ) -> Iterator[Chunk]:
        """All pairs once, in chunks of about `rows`, or only the first `most` of them.

        part: which rows of the segments in this order, one after another; no others are read.

        The segments come in random order; 32 of them are open at a time, and blocks are taken from
        one or another at random until a chunk is full. Which rows share a chunk is thus decided for
        whole blocks, of which a chunk holds 512 from anywhere in memory-mapped data, and from 32 or
        more segments (or all) in shards. The order within a chunk is left to whoever takes it.
        """
        order = self._part(random.permutation(len(self.segments)), part or slice(0, self.rows))
        streams: list[Iterator[Chunk]] = []
        held: list[Chunk] = []
        count = total = 0
        while most is None or total < most:
            while len(streams) < _OPEN and (segment := next(order, None)) is not None:
                streams.append(_in_blocks(self.read(*segment, self.block), self.block))
            if not streams:
                break
            at = int(random.integers(len(streams)))
            piece = next(streams[at], None)
            if piece is None:
                streams.pop(at)
                continue
            held.append(piece)
            count, total = count + len(piece.numbers), total + len(piece.numbers)
            if count >= rows:
                yield _joined(held)
                held, count = [], 0
        if held:
            yield _joined(held)

    def _part(self, order: Rows, part: slice) -> Iterator[tuple[int, int]]:
        """The segments in this order that make up a part; its first and last may be cut."""
        lengths = np.diff(self.segments[order]).ravel()
        ends = np.cumsum(lengths)
        for at in range(int(np.searchsorted(ends, part.start, side="right")), len(order)):
            before = int(ends[at] - lengths[at])
            if before >= part.stop:
                return
            start, stop = self.segments[order[at]].tolist()
            yield start + max(part.start - before, 0), min(stop, start + part.stop - before)


def _in_blocks(pieces: Iterator[Chunk], size: int) -> Iterator[Chunk]:
    """The same rows, `size` at a time, however they were stored; so that the shuffle of rows does
    not depend on it. pieces: of at most `size` rows."""
    held: list[Chunk] = []
    missing = size
    for piece in pieces:
        for rows in (slice(missing), slice(missing, size)):
            part = Chunk(*(values[rows] for values in piece))
            if not len(part.numbers):
                continue
            held.append(part)
            missing -= len(part.numbers)
            if not missing:
                yield held[0] if len(held) == 1 else _joined(held)
                held, missing = [], size
    if held:
        yield _joined(held)


def _joined(pieces: list[Chunk]) -> Chunk:
    return Chunk(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))


def side_by_side(xs: Iterator[Any], ys: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    """Pieces of the same rows, where those of one side may end at other rows than the other's."""
    x = y = None
    while True:
        x = next(xs, None) if x is None else x
        y = next(ys, None) if y is None else y
        if x is None or y is None:
            return
        size = min(len(x), len(y))
        yield _rows(x, slice(size)), _rows(y, slice(size))
        x, y = (None if len(side) == size else _rows(side, slice(size, None)) for side in (x, y))


def _rows(values: Any, rows: Any) -> Any:
    """These rows of an array or a data frame."""
    return (values.iloc if hasattr(values, "iloc") else values)[rows]


def _segments(rows: int, block: int, x_cuts: Rows | None, y_cuts: Rows | None) -> Rows:
    """(k, 2): between cuts of the sides, and not shorter than a block needs to be.

    Of the cuts those that both sides have; where they are few, those of the side with the longer
    stretches. The other side then reads some rows of its own shorter stretches twice: better than
    stretches so long that nothing is shuffled.
    """
    given = [cuts for cuts in (x_cuts, y_cuts) if cuts is not None]
    if not given:
        cuts = np.arange(0, rows, block, dtype=np.int64)
    else:
        both, cuts = np.intersect1d(given[0], given[-1]), min(given, key=len)
        cuts = both if 2 * len(both) >= len(cuts) else cuts
        # Of many short stretches, those are joined that begin in the same block.
        cuts = cuts[np.unique(cuts // block, return_index=True)[1]]
        cuts = cuts[cuts < rows]
    return np.stack([cuts, np.append(cuts[1:], rows)], 1)


# Pairs of any kind, cut into parts of the same rows, or sampled.


def paired_parts(x: Any, y: Any, step: int) -> Iterator[tuple[int, Any, Any]]:
    """The first row's number and the same at most `step` rows of x and of y, from first to last."""
    require_partners(x, y)
    require_same_length(x, y)
    start = 0
    for a, b in side_by_side(_parts(x, step), _parts(y, step)):
        yield start, _like(x, a), _like(y, b)
        start += len(a)


def sampled(values: Any, rows: Rows) -> Any:
    """The rows of these numbers, in memory."""
    taken = values.take(rows) if isinstance(values, RowSource) else _rows(values, rows)
    return _like(values, taken)


def _parts(values: Any, step: int) -> Iterator[Any]:
    if isinstance(values, RowSource):
        return values.read(0, values.rows, step)
    return (_rows(values, slice(at, at + step)) for at in range(0, len(values), step))


def _like(whole: Any, part: Any) -> Any:
    """A piece of a source with the names of the source."""
    return ArrayRows(part, whole.names, whole.named) if isinstance(whole, RowSource) else part
