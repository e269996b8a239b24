"""Contrastive losses: minus the learning objectives of the paper, of two batches of embeddings."""

import math
from typing import Any

import torch
from torch import Tensor

from pointdep.contrastive.losses.contrastive_loss import ContrastiveLoss
from pointdep.core.blocked.sums import log_sums
from pointdep.core.precision import no_autocast, raised
from pointdep.errors import InputError

__all__ = ["CPCLoss", "ContrastiveLoss", "DM1Loss", "DM2Loss", "DRFCLoss"]
__all__ += ["PCCLoss", "RPCLoss", "VariationalLoss"]


class CPCLoss(ContrastiveLoss):
    """Minus CPC: -mean_i [ s_ii - log( (1/B) sum_j exp s_ij ) ], the first row of Table 1.

    With ``negatives="all"`` it is SimCLR's NT-Xent, with ``"cross"`` and ``symmetric=True`` the
    mean of the two directions, as in CLIP. The usual number is the cross-entropy, which lacks the
    logarithm of the number of candidates: NT-Xent = loss + log(2n - 1), CLIP's = loss + log n. The
    gradients are the same; and in "cross" ``-loss`` is a lower bound of the mutual information in
    nats, never above log n.

    Temperature: 0.5 by default for the inner product of unit vectors. For the other options see
    `ContrastiveLoss`.

    The score is log r up to a function of x, which `pmi` takes off over a reference sample of z2.

    Examples
    --------
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

    method_key, multiplies, default = "cpc", "temperature", 0.5
    reference: Tensor

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.register_buffer("reference", torch.zeros(0, 0))

    def set_reference(self, z2: Tensor) -> None:
        """Store the sample of z2, (m, d2), over which `pmi` normalises; saved with the module.

        It must hold far more than e^PMI rows to read out a PMI.
        """
        self._check_rows("reference", z2, side=1)
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
            raise InputError("CPC needs a sample of z2: give `reference` or call set_reference(z2)")
        self._check(z1, reference, paired=False, second="reference")
        with no_autocast(z1):
            anchors, candidates = self.scores.sides(*self.scores.rows(z1, reference.to(z1.device)))
            job = self.scores.job(None, anchors, candidates)
            (sums,) = log_sums(anchors.unsqueeze(0), candidates.unsqueeze(0), job)
        return sums[0] - math.log(len(reference))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        saved = state_dict.get(prefix + "reference")
        if saved is not None:  # its number of rows is not known beforehand
            self.reference = self.reference.new_zeros(saved.shape, dtype=saved.dtype)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class PCCLoss(ContrastiveLoss):
    """The classifier that tells pairs from mismatched pairs: E_J[softplus(-s)] + E_M[softplus(s)].

    Pairs and negatives weigh the same, however many there are, as in the paper's code for Eq. (4);
    then the best score is log r itself, and the read-out adds nothing. It is minus the `js`
    objective, Eq. (1).

    Temperature: 0.2 by default for the inner product of unit vectors. For the other options see
    `ContrastiveLoss`.

    Examples
    --------
    >>> import torch
    >>> from pointdep.contrastive.losses import PCCLoss
    >>> z = torch.eye(4)
    >>> loss = PCCLoss()
    >>> round(loss(z, z).item(), 4)
    0.6999
    >>> loss.pmi(z, z).tolist()
    [5.0, 5.0, 5.0, 5.0]
    """

    method_key, multiplies, default = "js", "temperature", 0.2


class VariationalLoss(PCCLoss):
    """Minus the Jensen-Shannon objective, Eq. (1): E_J[softplus(-s)] + E_M[softplus(s)].

    The paper's Variational MI Bounds learn by it and read out log r = s. The balanced classifier
    of `PCCLoss` is the same function: the paper comes to it from two sides, a bound of a divergence
    and a classifier, and names both, so a recipe can say which row of its tables it follows.

    Temperature: 0.2 by default for the inner product of unit vectors. For the other options see
    `ContrastiveLoss`.

    Examples
    --------
    >>> import torch
    >>> from pointdep.contrastive.losses import PCCLoss, VariationalLoss
    >>> z = torch.eye(4)
    >>> bool(VariationalLoss()(z, z) == PCCLoss()(z, z))
    True
    """

    method_key = "variational"


class DM1Loss(ContrastiveLoss):
    """Minus Density Matching I, Eq. (2): -E_J[s] + lam (E_M[exp s] - 1).

    Best at s = log r - log lam; the read-out adds log lam. E_M[exp s] has no ceiling: with an
    unbounded critic give `clip`.

    Temperature: 0.2 by default for the inner product of unit vectors. For the other options see
    `ContrastiveLoss`.

    Examples
    --------
    >>> import torch
    >>> from pointdep.contrastive.losses import DM1Loss
    >>> z = torch.eye(4)
    >>> loss = DM1Loss(lam=2.0)
    >>> round(loss(z, z).item(), 4)
    -5.0
    >>> round(loss.pmi(z, z)[0].item(), 4)
    5.6931
    """

    method_key, multiplies, default = "dm1", "temperature", 0.2


class DM2Loss(ContrastiveLoss):
    """Minus Density Matching II, Eq. (3): -E_J[s] + eta (log E_M[exp s])^2.

    Best at s = log r + 1/(2 eta), which the read-out takes off (the paper prints log r = s).

    Temperature: 0.2 by default for the inner product of unit vectors. For the other options see
    `ContrastiveLoss`.

    Examples
    --------
    >>> import torch
    >>> from pointdep.contrastive.losses import DM2Loss
    >>> z = torch.eye(4)
    >>> loss = DM2Loss()
    >>> round(loss(z, z).item(), 4)
    -5.0
    >>> loss.pmi(z, z).tolist()
    [4.5, 4.5, 4.5, 4.5]
    """

    method_key, multiplies, default = "dm2", "temperature", 0.2


class DRFCLoss(ContrastiveLoss):
    """Minus Density-Ratio Fitting, Eq. (6): -E_J[s] + 1/2 E_M[s^2]; the best score is r itself.

    With 0 < alpha < 1 the relative form, -E_J[s] + alpha/2 E_J[s^2] + (1-alpha)/2 E_M[s^2], whose
    score cannot exceed 1/alpha; the read-out is r = (1-alpha) s / (1 - alpha s).

    Where the score is an inner product of embeddings ("inner", "bilinear", "separable", two
    encoders), without `clip` and with fewer columns than rows, E_M[s^2] comes from two d x d
    matrices: O(B d^2) time and no B x B matrix, and between processes only those matrices travel.

    Scale: 10 by default for the inner product of unit vectors. For the other options see
    `ContrastiveLoss`.

    Examples
    --------
    >>> import torch
    >>> from pointdep.contrastive.losses import DRFCLoss
    >>> z = torch.eye(4)
    >>> loss = DRFCLoss()
    >>> loss(z, z).item()
    -10.0
    >>> round(loss.pmi(z, z)[0].item(), 4)  # log 10
    2.3026
    """

    method_key, multiplies, default = "drf", "scale", 10.0


class RPCLoss(ContrastiveLoss):
    """Minus Relative Predictive Coding: -E_J[s] + a E_M[s] + b/2 E_J[s^2] + c/2 E_M[s^2].

    Best at s = (r - a) / (b r + c); the read-out is r = (a + c s) / (1 - b s). (Tsai and others,
    2021.) Like `DRFCLoss` it costs O(B d^2) where the score is an inner product.

    Scale: 10 by default for the inner product of unit vectors. For the other options see
    `ContrastiveLoss`.

    Examples
    --------
    >>> import torch
    >>> from pointdep.contrastive.losses import RPCLoss
    >>> z = torch.eye(4)
    >>> loss = RPCLoss()
    >>> round(loss(z, z).item(), 4)
    -9.75
    >>> round(loss.pmi(z, z)[0].exp().item(), 4)  # 11 / 0.95
    11.5789
    """

    method_key, multiplies, default = "rpc", "scale", 10.0


LOSSES: dict[str, type[ContrastiveLoss]] = {"cpc": CPCLoss, "pcc": PCCLoss, "drfc": DRFCLoss}
LOSSES |= {"variational": VariationalLoss, "dm1": DM1Loss, "dm2": DM2Loss, "rpc": RPCLoss}
"""The loss of each objective of pre-training; its `method_key` names the objective in `METHODS`."""
