"""Multivariate Student pairs: their tails depend on each other even where nothing correlates."""

from __future__ import annotations

import math

import numpy as np

from pointdep.data.raw import Array
from pointdep.data.tasks.base import Joint
from pointdep.data.tasks.gaussian import covariance_mutual_information
from pointdep.errors import InputError


def student(dispersion: Array, dim_x: int, freedom: float) -> Joint:
    """The Student distribution of a dispersion (d, d) and its degrees of freedom.

    The first dim_x coordinates are x. Its MI is that of the Gaussian with the same dispersion, plus
    a constant of the degrees of freedom and the dimensions.
    """
    if not 0 < freedom < math.inf:
        raise InputError(f"freedom must be above 0, not {freedom}")
    dim_y = len(dispersion) - dim_x
    blocks = dispersion, dispersion[:dim_x, :dim_x], dispersion[dim_x:, dim_x:]
    precisions = [np.linalg.inv(block) for block in blocks]

    def log_ratio(x: Array, y: Array) -> Array:
        sides = np.hstack([x, y]), x, y
        both, only_x, only_y = (
            _log_density(values, precision, freedom)
            for values, precision in zip(sides, precisions, strict=True)
        )
        ratio: Array = both - only_x - only_y
        return ratio

    factor = np.linalg.cholesky(dispersion)

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        normal = random.standard_normal((rows, len(dispersion))) @ factor.T
        # One scale for both sides is what makes them depend.
        pairs = normal * np.sqrt(freedom / random.chisquare(freedom, size=(rows, 1)))
        x, y = pairs[:, :dim_x], pairs[:, dim_x:]
        return x, y, log_ratio(x, y)

    information = covariance_mutual_information(dispersion, dim_x)
    return Joint(information + tail_information(freedom, dim_x, dim_y), sample, log_ratio)


def tail_information(freedom: float, dim_x: int, dim_y: int) -> float:
    """MI of Student pairs whose dispersion is the identity."""
    from scipy.special import digamma, gammaln

    def part(z: float) -> float:
        return float(gammaln(z / 2) - z / 2 * digamma(z / 2))

    both = part(freedom) + part(freedom + dim_x + dim_y)
    return both - part(freedom + dim_x) - part(freedom + dim_y)


def _log_density(values: Array, precision: Array, freedom: float) -> Array:
    """values: (n, d); precision: (d, d), the inverse of the dispersion."""
    dim = values.shape[1]
    distance = np.einsum("ni,ij,nj->n", values, precision, values, optimize=True)
    constant = math.lgamma((freedom + dim) / 2) - math.lgamma(freedom / 2)
    constant += 0.5 * np.linalg.slogdet(precision)[1] - dim / 2 * math.log(freedom * math.pi)
    density: Array = constant - (freedom + dim) / 2 * np.log1p(distance / freedom)
    return density
