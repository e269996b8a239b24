"""The y with which every x is compared: the classes, or some rows that stand for all."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from torch import Tensor

from pointdep.errors import require_whole
from pointdep.estimators.pointwise import PointwiseDependency

_MOST_CLUSTERED = 10_000  # rows from which anchors are chosen


@dataclass(frozen=True, eq=False)
class Anchors:
    """y: (k, dy), prepared as the model takes them; names: (k,), what they are called.

    values: the classes, or the given y; rows: (k,) numbers of the rows of the fit that were chosen.
    """

    y: Tensor
    names: list[str]
    values: Any = None
    rows: Any = None


def choose_anchors(model: PointwiseDependency, anchors: Any) -> Anchors:
    """The classes where y is one column of categories; else given y, or so many rows of the fit."""
    encoder = model.encoder_y_
    if not isinstance(anchors, int | np.integer) or isinstance(anchors, bool):
        y = model._encode_side(anchors, "y")
        return Anchors(y, [str(number) for number in range(len(y))], anchors)
    require_whole("anchors", anchors)
    if len(encoder.categories) == 1 and not encoder.numeric_at:
        classes = encoder.categories[0].values
        return Anchors(model._encode_side(classes, "y"), [str(c) for c in classes], classes)
    rows = model._fitted_rows("PMIFeatures", "the fitted transformer")
    chosen = _spread_rows(rows.y.numpy(), int(anchors), rows.seed)
    return Anchors(rows.y[chosen], [str(number) for number in range(len(chosen))], rows=chosen)


def _spread_rows(y: Any, count: int, seed: int) -> Any:
    """Numbers of at most `count` rows of y: (n, d), each nearest to the middle of a cluster."""
    random = np.random.default_rng([seed, 11])
    some = np.sort(random.permutation(len(y))[:_MOST_CLUSTERED])
    places, first = np.unique(y[some], axis=0, return_index=True)
    count = min(count, len(places))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # few places, which are all taken
        middles = KMeans(count, n_init=1, random_state=seed % 2**32).fit(y[some]).cluster_centers_
    nearest = np.unique(pairwise_distances_argmin(middles, places))  # sorted, as places are
    return some[first[nearest]]
