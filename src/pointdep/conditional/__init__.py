"""Dependency given a third variable: PMI(x; y | z) and I(X; Y | Z)."""

from __future__ import annotations

from pointdep.conditional.estimator import ConditionalDependency

__all__ = ["ConditionalDependency"]
