"""Canonical correlations: the closed form that holds when x and y are jointly Gaussian."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pointdep.errors import InputError
from pointdep.estimators.classical.prepared import Array, Side

_RANK_TOLERANCE = 1e-10  # of the largest variance: below it a direction is rounding
_LARGEST_CORRELATION = 1 - 1e-7  # columns have 32 bits: nothing closer to 1 can be told from it


@dataclass(frozen=True, eq=False)
class GaussianModel:
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
        nothing = np.zeros(rho.size)
        alone_x, alone_y, constant = (
            _log_ratio(a, b, rho) for a, b in ((u, nothing), (nothing, v), (nothing, nothing))
        )
        cross: Array = (u * (rho / (1 - rho**2))) @ v.T
        return alone_x[:, None] + alone_y[None, :] - constant + cross

    def mi_values(self, x: Side, y: Side) -> Array | None:
        """(n,) PMI of the fitted rows, its mean -1/2 sum log(1 - rho^2), less the bias."""
        if self.correction == "out_of_fold":
            return None
        excess = 0.0 if self.correction == "none" else wishart_excess(*self.ranks, self.rows)
        return self.pairs(x, y) - excess

    def _coordinates(self, x: Side, y: Side) -> tuple[Array, Array]:
        return (x.values - self.mean_x) @ self.to_x, (y.values - self.mean_y) @ self.to_y


def fit(x: Side, y: Side, *, seed: int, correction: str) -> GaussianModel:
    """Whiten both sides and decompose what is left of their covariance."""
    del seed
    mean_x, white_x = _whitening(x.values)
    mean_y, white_y = _whitening(y.values)
    ranks = white_x.shape[1], white_y.shape[1]
    if len(x) < sum(ranks) + 2:
        raise InputError(
            f"method 'cca' has {len(x)} rows for {ranks[0]} + {ranks[1]} dimensions, with which "
            f"everything correlates perfectly: give at least {sum(ranks) + 2} rows per fold, or "
            "fewer columns"
        )
    cross = ((x.values - mean_x) @ white_x).T @ ((y.values - mean_y) @ white_y) / len(x)
    left, correlations, right = np.linalg.svd(cross, full_matrices=False)
    return GaussianModel(
        mean_x=mean_x,
        to_x=white_x @ left,
        mean_y=mean_y,
        to_y=white_y @ right.T,
        correlations=np.minimum(correlations, _LARGEST_CORRELATION),
        ranks=ranks,
        rows=len(x),
        correction=correction,
    )


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
