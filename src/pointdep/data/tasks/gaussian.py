"""Gaussian pairs: correlated coordinate by coordinate, densely, or in a few coordinates only."""

from __future__ import annotations

import math

import numpy as np

from pointdep.data.raw import Array
from pointdep.data.tasks.base import Joint, Task
from pointdep.data.tasks.maps import CUBE, mapped
from pointdep.errors import InputError, require_whole

# 1 - rho^2 keeps this share of its digits: below it PMI would be wrong in the third place, and NaN
# where rho rounds to 1.
_LEAST_UNEXPLAINED = 1e-12


def correlated_gaussians(
    rows: int,
    dim: int = 20,
    mutual_information: float = 2.0,
    *,
    cubic: bool = False,
    seed: int = 0,
) -> Task:
    """x, e ~ N(0, I) and y = rho x + sqrt(1 - rho^2) e, with MI = -dim/2 log(1 - rho^2).

    cubic gives y^3 for y: a map one to one, which leaves every PMI as it was.
    """
    joint = correlated(dim, mutual_information)
    if cubic:
        joint = mapped(joint, y=CUBE)
    name = f"{'cubic ' if cubic else ''}gaussians, {dim} dimensions, {mutual_information:g} nats"
    return joint.draw(name, rows, seed)


def correlated(dim: int, mutual_information: float) -> Joint:
    """Column k of x correlates with column k of y alone, all by the same rho."""
    if dim < 1:
        raise InputError(f"dim must be 1 or more, not {dim}")
    if not 0 <= mutual_information < math.inf:
        raise InputError(f"mutual_information must be 0 or more nats, not {mutual_information}")
    most = -0.5 * math.log(_LEAST_UNEXPLAINED)
    if mutual_information > most * dim:
        raise InputError(
            f"mutual_information={mutual_information:g} is more than {dim} dimension(s) can carry: "
            f"with over {most:.1f} nats in each, rho rounds to 1; raise dim"
        )
    rho = math.sqrt(-math.expm1(-2 * mutual_information / dim))

    def log_ratio(x: Array, y: Array) -> Array:
        return canonical_log_ratio(x, y, np.full(dim, rho))

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        x, noise = random.standard_normal((2, rows, dim))
        y = rho * x + math.exp(-mutual_information / dim) * noise
        return x, y, log_ratio(x, y)

    return Joint(float(mutual_information), sample, log_ratio)


def gaussian(covariance: Array, dim_x: int) -> Joint:
    """N(0, covariance), (d, d), whose first dim_x coordinates are x and the others y."""
    to_u, to_v, correlations = _canonical(covariance, dim_x)
    factor = np.linalg.cholesky(covariance)

    def log_ratio(x: Array, y: Array) -> Array:
        return canonical_log_ratio(x @ to_u, y @ to_v, correlations)

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        pairs = random.standard_normal((rows, len(covariance))) @ factor.T
        x, y = pairs[:, :dim_x], pairs[:, dim_x:]
        return x, y, log_ratio(x, y)

    return Joint(covariance_mutual_information(covariance, dim_x), sample, log_ratio)


def dense_covariance(dim: int, correlation: float) -> Array:
    """(2 dim, 2 dim): every coordinate correlates with every other one."""
    covariance: Array = np.full((2 * dim, 2 * dim), float(correlation))
    np.fill_diagonal(covariance, 1.0)
    return covariance


def sparse_covariance(dim: int, pairs: int, strength: float) -> Array:
    """(2 dim, 2 dim): only the first few coordinates of x and y correlate, in pairs.

    A pair shares a latent variable of weight `strength` beside noise of weight 1, so that its
    correlation is strength^2 / (1 + strength^2).
    """
    require_whole("pairs", pairs, least=0)
    if pairs > dim:
        raise InputError(f"pairs={pairs} is more than dim={dim}")
    rho = strength**2 / (1 + strength**2)
    covariance: Array = np.eye(2 * dim)
    for k in range(pairs):
        covariance[k, dim + k] = covariance[dim + k, k] = rho
    return covariance


def covariance_mutual_information(covariance: Array, dim_x: int) -> float:
    """MI of N(0, covariance): -1/2 sum of log(1 - rho^2) over the canonical correlations."""
    correlations = _canonical(covariance, dim_x)[2]
    return float(-0.5 * np.log1p(-np.square(correlations)).sum())


def canonical_log_ratio(u: Array, v: Array, correlations: Array) -> Array:
    """log r of canonical coordinates u, v: (n, k) with canonical correlations (k,) -> (n,)."""
    import torch

    from pointdep.core.gaussian import gaussian_log_ratio

    given = (torch.from_numpy(np.ascontiguousarray(a, np.float64)) for a in (u, v, correlations))
    log_ratio: Array = gaussian_log_ratio(*given).numpy()
    return log_ratio


def _canonical(covariance: Array, dim_x: int) -> tuple[Array, Array, Array]:
    """Maps (dim_x, k) and (dim_y, k) to the canonical coordinates, and their correlations (k,)."""
    whiten_x = np.linalg.inv(np.linalg.cholesky(covariance[:dim_x, :dim_x])).T
    whiten_y = np.linalg.inv(np.linalg.cholesky(covariance[dim_x:, dim_x:])).T
    cross = whiten_x.T @ covariance[:dim_x, dim_x:] @ whiten_y
    left, correlations, right = np.linalg.svd(cross, full_matrices=False)
    return whiten_x @ left, whiten_y @ right.T, correlations
