"""How good frozen features are: linear classifiers and nearest neighbours on them."""

from __future__ import annotations

from pointdep.contrastive.evaluation.linear import LinearResult, linear_evaluation
from pointdep.contrastive.evaluation.logistic import LogisticFit, logistic_regression
from pointdep.contrastive.evaluation.neighbours import knn_accuracy

__all__ = [
    "LinearResult",
    "LogisticFit",
    "knn_accuracy",
    "linear_evaluation",
    "logistic_regression",
]
