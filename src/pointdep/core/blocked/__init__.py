"""Sums over all cells of large matrices of scores, without the matrix.

`InnerScores` stands where an objective takes a matrix; `Pairs` and `Others` stand for its weights.
"""

from pointdep.core.blocked.inner_scores import InnerScores
from pointdep.core.blocked.walk import Others, Pairs

__all__ = ["InnerScores", "Others", "Pairs"]
