"""Relative Predictive Coding."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from pointdep.contrastive.losses.base import RatioScoreLoss
from pointdep.contrastive.losses.cells import Cells
from pointdep.contrastive.losses.inner_sums import Quadratic
from pointdep.contrastive.losses.moments import quadratic_objective
from pointdep.contrastive.losses.options import RatioScoreOptions, adds_to


class RPCLoss(RatioScoreLoss):
    """Minus Relative Predictive Coding: -E_J[s] + a E_M[s] + b/2 E_J[s^2] + c/2 E_M[s^2].

    Best at s = (r - a) / (b r + c); the read-out is r = (a + c s) / (1 - b s). (Tsai and others,
    2021.) Like `DRFCLoss` it costs O(B d^2) where the score is an inner product.

    Scale: 10 by default for the inner product of unit vectors. For the other options see
    `ContrastiveLoss`.

        >>> import torch
        >>> from pointdep.contrastive.losses import RPCLoss
        >>> z = torch.eye(4)
        >>> loss = RPCLoss()
        >>> round(loss(z, z).item(), 4)
        -9.75
        >>> round(loss.pmi(z, z)[0].exp().item(), 4)  # 11 / 0.95
        11.5789
    """

    method_key = "rpc"

    @adds_to(RatioScoreLoss)
    def __init__(
        self,
        *,
        a: float = 1.0,
        b: float = 0.005,
        c: float = 1.0,
        **options: Unpack[RatioScoreOptions],
    ) -> None:
        super().__init__({"a": a, "b": b, "c": c}, **options)
        self.a, self.b, self.c = a, b, c

    def objective(self, cells: Cells) -> Tensor:
        weights = Quadratic((1.0, -0.5 * self.b), (-self.a, -0.5 * self.c))
        return quadratic_objective(cells, weights)
