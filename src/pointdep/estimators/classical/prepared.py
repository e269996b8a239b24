"""One side as the classical estimators read it: columns of numbers, and the outcome of a row."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pointdep.data.encoder import SideEncoder, part_of
from pointdep.data.raw import Fault, RawSide
from pointdep.errors import InputError

Array = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Side:
    """Rows of X or Y.

    values: (n, d) standardised numbers, then one-hot categories; (n, 0) for a side of categories
        where the method works on outcomes alone.
    codes: (n,) which outcome each row is, where every column is a category; None otherwise.
    outcomes: how many outcomes there are, 0 without codes.
    mixed: whether numbers and categories, or indicators of missing numbers, are in one side.
    numbers: how many of the columns, the first ones, are numbers.
    """

    values: Array
    codes: Codes | None = None
    outcomes: int = 0
    mixed: bool = False
    numbers: int = 0

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: slice | Codes) -> Side:
        """The same side at some of its rows."""
        codes = None if self.codes is None else self.codes[rows]
        return replace(self, values=self.values[rows], codes=codes)


class PairModel:
    """What a fit gives: PMI (or a score) of pairs, and MI where it is not the mean out of fold."""

    def pairs(self, x: Side, y: Side) -> Array:
        """(n,) of paired rows."""
        raise NotImplementedError

    def matrix(self, x: Side, y: Side) -> Array:
        """(n, m) of every x with every y."""
        raise NotImplementedError

    def mi_values(self, x: Side, y: Side, groups: Codes | None = None) -> Array | None:
        """(n,) values of the fitted rows whose mean is the MI; groups: (n,), or None.

        None for PMI out of fold: on the fitted rows most methods read too high.
        """
        del x, y, groups
        return None


@dataclass(frozen=True, eq=False)
class SideReader:
    """Turns raw rows into a `Side`, the same way in fit and after.

    seen: for a side of categories, one array per column: the combinations of the columns up to it
        that came in training, each as (code of the columns before) * categories + category.
    """

    encoder: SideEncoder
    seen: tuple[Codes, ...]

    @classmethod
    def fit(cls, raw: RawSide, encoder: SideEncoder) -> SideReader:
        """Learn which combinations of categories come, from the rows of the encoder's fit."""
        seen: list[Codes] = []
        if encoder.discrete is True:
            before = np.zeros(raw.rows, dtype=np.int64)
            for codes, size in _column_codes(encoder, raw):
                distinct, before = np.unique(before * size + codes, return_inverse=True)
                seen.append(distinct.astype(np.int64))
        return cls(encoder, tuple(seen))

    def read(self, raw: RawSide, *, dense: bool) -> Side:
        """dense: whether a side of categories needs its one-hot columns."""
        if raw.width != len(self.encoder.names):
            raise InputError(
                f"{self.encoder.side} has {raw.width} features, but ClassicalDependency is "
                f"expecting {len(self.encoder.names)} features as input"
            )
        values = np.empty((raw.rows, 0))
        if dense or not self.seen:
            values = self.encoder.encode(raw).astype(np.float64)
        if not self.seen:
            numbers = len(self.encoder.numeric_at)
            return Side(values, mixed=numbers < values.shape[1], numbers=numbers)
        return Side(values, self._outcomes(raw), outcomes=self.seen[-1].size)

    def faults(self, raw: RawSide) -> list[Fault]:
        """Which rows cannot be read, and why."""
        if not self.seen:
            return self.encoder.encode_some(raw)[1]
        found, encoder = list(raw.faults), self.encoder
        fine = np.ones(raw.rows, dtype=bool)
        for at, column in zip(encoder.category_at, encoder.categories, strict=True):
            unseen = column.find(raw.column(at), encoder.side)[1]
            if unseen.any():
                found.append(column.unseen(raw.column(at), unseen, encoder.side))
        for fault in found:
            fine &= ~fault.rows
        rows = np.flatnonzero(fine)
        odd = np.zeros(raw.rows, dtype=bool)
        odd[rows[self._find(part_of(raw, rows))[1]]] = True
        return [*found, self._unseen(odd)] if odd.any() else found

    def _outcomes(self, raw: RawSide) -> Codes:
        """(n,) number of each row's combination of categories."""
        known, unseen = self._find(raw)
        if unseen.any():
            raise InputError(self._unseen(unseen).message)
        return known

    def _unseen(self, rows: NDArray[np.bool_]) -> Fault:
        what = f"a combination of categories unseen in training, in row {int(rows.argmax())}"
        message = f"{self.encoder.side} holds {what} ({int(rows.sum())} such row(s))"
        reason = f"{self.encoder.side}: a combination of categories unseen in training"
        return Fault(rows, reason, f"{message}: drop these rows")

    def _find(self, raw: RawSide) -> tuple[Codes, NDArray[np.bool_]]:
        """(n,) number of each row's combination of categories, and which were not in training."""
        known = np.zeros(raw.rows, dtype=np.int64)
        odd = np.zeros(raw.rows, dtype=bool)
        columns = _column_codes(self.encoder, raw)
        for (codes, size), distinct in zip(columns, self.seen, strict=True):
            wanted = known * size + codes
            known = np.minimum(np.searchsorted(distinct, wanted), distinct.size - 1)
            odd |= distinct[known] != wanted
        return known, odd


def _column_codes(encoder: SideEncoder, raw: RawSide) -> list[tuple[Codes, int]]:
    """Per category column that varies: (n,) code of each row, and the number of categories."""
    return [
        (column.codes(raw.column(at), encoder.side).astype(np.int64), column.values.size)
        for at, column in zip(encoder.category_at, encoder.categories, strict=True)
    ]
