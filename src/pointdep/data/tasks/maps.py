"""Maps that are one to one: applied to a side, they leave every PMI as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pointdep.data.raw import Array
from pointdep.data.tasks.base import Joint


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
        rotated: Array = ((x @ vectors.conj()) * np.exp(-1j * angle) @ vectors.T).real
        return rotated

    return Map(lambda x: turned(x, speed), lambda x: turned(x, -speed))


def _swiss_roll(x: Array) -> Array:
    angle = 1.5 * np.pi * (1 + 2 * x)
    return np.hstack([angle * np.cos(angle), angle * np.sin(angle)]) / _ROLL_SCALE


def _swiss_unroll(x: Array) -> Array:
    """The angle is the distance from the centre; (n, 2) -> (n, 1)."""
    angle = _ROLL_SCALE * np.linalg.norm(x, axis=1, keepdims=True)
    unrolled: Array = (angle / (1.5 * np.pi) - 1) / 2
    return unrolled


def _power(exponent: float) -> Callable[[Array], Array]:
    return lambda x: np.sign(x) * np.abs(x) ** exponent


def _normal_cdf(x: Array) -> Array:
    from scipy.special import ndtr

    probability: Array = ndtr(x)
    return probability


def _normal_quantile(x: Array) -> Array:
    from scipy.special import ndtri

    quantile: Array = ndtri(x)
    return quantile


def _wiggly(x: Array) -> Array:
    """Its slope stays above 1 - (0.4 + 0.34 + 0.099) > 0."""
    wiggles = 0.4 * np.sin(x) + 0.2 * np.sin(1.7 * x + 1) + 0.03 * np.sin(3.3 * x - 2.5)
    shifted: Array = x + wiggles
    return shifted


def _wiggly_inverse(y: Array) -> Array:
    """By bisection: the wiggles add up to less than 0.64."""
    low, high = y - 0.64, y + 0.64
    for _ in range(56):
        middle = (low + high) / 2
        above = _wiggly(middle) > y
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    inverse: Array = (low + high) / 2
    return inverse


_ROLL_SCALE = 21.0
_IDENTITY = Map(lambda x: x, lambda x: x)
CUBE = Map(lambda x: x**3, np.cbrt)
HALF_CUBE = Map(_power(1.5), _power(1 / 1.5))
ASINH = Map(np.arcsinh, np.sinh)
NORMAL_CDF = Map(_normal_cdf, _normal_quantile)
WIGGLY = Map(_wiggly, _wiggly_inverse)
SWISS_ROLL = Map(_swiss_roll, _swiss_unroll)
