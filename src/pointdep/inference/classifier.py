"""The balanced classifier that a log-ratio implies: the score by which fits are compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def balanced_log_likelihood(joint: NDArray[np.floating], product: NDArray[np.floating]) -> float:
    """Minus the log-loss of sigmoid(log r), joint and product samples weighing one half each.

    -log 2 for a model that says r = 1 everywhere; never above 0.
    """
    positive = np.logaddexp(0.0, -np.asarray(joint, np.float64)).mean()
    negative = np.logaddexp(0.0, np.asarray(product, np.float64)).mean()
    return float(-0.5 * (positive + negative))
