"""Variational MI Bounds as a contrastive loss."""

from __future__ import annotations

from pointdep.contrastive.losses.pcc import PCCLoss


class VariationalLoss(PCCLoss):
    """Minus the Jensen-Shannon objective, Eq. (1): E_J[softplus(-s)] + E_M[softplus(s)].

    The paper's Variational MI Bounds learn by it and read out log r = s. The balanced classifier
    of `PCCLoss` is the same function: the paper comes to it from two sides, a bound of a divergence
    and a classifier, and names both, so a recipe can say which row of its tables it follows.

    Temperature: 0.2 by default for the inner product of unit vectors. For the other options see
    `ContrastiveLoss`.

        >>> import torch
        >>> from pointdep.contrastive.losses import PCCLoss, VariationalLoss
        >>> z = torch.eye(4)
        >>> bool(VariationalLoss()(z, z) == PCCLoss()(z, z))
        True
    """

    method_key = "variational"
