"""The estimators that came before neural networks, behind the same calls."""

from __future__ import annotations

from pointdep.classical.estimator import ClassicalDependency
from pointdep.classical.methods import CLASSICAL

__all__ = ["CLASSICAL", "ClassicalDependency"]
