"""Plug-in estimates: frequencies of categories, and the correlations of Gaussian sides."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pointdep.core.linear import GaussianSample, gaussian_matrix, gaussian_sample
from pointdep.errors import InputError
from pointdep.estimators.classical.prepared import Array, Codes, PairModel, Side

# Counting (Church and Hanks, 1990): frequencies of pairs and of outcomes.


@dataclass(frozen=True, eq=False)
class CountModel(PairModel):
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

    def pairs(self, x: Side, y: Side) -> Array:
        """(n,) log r of the smoothed frequencies."""
        return self._log_ratio(_codes(x), _codes(y), self.smoothing)

    def matrix(self, x: Side, y: Side) -> Array:
        """(n, m) log r of every x with every y."""
        return self._log_ratio(_codes(x)[:, None], _codes(y)[None, :], self.smoothing)

    def mi_values(self, x: Side, y: Side, groups: Codes | None = None) -> Array | None:
        """(n,) values whose mean is the plug-in estimate less its bias; None for out of fold.

        The influence of a row on the plug-in estimate is its PMI, so that the spread of these
        values gives the standard error. Miller and Madow raise each entropy by
        (outcomes that came - 1) / (2 n), and MI = H(X) + H(Y) - H(X, Y). That holds for n
        independent rows; where groups of rows are drawn, the bias comes from leaving out each.
        """
        if self.correction == "out_of_fold":
            return None
        plug_in = self._log_ratio(_codes(x), _codes(y), 0.0)
        if self.correction == "none":
            return plug_in
        if groups is not None:
            return _jackknife(_codes(x), _codes(y), groups)
        came_x, came_y = (int(np.count_nonzero(c)) for c in (self.counts_x, self.counts_y))
        rows = float(self.counts_x.sum())
        return plug_in + (came_x + came_y - self.cells.size - 1) / (2 * rows)

    def _log_ratio(self, x: Codes, y: Codes, smoothing: float) -> Array:
        """log r where x and y, broadcast against each other, meet; `smoothing` on every cell."""
        lx, ly = self.counts_x.size, self.counts_y.size
        wanted = x * ly + y
        at = np.minimum(np.searchsorted(self.cells, wanted), self.cells.size - 1)
        joint = np.where(self.cells[at] == wanted, self.cell_counts[at], 0.0) + smoothing
        total = self.counts_x.sum() + smoothing * lx * ly
        product = (self.counts_x + smoothing * ly)[x] * (self.counts_y + smoothing * lx)[y]
        # An outcome without mass is never drawn: its cells count as impossible too.
        ratio = np.divide(joint * total, product, out=np.zeros_like(joint), where=product > 0)
        with np.errstate(divide="ignore"):
            log_ratio: Array = np.log(ratio)
        return log_ratio


def count(x: Side, y: Side, *, seed: int, smoothing: float, correction: str) -> CountModel:
    """Count the pairs x, y: (n,) outcomes."""
    del seed
    a, b = _codes(x), _codes(y)
    cells, counts = np.unique(a * y.outcomes + b, return_counts=True)
    of_x = np.bincount(a, minlength=x.outcomes).astype(np.float64)
    of_y = np.bincount(b, minlength=y.outcomes).astype(np.float64)
    return CountModel(cells, counts.astype(np.float64), of_x, of_y, float(smoothing), correction)


def count_values(x: Codes, y: Codes) -> Array:
    """(n,) values whose mean is the plug-in estimate of two columns (n,), by Miller and Madow."""
    empty = np.empty((len(x), 0))
    a, b = (Side(empty, codes, int(codes.max()) + 1) for codes in (x, y))
    values = count(a, b, seed=0, smoothing=0.0, correction="miller_madow").mi_values(a, b)
    assert values is not None
    return values


def _jackknife(x: Codes, y: Codes, groups: Codes) -> Array:
    """(n,) the pseudo-value of each row's group for the plug-in estimate, all (n,).

    For a group of m of the n rows it is (n all - (n - m) others) / m, of the estimates from all
    rows and from the others. The mean over the rows has no bias of order 1 / groups, and their
    spread gives its error (Busing, Meijer and van der Leeden, 1999, for unequal groups).
    """
    own = np.unique(groups, return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(own).astype(np.float64)
    if len(sizes) < 2:
        raise InputError("counting rows of one group has no error: give two groups or more")
    left = len(x) - sizes
    whole, others = math.log(len(x)), np.log(left)
    for sign, codes in ((1, x * (int(y.max()) + 1) + y), (-1, x), (-1, y)):
        place = np.unique(codes, return_inverse=True)[1].reshape(-1)
        totals = np.bincount(place).astype(np.float64)
        shared, count = np.unique(own * len(totals) + place, return_counts=True)
        group, cell = np.divmod(shared, len(totals))
        total = float(_n_log_n(totals).sum())
        change = _n_log_n(totals[cell] - count) - _n_log_n(totals[cell])
        whole += sign * total / len(x)
        others += sign * (total + np.bincount(group, weights=change)) / left
    return ((len(x) * whole - left * others) / sizes)[own]


def _n_log_n(counts: Array) -> Array:
    return counts * np.log(np.maximum(counts, 1.0))


def _codes(side: Side) -> Codes:
    assert side.codes is not None  # check() was passed
    return side.codes


# Canonical correlations: the closed form that holds when x and y are jointly Gaussian.


@dataclass(frozen=True, eq=False)
class GaussianModel(PairModel):
    """The Gaussian closed form of log r with the canonical correlations of the fitted rows."""

    sample: GaussianSample
    correction: str

    @property
    def at_limit(self) -> bool:
        """Whether y is, in some direction, a linear function of x."""
        return self.sample.at_limit

    def pairs(self, x: Side, y: Side) -> Array:
        """(n,) log r of a Gaussian with these correlations."""
        return self.sample.values(*_tensors(x, y)).numpy()

    def matrix(self, x: Side, y: Side) -> Array:
        """(n, m) log r of every x with every y: only the cross term joins the two sides."""
        found = self.sample.found
        u, v = (side.unsqueeze(0) for side in found.coordinates(*_tensors(x, y)))
        return gaussian_matrix(u, v, found.correlations.unsqueeze(0))[0].numpy()

    def mi_values(self, x: Side, y: Side, groups: Codes | None = None) -> Array | None:
        """(n,) PMI of the fitted rows, its mean -1/2 sum log(1 - rho^2), less the bias.

        That of groups of rows is not known in closed form: out of fold.
        """
        if self.correction == "out_of_fold" or groups is not None:
            return None
        return self.pairs(x, y) - (0.0 if self.correction == "none" else self.sample.excess)


def fit_gaussian(x: Side, y: Side, *, seed: int, correction: str) -> GaussianModel:
    """The textbook canonical analysis of all rows."""
    del seed
    sides = _tensors(x, y)
    if any(not bool((side != side[0]).any()) for side in sides):
        raise InputError("the rows of a fold have one value throughout: give more rows")
    sample = gaussian_sample(*sides)
    if sample is None:
        columns = sum(side.shape[1] for side in sides)
        raise InputError(f"method 'cca' has {len(x)} rows for {columns} columns: give more rows")
    return GaussianModel(sample, correction)


def _tensors(x: Side, y: Side) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(x.values), torch.from_numpy(y.values)
