"""Answers from a fitted model, tile by tile, and the estimate from one value per row."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from pointdep.classical.methods import ClassicalMethod, PairModel
from pointdep.classical.sides import Array, Codes, Side
from pointdep.errors import InputError
from pointdep.fitting.progress import Progress
from pointdep.inference.classifier import balanced_log_likelihood
from pointdep.inference.mutual_information import MIEstimate, standard_error

Array32 = NDArray[np.float32]

_ROWS, _COLUMNS = 1024, 4096  # of a tile: what is alive at a time
_SHUFFLES = 8  # product samples per row
_SEED = 0  # answers about given rows do not depend on the state of any generator


def pair_values(model: PairModel, x: Side, y: Side, progress: Progress) -> Array:
    """(n,) PMI, or the score, of paired rows."""
    values = np.empty(len(x))
    for first in range(0, len(x), _COLUMNS):
        rows = slice(first, first + _COLUMNS)
        values[rows] = model.pairs(x.take(rows), y.take(rows))
        progress.update(min(first + _COLUMNS, len(x)), len(x), "pairs")
    return values


def matrix_values(model: PairModel, x: Side, y: Side, progress: Progress) -> Array32:
    """(n, m) PMI, or the score, of every x with every y."""
    values = np.empty((len(x), len(y)), dtype=np.float32)
    for first in range(0, len(x), _ROWS):
        rows = slice(first, first + _ROWS)
        part = x.take(rows)
        for start in range(0, len(y), _COLUMNS):
            columns = slice(start, start + _COLUMNS)
            values[rows, columns] = model.matrix(part, y.take(columns))
        progress.update(min(first + _ROWS, len(x)), len(x), "rows")
    return values


def shuffled_score(
    model: PairModel, x: Side, y: Side, groups: Codes | None, progress: Progress
) -> float:
    """Minus the log-loss of sigmoid(log r) on the pairs and on shifts of y against x."""
    if len(x) < 2:
        raise InputError("score needs at least two rows, to shuffle them against each other")
    order = np.random.default_rng(_SEED).permutation(len(x))
    x, y = x.take(order), y.take(order)
    ids = order if groups is None else groups[order]
    product = []
    for shift in range(1, min(_SHUFFLES, len(x) - 1) + 1):
        other = np.roll(np.arange(len(x)), shift)
        values = pair_values(model, x, y.take(other), progress)
        product.append(values[ids != ids[other]])
    shuffled = np.concatenate(product)
    if not shuffled.size:
        raise InputError("score found no two rows of different groups to compare")
    return balanced_log_likelihood(pair_values(model, x, y, progress), shuffled)


def mean_estimate(
    values: Array,
    method: ClassicalMethod,
    *,
    confidence: float,
    groups: Codes | None,
    warnings: tuple[str, ...],
) -> MIEstimate:
    """The mean of values: (n,), NaN left out; its error counts groups: (n,) where there are any."""
    if not isinstance(confidence, int | float) or not 0.0 < confidence < 1.0:
        raise InputError(f"confidence={confidence!r} must lie between 0 and 1")
    known = ~np.isnan(values)
    values, groups = values[known], None if groups is None else groups[known]
    if not np.isfinite(values).all():
        raise InputError(
            "some pairs never came together, and their PMI without smoothing is minus infinity: "
            "set smoothing above 0 in method_options"
        )
    nats = float(values.mean())
    stderr = standard_error(values, groups)
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) * stderr
    return MIEstimate(
        nats=nats,
        stderr=stderr,
        ci=(nats - reach, nats + reach),
        confidence=confidence,
        rows=len(values),
        method=method.key,
        estimates=method.estimates,
        warnings=warnings,
    )
