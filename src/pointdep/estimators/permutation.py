"""The permutation null: how dependent would these data look if they were not?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pointdep.core.linear import gaussian_mutual_information, sample_correlations
from pointdep.core.methods import get_method
from pointdep.core.ratio import RatioModel
from pointdep.errors import InputError
from pointdep.estimators import assembly
from pointdep.estimators.fit_rows import PairedRows
from pointdep.fitting.batches import TrainingOptions
from pointdep.fitting.progress import Progress
from pointdep.fitting.splits import Split, make_splits
from pointdep.inference.scoring import score_pairs

_FOLDS = 2
_HIDDEN = (64, 32)
_LEAST_ROWS, _MOST_ROWS = 16, 5_000
_MAX_EPOCHS, _PATIENCE = 30, 4
_LINEAR_SHARE = 0.1
_LARGEST = 0.99999
_TOGETHER = 64  # models trained at once


def p_value(statistics: Sequence[float]) -> float:
    """(1 + hits) / (1 + shuffles), of the statistic of the data and those of shuffled copies.

    A hit is a shuffled copy whose statistic is at least that of the data.
    """
    observed, *shuffled = statistics
    hits = sum(not value < observed for value in shuffled)  # NaN counts as a hit
    return (1 + hits) / (1 + len(shuffled))


def permutation_null(
    settings: assembly.CriticSettings, rows: PairedRows, shuffles: int, progress: Progress
) -> list[float]:
    """The statistic of the pairs, and of `shuffles` copies with y shuffled, fitted in the same way.

    The statistic is the mean out-of-fold log r of a small classifier, plus a share of the Gaussian
    MI of the sample, which tells copies apart that the classifier calls alike. One row of each
    group is used, and at most 5,000 rows: the p-value stays exact. `rows` are prepared.
    """
    random = np.random.default_rng([rows.seed, 5])
    order = random.permutation(len(rows.x))
    if rows.codes is not None:
        _, one_of_each = np.unique(rows.codes[order], return_index=True)
        order = order[np.sort(one_of_each)]
    chosen = torch.from_numpy(order[:_MOST_ROWS]).to(rows.x.device)
    if len(chosen) < _LEAST_ROWS:
        raise InputError(f"shuffles needs {_LEAST_ROWS} rows, one of each group, not {len(chosen)}")
    x, y = rows.x[chosen], rows.y[chosen]
    orders = [np.arange(len(x)), *(random.permutation(len(x)) for _ in range(shuffles))]
    small = replace(rows, x=x, y=y, codes=None)
    values: list[float] = []
    # Tables weigh their parts by the rows of all models of a call: each copy has one of its own.
    step = 1 if settings.kind.is_table else max(1, _TOGETHER // _FOLDS)
    for first in range(0, len(orders), step):
        values += _statistics(settings, small, orders[first : first + step])
        progress.update(min(first + step, len(orders)), len(orders), "shuffles")
    return values


def _statistics(
    settings: assembly.CriticSettings, rows: PairedRows, orders: Sequence[NDArray[np.int64]]
) -> list[float]:
    """One statistic per order of y: the copies lie one below the other, as replicas of one fit."""
    n = len(rows.x)
    splits = make_splits(n, folds=_FOLDS, seed=rows.seed)
    shifted = [
        Split(*(part + copy * n for part in (split.train, split.stop, split.report)))
        for copy in range(len(orders))
        for split in splits
    ]
    index = torch.from_numpy(np.concatenate(orders)).to(rows.x.device)
    copies = replace(rows, x=rows.x.repeat(len(orders), 1), y=rows.y[index], splits=shifted)
    method = get_method("pc")
    if settings.kind.has_closed_form:
        settings = replace(settings, hidden=_HIDDEN, wide=False)
    settings = replace(settings, link="auto", reduced=(False, False))  # the rows are already
    widths = rows.x.shape[1], rows.y.shape[1]
    if settings.kind.is_table:
        widths = rows.encoder_x.dim, rows.encoder_y.dim
    model = assembly.make_model(settings, method, len(shifted), *widths)
    smallest = min(len(split.train) for split in splits)
    batch, block = assembly.batch_shape(settings, method, smallest, "auto", "auto")
    how: dict[str, Any] = {"max_epochs": _MAX_EPOCHS, "patience": _PATIENCE, "average": 0.95}
    options = TrainingOptions(batch_size=batch, block=block, seed=rows.seed, **how)
    assembly.train_model(model, copies, options, keep_unproven=True)
    return [_statistic(model, copies, k * _FOLDS) for k in range(len(orders))]


def _statistic(model: RatioModel, copies: PairedRows, first: int) -> float:
    """Of the copy that these and the following replicas are of."""
    replicas = range(first, first + _FOLDS)
    reports = [torch.from_numpy(copies.splits[r].report).to(copies.x.device) for r in replicas]
    values = [
        score_pairs(model.select([replica]), copies.x[report], copies.y[report]).double()
        for replica, report in zip(replicas, reports, strict=True)
    ]
    mean = sum(float(part.sum()) for part in values) / sum(map(len, values))
    if model.critic.is_table:  # the numbers of categories have no order
        return mean
    own = torch.cat(reports)
    correlations = sample_correlations(copies.x[own].cpu(), copies.y[own].cpu())
    linear = gaussian_mutual_information(correlations.clamp(max=_LARGEST))
    return mean + _LINEAR_SHARE * float(linear)
