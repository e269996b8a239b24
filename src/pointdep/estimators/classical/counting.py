"""Counting (Church and Hanks, 1990): frequencies of pairs and of outcomes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pointdep.errors import InputError
from pointdep.estimators.classical.prepared import Array, Codes, Side


@dataclass(frozen=True, eq=False)
class CountModel:
    """Counts of the cells that came, so that a large and sparse table takes little memory.

    cells, cell_counts: (occupied,) number x * ly + y of each pair that came, sorted, and how often.
    counts_x: (lx,), counts_y: (ly,) how often each outcome came.
    """

    cells: Codes
    cell_counts: Array
    counts_x: Array
    counts_y: Array
    smoothing: float
    correction: str

    @property
    def rows(self) -> float:
        return float(self.counts_x.sum())

    def pairs(self, x: Side, y: Side) -> Array:
        """(n,) log r of the smoothed frequencies."""
        return self._log_ratio(_codes(x), _codes(y), self.smoothing)

    def matrix(self, x: Side, y: Side) -> Array:
        """(n, m) log r of every x with every y."""
        return self._log_ratio(_codes(x)[:, None], _codes(y)[None, :], self.smoothing)

    def mi_values(self, x: Side, y: Side) -> Array | None:
        """(n,) values whose mean is the plug-in estimate less its bias; None for out of fold.

        The influence of a row on the plug-in estimate is its PMI, so that the spread of these
        values gives the standard error. Miller and Madow raise each entropy by
        (outcomes that came - 1) / (2 n), and MI = H(X) + H(Y) - H(X, Y).
        """
        if self.correction == "out_of_fold":
            return None
        plug_in = self._log_ratio(_codes(x), _codes(y), 0.0)
        if self.correction == "none":
            return plug_in
        came_x, came_y = (int(np.count_nonzero(c)) for c in (self.counts_x, self.counts_y))
        return plug_in + (came_x + came_y - self.cells.size - 1) / (2 * self.rows)

    def _log_ratio(self, x: Codes, y: Codes, smoothing: float) -> Array:
        """log r where x and y, broadcast against each other, meet; `smoothing` on every cell."""
        lx, ly = self.counts_x.size, self.counts_y.size
        wanted = x * ly + y
        at = np.minimum(np.searchsorted(self.cells, wanted), self.cells.size - 1)
        joint = np.where(self.cells[at] == wanted, self.cell_counts[at], 0.0) + smoothing
        total = self.rows + smoothing * lx * ly
        product = (self.counts_x + smoothing * ly)[x] * (self.counts_y + smoothing * lx)[y]
        # An outcome without mass is never drawn: its cells count as impossible too.
        ratio = np.divide(joint * total, product, out=np.zeros_like(joint), where=product > 0)
        with np.errstate(divide="ignore"):
            log_ratio: Array = np.log(ratio)
        return log_ratio


def fit(x: Side, y: Side, *, seed: int, smoothing: float, correction: str) -> CountModel:
    """Count the pairs x, y: (n,) outcomes."""
    del seed
    a, b = _codes(x), _codes(y)
    cells, counts = np.unique(a * y.outcomes + b, return_counts=True)
    return CountModel(
        cells=cells,
        cell_counts=counts.astype(np.float64),
        counts_x=np.bincount(a, minlength=x.outcomes).astype(np.float64),
        counts_y=np.bincount(b, minlength=y.outcomes).astype(np.float64),
        smoothing=float(smoothing),
        correction=correction,
    )


def check(x: Side, y: Side) -> None:
    """Refuse measurements: hardly any pair of them comes twice."""
    for name, side in (("X", x), ("Y", y)):
        if side.codes is None:
            raise InputError(
                f"method 'counting' counts pairs of categories, and {name} holds numbers: use "
                f"ClassicalDependency('ksg') or PointwiseDependency(), or say "
                f"discrete_{name.lower()}=True if these numbers are categories"
            )


def _codes(side: Side) -> Codes:
    assert side.codes is not None  # check() was passed
    return side.codes
