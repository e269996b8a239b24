"""Contrastive losses: minus the learning objectives of the paper, of two batches of embeddings."""

from __future__ import annotations

from pointdep.contrastive.losses.base import ContrastiveLoss
from pointdep.contrastive.losses.cpc import CPCLoss
from pointdep.contrastive.losses.dm1 import DM1Loss
from pointdep.contrastive.losses.dm2 import DM2Loss
from pointdep.contrastive.losses.drfc import DRFCLoss
from pointdep.contrastive.losses.pcc import PCCLoss
from pointdep.contrastive.losses.rpc import RPCLoss
from pointdep.contrastive.losses.variational import VariationalLoss

__all__ = [
    "CPCLoss",
    "ContrastiveLoss",
    "DM1Loss",
    "DM2Loss",
    "DRFCLoss",
    "PCCLoss",
    "RPCLoss",
    "VariationalLoss",
]
