"""Losses, encoders, views and pre-training that make pairs recognisable.

The names below are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pointdep.contrastive.evaluation import knn_accuracy, linear_evaluation
    from pointdep.contrastive.losses import (
        CPCLoss,
        DM1Loss,
        DM2Loss,
        DRFCLoss,
        PCCLoss,
        RPCLoss,
        VariationalLoss,
    )
    from pointdep.contrastive.pretraining.export import FrozenEncoder, load_encoder
    from pointdep.contrastive.pretraining.record import Pretrained
    from pointdep.contrastive.pretraining.run import pretrain
    from pointdep.contrastive.pretraining.settings import Settings

_LOSSES = ("CPCLoss", "DM1Loss", "DM2Loss", "DRFCLoss", "PCCLoss", "RPCLoss", "VariationalLoss")
_HOME = {
    **dict.fromkeys(_LOSSES, "pointdep.contrastive.losses"),
    "FrozenEncoder": "pointdep.contrastive.pretraining.export",
    "Pretrained": "pointdep.contrastive.pretraining.record",
    "Settings": "pointdep.contrastive.pretraining.settings",
    "knn_accuracy": "pointdep.contrastive.evaluation",
    "linear_evaluation": "pointdep.contrastive.evaluation",
    "load_encoder": "pointdep.contrastive.pretraining.export",
    "pretrain": "pointdep.contrastive.pretraining.run",
}

__all__ = [
    "CPCLoss",
    "DM1Loss",
    "DM2Loss",
    "DRFCLoss",
    "FrozenEncoder",
    "PCCLoss",
    "Pretrained",
    "RPCLoss",
    "Settings",
    "VariationalLoss",
    "knn_accuracy",
    "linear_evaluation",
    "load_encoder",
    "pretrain",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'pointdep.contrastive' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
