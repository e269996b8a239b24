"""Density-Ratio Fitting Coding."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from pointdep.contrastive.losses.base import RatioScoreLoss
from pointdep.contrastive.losses.cells import Cells
from pointdep.contrastive.losses.inner_sums import Quadratic
from pointdep.contrastive.losses.moments import quadratic_objective
from pointdep.contrastive.losses.options import RatioScoreOptions, adds_to


class DRFCLoss(RatioScoreLoss):
    """Minus Density-Ratio Fitting, Eq. (6): -E_J[s] + 1/2 E_M[s^2]; the best score is r itself.

    With 0 < alpha < 1 the relative form, -E_J[s] + alpha/2 E_J[s^2] + (1-alpha)/2 E_M[s^2], whose
    score cannot exceed 1/alpha; the read-out is r = (1-alpha) s / (1 - alpha s).

    Where the score is an inner product of embeddings ("inner", "bilinear", "separable", two
    encoders), without `clip` and with fewer columns than rows, E_M[s^2] comes from two d x d
    matrices: O(B d^2) time and no B x B matrix, and between processes only those matrices travel.

    Scale: 10 by default for the inner product of unit vectors. For the other options see
    `ContrastiveLoss`.

        >>> import torch
        >>> from pointdep.contrastive.losses import DRFCLoss
        >>> z = torch.eye(4)
        >>> loss = DRFCLoss()
        >>> loss(z, z).item()
        -10.0
        >>> round(loss.pmi(z, z)[0].item(), 4)  # log 10
        2.3026
    """

    method_key = "drf"

    @adds_to(RatioScoreLoss)
    def __init__(self, *, alpha: float = 0.0, **options: Unpack[RatioScoreOptions]) -> None:
        super().__init__({"alpha": alpha}, **options)
        self.alpha = alpha

    def objective(self, cells: Cells) -> Tensor:
        weights = Quadratic((1.0, -0.5 * self.alpha), (0.0, -0.5 * (1.0 - self.alpha)))
        return quadratic_objective(cells, weights)
