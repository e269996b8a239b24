"""Gaussian pairs: correlated coordinate by coordinate, densely, or in a few coordinates only."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.special import digamma, gammaln, ndtr, ndtri

from pointdep.data.raw import Array
from pointdep.errors import InputError, require_whole

# A joint distribution that is known exactly, and draws of it.

LogRatio: TypeAlias = Callable[[Array, Array], Array]
Sample: TypeAlias = Callable[[int, np.random.Generator], tuple[Array, Array, Array]]


@dataclass(frozen=True, eq=False)
class Task:
    """Draws of a known joint distribution.

    x, y: (rows, dim), or (rows,) outcomes; pmi: (rows,) nats; mutual_information: nats.
    log_ratio: the exact PMI of any pairs like these, (n, dim) and (n, dim) -> (n,); -inf where a
    pair cannot occur.
    """

    name: str
    x: Array
    y: Array
    pmi: Array
    mutual_information: float
    log_ratio: LogRatio


@dataclass(frozen=True, eq=False)
class Joint:
    """A joint distribution with its mutual information in nats.

    sample: number of rows and a generator -> x, y and their pmi; log_ratio: as in `Task`.
    """

    mutual_information: float
    sample: Sample
    log_ratio: LogRatio

    def draw(self, name: str, rows: int, seed: int = 0) -> Task:
        """Independent rows; the same seed gives the same ones."""
        if rows < 1:
            raise InputError(f"rows must be 1 or more, not {rows}")
        require_whole("seed", seed, least=0)
        x, y, pmi = self.sample(rows, np.random.default_rng(seed))
        return Task(name, x, y, pmi, self.mutual_information, self.log_ratio)


# Maps that are one to one: applied to a side, they leave every PMI as it was.


@dataclass(frozen=True, eq=False)
class Map:
    """forward and inverse: (n, d) -> (n, d'), one undoing the other."""

    forward: Callable[[Array], Array]
    inverse: Callable[[Array], Array]


def mapped(joint: Joint, x: Map | None = None, y: Map | None = None) -> Joint:
    """The joint distribution of x and y after these maps."""
    to_x, to_y = x or _IDENTITY, y or _IDENTITY

    def log_ratio(x: Array, y: Array) -> Array:
        return joint.log_ratio(to_x.inverse(x), to_y.inverse(y))

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        # The PMI is that of the rows before the maps, to the last bit: inverses round.
        before_x, before_y, pmi = joint.sample(rows, random)
        return to_x.forward(before_x), to_y.forward(before_y), pmi

    return Joint(joint.mutual_information, sample, log_ratio)


def spiral(generator: Array, speed: float) -> Map:
    """x -> exp(speed |x|^2 A) x for an antisymmetric generator A: (d, d).

    Each x turns, by an angle that grows with its norm; the norm stays, which gives the inverse.
    """
    # i A is Hermitian, so exp(t A) = V exp(-i t w) V^H with its eigenvalues w and eigenvectors V.
    turns, vectors = np.linalg.eigh(1j * np.asarray(generator))

    def turned(x: Array, by: float) -> Array:
        angle = by * np.square(x).sum(axis=1, keepdims=True) * turns
        return np.asarray(((x @ vectors.conj()) * np.exp(-1j * angle) @ vectors.T).real)

    return Map(lambda x: turned(x, speed), lambda x: turned(x, -speed))


def _swiss_roll(x: Array) -> Array:
    angle = 1.5 * np.pi * (1 + 2 * x)
    return np.hstack([angle * np.cos(angle), angle * np.sin(angle)]) / _ROLL_SCALE


def _swiss_unroll(x: Array) -> Array:
    """The angle is the distance from the centre; (n, 2) -> (n, 1)."""
    angle = _ROLL_SCALE * np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray((angle / (1.5 * np.pi) - 1) / 2)


def _power(exponent: float) -> Callable[[Array], Array]:
    return lambda x: np.sign(x) * np.abs(x) ** exponent


def _normal_cdf(x: Array) -> Array:
    return np.asarray(ndtr(x))


def _normal_quantile(x: Array) -> Array:
    return np.asarray(ndtri(x))


def _wiggly(x: Array) -> Array:
    """Its slope stays above 1 - (0.4 + 0.34 + 0.099) > 0."""
    wiggles = 0.4 * np.sin(x) + 0.2 * np.sin(1.7 * x + 1) + 0.03 * np.sin(3.3 * x - 2.5)
    return np.asarray(x + wiggles)


def _wiggly_inverse(y: Array) -> Array:
    """By bisection: the wiggles add up to less than 0.64."""
    low, high = y - 0.64, y + 0.64
    for _ in range(56):
        middle = (low + high) / 2
        above = _wiggly(middle) > y
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.asarray((low + high) / 2)


_ROLL_SCALE = 21.0
_IDENTITY = Map(lambda x: x, lambda x: x)
CUBE = Map(lambda x: x**3, np.cbrt)
HALF_CUBE = Map(_power(1.5), _power(1 / 1.5))
ASINH = Map(np.arcsinh, np.sinh)
NORMAL_CDF = Map(_normal_cdf, _normal_quantile)
WIGGLY = Map(_wiggly, _wiggly_inverse)
SWISS_ROLL = Map(_swiss_roll, _swiss_unroll)


# 1 - rho^2 keeps this share of its digits: below it PMI would be wrong in the third place, and NaN
# where rho rounds to 1.
_LEAST_UNEXPLAINED = 1e-12


def correlated_gaussians(
    rows: int, dim: int = 20, mutual_information: float = 2.0, *, cubic: bool = False, seed: int = 0
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
        given = f"mutual_information={mutual_information:g}"
        raise InputError(f"{given} is more than {dim} dimension(s) of {most:.1f} nats: raise dim")
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

    return Joint(_nats(correlations), sample, log_ratio)


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


def _nats(correlations: Array) -> float:
    """MI of Gaussians: -1/2 sum of log(1 - rho^2) over the canonical correlations."""
    return float(-0.5 * np.log1p(-np.square(correlations)).sum())


def canonical_log_ratio(u: Array, v: Array, correlations: Array) -> Array:
    """log r of canonical coordinates u, v: (n, k) with canonical correlations (k,) -> (n,)."""
    import torch

    from pointdep.core.linear import gaussian_log_ratio

    given = (torch.from_numpy(np.ascontiguousarray(a, np.float64)) for a in (u, v, correlations))
    return np.asarray(gaussian_log_ratio(*given).numpy())


def _canonical(covariance: Array, dim_x: int) -> tuple[Array, Array, Array]:
    """Maps (dim_x, k) and (dim_y, k) to the canonical coordinates, and their correlations (k,)."""
    whiten_x = np.linalg.inv(np.linalg.cholesky(covariance[:dim_x, :dim_x])).T
    whiten_y = np.linalg.inv(np.linalg.cholesky(covariance[dim_x:, dim_x:])).T
    cross = whiten_x.T @ covariance[:dim_x, dim_x:] @ whiten_y
    left, correlations, right = np.linalg.svd(cross, full_matrices=False)
    return whiten_x @ left, whiten_y @ right.T, correlations


# Multivariate Student pairs: their tails depend on each other even where nothing correlates.


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
        both, of_x, of_y = map(_log_density, (np.hstack([x, y]), x, y), precisions, [freedom] * 3)
        return np.asarray(both - of_x - of_y)

    factor = np.linalg.cholesky(dispersion)

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        normal = random.standard_normal((rows, len(dispersion))) @ factor.T
        # One scale for both sides is what makes them depend.
        pairs = normal * np.sqrt(freedom / random.chisquare(freedom, size=(rows, 1)))
        x, y = pairs[:, :dim_x], pairs[:, dim_x:]
        return x, y, log_ratio(x, y)

    def part(z: float) -> float:
        return float(gammaln(z / 2) - z / 2 * digamma(z / 2))

    tails = part(freedom) + part(freedom + dim_x + dim_y)
    tails -= part(freedom + dim_x) + part(freedom + dim_y)
    return Joint(_nats(_canonical(dispersion, dim_x)[2]) + tails, sample, log_ratio)


def _log_density(values: Array, precision: Array, freedom: float) -> Array:
    """values: (n, d); precision: (d, d), the inverse of the dispersion."""
    dim = values.shape[1]
    distance = np.einsum("ni,ij,nj->n", values, precision, values, optimize=True)
    constant = math.lgamma((freedom + dim) / 2) - math.lgamma(freedom / 2)
    constant += 0.5 * np.linalg.slogdet(precision)[1] - dim / 2 * math.log(freedom * math.pi)
    return np.asarray(constant - (freedom + dim) / 2 * np.log1p(distance / freedom))


# A uniform variable with uniform noise.


def uniform_noise(width: float) -> Joint:
    """x ~ U(0, 1) and y = x + U(-width, width), (n, 1) each.

    Given y, x is uniform where [0, 1] meets [y - width, y + width], and r is one over the length of
    that part: MI = width - log(2 width) up to a width of 1/2, and 1 / (4 width) above.
    """
    if not 0 < width < math.inf:
        raise InputError(f"width must be above 0, not {width}")

    def log_ratio(x: Array, y: Array) -> Array:
        low, high = np.maximum(y - width, 0.0), np.minimum(y + width, 1.0)
        # Decided on y - x, as drawn: at the very edge of the noise the ends round.
        possible = (np.abs(y - x) <= width * (1 + 1e-12)) & (high > low)
        length = np.where(possible, high - low, 1.0)
        return np.asarray(np.where(possible, -np.log(length), -np.inf)[:, 0])

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        x = random.random((rows, 1))
        y = x + width * (2 * random.random((rows, 1)) - 1)
        return x, y, log_ratio(x, y)

    information = width - math.log(2 * width) if width <= 0.5 else 1 / (4 * width)
    return Joint(information, sample, log_ratio)
