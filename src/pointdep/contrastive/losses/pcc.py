"""Probabilistic Classifier Coding."""

from __future__ import annotations

from typing import Unpack

import torch.nn.functional as F
from torch import Tensor

from pointdep.contrastive.losses.base import LogScoreLoss
from pointdep.contrastive.losses.cells import Cells
from pointdep.contrastive.losses.options import LogScoreOptions, adds_to
from pointdep.core.blocked.cells import softplus

_NOWHERE = float("-inf")  # the score at which softplus is zero


class PCCLoss(LogScoreLoss):
    """The classifier that tells pairs from mismatched pairs: E_J[softplus(-s)] + E_M[softplus(s)].

    Pairs and negatives weigh the same, however many there are, as in the paper's code for Eq. (4);
    then the best score is log r itself, and the read-out adds nothing. It is minus the `js`
    objective, Eq. (1).

    Temperature: 0.2 by default for the inner product of unit vectors. For the other options see
    `ContrastiveLoss`.

        >>> import torch
        >>> from pointdep.contrastive.losses import PCCLoss
        >>> z = torch.eye(4)
        >>> loss = PCCLoss()
        >>> round(loss(z, z).item(), 4)
        0.6999
        >>> loss.pmi(z, z).tolist()
        [5.0, 5.0, 5.0, 5.0]
    """

    method_key = "pc"
    default_temperature = 0.2

    @adds_to(LogScoreLoss)
    def __init__(self, **options: Unpack[LogScoreOptions]) -> None:
        super().__init__({}, **options)

    def objective(self, cells: Cells) -> Tensor:
        (negative,) = cells.product_means(softplus, masked=_NOWHERE)
        return cells.joint_mean(F.logsigmoid(cells.positives)) - negative
