"""What fitting costs: the bias of a mean of log r over rows that the model did not see."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.linear import gaussian_sample, wishart_stderr
from pointdep.core.ratio import RatioModel
from pointdep.fitting.closed_form import closed_form_only
from pointdep.fitting.splits import Split
from pointdep.inference.learning_curve import LearningCurve
from pointdep.inference.scoring import score_pairs, score_replicas

# A ratio with k free parameters reads k/2n too low on other rows and, to first order, k/2n too high
# on its own: the truth lies about half-way, a little nearer to its own where k/n is not small. A
# network that is stopped early also misses what it had no time to learn, at its best stop about as
# much again as the noise it has learned, so that the truth lies near what it says of its own rows.
# The shares and their doubts were set on simulated tasks (benchmarks/coverage.py measures the
# intervals they give). A network that shows nothing on other rows has learned noise alone:
# half-way again, with a doubt that reaches both ends; one that gains less there than its gap lies
# between the two.
_CLOSED_FORM_SHARE, _CLOSED_FORM_DOUBT = 0.6, 0.1
_NETWORK_SHARE, _NETWORK_DOUBT = 1.1, 0.32
_NOISE_SHARE, _NOISE_DOUBT = 0.5, 0.5
_UNPROVEN = 30.0  # nats times rows: the dependence a network must show to be left in, or so


@dataclass(frozen=True)
class FittingBias:
    """How much higher log r reads on the rows a model was fitted on than on others, in nats.

    closed_form, network: the parts of it. resolution: what independent pairs would show by chance.
    proven: whether the network has found something that unseen rows show beyond chance. gain: how
    much it adds to log r of unseen rows; None for no less than the gap. known: the correction, if
    the closed form alone answers: its estimate from all rows is unbiased.
    """

    closed_form: float = 0.0
    network: float = 0.0
    resolution: float = 0.0
    proven: bool = True
    gain: float | None = None
    rise: float | None = None
    earlier: float | None = None
    rise_stderr: float | None = None
    known: float | None = None

    @property
    def learned(self) -> float:
        """From 0 to 1: how far the network learned something, and not noise alone."""
        if not self.proven or self.gain is None or self.network <= 0.0:
            return float(self.proven)
        return min(max(self.gain / self.network, 0.0), 1.0)

    @property
    def correction(self) -> float:
        """What to add to the mean over unseen rows."""
        if self.known is not None:
            return self.known
        share = _NOISE_SHARE + (_NETWORK_SHARE - _NOISE_SHARE) * self.learned
        return _CLOSED_FORM_SHARE * self.closed_form + share * self.network

    @property
    def stderr(self) -> float:
        """How far that may be wrong."""
        doubt = _NOISE_DOUBT + (_NETWORK_DOUBT - _NOISE_DOUBT) * self.learned
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
    draws: int | None = None,
    curve: LearningCurve | None = None,
) -> FittingBias:
    """Of a cross-fitted model of the pairs x: (n, dx), y: (n, dy).

    proven: whether the mean of log r over unseen rows is above zero beyond chance. The default
    critic's network has been judged already, and stands only where it helps.
    With k = dx dy, the MI of n independent Gaussian pairs (or groups of them) is estimated with an
    error of sqrt(k/2)/n: no estimate resolves less. Where the default critic's network was left
    out, there may still be what so few rows could not prove, of the order of 1/n too.

    draws: n, where x and y are a sample of them only. On a sample the replicas that trained on a
    row are compared with the one that did not, row by row, which leaves the spread of the rows out.
    """
    paired = draws is not None and model.replicas > 1
    means = _paired_means if paired else _means
    if draws is None:
        draws = len(x) if groups is None else len(torch.unique(groups))
    resolution = math.sqrt(x.shape[1] * y.shape[1] / 2) / draws
    if model.critic.silent:
        resolution = math.hypot(resolution, _UNPROVEN / draws)
    rises = () if curve is None else (curve.rise[0], curve.earlier, curve.rise[1])
    own, other = means(model, x, y, splits)
    if not model.critic.has_closed_form:
        return FittingBias(0.0, max(own - other, 0.0), resolution, proven, other, *rises)
    own_closed, other_closed = means(closed_form_only(model), x, y, splits)
    closed, gain = own_closed - other_closed, other - other_closed
    network = max(own - other - closed, 0.0)
    return FittingBias(max(closed, 0.0), network, resolution, True, gain, *rises)


@torch.no_grad()
def closed_form_estimate(
    model: RatioModel, x: Tensor, y: Tensor, groups: Tensor | None, mean: float
) -> tuple[NDArray[np.float64], FittingBias] | None:
    """Pseudo-values (n,) and bias, if the closed form alone answers and the rows bear it out.

    x: (n, dx), y: (n, dy), prepared. mean: of log r over unseen rows, which the pseudo-values have
    too. The estimate is the Gaussian MI of all rows less its known excess. Its error is the spread
    of log r over the rows, and what the estimate has for independent sides too. None for critics
    without a closed form or with more than that, where a side is a label, which is not Gaussian,
    and where the rows are too few for their columns.
    """
    critic = model.critic
    if not (critic.has_closed_form and critic.silent) or critic.shrunk or critic.label:
        return None
    sample = gaussian_sample(x.cpu(), y.cpu(), groups)
    if sample is None:
        return None
    values = sample.values(x.cpu(), y.cpu()).numpy()
    doubt = wishart_stderr(*sample.ranks, sample.draws)
    resolution = math.hypot(doubt, _UNPROVEN / sample.draws)
    exact = float(values.mean()) - sample.excess
    return values - values.mean() + mean, FittingBias(0.0, 0.0, resolution, known=exact - mean)


def _means(model: RatioModel, x: Tensor, y: Tensor, splits: Sequence[Split]) -> tuple[float, float]:
    """Mean log r of the training rows and of the reported rows, mean over replicas."""
    means = []
    for replica, split in enumerate(splits):
        one = model.select([replica])
        parts = [torch.from_numpy(part).to(x.device) for part in (split.train, split.report)]
        means.append([float(score_pairs(one, x[p], y[p]).double().mean()) for p in parts])
    own, other = np.mean(means, axis=0)
    return float(own), float(other)


def _paired_means(
    model: RatioModel, x: Tensor, y: Tensor, splits: Sequence[Split]
) -> tuple[float, float]:
    """The same over rows that some replicas trained on and another reports."""
    trained, reported = np.zeros((2, len(splits), len(x)), bool)
    for replica, split in enumerate(splits):
        trained[replica, split.train], reported[replica, split.report] = True, True
    used = trained.any(0) & reported.any(0)
    index = torch.from_numpy(np.flatnonzero(used)).to(x.device)
    scores = score_replicas(model, x[index], y[index]).double().numpy()
    own, other = (
        float(((scores * mask[:, used]).sum(0) / mask[:, used].sum(0)).mean())
        for mask in (trained, reported)
    )
    return own, other
