"""The balanced classifier that a log-ratio implies: the score by which fits are compared."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.errors import InputError
from pointdep.inference.scoring import score_pairs

_SHUFFLES = 8  # product samples per row


def balanced_log_likelihood(joint: NDArray[np.floating], product: NDArray[np.floating]) -> float:
    """Minus the log-loss of sigmoid(log r), joint and product samples weighing one half each.

    -log 2 for a model that says r = 1 everywhere; never above 0.
    """
    positive = np.logaddexp(0.0, -np.asarray(joint, np.float64)).mean()
    negative = np.logaddexp(0.0, np.asarray(product, np.float64)).mean()
    return float(-0.5 * (positive + negative))


def shuffled_log_likelihood(
    model: RatioModel, x: Tensor, y: Tensor, *, seed: int, groups: Tensor | None = None
) -> float:
    """The same on the pairs x: (n, dx), y: (n, dy) and on shifts of y against x.

    groups: (n,); rows of one group are not set against each other.
    """
    if len(x) < 2:
        raise InputError("score needs at least two rows, to shuffle them against each other")
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(x)))
    x, y = x[order], y[order]
    shifts = range(1, min(_SHUFFLES, len(x) - 1) + 1)
    product = torch.stack([score_pairs(model, x, y.roll(k, 0)) for k in shifts])
    if groups is not None:
        ids = groups[order]
        product = product[torch.stack([ids != ids.roll(k, 0) for k in shifts])]
        if not len(product):
            raise InputError("score found no two rows of different groups to compare")
    return balanced_log_likelihood(score_pairs(model, x, y).numpy(), product.flatten().numpy())
