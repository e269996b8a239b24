"""Pointwise HSIC (Yokoi et al., 2018): how much a pair adds to the covariance of two kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pointdep.estimators.classical.prepared import Array, Side, median_distance


@dataclass(frozen=True, eq=False)
class PHSICModel:
    """PHSIC(x, y) = (f(x) - mean_x)' C (g(y) - mean_y) in features f: (bx,), g: (by,).

    mean_x: (bx,), mean_y: (by,) and covariance: (bx, by) are those of the fitted rows.
    """

    features_x: Any
    features_y: Any
    mean_x: Array
    mean_y: Array
    covariance: Array

    def pairs(self, x: Side, y: Side) -> Array:
        """(n,) PHSIC of each pair."""
        left, right = self._sides(x, y)
        scores: Array = np.einsum("nb,nb->n", left, right)
        return scores

    def matrix(self, x: Side, y: Side) -> Array:
        """(n, m) PHSIC of every x with every y."""
        left, right = self._sides(x, y)
        scores: Array = left @ right.T
        return scores

    def mi_values(self, x: Side, y: Side) -> Array | None:
        """None: the mean of PHSIC is HSIC, which is not a mutual information."""
        del x, y
        return None

    def _sides(self, x: Side, y: Side) -> tuple[Array, Array]:
        """(n, by) and (m, by), whose inner products are the scores."""
        left = (self.features_x.transform(x.values) - self.mean_x) @ self.covariance
        return left, self.features_y.transform(y.values) - self.mean_y


def fit(x: Side, y: Side, *, seed: int, features: int, bandwidth: float) -> PHSICModel:
    """Features of at most `features` landmarks a side; all rows as landmarks is the exact kernel.

    The landmarks are drawn at random (Nystroem), where the paper of PHSIC picks them greedily
    (incomplete Cholesky): the same approximation of the kernel matrix with another choice of rows.
    """
    from sklearn.kernel_approximation import Nystroem

    random = np.random.default_rng(seed)
    maps, rows = [], []
    for side in (x, y):
        width = bandwidth * median_distance(side.values, random)
        landmarks = min(features, len(side))
        made = Nystroem(gamma=0.5 / width**2, n_components=landmarks, random_state=seed)
        rows.append(made.fit_transform(side.values))
        maps.append(made)
    means = [side.mean(0) for side in rows]
    covariance = (rows[0] - means[0]).T @ (rows[1] - means[1]) / len(x)
    return PHSICModel(maps[0], maps[1], means[0], means[1], covariance)
