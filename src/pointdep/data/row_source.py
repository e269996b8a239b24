"""What every source of rows offers, wherever the rows are."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pointdep.data.raw import MEND, Array, column_label
from pointdep.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Rows = NDArray[np.int64]

PIECE_NUMBERS = 1 << 21  # numbers read at a time, where nobody says otherwise


class RowSource(ABC):
    """Rows of numbers, (rows, width) of one dtype, read in pieces.

    names, named: of the columns, as in `RawSide`. cuts: row numbers at which reading may begin
    without reading more than is asked for, 0 and `rows` among them; None where that is any row.
    list_column: as in `RawSide`.
    """

    rows: int
    names: tuple[str, ...]
    named: bool
    dtype: np.dtype[np.generic]
    cuts: Rows | None = None
    list_column: str | None = None

    @property
    def width(self) -> int:
        return len(self.names)

    @property
    def category_mask(self) -> tuple[bool, ...]:
        return (False,) * self.width

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.width

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        lists = f" in the column {self.list_column!r}" if self.list_column else ""
        size = f"{self.rows} rows x {self.width} columns{lists}, {self.dtype}"
        return f"{type(self).__name__}({size}{self._described()})"

    def _described(self) -> str:
        """Where they are, as the end of the repr."""
        return ""

    def __getitem__(self, rows: Any) -> Array:
        """x[3] -> (width,); x[5:8], x[[1, 4]] or x[mask] -> (n, width), read now."""
        if isinstance(rows, numbers.Integral):
            return np.asarray(self.take(np.array([range(self.rows)[int(rows)]]))[0])
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(self.rows)
            return self.load(start, max(start, stop))
        return self.take(np.arange(self.rows)[rows])

    def __iter__(self) -> Iterator[Array]:
        for piece in self.read(0, self.rows, self.step()):
            yield from piece

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All rows in memory."""
        if copy is False and not isinstance(self, ArrayRows):
            raise ValueError("rows that are stored must be copied to make an array of them")
        values = self.load()
        values = values if dtype is None else values.astype(dtype, copy=False)
        return values.copy() if copy else values

    @abstractmethod
    def read(self, start: int, stop: int, step: int) -> Iterator[Array]:
        """The rows from start to stop, in order, in pieces (at most step, width)."""

    def whereabouts(self, row: int) -> str:
        """Where a row is, in words."""
        return f"row {row}"

    def step(self) -> int:
        """A number of rows that makes a piece of a few megabytes."""
        return max(1, PIECE_NUMBERS // self.width)

    def load(self, start: int = 0, stop: int | None = None) -> Array:
        """These rows, or all, (rows, width), in memory."""
        stop, done = self.rows if stop is None else stop, 0
        out = np.empty((stop - start, self.width), self.dtype)
        for piece in self.read(start, stop, self.step()):
            out[done : done + len(piece)] = piece
            done += len(piece)
        return out

    def take(self, rows: Rows) -> Array:
        """The rows of these numbers, in their order. Sources with cuts read all between two cuts
        that hold one of them."""
        order = np.argsort(rows, kind="stable")
        wanted = rows[order]
        found = np.empty((len(rows), self.width), self.dtype)
        cuts = self.cuts if self.cuts is not None else np.array([0, self.rows], np.int64)
        for start, stop in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            first, last = np.searchsorted(wanted, [start, stop])
            at = start
            for piece in self.read(start, stop, self.step()) if last > first else ():
                low, high = np.searchsorted(wanted, [at, at + len(piece)])
                found[order[low:high]] = piece[wanted[low:high] - at]
                at += len(piece)
        return found


class ArrayRows(RowSource):
    """An array in memory, or one that is memory-mapped: the rows are where they were."""

    def __init__(self, values: Array, names: tuple[str, ...] = (), named: bool = False) -> None:
        self.values = values
        self.rows = len(values)
        self.names = names or tuple(str(position) for position in range(values.shape[1]))
        self.named, self.dtype = named, values.dtype

    def read(self, start: int, stop: int, step: int) -> Iterator[Array]:
        for first in range(start, stop, step):
            yield np.asarray(self.values[first : min(first + step, stop)])

    def load(self, start: int = 0, stop: int | None = None) -> Array:
        return self.values[start:stop]

    def take(self, rows: Rows) -> Array:
        return np.asarray(self.values[rows])


# Mean, spread and extremes of columns from one pass, whatever the pieces.

_SMALLEST = 1e-150  # deviations whose squares are still exact


class ColumnMoments:
    """Of columns seen piece by piece; two of them can be merged (Chan, Golub and LeVeque, 1979).

    mean, squares (of deviations from the mean), low, high: (width,) float64.
    """

    def __init__(self, width: int) -> None:
        self.count = 0
        self.mean, self.squares = np.zeros(width), np.zeros(width)
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)

    def add(self, rows: Tensor) -> None:
        """rows: (n, width) float64, on any device."""
        piece = ColumnMoments(rows.shape[1])
        mean = rows.mean(0)
        found = mean, (rows - mean).square().sum(0), rows.amin(0), rows.amax(0)
        piece.mean, piece.squares, piece.low, piece.high = (part.cpu().numpy() for part in found)
        piece.count = len(rows)
        self.merge(piece)

    def merge(self, other: ColumnMoments) -> None:
        """Take in what another has seen."""
        count = self.count + other.count
        apart = other.mean - self.mean
        with np.errstate(over="ignore", invalid="ignore"):
            self.squares = (
                self.squares + other.squares + np.square(apart) * (self.count * other.count / count)
            )
        self.mean = self.mean + apart * (other.count / count)
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        self.count = count

    def scale(self) -> Array:
        """(width,) the standard deviation, 0 for columns of one value.

        Of values so small or large that their squares are no numbers it is half their range.
        """
        deviation = np.sqrt(self.squares / max(self.count, 1))
        known = np.isfinite(deviation) & (deviation > _SMALLEST)
        with np.errstate(invalid="ignore"):
            return np.where(known, deviation, self.high / 2 - self.low / 2)


def require_finite_piece(rows: Tensor, source: RowSource, side: str, first: int) -> None:
    """InputError naming column and row, of rows: (n, width) from this row on, with NaN or inf."""
    import torch

    if bool(torch.isfinite(rows.sum())) or bool(torch.isfinite(rows).all()):
        return
    row, column = torch.nonzero(~torch.isfinite(rows))[0].tolist()
    what = "NaN" if bool(rows[row, column].isnan()) else "infinity"
    label, where = column_label(side, source.names[column]), source.whereabouts(first + row)
    raise InputError(f"{label} holds {what} in {where}: {MEND}")


# Reading ahead: the next piece is prepared while the last one is used.

T = TypeVar("T")

_END = object()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, the next one made by a thread of its own; an error comes in its place."""
    with ThreadPoolExecutor(1, "pointdep-ahead") as thread:
        ready = thread.submit(next, items, _END)
        while (item := ready.result()) is not _END:
            ready = thread.submit(next, items, _END)
            yield item  # type: ignore[misc]
