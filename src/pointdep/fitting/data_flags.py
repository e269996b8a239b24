"""What is wrong with the data rather than with the training."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.critics.closed_form import ClosedFormCritic
from pointdep.core.ratio import RatioModel
from pointdep.fitting.flags import MEANINGS, Flag

_DETERMINED = 0.9999  # canonical correlation
_DISTINCT, _REPEATED = 0.3, 0.01  # shares: distinct pairs of all rows, repeated pairs of those
_ONE_SIDE = 0.9  # share of the distinct pairs that are distinct in one of their sides already


def determined_flags(model: RatioModel) -> list[Flag]:
    """Whether some direction of y is a function of x up to rounding; for sides of numbers."""
    critic = model.critic
    if not isinstance(critic, ClosedFormCritic) or float(critic.correlations.max()) < _DETERMINED:
        return []
    message = (
        f"{MEANINGS['determined']}; the estimate is a lower bound. Look for a column that both "
        "sides share"
    )
    return [Flag("determined", (), message)]


def duplicate_flags(x: Tensor, y: Tensor) -> list[Flag]:
    """Whether equal pairs leak from training rows into the rows that report.

    Pairs of few distinct values repeat by nature, and so do pairs of categories that meet again by
    chance; pairs of numbers that are otherwise all distinct do not.
    """
    counts = _occurrences(torch.cat([x, y], 1))
    repeated = int((counts > 1).sum())
    if len(counts) < _DISTINCT * len(x) or repeated <= _REPEATED * len(counts):
        return []
    if max(len(_occurrences(x)), len(_occurrences(y))) < _ONE_SIDE * len(counts):
        return []
    message = (
        f"{MEANINGS['duplicated_rows']}: {repeated} distinct pairs occur more than once, so the "
        "models have seen rows they report on. Drop the copies, or give groups="
    )
    return [Flag("duplicated_rows", (), message)]


def _occurrences(rows: Tensor) -> NDArray[np.int64]:
    """How often each distinct row of (n, d) occurs."""
    weights = torch.rand(
        rows.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    _, counts = np.unique((rows.cpu().double() @ weights).numpy(), return_counts=True)
    return counts
