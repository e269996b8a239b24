"""Normalised PMI: PMI / -log p(x,y), in [-1, 1]."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def normalised_pmi(
    pmi: Array, log_frequencies: Sequence[Array | None], rows: int
) -> NDArray[np.float32]:
    """pmi: (n,); per side, log p of each outcome, (n,), or None where the side is continuous.

    -log p(x,y) = -log p(x) - log p(y) - PMI. An outcome of a continuous side counts as one of
    `rows` equally likely ones.
    """
    surprise = -pmi
    for frequency in log_frequencies:
        surprise = surprise + (math.log(rows) if frequency is None else -frequency)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(surprise <= 0, 1.0, pmi / surprise)
    return np.clip(values, -1.0, 1.0).astype(np.float32)
