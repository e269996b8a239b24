"""Plug-in estimates: frequencies of categories, and the correlations of Gaussian sides."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

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
    values: Array = ((len(x) * whole - left * others) / sizes)[own]
    return values


def _n_log_n(counts: Array) -> Array:
    return counts * np.log(np.maximum(counts, 1.0))


def _codes(side: Side) -> Codes:
    assert side.codes is not None  # check() was passed
    return side.codes


# Canonical correlations: the closed form that holds when x and y are jointly Gaussian.

_RANK_TOLERANCE = 1e-10  # of the largest variance: below it a direction is rounding
_LARGEST_CORRELATION = 1 - 1e-7  # columns have 32 bits: nothing closer to 1 can be told from it


@dataclass(frozen=True, eq=False)
class GaussianModel(PairModel):
    """Canonical coordinates u = (x - mean_x) to_x and v = (y - mean_y) to_y, and correlations.

    mean_x: (dx,), to_x: (dx, k), mean_y: (dy,), to_y: (dy, k), correlations: (k,);
    ranks: dimensions in which x and y vary; rows: how many rows were fitted.
    """

    mean_x: Array
    to_x: Array
    mean_y: Array
    to_y: Array
    correlations: Array
    ranks: tuple[int, int]
    rows: int
    correction: str

    @property
    def at_limit(self) -> bool:
        """Whether y is, in some direction, a linear function of x."""
        return bool((self.correlations >= _LARGEST_CORRELATION).any())

    def pairs(self, x: Side, y: Side) -> Array:
        """(n,) log r of a Gaussian with these correlations."""
        return _log_ratio(*self._coordinates(x, y), self.correlations)

    def matrix(self, x: Side, y: Side) -> Array:
        """(n, m) log r of every x with every y: only the cross term joins the two sides."""
        u, v = self._coordinates(x, y)
        rho = self.correlations
        zero = np.zeros(rho.size)
        sides = (u, zero), (zero, v), (zero, zero)
        alone_x, alone_y, constant = (_log_ratio(a, b, rho) for a, b in sides)
        cross: Array = (u * (rho / (1 - rho**2))) @ v.T
        return alone_x[:, None] + alone_y[None, :] - constant + cross

    def mi_values(self, x: Side, y: Side, groups: Codes | None = None) -> Array | None:
        """(n,) PMI of the fitted rows, its mean -1/2 sum log(1 - rho^2), less the bias.

        That of groups of rows is not known in closed form: out of fold.
        """
        if self.correction == "out_of_fold" or groups is not None:
            return None
        excess = 0.0 if self.correction == "none" else wishart_excess(*self.ranks, self.rows)
        return self.pairs(x, y) - excess

    def _coordinates(self, x: Side, y: Side) -> tuple[Array, Array]:
        return (x.values - self.mean_x) @ self.to_x, (y.values - self.mean_y) @ self.to_y


def fit_gaussian(x: Side, y: Side, *, seed: int, correction: str) -> GaussianModel:
    """Whiten both sides and decompose what is left of their covariance."""
    del seed
    mean_x, white_x = _whitening(x.values)
    mean_y, white_y = _whitening(y.values)
    ranks = white_x.shape[1], white_y.shape[1]
    if len(x) < sum(ranks) + 2:
        raise InputError(f"method 'cca' has {len(x)} rows for {sum(ranks)} columns: give more rows")
    cross = ((x.values - mean_x) @ white_x).T @ ((y.values - mean_y) @ white_y) / len(x)
    left, correlations, right = np.linalg.svd(cross, full_matrices=False)
    correlations = np.minimum(correlations, _LARGEST_CORRELATION)
    to_x, to_y = white_x @ left, white_y @ right.T
    return GaussianModel(mean_x, to_x, mean_y, to_y, correlations, ranks, len(x), correction)


def wishart_excess(dx: int, dy: int, rows: int) -> float:
    """By how much -1/2 sum log(1 - rho^2) of a Gaussian sample exceeds its true value, on average.

    From E log det of a Wishart matrix with rows - 1 degrees of freedom; dx dy / (2 rows) to first
    order, and exact for every correlation.
    """
    from scipy.special import digamma

    def log_det(dimensions: int) -> float:
        return float(digamma((rows - np.arange(1, dimensions + 1)) / 2).sum())

    return 0.5 * (log_det(dx) + log_det(dy) - log_det(dx + dy))


def _whitening(values: Array) -> tuple[Array, Array]:
    """Mean (d,) and the map (d, rank) to uncorrelated coordinates of variance 1."""
    mean = values.mean(0)
    centred = values - mean
    variances, directions = np.linalg.eigh(centred.T @ centred / len(values))
    kept = variances > _RANK_TOLERANCE * variances[-1]
    if variances[-1] <= 0:
        raise InputError("the rows of a fold have one value throughout: give more rows")
    return mean, directions[:, kept] / np.sqrt(variances[kept])


def _log_ratio(u: Array, v: Array, correlations: Array) -> Array:
    import torch

    from pointdep.core.linear import gaussian_log_ratio

    values: Array = gaussian_log_ratio(*map(torch.from_numpy, (u, v, correlations))).numpy()
    return values
