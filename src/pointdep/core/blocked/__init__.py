"""Sums over all cells of inner-product scores, without the matrix of scores.

`InnerScores` stands where an objective takes a matrix; `Pairs` and `Others` stand for its weights.
"""

from pointdep.core.blocked.scores import InnerScores
from pointdep.core.blocked.weights import Others, Pairs

__all__ = ["InnerScores", "Others", "Pairs"]
