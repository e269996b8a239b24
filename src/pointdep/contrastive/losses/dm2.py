"""Density Matching II as a contrastive loss."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from pointdep.contrastive.losses.base import LogScoreLoss
from pointdep.contrastive.losses.cells import Cells
from pointdep.contrastive.losses.options import LogScoreOptions, adds_to


class DM2Loss(LogScoreLoss):
    """Minus Density Matching II, Eq. (3): -E_J[s] + eta (log E_M[exp s])^2.

    Best at s = log r + 1/(2 eta), which the read-out takes off (the paper prints log r = s).

    Temperature: 0.2 by default for the inner product of unit vectors. For the other options see
    `ContrastiveLoss`.

        >>> import torch
        >>> from pointdep.contrastive.losses import DM2Loss
        >>> z = torch.eye(4)
        >>> loss = DM2Loss()
        >>> round(loss(z, z).item(), 4)
        -5.0
        >>> loss.pmi(z, z).tolist()
        [4.5, 4.5, 4.5, 4.5]
    """

    method_key = "dm2"
    default_temperature = 0.2

    @adds_to(LogScoreLoss)
    def __init__(self, *, eta: float = 1.0, **options: Unpack[LogScoreOptions]) -> None:
        super().__init__({"eta": eta}, **options)
        self.eta = eta

    def objective(self, cells: Cells) -> Tensor:
        constant = cells.product_log_mean_exp()
        return cells.joint_mean(cells.positives) - self.eta * constant.square()
