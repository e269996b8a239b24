"""Mixtures: the PMI is exact, and the MI by quadrature to 1e-9 or in closed form."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pointdep.data.raw import Array
from pointdep.data.tasks.base import Joint
from pointdep.data.tasks.discrete import joint_table, table_mutual_information, table_pmi
from pointdep.data.tasks.gaussian import canonical_log_ratio
from pointdep.data.tasks.quadrature import plane_expectation
from pointdep.errors import InputError

_REACH = 9.0  # standard deviations, beyond which a Gaussian weighs under 1e-18


def gaussian_mixture(weights: npt.ArrayLike, means: npt.ArrayLike, covs: npt.ArrayLike) -> Joint:
    """Components of weights (k,), means (k, 2) and covariances (k, 2, 2); one column a side."""
    share, mean, cov = (np.asarray(a, np.float64) for a in (weights, means, covs))
    deviations = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    reach = float((np.abs(mean) + _REACH * deviations).max())

    def log_joint(x: Array, y: Array) -> Array:
        return _log_mixture(np.hstack([x, y]), share, mean, cov)

    def log_ratio(x: Array, y: Array) -> Array:
        only_x = _log_mixture(x, share, mean[:, :1], cov[:, :1, :1])
        only_y = _log_mixture(y, share, mean[:, 1:], cov[:, 1:, 1:])
        ratio: Array = log_joint(x, y) - only_x - only_y
        return ratio

    factors = np.linalg.cholesky(cov)

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        component = random.choice(len(share), size=rows, p=share)
        normal = random.standard_normal((rows, 2, 1))
        pairs = mean[component] + (factors[component] @ normal)[:, :, 0]
        x, y = pairs[:, :1], pairs[:, 1:]
        return x, y, log_ratio(x, y)

    return Joint(plane_expectation(log_joint, log_ratio, reach), sample, log_ratio)


def outliers(dim: int, correlation: float, share: float) -> Joint:
    """Gaussian pairs, of which a share is mismatched: the y of a random other row.

    Only the first of the dim columns of a side correlates. Mismatching leaves both marginals, so
    r = (1 - share) r_Gaussian + share.
    """
    if not 0 <= share <= 1:
        raise InputError(f"share must be a fraction between 0 and 1, not {share}")
    rho = np.array([correlation])

    def log_ratio(x: Array, y: Array) -> Array:
        matched = canonical_log_ratio(x[:, :1], y[:, :1], rho)
        with np.errstate(divide="ignore"):  # a share of 0 or 1 leaves one of the two terms
            ratio: Array = np.logaddexp(np.log(1 - share) + matched, np.log(share))
        return ratio

    def log_joint(x: Array, y: Array) -> Array:
        apart = -0.5 * (x**2 + y**2)[:, 0] - math.log(2 * math.pi)
        density: Array = apart + log_ratio(x, y)
        return density

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        x, y = random.standard_normal((2, rows, dim))
        matched = random.random(rows) >= share
        y[matched, 0] *= math.sqrt(1 - correlation**2)
        y[matched, 0] += correlation * x[matched, 0]
        return x, y, log_ratio(x, y)

    return Joint(plane_expectation(log_joint, log_ratio, _REACH), sample, log_ratio)


def blocks(table: npt.ArrayLike) -> Joint:
    """x and y uniform in cells of the unit interval, of which a table (k, l) draws the pair.

    Inside a block x and y are independent, so PMI and MI are those of the table.
    """
    joint, cell_pmi = joint_table(table), table_pmi(table)
    bins = np.array(joint.shape)

    def log_ratio(x: Array, y: Array) -> Array:
        pairs = np.hstack([x, y])
        row, column = np.minimum(np.floor(pairs * bins), bins - 1).astype(int).T
        ratio: Array = cell_pmi[row, column]
        return ratio

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        cells = random.choice(joint.size, size=rows, p=joint.ravel())
        corner = np.column_stack(np.unravel_index(cells, joint.shape))
        pairs = (corner + random.random((rows, 2))) / bins
        return pairs[:, :1], pairs[:, 1:], cell_pmi[corner[:, 0], corner[:, 1]]

    return Joint(table_mutual_information(table), sample, log_ratio)


def _log_mixture(values: Array, weights: Array, means: Array, covs: Array) -> Array:
    """Log density of values (n, d) under weights (k,), means (k, d), covariances (k, d, d)."""
    from scipy.special import logsumexp

    away = values[:, None, :] - means
    distance = np.einsum("nki,kij,nkj->nk", away, np.linalg.inv(covs), away, optimize=True)
    volume = np.linalg.slogdet(2 * np.pi * covs)[1]
    density: Array = logsumexp(np.log(weights) - 0.5 * (distance + volume), axis=1)
    return density
