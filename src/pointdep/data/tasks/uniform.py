"""A uniform variable with uniform noise."""

from __future__ import annotations

import math

import numpy as np

from pointdep.data.raw import Array
from pointdep.data.tasks.base import Joint
from pointdep.errors import InputError


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
        ratio: Array = np.where(possible, -np.log(length), -np.inf)[:, 0]
        return ratio

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        x = random.random((rows, 1))
        y = x + width * (2 * random.random((rows, 1)) - 1)
        return x, y, log_ratio(x, y)

    information = width - math.log(2 * width) if width <= 0.5 else 1 / (4 * width)
    return Joint(information, sample, log_ratio)
