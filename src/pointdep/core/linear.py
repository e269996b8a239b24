"""Linear models: canonical coordinates of two sides, and logistic regression."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from statistics import NormalDist

import torch
import torch.nn.functional as F
from torch import Tensor

# The closed form of log r for Gaussian pairs.


def gaussian_log_ratio(u: Tensor, v: Tensor, correlations: Tensor) -> Tensor:
    """log r of canonical coordinates u, v: (..., k) with canonical correlations (k,) -> (...,).

    sum_k [ -1/2 log(1-rho^2) - (rho^2 (u^2 + v^2) - 2 rho u v) / (2 (1-rho^2)) ]
    """
    square = correlations.square()
    exponent = (square * (u.square() + v.square()) - 2 * correlations * u * v) / (2 * (1 - square))
    return (-0.5 * torch.log1p(-square) - exponent).sum(-1)


def gaussian_terms(u: Tensor, v: Tensor, correlations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`gaussian_log_ratio` taken apart, so that all pairs are one product.

    u: (R, ..., n, k), v: (R, ..., m, k), correlations: (R, k). The terms of u alone, (R, ..., n),
    and of v alone, (R, ..., m), and what is to meet v in an inner product, (R, ..., n, k).
    """
    shape = (correlations.shape[0], *[1] * (u.ndim - 2), correlations.shape[1])
    square = correlations.square()
    weight = (0.5 * square / (1 - square)).view(shape)
    constant = (-0.5 * torch.log1p(-square).sum(-1)).view(shape[:-1])
    own_u = constant - (u.square() * weight).sum(-1)
    own_v = -(v.square() * weight).sum(-1)
    return own_u, own_v, u * (correlations / (1 - square)).view(shape)


def gaussian_matrix(u: Tensor, v: Tensor, correlations: Tensor) -> Tensor:
    """`gaussian_log_ratio` of all pairs, shapes as of `gaussian_terms`: (R, ..., n, m)."""
    own_u, own_v, cross = gaussian_terms(u, v, correlations)
    return own_u.unsqueeze(-1) + own_v.unsqueeze(-2) + cross @ v.mT


def gaussian_mutual_information(correlations: Tensor) -> Tensor:
    """MI in nats of Gaussian pairs with these canonical correlations: -1/2 sum log(1-rho^2)."""
    return -0.5 * torch.log1p(-correlations.square()).sum(-1)


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

    def coordinates(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Those of x: (..., n, dx) and y: (..., m, dy) that are correlated, float64."""
        kept = len(self.correlations)
        u = (x.double() - self.x_mean) @ self.x_weight[:, :kept]
        return u, (y.double() - self.y_mean) @ self.y_weight[:, :kept]


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
    # The leading coordinates get unit mean square on rows that were left out.
    weights = found.x_weight.clone(), found.y_weight.clone()
    for weight, squares in zip(weights, (x_square, y_square), strict=True):
        weight[:, : len(squares)] /= squares.sqrt()
    correlations = outer.minimum(found.correlations).clamp(0.0, _LARGEST)
    return Canonical(found.x_mean, found.y_mean, *weights, correlations)


_FALSE_ALARM = 0.05  # probability that independent sides have a column that passes the screen


@torch.no_grad()
def screened_columns(x: Tensor, y: Tensor, groups: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Which columns of x, (dx,), and of y, (dy,), are correlated with one of the other side.

    Correlated beyond chance, of dx dy pairs of columns; a group of rows counts as one draw.
    """
    draws = len(x) if groups is None else len(torch.unique(groups))
    scaled = []
    for side in (x.double(), y.double()):
        centred = side - side.mean(0)
        scaled.append(centred / centred.norm(dim=0).clamp(min=_NO_VARIANCE**0.5))
    found = (scaled[0].T @ scaled[1]).abs()
    least = NormalDist().inv_cdf(1.0 - _FALSE_ALARM / (2 * found.numel()))
    passed = found > math.tanh(least / max(1.0, draws - 3.0) ** 0.5)
    return passed.any(1), passed.any(0)


def screened_correlations(x: Tensor, y: Tensor, groups: Tensor | None = None) -> Canonical:
    """`canonical_correlations` of the screened columns alone; the others have weights of zero."""
    columns = screened_columns(x, y, groups)
    if not bool(columns[0].any()):
        means = x.double().mean(0), y.double().mean(0)
        weights = [mean.new_zeros(len(mean), 1) for mean in means]
        return Canonical(means[0], means[1], weights[0], weights[1], weights[0].new_zeros(1))
    return _of_columns(canonical_correlations, x, y, groups, columns)


# Sides of very many categories: the analysis of all their columns takes time with the cube of them.

_Analysis = Callable[[Tensor, Tensor, Tensor | None], Canonical]
_MANY = 512  # columns
_FREQUENT = 256  # categories of a side that are looked at where there are numbers too
_OF_NUMBERS = 0.3  # variance that no indicator has


@torch.no_grad()
def economical(
    analyses: Sequence[_Analysis], x: Tensor, y: Tensor, groups: Tensor | None
) -> list[Canonical]:
    """These analyses, at a cost that does not grow with the cube of the categories.

    A label, one of its columns being 1 in every row, is known by the means of the other side, in
    place of all of them. Of other sides all columns are analysed but the rarest categories.
    """
    codes = _label(x)
    if codes is None and _label(y) is not None:
        turned = economical(analyses, y, x, groups)
        return [
            Canonical(one.y_mean, one.x_mean, one.y_weight, one.x_weight, one.correlations)
            for one in turned
        ]
    columns = torch.ones(x.shape[1], dtype=torch.bool) if codes is not None else _frequent(x)
    both = columns, _frequent(y)
    if codes is not None:

        def by_means(x: Tensor, y: Tensor, groups: Tensor | None) -> Canonical:
            return _label_correlations(codes, x.shape[1], y, groups)

        return [_of_columns(by_means, x, y, groups, both)] * len(analyses)
    if bool(both[0].all()) and bool(both[1].all()):
        return [analysis(x, y, groups) for analysis in analyses]
    return [_of_columns(analysis, x, y, groups, both) for analysis in analyses]


def _label(side: Tensor) -> Tensor | None:
    """(n,) the category of each row, if the side is one column of very many categories."""
    if side.shape[1] <= _MANY:
        return None
    largest, codes = side.max(1)
    one_each = bool((largest == 1).all()) and int(side.count_nonzero()) == len(side)
    return codes if one_each else None


def _frequent(side: Tensor) -> Tensor:
    """(d,): numbers, and the indicators that come most often."""
    if side.shape[1] <= _MANY:
        return side.new_ones(side.shape[1], dtype=torch.bool)
    variances = side.var(0, correction=0)
    kept = variances > _OF_NUMBERS
    order = variances.masked_fill(kept, -1.0).argsort(descending=True, stable=True)
    return kept.index_fill(0, order[:_FREQUENT], True)


def _label_correlations(
    codes: Tensor, categories: int, y: Tensor, groups: Tensor | None
) -> Canonical:
    """`canonical_correlations` where x are the indicators of codes: (n,), with few columns of y."""
    y = y.double()
    found = _analyse_label(codes, categories, y)
    kept = len(found.correlations)
    moments, measured = y.new_zeros(3, kept), y.new_zeros(kept)
    parts = min(part_count(categories, y.shape[1]), len(y))
    number, draws = _parts(len(y), parts, groups)
    for part in range(parts):
        held = number == part
        if not bool(held.any()) or bool(held.all()):
            continue
        one = _analyse_label(codes[~held], categories, y[~held])
        u, v = one.x_weight[codes[held]], (y[held] - one.y_mean) @ one.y_weight
        have = u.shape[1]
        moments[:, :have] += torch.stack([u * u, v * v, u * v]).sum(1)
        measured[:have] += len(u)
    return held_to(found, moments, measured, draws)


def _analyse_label(codes: Tensor, categories: int, y: Tensor) -> Canonical:
    """The textbook analysis: u is the mean of v among the rows of a category, to unit variance."""
    y_mean = y.mean(0)
    y = y - y_mean
    white = whitening(y.T @ y / len(y), len(y))
    counts = torch.bincount(codes, minlength=categories).double()
    means = y.new_zeros(categories, white.shape[1]).index_add(0, codes, y @ white)
    means /= counts.clamp(min=1.0).unsqueeze(1)
    shares = counts / len(y)
    squares, turned = torch.linalg.eigh(means.T @ (means * shares.unsqueeze(1)))
    squares, turned = squares.flip(0).clamp(0.0, 1.0), turned.flip(1)
    scale = torch.where(squares > _NO_VARIANCE, squares.clamp(min=_NO_VARIANCE).rsqrt(), 0.0)
    # The mean of the indicators is left out of u, whose mean is zero.
    return Canonical(shares, y_mean, means @ turned * scale, white @ turned, squares.sqrt())


def _of_columns(
    analysis: _Analysis, x: Tensor, y: Tensor, groups: Tensor | None, columns: tuple[Tensor, Tensor]
) -> Canonical:
    """The analysis of these columns, (dx,) and (dy,) bool; the others have weights of zero."""
    sides = [
        side if bool(kept.all()) else side[:, kept]
        for side, kept in zip((x, y), columns, strict=True)
    ]
    found = analysis(sides[0], sides[1], groups)
    means, weights = [found.x_mean, found.y_mean], [found.x_weight, found.y_weight]
    for number, (side, kept) in enumerate(zip((x, y), columns, strict=True)):
        if not bool(kept.all()):
            means[number] = side.mean(0, dtype=torch.float64)
            wide = weights[number].new_zeros(len(kept), weights[number].shape[1])
            wide[kept] = weights[number]
            weights[number] = wide
    return Canonical(means[0], means[1], weights[0], weights[1], found.correlations)


def sample_correlations(x: Tensor, y: Tensor) -> Tensor:
    """The canonical correlations of these very rows, largest first."""
    return _analyse(x.double(), y.double()).correlations


def _parts(rows: int, parts: int, groups: Tensor | None) -> tuple[Tensor, int]:
    """The part of each row, (rows,), in random order, and the number of independent draws."""
    codes = torch.arange(rows)
    if groups is not None:
        codes = torch.unique(groups.cpu(), return_inverse=True)[1]
    draws = int(codes.max()) + 1
    order = torch.randperm(draws, generator=torch.Generator().manual_seed(0))
    return order[codes] % parts, draws


def _analyse(x: Tensor, y: Tensor, share: float = _LARGEST_SHARE) -> Canonical:
    """The textbook analysis: whiten both sides, then the singular values of their covariance."""
    means = x.mean(0), y.mean(0)
    x, y = x - means[0], y - means[1]
    x_white, y_white = (whitening(side.T @ side / len(side), len(side), share) for side in (x, y))
    return _rotated(*means, x_white, y_white, x_white.T @ (x.T @ (y @ y_white)) / len(x))


def _rotated(
    x_mean: Tensor, y_mean: Tensor, x_white: Tensor, y_white: Tensor, cross: Tensor
) -> Canonical:
    """The analysis by the covariance (p, q) of whitened sides."""
    u, correlations, vt = torch.linalg.svd(cross, full_matrices=True)
    return Canonical(x_mean, y_mean, x_white @ u, y_white @ vt.T, correlations)


def whitening(covariance: Tensor, n: int, share: float = _LARGEST_SHARE) -> Tensor:
    """(d, p): n centred rows with this covariance times it have unit covariance.

    Directions without variance are left out, and with few rows all but the widest n * share.
    """
    variances, directions = torch.linalg.eigh(covariance)
    variances, directions = variances.flip(0), directions.flip(1)
    least = max(_SMALLEST_VARIANCE * float(variances[0]), _NO_VARIANCE)
    kept = max(1, min(int((variances > least).sum()), int(n * share)))
    # A side that does not vary in these rows is mapped to zero.
    scale = torch.where(variances > _NO_VARIANCE, variances.clamp(min=_NO_VARIANCE).rsqrt(), 0.0)
    white: Tensor = directions[:, :kept] * scale[:kept]
    return white


# The Gaussian MI of a sample: its correlations are too large by a known amount.

_LARGEST_OF_SAMPLE = 1 - 1e-7  # columns have 32 bits: nothing closer to 1 can be told from it
_PROBES = 64  # random directions, by which the effective number of draws is known within 5 % or so


@dataclass(frozen=True)
class GaussianSample:
    """The textbook analysis of n rows as an estimate of their mutual information.

    ranks: the dimensions in which x and y vary. draws: how many independent rows the n are worth.
    """

    found: Canonical
    ranks: tuple[int, int]
    draws: float

    @property
    def at_limit(self) -> bool:
        """Whether y is, in some direction, a linear function of x."""
        return bool((self.found.correlations >= _LARGEST_OF_SAMPLE).any())

    @property
    def excess(self) -> float:
        """By how much the mean of `values` over the rows of the fit is too large on average."""
        return wishart_excess(*self.ranks, self.draws)

    def values(self, x: Tensor, y: Tensor) -> Tensor:
        """(n,) log r of pairs; over the rows of the fit, its mean is -1/2 sum log(1-rho^2)."""
        return gaussian_log_ratio(*self.found.coordinates(x, y), self.found.correlations)


@torch.no_grad()
def gaussian_sample(x: Tensor, y: Tensor, groups: Tensor | None = None) -> GaussianSample | None:
    """Of paired rows x: (n, dx), y: (n, dy); None where they are too few for so many columns.

    groups: (n,), for rows that are not independent draws.
    """
    x, y = x.double(), y.double()
    found = _analyse(x, y, 1.0)
    ranks = found.x_weight.shape[1], found.y_weight.shape[1]
    found = replace(found, correlations=found.correlations.clamp(max=_LARGEST_OF_SAMPLE))
    draws = float(len(x)) if groups is None else _effective_draws(found, x, y, groups)
    return GaussianSample(found, ranks, draws) if draws >= sum(ranks) + 2 else None


def _effective_draws(found: Canonical, x: Tensor, y: Tensor, groups: Tensor) -> float:
    """How many independent rows would make the sample covariance of x and y as uncertain.

    Its variance grows with the squared sums over groups of the products u v of coordinates, which
    random directions of both sides stand for here.
    """
    random = torch.Generator().manual_seed(0)
    products = x.new_ones(len(x), _PROBES)
    means, weights = (found.x_mean, found.y_mean), (found.x_weight, found.y_weight)
    for side, mean, weight in zip((x, y), means, weights, strict=True):
        probes = torch.randn(weight.shape[1], _PROBES, generator=random, dtype=x.dtype)
        products *= (side - mean) @ (weight @ probes.to(x.device))
    products -= products.mean(0)
    codes = torch.unique(groups, return_inverse=True)[1].to(x.device)
    sums = products.new_zeros(int(codes.max()) + 1, _PROBES).index_add(0, codes, products)
    ratio = float(sums.square().sum() / products.square().sum().clamp(min=1e-300))
    return len(x) / max(1.0, ratio)


def wishart_excess(dx: int, dy: int, rows: float) -> float:
    """By how much -1/2 sum log(1 - rho^2) of a Gaussian sample exceeds its true value, on average.

    From E log det of a Wishart matrix with rows - 1 degrees of freedom; dx dy / (2 rows) to first
    order, and exact for every correlation.
    """
    return 0.5 * _log_det_terms(dx, dy, rows, 0)


def wishart_stderr(dx: int, dy: int, rows: float) -> float:
    """The standard deviation of the same for independent sides: sqrt(dx dy / 2) / rows or more.

    The error of rows that depend on each other has this part too, which the spread of log r over
    the rows does not show.
    """
    # Var log det of a Wishart matrix is a sum of trigammas. Of independent sides, the log
    # determinant of both is that of each plus the logarithm of Wilks' lambda, which does not
    # depend on them.
    return 0.5 * math.sqrt(_log_det_terms(dx, dy, rows, 1, -1.0))


def _log_det_terms(dx: int, dy: int, rows: float, order: int, sign: float = 1.0) -> float:
    """Polygamma sums of log det S_x + log det S_y - log det S, times sign."""

    def log_det(dimensions: int) -> float:
        of = (rows - torch.arange(1, dimensions + 1, dtype=torch.float64)) / 2
        return float(torch.special.polygamma(order, of).sum())

    return max(0.0, sign * (log_det(dx) + log_det(dy) - log_det(dx + dy)))


# Canonical coordinates from running sums: what the analysis of rows needs to know of them.


@dataclass(frozen=True)
class CrossMoments:
    """Sums over rows z = [x, y] of d = dx + dy columns: their number, z (d,) and z z' (d, d)."""

    count: int
    total: Tensor
    second: Tensor

    @classmethod
    def zero(cls, dim: int, device: torch.device) -> CrossMoments:
        """Of no rows."""
        total = torch.zeros(dim, dtype=torch.float64, device=device)
        return cls(0, total, total.new_zeros(dim, dim))

    def add_(self, rows: Tensor) -> CrossMoments:
        """Those of these rows, (n, d) float64, as well; the sums are changed in place."""
        self.total.add_(rows.sum(0))
        self.second.addmm_(rows.T, rows)
        return CrossMoments(self.count + len(rows), self.total, self.second)

    def __add__(self, other: CrossMoments) -> CrossMoments:
        return CrossMoments(
            self.count + other.count, self.total + other.total, self.second + other.second
        )

    @property
    def mean(self) -> Tensor:
        return self.total / self.count

    def around(self, mean: Tensor) -> Tensor:
        """The sum of (z - mean)(z - mean)', (d, d)."""
        apart = torch.outer(self.total, mean)
        return self.second - apart - apart.T + self.count * torch.outer(mean, mean)


def canonical_from_moments(parts: Sequence[CrossMoments], x_dim: int, draws: int) -> Canonical:
    """`canonical_correlations` of rows that are summed up in disjoint parts, left out in turn.

    draws: the number of independent rows (or groups of them) in all parts.
    """
    parts = [part for part in parts if part.count]
    whole = reduce(add, parts)
    found = _analyse_moments(whole, x_dim)
    kept = len(found.correlations)
    moments, measured = whole.total.new_zeros(3, kept), whole.total.new_zeros(kept)
    for held in parts if len(parts) > 1 else []:
        one = _analyse_moments(reduce(add, [p for p in parts if p is not held]), x_dim)
        around = held.around(torch.cat([one.x_mean, one.y_mean]))
        have = min(kept, one.x_weight.shape[1], one.y_weight.shape[1])
        u, v = one.x_weight[:, :have], one.y_weight[:, :have]
        of_x, of_y = around[:x_dim, :x_dim] @ u, around[x_dim:, x_dim:] @ v
        pairs = (u, of_x), (v, of_y), (u, around[:x_dim, x_dim:] @ v)
        moments[:, :have] += torch.stack([(one * other).sum(0) for one, other in pairs])
        measured[:have] += held.count
    return held_to(found, moments, measured, draws)


def _analyse_moments(moments: CrossMoments, x_dim: int) -> Canonical:
    covariance = moments.around(moments.mean) / moments.count
    x_white = whitening(covariance[:x_dim, :x_dim], moments.count)
    y_white = whitening(covariance[x_dim:, x_dim:], moments.count)
    cross = x_white.T @ covariance[:x_dim, x_dim:] @ y_white
    return _rotated(moments.mean[:x_dim], moments.mean[x_dim:], x_white, y_white, cross)


# Logistic regression of joint against product samples on a few columns, by Newton's method.

_STEPS, _HALVINGS, _PRECISION = 60, 30, 1e-9
_RIDGE = 1e-10  # of the Hessian's trace, so that columns that are all but alike can be solved


def fit_logistic(
    columns: Tensor, joint: Tensor, product: Tensor, *, start: Tensor, offset: float = 0.0
) -> Tensor | None:
    """Weights (k,) of sigmoid(columns @ weights + offset); None where no finite fit exists.

    columns: (N, k) float64; joint, product: (N,), the weights of a cell as either kind of sample.
    """

    def value_at(weights: Tensor) -> float:
        logit = columns @ weights + offset
        return -float(joint @ F.softplus(-logit) + product @ F.softplus(logit))

    weights: Tensor = start
    value = value_at(start)
    for _ in range(_STEPS):
        belongs, _, hessian = logistic_curvature(columns, joint + product, weights, offset=offset)
        gradient = columns.T @ (joint - (joint + product) * belongs)
        step, failed = torch.linalg.solve_ex(hessian, gradient)
        if bool(failed) or not bool(step.isfinite().all()):
            return None
        for _ in range(_HALVINGS):
            new = value_at(weights + step)
            if new >= value:
                break
            step = step / 2
        gain, weights, value = new - value, weights + step, new
        if value > -_PRECISION * float(joint.sum()):
            return None  # no cell is in doubt: any larger weights would do as well
        if gain <= _PRECISION * abs(value):
            return weights
    return None


def logistic_curvature(
    columns: Tensor, total: Tensor, weights: Tensor, *, offset: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """P(joint) of each cell, its variance times the cell's weight `total`, and the Hessian."""
    belongs = torch.sigmoid(columns @ weights + offset)
    spread = total * belongs * (1 - belongs)
    hessian = columns.T @ (columns * spread.unsqueeze(1))
    ridge = _RIDGE * hessian.trace() * torch.eye(len(weights), dtype=columns.dtype)
    return belongs, spread, hessian + ridge
