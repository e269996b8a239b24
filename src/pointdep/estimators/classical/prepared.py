"""One side as the classical estimators read it: columns of numbers, and the outcome of a row."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pointdep.data.encoder import SideEncoder
from pointdep.data.raw import RawSide
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
    mixed: whether numbers and categories stand beside each other.
    """

    values: Array
    codes: Codes | None = None
    outcomes: int = 0
    mixed: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: slice | Codes) -> Side:
        """The same side at some of its rows."""
        codes = None if self.codes is None else self.codes[rows]
        return replace(self, values=self.values[rows], codes=codes)


@dataclass(frozen=True, eq=False)
class SideReader:
    """Turns raw rows into a `Side`, the same way in fit and after.

    seen: for a side of categories, one array per column: the combinations of the columns up to it
        that came in training, each as (code of the columns before) * categories + category.
    """

    encoder: SideEncoder
    seen: tuple[Codes, ...]

    @classmethod
    def fit(cls, raw: RawSide, name: str) -> SideReader:
        """Learn the encoding of the side name from its training rows."""
        encoder = SideEncoder.fit(raw, name)
        seen: list[Codes] = []
        if encoder.discrete is True:
            before = np.zeros(raw.rows, dtype=np.int64)
            for codes, size in _column_codes(encoder, raw):
                distinct, before = np.unique(before * size + codes, return_inverse=True)
                seen.append(distinct.astype(np.int64))
        return cls(encoder, tuple(seen))

    def read(self, raw: RawSide, *, dense: bool) -> Side:
        """dense: whether a side of categories needs its one-hot columns."""
        self._check_width(raw)
        if not self.seen:
            mixed = bool(self.encoder.categories)
            return Side(self.encoder.encode(raw).astype(np.float64), mixed=mixed)
        values = self.encoder.encode(raw).astype(np.float64) if dense else np.empty((raw.rows, 0))
        return Side(values, self._outcomes(raw), outcomes=self.seen[-1].size)

    def _outcomes(self, raw: RawSide) -> Codes:
        """(n,) number of each row's combination of categories."""
        known = np.zeros(raw.rows, dtype=np.int64)
        for (codes, size), distinct in zip(
            _column_codes(self.encoder, raw), self.seen, strict=True
        ):
            wanted = known * size + codes
            known = np.minimum(np.searchsorted(distinct, wanted), distinct.size - 1)
            unseen = distinct[known] != wanted
            if unseen.any():
                raise InputError(
                    f"{self.encoder.side} holds in row {int(unseen.argmax())} a combination of "
                    f"categories unseen in training ({int(unseen.sum())} such row(s)): drop these "
                    "rows, or fit on data that has them"
                )
        return known

    def _check_width(self, raw: RawSide) -> None:
        if raw.width != len(self.encoder.names):
            raise InputError(
                f"{self.encoder.side} has {raw.width} features, but ClassicalDependency is "
                f"expecting {len(self.encoder.names)} features as input"
            )


def _column_codes(encoder: SideEncoder, raw: RawSide) -> list[tuple[Codes, int]]:
    """Per category column that varies: (n,) code of each row, and the number of categories."""
    return [
        (column.codes(raw.column(at), encoder.side).astype(np.int64), column.values.size)
        for at, column in zip(encoder.category_at, encoder.categories, strict=True)
    ]


# What the kernel methods share: centres, and the width of a Gaussian kernel.

_MEDIAN_ROWS = 1000  # distances between more rows change their median little


def pick_rows(rows: int, count: int, random: np.random.Generator) -> Codes:
    """At most `count` of the row numbers, without repeats."""
    chosen: Codes = np.sort(random.choice(rows, size=min(rows, count), replace=False))
    return chosen


def median_distance(values: Array, random: np.random.Generator) -> float:
    """The median heuristic for values: (n, d): of the distances between rows that differ."""
    from scipy.spatial.distance import pdist

    distances = pdist(values[pick_rows(len(values), _MEDIAN_ROWS, random)])
    distances = distances[distances > 0]
    return float(np.median(distances)) if distances.size else 1.0


def gaussian_kernel(values: Array, centres: Array, width: float) -> Array:
    """exp(-|v - c|^2 / (2 width^2)): (n, d), (b, d) -> (n, b)."""
    from sklearn.metrics.pairwise import rbf_kernel

    kernel: Array = rbf_kernel(values, centres, gamma=0.5 / width**2)
    return kernel
