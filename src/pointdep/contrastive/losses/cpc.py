"""Contrastive Predictive Coding (InfoNCE, NT-Xent, the loss of CLIP)."""

from __future__ import annotations

import math
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from pointdep.contrastive.losses.base import LogScoreLoss
from pointdep.contrastive.losses.cells import Cells
from pointdep.contrastive.losses.inputs import check_pairs, check_rows
from pointdep.contrastive.losses.options import LogScoreOptions, adds_to
from pointdep.contrastive.losses.precision import no_autocast, raised
from pointdep.errors import InputError

_BLOCK = 1 << 24  # scores of the read-out alive at a time


class CPCLoss(LogScoreLoss):
    """Minus CPC: -mean_i [ s_ii - log( (1/B) sum_j exp s_ij ) ], the first row of Table 1.

    With ``negatives="all"`` it is SimCLR's NT-Xent, with ``"cross"`` and ``symmetric=True`` the
    mean of the two directions, as in CLIP. The usual number is the cross-entropy, which lacks the
    logarithm of the number of candidates: NT-Xent = loss + log(2n - 1), CLIP's = loss + log n. The
    gradients are the same; and in "cross" ``-loss`` is a lower bound of the mutual information in
    nats, never above log n.

    Temperature: 0.5 by default for the inner product of unit vectors. For the other options see
    `ContrastiveLoss`.

    The score is log r up to a function of x, which `pmi` takes off over a reference sample of z2:

        >>> import torch
        >>> from pointdep.contrastive.losses import CPCLoss
        >>> z = torch.eye(4)
        >>> loss = CPCLoss(temperature=0.5)
        >>> round(loss(z, z).item(), 3)
        -1.046
        >>> loss.set_reference(z)
        >>> [round(value, 3) for value in loss.pmi(z, z).tolist()]
        [1.046, 1.046, 1.046, 1.046]
    """

    method_key = "cpc"
    default_temperature = 0.5
    reference: Tensor

    @adds_to(LogScoreLoss)
    def __init__(self, **options: Unpack[LogScoreOptions]) -> None:
        super().__init__({}, **options)
        self.register_buffer("reference", torch.zeros(0, 0))

    def objective(self, cells: Cells) -> Tensor:
        both_ways = self.symmetric and self.negatives == "cross"
        rows, columns = cells.negative_logsumexp(columns=both_ways)
        terms = _against(cells.positives, rows, cells.negatives)
        if columns is not None:
            terms = 0.5 * (terms + _against(cells.positives, columns, cells.negatives))
        if cells.grouped:  # NaN, as 0/0 is in the other losses, where all rows are in one group
            terms = terms * (cells.negatives / cells.negatives)
        return cells.joint_mean(terms)

    def set_reference(self, z2: Tensor) -> None:
        """Store the sample of z2, (m, d2), over which `pmi` normalises; saved with the module.

        It must hold far more than e^PMI rows to read out a PMI.
        """
        check_rows("reference", z2, self.dims, side=1)
        if not len(z2):
            raise InputError("the reference is empty: it must be a sample of z2")
        self.reference = raised(z2.detach())[0].clone()

    @torch.no_grad()
    def pmi(self, z1: Tensor, z2: Tensor, reference: Tensor | None = None) -> Tensor:
        """log r of each pair, (n,), without gradient: s - log mean_j exp s(z1, reference_j).

        z1: (n, d1), z2: (n, d2), reference: (m, d2), or what `set_reference` stored.
        """
        return super().pmi(z1, z2) - self._normaliser(z1, reference)

    @torch.no_grad()
    def pmi_matrix(self, z1: Tensor, z2: Tensor, reference: Tensor | None = None) -> Tensor:
        """log r of all pairs, in blocks. z1: (n, d1), z2: (m, d2) -> (n, m), without gradient."""
        return super().pmi_matrix(z1, z2) - self._normaliser(z1, reference).unsqueeze(1)

    def _normaliser(self, z1: Tensor, reference: Tensor | None) -> Tensor:
        """log mean_j exp s(z1_i, reference_j), (n,)."""
        reference = self.reference if reference is None else reference
        if not len(reference):
            raise InputError(
                "CPC's score is log r up to a function of x: give `reference`, a sample of z2, or "
                "store one with set_reference(z2)"
            )
        check_pairs(
            z1,
            reference,
            self.dims,
            same=self.scores.critic is None,
            paired=False,
            second="reference",
        )
        with no_autocast(z1):
            rows = self.scores.rows(*raised(z1, reference.to(z1.device)))
            anchors, candidates = self.scores.sides(*rows)
            parts = [
                torch.logsumexp(self.scores.cells_in_blocks(part, candidates), 1)
                for part in torch.split(anchors, max(1, _BLOCK // len(reference)))
            ]
        return torch.cat(parts) - math.log(len(reference))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        saved = state_dict.get(prefix + "reference")
        if saved is not None:  # its number of rows is not known beforehand
            self.reference = self.reference.new_zeros(saved.shape, dtype=saved.dtype)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _against(positive: Tensor, negatives: Tensor, count: Tensor) -> Tensor:
    """Of each anchor: its score minus log of the mean of exp over itself and its negatives, (a,).

    negatives: (a,), the logsumexp over `count` of them.
    """
    # Not logaddexp: its second derivative is NaN where exp of the distance overflows. Zero is added
    # as s - s, which is NaN where a score is infinite: log sigmoid would hide that.
    zero = (positive - positive).detach()
    return F.logsigmoid(positive - negatives) + (torch.log1p(count) + zero)
