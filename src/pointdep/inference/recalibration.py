"""How an estimated log-ratio would have to be moved and stretched to be right (Cox, 1958)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from pointdep.inference.balances import Array, Blocks

_REACH = 20.0  # nats, or the spread of joint pairs: beyond it a pair has no more leverage
_STEPS = 50
_LONGEST_STEP = np.array([5.0, 0.5])


@dataclass(frozen=True)
class Recalibration:
    """The best log r is about  center + shift + slope * (log_ratio - center).

    shift 0 and slope 1 leave it as it is. A slope under 1 means that differences of log r come out
    too large by the factor 1 / slope.
    """

    center: float
    shift: float
    shift_stderr: float
    slope: float
    slope_stderr: float

    @property
    def intercept(self) -> float:
        """The best log r of a pair whose log_ratio is 0."""
        return self.center + self.shift - self.slope * self.center

    def to_dict(self) -> dict[str, float]:
        """Plain numbers, for JSON."""
        return {**asdict(self), "intercept": self.intercept}


def recalibrate(blocks: Blocks, center: float, offset: float = 0.0) -> Recalibration | None:
    """Logistic regression of joint against product on log r, with errors that respect reuse.

    offset: how far log r is too high around the center, as a balance there tells. Product pairs
    weigh e^(center - offset) times as much as joint ones, so that the odds are about even at the
    center however poor the estimate. None where no finite fit exists.
    """
    score = (blocks.log_ratio - center).clamp(*_reach(blocks, center))
    odds = math.exp(center - offset)
    fitted = _newton(blocks, score, odds)
    if fitted is None:
        return None
    (shift, slope), inverse = fitted
    belongs = torch.sigmoid(shift + slope * score)
    influence = []
    for feature in (torch.ones_like(score), score):
        of_joint = blocks.of_joint(((1 - belongs) * feature)[blocks.pairs])[1]
        of_product = blocks.of_product(belongs * feature)[1]
        influence.append(of_joint - odds * of_product)
    errors = np.sqrt(np.square(inverse @ np.stack(influence)).sum(1))
    return Recalibration(center, shift - offset, float(errors[0]), slope, float(errors[1]))


def _reach(blocks: Blocks, center: float) -> tuple[float, float]:
    drawn = blocks.log_ratio[blocks.pairs].numpy()
    low, high = np.quantile(drawn[np.isfinite(drawn)], [0.01, 0.99])
    return min(-_REACH, low - center), max(_REACH, high - center)


def _newton(blocks: Blocks, score: Tensor, odds: float) -> tuple[tuple[float, float], Array] | None:
    """The coefficients, and the inverse of the Hessian there."""
    cells = blocks.pairs | blocks.others
    score, joint = score[cells], blocks.joint[cells]
    weight = joint + odds * blocks.product[cells]
    if float(score.max() - score.min()) <= 0:
        return None
    shift, slope = 0.0, 1.0
    for _ in range(_STEPS):
        belongs = torch.sigmoid(shift + slope * score)
        error = joint - weight * belongs
        spread = weight * belongs * (1 - belongs)
        gradient = np.array([error.sum().item(), error.dot(score).item()])
        leverage = spread * score
        h0, h1, h2 = (v.item() for v in (spread.sum(), leverage.sum(), leverage.dot(score)))
        hessian = np.array([[h0, h1], [h1, h2]])
        if not h0 * h2 - h1 * h1 > 1e-12 * h0 * h2:
            return None
        inverse: Array = np.linalg.inv(hessian)
        # Bounded, so that the first steps from a poor log r do not overshoot.
        step = inverse @ gradient
        step = step / max(1.0, float(np.abs(step / _LONGEST_STEP).max()))
        shift, slope = shift + float(step[0]), slope + float(step[1])
        if np.abs(step).max() < 1e-8:
            return (shift, slope), inverse
    return None
