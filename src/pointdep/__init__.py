"""pointdep: learn the point-wise dependency r(x,y) = p(x,y) / (p(x)p(y)) from pairs, and use it.

The names below are imported when they are first used, so that ``import pointdep`` stays fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pointdep.auditing.audit import audit
    from pointdep.auditing.result import Audit
    from pointdep.auditing.sharded_audit import audit_shards
    from pointdep.cluster.shard_scoring import score_shards
    from pointdep.core.critics import register_critic
    from pointdep.core.critics.base import Critic
    from pointdep.core.methods import METHODS, Method, register_method
    from pointdep.data.encoders import embed
    from pointdep.data.media import as_images, as_sounds, as_text
    from pointdep.data.shards import open_rows
    from pointdep.errors import (
        DataWarning,
        DivergedError,
        FitWarning,
        InputError,
        ModelFileError,
        PointdepError,
        PointdepWarning,
    )
    from pointdep.estimators.calibrated import CalibratedDependency, from_embeddings, from_logits
    from pointdep.estimators.classical.catalogue import CLASSICAL
    from pointdep.estimators.classical.estimator import ClassicalDependency
    from pointdep.estimators.conditional import ConditionalDependency
    from pointdep.estimators.pointwise import PointwiseDependency
    from pointdep.inference.checks import RatioCheck
    from pointdep.inference.learning_curve import LearningCurve
    from pointdep.inference.mutual_information import MIEstimate
    from pointdep.retrieval.metrics import retrieval_metrics
    from pointdep.retrieval.search import Retrieved
    from pointdep.workflow.comparison import MIAgainstN, MIDifference, compare, mi_against_n
    from pointdep.workflow.plan import Plan, plan
    from pointdep.workflow.ranking import ColumnRanking, rank_columns
    from pointdep.workflow.sklearn_tools import PMIFeatures, mi_scorer, mutual_information_features

# What is fitted; what is asked; errors and warnings.
__all__ = ["CLASSICAL", "METHODS", "Critic", "Method", "register_critic", "register_method"]
__all__ += ["CalibratedDependency", "ClassicalDependency", "ConditionalDependency"]
__all__ += ["PointwiseDependency", "from_embeddings", "from_logits", "objectives", "open_rows"]
__all__ += ["Audit", "Retrieved", "audit", "audit_shards", "retrieval_metrics", "score_shards"]
__all__ += ["LearningCurve", "MIAgainstN", "MIDifference", "MIEstimate", "RatioCheck", "compare"]
__all__ += ["PMIFeatures", "Plan", "mi_against_n", "mi_scorer", "mutual_information_features"]
__all__ += ["ColumnRanking", "rank_columns"]
__all__ += ["DataWarning", "DivergedError", "FitWarning", "InputError", "ModelFileError"]
__all__ += ["PointdepError", "PointdepWarning", "__version__", "plan"]
__all__ += ["as_images", "as_sounds", "as_text", "embed"]

# By module, so that a name is looked up without importing the others.
_NAMES = {
    "auditing.audit": ["audit"],
    "auditing.result": ["Audit"],
    "auditing.sharded_audit": ["audit_shards"],
    "cluster.shard_scoring": ["score_shards"],
    "core.critics": ["register_critic"],
    "core.critics.base": ["Critic"],
    "core.methods": ["METHODS", "Method", "register_method"],
    "data.encoders": ["embed"],
    "data.media": ["as_images", "as_sounds", "as_text"],
    "data.shards": ["open_rows"],
    "errors": [name for name in __all__ if name.endswith(("Error", "Warning"))],
    "estimators.calibrated": ["CalibratedDependency", "from_embeddings", "from_logits"],
    "estimators.classical.catalogue": ["CLASSICAL"],
    "estimators.classical.estimator": ["ClassicalDependency"],
    "estimators.conditional": ["ConditionalDependency"],
    "estimators.pointwise": ["PointwiseDependency"],
    "inference.checks": ["RatioCheck"],
    "inference.learning_curve": ["LearningCurve"],
    "inference.mutual_information": ["MIEstimate"],
    "objectives": ["objectives"],
    "retrieval.metrics": ["retrieval_metrics"],
    "retrieval.search": ["Retrieved"],
    "workflow.comparison": ["MIAgainstN", "MIDifference", "compare", "mi_against_n"],
    "workflow.plan": ["Plan", "plan"],
    "workflow.ranking": ["ColumnRanking", "rank_columns"],
    "workflow.sklearn_tools": ["PMIFeatures", "mi_scorer", "mutual_information_features"],
}
_HOME = {name: f"pointdep.{home}" for home, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'pointdep' has no attribute {name!r}")
    module = importlib.import_module(home)
    value = module if home == f"pointdep.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
