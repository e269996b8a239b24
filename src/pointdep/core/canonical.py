"""Canonical coordinates of two sides, and how far their correlations hold on other rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_LARGEST = 0.99995
_LARGEST_SHARE = 0.3  # directions per row: with more, any two sides look perfectly correlated
_NO_VARIANCE = 1e-12  # of columns of about unit variance
_SMALLEST_VARIANCE = 1e-7  # of the largest principal variance: below it a direction is rounding
_PARTS, _PARTS_WIDE, _WIDE = 5, 2, 200  # parts left out in turn; fewer with many columns
_NOISE = 2.0  # a correlation within this many standard errors of zero is taken as zero


@dataclass(frozen=True)
class Canonical:
    """x_weight: (dx, p) and y_weight: (dy, q) map centred rows to canonical coordinates.

    Coordinate k of x and coordinate k of y are correlated by correlations[k], (min(p, q),); other
    pairs of coordinates are uncorrelated.
    """

    x_mean: Tensor
    y_mean: Tensor
    x_weight: Tensor
    y_weight: Tensor
    correlations: Tensor


@torch.no_grad()
def canonical_correlations(x: Tensor, y: Tensor, groups: Tensor | None = None) -> Canonical:
    """Canonical correlation analysis of paired rows x: (n, dx), y: (n, dy), in float64.

    groups: (n,), for rows that are not independent draws: they are left out together.

    With dx dy free directions the correlations of the rows at hand are too large, and the
    coordinates are too small, for any other rows. Both are therefore measured on parts of the rows
    that were left out: these are the variances and correlations a Gaussian closed form needs to be
    right about rows it has not seen.
    """
    x, y = x.double(), y.double()
    found = _analyse(x, y)
    kept = len(found.correlations)
    moments = x.new_zeros(3, kept)
    parts = min(part_count(x.shape[1], y.shape[1]), len(x))
    number, draws = _parts(len(x), parts, groups)
    measured = x.new_zeros(kept)
    for part in range(parts):
        held = number == part
        if not bool(held.any()) or bool(held.all()):
            continue
        one = _analyse(x[~held], y[~held])
        u = ((x[held] - one.x_mean) @ one.x_weight)[:, :kept]
        v = ((y[held] - one.y_mean) @ one.y_weight)[:, :kept]
        have = min(u.shape[1], v.shape[1])
        u, v = u[:, :have], v[:, :have]
        moments[:, :have] += torch.stack([u * u, v * v, u * v]).sum(1)
        measured[:have] += len(u)
    return held_to(found, moments, measured, draws)


def part_count(x_dim: int, y_dim: int) -> int:
    """Parts that are left out in turn."""
    return _PARTS_WIDE if max(x_dim, y_dim) > _WIDE else _PARTS


def held_to(found: Canonical, moments: Tensor, measured: Tensor, draws: int) -> Canonical:
    """The analysis of all rows, rescaled to what rows that were left out have shown.

    moments: (3, k), sums of u^2, v^2 and u v of the leading coordinates over left-out rows;
    measured: (k,), how many these were; draws: independent ones among all.
    """
    # A direction that no part had (parts have fewer rows) keeps its scale, without a correlation.
    x_square, y_square, both = moments / measured.clamp(min=1.0)
    x_square, y_square = (torch.where(s > _NO_VARIANCE, s, 1.0) for s in (x_square, y_square))
    outer = both / (x_square * y_square).sqrt()
    outer = torch.where(outer > _NOISE / draws**0.5, outer, 0.0)
    return Canonical(
        found.x_mean,
        found.y_mean,
        _rescaled(found.x_weight, x_square),
        _rescaled(found.y_weight, y_square),
        outer.minimum(found.correlations).clamp(0.0, _LARGEST),
    )


def sample_correlations(x: Tensor, y: Tensor) -> Tensor:
    """The canonical correlations of these very rows, largest first."""
    return _analyse(x.double(), y.double()).correlations


def _rescaled(weight: Tensor, squares: Tensor) -> Tensor:
    """Give the leading coordinates unit mean square on rows that were left out."""
    scaled = weight.clone()
    scaled[:, : len(squares)] /= squares.sqrt()
    return scaled


def _parts(rows: int, parts: int, groups: Tensor | None) -> tuple[Tensor, int]:
    """The part of each row, (rows,), in random order, and the number of independent draws."""
    codes = torch.arange(rows)
    if groups is not None:
        codes = torch.unique(groups.cpu(), return_inverse=True)[1]
    draws = int(codes.max()) + 1
    order = torch.randperm(draws, generator=torch.Generator().manual_seed(0))
    return order[codes] % parts, draws


def _analyse(x: Tensor, y: Tensor) -> Canonical:
    """The textbook analysis: whiten both sides, then the singular values of their covariance."""
    x_mean, y_mean = x.mean(0), y.mean(0)
    x, y = x - x_mean, y - y_mean
    x_white, y_white = _whitening(x), _whitening(y)
    cross = x_white.T @ (x.T @ (y @ y_white)) / len(x)
    u, correlations, vt = torch.linalg.svd(cross, full_matrices=True)
    return Canonical(x_mean, y_mean, x_white @ u, y_white @ vt.T, correlations)


def _whitening(rows: Tensor) -> Tensor:
    """(d, p): centred rows (n, d) times it have unit covariance in their p directions.

    Directions without variance are left out, and with few rows all but the widest.
    """
    return whitening(rows.T @ rows / len(rows), len(rows))


def whitening(covariance: Tensor, n: int) -> Tensor:
    """The same by the covariance (d, d) of n rows."""
    variances, directions = torch.linalg.eigh(covariance)
    variances, directions = variances.flip(0), directions.flip(1)
    least = max(_SMALLEST_VARIANCE * float(variances[0]), _NO_VARIANCE)
    kept = max(1, min(int((variances > least).sum()), int(n * _LARGEST_SHARE)))
    # A side that does not vary in these rows is mapped to zero.
    scale = torch.where(variances > _NO_VARIANCE, variances.clamp(min=_NO_VARIANCE).rsqrt(), 0.0)
    white: Tensor = directions[:, :kept] * scale[:kept]
    return white
