"""Handwritten digits cut in two, with some halves put to the wrong digit on purpose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pointdep.data.raw import Array
from pointdep.errors import InputError


@dataclass(frozen=True, eq=False)
class DigitHalves:
    """x, y: (1797, 32) upper and lower halves; labels: (1797,) the digit of x; swapped: (1797,)
    bool, the rows whose y is another digit's."""

    x: Array
    y: Array
    labels: Array
    swapped: Array


def digit_halves(swapped: float = 0.05, seed: int = 0) -> DigitHalves:
    """Halves of scikit-learn's digits; a fraction swapped of the rows exchange their lower ones."""
    if not 0 <= swapped <= 1:
        raise InputError(f"swapped must be a fraction between 0 and 1, not {swapped}")
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels, labels = np.asarray(digits.data), np.asarray(digits.target)
    x, y = pixels[:, :32], pixels[:, 32:].copy()
    count = round(swapped * len(pixels))
    if count == 1:
        raise InputError(f"swapped={swapped} is a single row, which has none to exchange with")
    rows = np.random.default_rng(seed).permutation(len(pixels))[:count]
    # One cycle through the chosen rows leaves none of them in its place.
    y[rows] = y[np.roll(rows, 1)]
    mask = np.zeros(len(pixels), dtype=bool)
    mask[rows] = True
    return DigitHalves(x, y, labels, mask)
