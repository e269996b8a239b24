"""Kernel methods: pointwise HSIC, and least squares for the ratio (uLSIF)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pointdep.estimators.classical.prepared import Array, Codes, PairModel, Side

# What the kernel methods share: centres, and the width of a Gaussian kernel.

_MEDIAN_ROWS = 1000  # distances between more rows change their median little


def pick_rows(rows: int, count: int, random: np.random.Generator) -> Codes:
    """At most `count` of the row numbers, without repeats."""
    return np.sort(random.choice(rows, size=min(rows, count), replace=False))


def median_distance(values: Array, random: np.random.Generator) -> float:
    """The median heuristic for values: (n, d): of the distances between rows that differ."""
    from scipy.spatial.distance import pdist

    distances = pdist(values[pick_rows(len(values), _MEDIAN_ROWS, random)])
    distances = distances[distances > 0]
    return float(np.median(distances)) if distances.size else 1.0


# Pointwise HSIC (Yokoi et al., 2018): how much a pair adds to the covariance of two kernels.


@dataclass(frozen=True, eq=False)
class KernelFeatures:
    """Features of a Gaussian kernel: its values at landmarks (b, d), times normalization (b, b)."""

    landmarks: Array
    normalization: Array
    gamma: float

    def transform(self, values: Array) -> Array:
        """values: (n, d) -> (n, b)."""
        from sklearn.metrics.pairwise import rbf_kernel

        found: Array = rbf_kernel(values, self.landmarks, gamma=self.gamma) @ self.normalization.T
        return found


@dataclass(frozen=True, eq=False)
class PHSICModel(PairModel):
    """PHSIC(x, y) = (f(x) - mean_x)' C (g(y) - mean_y) in features f: (bx,), g: (by,).

    mean_x: (bx,), mean_y: (by,) and covariance: (bx, by) are those of the fitted rows.
    """

    features_x: KernelFeatures
    features_y: KernelFeatures
    mean_x: Array
    mean_y: Array
    covariance: Array

    def pairs(self, x: Side, y: Side) -> Array:
        """(n,) PHSIC of each pair."""
        left, right = self._sides(x, y)
        scores: Array = (left * right).sum(1)
        return scores

    def matrix(self, x: Side, y: Side) -> Array:
        """(n, m) PHSIC of every x with every y."""
        left, right = self._sides(x, y)
        return left @ right.T

    def _sides(self, x: Side, y: Side) -> tuple[Array, Array]:
        """(n, by) and (m, by), whose inner products are the scores."""
        left = (self.features_x.transform(x.values) - self.mean_x) @ self.covariance
        return left, self.features_y.transform(y.values) - self.mean_y


def fit_phsic(x: Side, y: Side, *, seed: int, features: int, bandwidth: float) -> PHSICModel:
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
        gamma = 0.5 / width**2
        found = Nystroem(gamma=gamma, n_components=landmarks, random_state=seed).fit(side.values)
        maps.append(KernelFeatures(found.components_, found.normalization_, float(gamma)))
        rows.append(maps[-1].transform(side.values))
    means = [side.mean(0) for side in rows]
    covariance = (rows[0] - means[0]).T @ (rows[1] - means[1]) / len(x)
    return PHSICModel(maps[0], maps[1], means[0], means[1], covariance)


# uLSIF (Kanamori, Hido, Sugiyama, 2009): least squares for the ratio in a basis of kernels.

BANDWIDTHS = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0)  # times the median distance of each side
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_PARTS = 3  # of the cross-validation
_BLOCK = 4096  # rows of the kernel matrices alive at a time


@dataclass(frozen=True, eq=False)
class KernelRatio(PairModel):
    """r(x, y) = sum_l weights_l k(x, centres_x_l) k(y, centres_y_l).

    centres_x: (b, dx), centres_y: (b, dy), weights: (b,); widths of the two kernels.
    """

    centres_x: Array
    centres_y: Array
    widths: tuple[float, float]
    weights: Array
    floor: float

    def pairs(self, x: Side, y: Side) -> Array:
        """(n,) log of r, or of the floor where r is below it."""
        near_x, near_y = self.kernels(x, y)
        return self._log((near_x * near_y) @ self.weights)

    def matrix(self, x: Side, y: Side) -> Array:
        """(n, m) log r of every x with every y."""
        near_x, near_y = self.kernels(x, y)
        return self._log((near_x * self.weights) @ near_y.T)

    def kernels(self, x: Side, y: Side) -> tuple[Array, Array]:
        """exp(-|v - c|^2 / (2 width^2)) of rows and centres: (n, b) and (m, b)."""
        from sklearn.metrics.pairwise import rbf_kernel

        return (
            rbf_kernel(x.values, self.centres_x, gamma=0.5 / self.widths[0] ** 2),
            rbf_kernel(y.values, self.centres_y, gamma=0.5 / self.widths[1] ** 2),
        )

    def _log(self, ratio: Array) -> Array:
        return np.log(np.maximum(ratio, self.floor))


Sums = tuple[Array, Array, Array, Array]
"""What the rows of each part add up to: (parts, b, b) of k k' of x and of y, (parts, b) of
k(x) k(y), and (parts,) of ones."""


def _moments(sums: Sums, parts: Sequence[int]) -> tuple[Array, Array]:
    """H: (b, b), over all pairs of an x and a y of these parts, and h: (b,), over the pairs.

    The mean over n^2 pairs of a product of kernels is the product of two means.
    """
    gram_x, gram_y, cross, rows = (kind[parts].sum(0) for kind in sums)
    return gram_x * gram_y / rows**2, cross / rows


Chosen = float | None  # None: by cross-validation


def fit_ulsif(
    x: Side, y: Side, *, seed: int, centres: int, bandwidth: Chosen, ridge: Chosen, floor: float
) -> KernelRatio:
    """Minimise 1/2 E_M[r^2] - E_J[r] + ridge/2 |weights|^2: weights = (H + ridge I)^-1 h.

    bandwidth (times the median distance) and ridge that are None have the smallest
    cross-validated 1/2 E_M[r^2] - E_J[r].
    """
    random = np.random.default_rng(seed)
    chosen = pick_rows(len(x), centres, random)
    medians = tuple(median_distance(side.values, random) for side in (x, y))
    part_of = random.permutation(len(x)) % _PARTS
    bandwidths = BANDWIDTHS if bandwidth is None else (bandwidth,)
    ridges = RIDGES if ridge is None else (ridge,)
    best = (math.inf, bandwidths[0], ridges[0])

    def basis(scale: float) -> KernelRatio:
        widths = scale * medians[0], scale * medians[1]
        return KernelRatio(x.values[chosen], y.values[chosen], widths, np.zeros(len(chosen)), floor)

    if len(bandwidths) * len(ridges) > 1:
        for scale in bandwidths:
            sums = _sums(basis(scale), x, y, part_of)
            for lam, loss in zip(ridges, _cross_validated(sums, ridges), strict=True):
                best = min(best, (loss, scale, lam))
    model = basis(best[1])
    H, h = _moments(_sums(model, x, y, np.zeros(len(x), dtype=np.int64)), [0])
    weights = np.linalg.solve(H + best[2] * np.eye(len(h)), h).astype(np.float64)
    return replace(model, weights=weights)


def _sums(basis: KernelRatio, x: Side, y: Side, part_of: Codes) -> Sums:
    """Summed in blocks of rows: the kernel matrices of all rows are never alive at once."""
    parts, b = int(part_of.max()) + 1, len(basis.weights)
    gram_x, gram_y = np.zeros((parts, b, b)), np.zeros((parts, b, b))
    cross = np.zeros((parts, b))
    for part in range(parts):
        rows = np.flatnonzero(part_of == part)
        for first in range(0, len(rows), _BLOCK):
            block = rows[first : first + _BLOCK]
            kx, ky = basis.kernels(x.take(block), y.take(block))
            gram_x[part] += kx.T @ kx
            gram_y[part] += ky.T @ ky
            cross[part] += np.einsum("nb,nb->b", kx, ky)
    return gram_x, gram_y, cross, np.bincount(part_of, minlength=parts).astype(np.float64)


def _cross_validated(sums: Sums, ridges: Sequence[float]) -> list[float]:
    """Per ridge, the mean loss of each part under the weights of the others."""
    losses = np.zeros(len(ridges))
    for part in range(_PARTS):
        H, h = _moments(sums, [other for other in range(_PARTS) if other != part])
        held_H, held_h = _moments(sums, [part])
        values, vectors = np.linalg.eigh(H)
        for at, ridge in enumerate(ridges):
            weights = vectors @ ((vectors.T @ h) / (np.maximum(values, 0) + ridge))
            losses[at] += 0.5 * weights @ held_H @ weights - held_h @ weights
    return list(losses / _PARTS)
