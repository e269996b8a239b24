"""What the kernel methods share: centres, and the width of a Gaussian kernel."""

from __future__ import annotations

import numpy as np

from pointdep.classical.sides import Array, Codes

_MEDIAN_ROWS = 1000  # distances between more rows change their median little


def pick_rows(rows: int, count: int, random: np.random.Generator) -> Codes:
    """At most `count` of the row numbers, without repeats."""
    chosen: Codes = np.sort(random.choice(rows, size=min(rows, count), replace=False))
    return chosen


def median_distance(values: Array, random: np.random.Generator) -> float:
    """The median heuristic for values: (n, d): of the distances between rows that differ."""
    from scipy.spatial.distance import pdist

    distances = pdist(values[pick_rows(len(values), _MEDIAN_ROWS, random)])
    distances = distances[distances > 0]
    return float(np.median(distances)) if distances.size else 1.0


def gaussian_kernel(values: Array, centres: Array, width: float) -> Array:
    """exp(-|v - c|^2 / (2 width^2)): (n, d), (b, d) -> (n, b)."""
    from sklearn.metrics.pairwise import rbf_kernel

    kernel: Array = rbf_kernel(values, centres, gamma=0.5 / width**2)
    return kernel
