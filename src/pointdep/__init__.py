"""pointdep: learn the point-wise dependency r(x,y) = p(x,y) / (p(x)p(y)) from pairs, and use it.

The names below are imported when they are first used, so that ``import pointdep`` stays fast.
"""

from __future__ import annotations

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
    from pointdep.inference.mutual_information import MIEstimate
    from pointdep.retrieval.metrics import retrieval_metrics
    from pointdep.retrieval.search import Retrieved
    from pointdep.workflow.against_n import MIAgainstN, mi_against_n
    from pointdep.workflow.comparison import MIDifference, compare
    from pointdep.workflow.plan import Plan, plan
    from pointdep.workflow.pmi_features import PMIFeatures
    from pointdep.workflow.sklearn_tools import mi_scorer, mutual_information_features

_HOME = {
    "Audit": "pointdep.auditing.result",
    "CLASSICAL": "pointdep.estimators.classical.catalogue",
    "CalibratedDependency": "pointdep.estimators.calibrated",
    "ClassicalDependency": "pointdep.estimators.classical.estimator",
    "ConditionalDependency": "pointdep.estimators.conditional",
    "Critic": "pointdep.core.critics.base",
    "DataWarning": "pointdep.errors",
    "DivergedError": "pointdep.errors",
    "FitWarning": "pointdep.errors",
    "InputError": "pointdep.errors",
    "METHODS": "pointdep.core.methods",
    "MIAgainstN": "pointdep.workflow.against_n",
    "MIDifference": "pointdep.workflow.comparison",
    "MIEstimate": "pointdep.inference.mutual_information",
    "Method": "pointdep.core.methods",
    "ModelFileError": "pointdep.errors",
    "Plan": "pointdep.workflow.plan",
    "PMIFeatures": "pointdep.workflow.pmi_features",
    "PointdepError": "pointdep.errors",
    "PointdepWarning": "pointdep.errors",
    "PointwiseDependency": "pointdep.estimators.pointwise",
    "RatioCheck": "pointdep.inference.checks",
    "Retrieved": "pointdep.retrieval.search",
    "audit": "pointdep.auditing.audit",
    "audit_shards": "pointdep.auditing.sharded_audit",
    "compare": "pointdep.workflow.comparison",
    "from_embeddings": "pointdep.estimators.calibrated",
    "from_logits": "pointdep.estimators.calibrated",
    "mi_against_n": "pointdep.workflow.against_n",
    "mi_scorer": "pointdep.workflow.sklearn_tools",
    "mutual_information_features": "pointdep.workflow.sklearn_tools",
    "objectives": "pointdep.objectives",
    "open_rows": "pointdep.data.shards",
    "plan": "pointdep.workflow.plan",
    "register_critic": "pointdep.core.critics",
    "register_method": "pointdep.core.methods",
    "retrieval_metrics": "pointdep.retrieval.metrics",
    "score_shards": "pointdep.cluster.shard_scoring",
}

__all__ = [
    "CLASSICAL",
    "METHODS",
    "Audit",
    "CalibratedDependency",
    "ClassicalDependency",
    "ConditionalDependency",
    "Critic",
    "DataWarning",
    "DivergedError",
    "FitWarning",
    "InputError",
    "MIAgainstN",
    "MIDifference",
    "MIEstimate",
    "Method",
    "ModelFileError",
    "PMIFeatures",
    "Plan",
    "PointdepError",
    "PointdepWarning",
    "PointwiseDependency",
    "RatioCheck",
    "Retrieved",
    "__version__",
    "audit",
    "audit_shards",
    "compare",
    "from_embeddings",
    "from_logits",
    "mi_against_n",
    "mi_scorer",
    "mutual_information_features",
    "objectives",
    "open_rows",
    "plan",
    "register_critic",
    "register_method",
    "retrieval_metrics",
    "score_shards",
]


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
