"""Logistic regression of belonging together on a few columns, by Newton's method."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_STEPS, _HALVINGS, _PRECISION = 60, 30, 1e-9
_ALIKE = 1e-9  # of the spread of the logits: a column that varies less is constant
RIDGE = 1e-10  # of the Hessian's trace, so that columns that are all but alike can be solved


@dataclass(frozen=True, eq=False)
class Scaled:
    """Columns of a regression, the second of them one, in units of their spread: (N, k).

    So that the unit of the logits does not matter. center, scale: (k,).
    """

    values: Tensor
    center: Tensor
    scale: Tensor

    @classmethod
    def of(cls, design: Tensor) -> Scaled:
        center, scale = design.mean(0), design.std(0)
        center[1], scale[1] = 0.0, 1.0
        scale = torch.where(scale > _ALIKE * scale[0], scale, scale[0])
        return cls((design - center) / scale, center, scale)

    @property
    def outward(self) -> Tensor:
        """(k, k): from weights of these columns to weights of those that were given."""
        found = torch.diag(1 / self.scale)
        found[1] -= self.center / self.scale
        return found

    def inward(self, weights: Tensor) -> Tensor:
        """The other way, (k,)."""
        found = weights * self.scale
        found[1] = weights[1] + weights @ self.center
        return found


def fit_log_ratio(
    columns: Tensor, joint: Tensor, product: Tensor, *, odds: float, start: Tensor
) -> Tensor | None:
    """Weights (k,) of the columns, (N, k), by which log r is their sum; float64.

    joint, product: (N,) weights of the cells as samples of p(x,y) and p(x)p(y). Product samples are
    made to weigh e^odds times as much as joint ones, so that the classifier is undecided, and looks
    closest, where log r = odds. None where no finite fit exists.
    """
    product = product * (math.exp(odds) * joint.sum() / product.sum())
    weights: Tensor = start
    value = _value(columns, joint, product, odds, start)
    for _ in range(_STEPS):
        belongs = torch.sigmoid(columns @ weights - odds)
        spread = (joint + product) * belongs * (1 - belongs)
        gradient = columns.T @ (joint - (joint + product) * belongs)
        hessian = columns.T @ (columns * spread.unsqueeze(1))
        ridge = RIDGE * hessian.trace() * torch.eye(len(weights), dtype=columns.dtype)
        step, failed = torch.linalg.solve_ex(hessian + ridge, gradient)
        if bool(failed) or not bool(step.isfinite().all()):
            return None
        for _ in range(_HALVINGS):
            tried = weights + step
            new = _value(columns, joint, product, odds, tried)
            if new >= value:
                break
            step = step / 2
        gain, weights, value = new - value, weights + step, new
        if value > -_PRECISION * float(joint.sum()):
            return None  # no cell is in doubt: any larger weights would do as well
        if gain <= _PRECISION * abs(value):
            return weights
    return None


def _value(columns: Tensor, joint: Tensor, product: Tensor, odds: float, weights: Tensor) -> float:
    logit = columns @ weights - odds
    return -float(joint @ F.softplus(-logit) + product @ F.softplus(logit))
