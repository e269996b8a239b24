"""What fitting costs: the bias of a mean of log r over rows that the model did not see."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pointdep.core.critics.residual import ResidualCritic
from pointdep.core.ratio import RatioModel
from pointdep.fitting.residual import closed_form_only
from pointdep.fitting.splits import Split
from pointdep.inference.scoring import score_pairs

# A ratio with k free parameters reads k/2n too low on other rows and, to first order, k/2n too high
# on its own: the truth lies about half-way, a little nearer to its own where k/n is not small. A
# network that is stopped early also misses what it had no time to learn, at its best stop about as
# much again as the noise it has learned, so that the truth lies near what it says of its own rows.
# The shares and their doubts were set on simulated tasks (benchmarks/coverage.py measures the
# intervals they give). A network that shows nothing on other rows has learned noise alone:
# half-way again, with a doubt that reaches both ends.
_CLOSED_FORM_SHARE, _CLOSED_FORM_DOUBT = 0.6, 0.12
_NETWORK_SHARE, _NETWORK_DOUBT = 1.1, 0.42
_NOISE_SHARE, _NOISE_DOUBT = 0.5, 0.5


@dataclass(frozen=True)
class FittingBias:
    """How much higher log r reads on the rows a model was fitted on than on others, in nats.

    closed_form, network: the parts of it. resolution: what independent pairs would show by chance.
    proven: whether the network has found something that unseen rows show beyond chance.
    """

    closed_form: float = 0.0
    network: float = 0.0
    resolution: float = 0.0
    proven: bool = True

    @property
    def correction(self) -> float:
        """What to add to the mean over unseen rows."""
        share = _NETWORK_SHARE if self.proven else _NOISE_SHARE
        return _CLOSED_FORM_SHARE * self.closed_form + share * self.network

    @property
    def stderr(self) -> float:
        """How far that may be wrong."""
        doubt = _NETWORK_DOUBT if self.proven else _NOISE_DOUBT
        return math.hypot(
            _CLOSED_FORM_DOUBT * self.closed_form, doubt * self.network, self.resolution
        )


def fitting_bias(
    model: RatioModel,
    x: Tensor,
    y: Tensor,
    splits: Sequence[Split],
    *,
    proven: bool,
    groups: Tensor | None = None,
) -> FittingBias:
    """Of a cross-fitted model of the pairs x: (n, dx), y: (n, dy).

    proven: whether the mean of log r over unseen rows is above zero beyond chance. The default
    critic's network has been judged already, and stands only where it helps.
    With k = dx dy, the MI of n independent Gaussian pairs (or groups of them) is estimated with an
    error of sqrt(k/2)/n: no estimate resolves less.
    """
    draws = len(x) if groups is None else len(torch.unique(groups))
    resolution = math.sqrt(x.shape[1] * y.shape[1] / 2) / draws
    total = _gap(model, x, y, splits)
    if not isinstance(model.critic, ResidualCritic):
        return FittingBias(0.0, max(total, 0.0), resolution, proven)
    closed = _gap(closed_form_only(model), x, y, splits)
    return FittingBias(max(closed, 0.0), max(total - closed, 0.0), resolution)


def _gap(model: RatioModel, x: Tensor, y: Tensor, splits: Sequence[Split]) -> float:
    """Mean log r of the training rows less that of the reported rows, mean over replicas."""
    gaps = []
    for replica, split in enumerate(splits):
        one = model.select([replica])
        own, other = (
            float(score_pairs(one, x[rows], y[rows]).double().mean())
            for rows in (
                torch.from_numpy(part).to(x.device) for part in (split.train, split.report)
            )
        )
        gaps.append(own - other)
    return float(np.mean(gaps))
