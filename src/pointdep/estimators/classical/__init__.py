"""The estimators that came before neural networks, behind the same calls."""

from __future__ import annotations

from pointdep.estimators.classical.catalogue import CLASSICAL
from pointdep.estimators.classical.estimator import ClassicalDependency

__all__ = ["CLASSICAL", "ClassicalDependency"]
