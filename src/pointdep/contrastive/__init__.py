"""Losses, encoders, views and pre-training that make pairs recognisable.

The names below are imported when they are first used.
"""

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
    from pointdep.contrastive.pretraining.pretrained import (
        FrozenEncoder,
        Pretrained,
        load_encoder,
        pretrain,
    )
    from pointdep.contrastive.pretraining.protocols import Settings

__all__ = ["CPCLoss", "DM1Loss", "DM2Loss", "DRFCLoss", "PCCLoss", "RPCLoss", "VariationalLoss"]
__all__ += ["FrozenEncoder", "Pretrained", "Settings", "load_encoder", "pretrain"]
__all__ += ["knn_accuracy", "linear_evaluation"]

_HOME = {"Settings": "pretraining.protocols"}
_HOME |= dict.fromkeys(("knn_accuracy", "linear_evaluation"), "evaluation")
_HOME |= dict.fromkeys((name for name in __all__ if name.endswith("Loss")), "losses")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'pointdep.contrastive' has no attribute {name!r}")
    home = _HOME.get(name, "pretraining.pretrained")
    value = getattr(importlib.import_module(f"pointdep.contrastive.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
