"""Density Matching I as a contrastive loss."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from pointdep.contrastive.losses.base import LogScoreLoss
from pointdep.contrastive.losses.cells import Cells
from pointdep.contrastive.losses.options import LogScoreOptions, adds_to


class DM1Loss(LogScoreLoss):
    """Minus Density Matching I, Eq. (2): -E_J[s] + lam (E_M[exp s] - 1).

    Best at s = log r - log lam; the read-out adds log lam. E_M[exp s] has no ceiling: with an
    unbounded critic give `clip`.

    Temperature: 0.2 by default for the inner product of unit vectors. For the other options see
    `ContrastiveLoss`.

        >>> import torch
        >>> from pointdep.contrastive.losses import DM1Loss
        >>> z = torch.eye(4)
        >>> loss = DM1Loss(lam=2.0)
        >>> round(loss(z, z).item(), 4)
        -5.0
        >>> round(loss.pmi(z, z)[0].item(), 4)
        5.6931
    """

    method_key = "dm1"
    default_temperature = 0.2

    @adds_to(LogScoreLoss)
    def __init__(self, *, lam: float = 1.0, **options: Unpack[LogScoreOptions]) -> None:
        super().__init__({"lam": lam}, **options)
        self.lam = lam

    def objective(self, cells: Cells) -> Tensor:
        excess = cells.product_log_mean_exp().exp() - 1.0
        return cells.joint_mean(cells.positives) - self.lam * excess
