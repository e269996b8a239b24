"""Fit many data sets of one shape at once, each as `PointwiseDependency.fit` would alone.

The engine trains replicas; here the folds of all data sets are replicas of one training run, which
a GPU does in little more time than one data set takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pointdep.core.methods import get_method
from pointdep.estimators import assembly
from pointdep.estimators.fit_rows import FitRows, prepare
from pointdep.estimators.pointwise import PointwiseDependency
from pointdep.fitting.closed_form import drop_unproven_network
from pointdep.fitting.splits import Split
from pointdep.inference.out_of_fold import out_of_fold

Pair = tuple[Any, Any]


def fit_together(pairs: Sequence[Pair], seeds: Sequence[int]) -> list[PointwiseDependency]:
    """One estimator with the default settings per data set; all have the same rows and columns."""
    made = [PointwiseDependency(random_state=seed, progress=False) for seed in seeds]
    method = get_method("pc")
    read = [
        one._read(x, y, None, one._seed()).paired for one, (x, y) in zip(made, pairs, strict=True)
    ]
    folds, width = len(read[0].splits), (read[0].x.shape[1], read[0].y.shape[1])
    settings = made[0]._critic_settings(len(read[0].x), max(width))
    fronts = [assembly.make_model(settings, method, folds, *width) for _ in made]
    rows = [prepare(front, one) for front, one in zip(fronts, read, strict=True)]
    size = len(rows[0].x)
    splits = [
        Split(*(part + number * size for part in (split.train, split.stop, split.report)))
        for number, one in enumerate(rows)
        for split in one.splits
    ]
    stacked = replace(
        rows[0],
        x=torch.cat([one.x for one in rows]),
        y=torch.cat([one.y for one in rows]),
        splits=splits,
    )
    model = assembly.make_model(settings, method, len(splits), *width)
    options = made[0]._training_options(settings, FitRows(stacked))
    trained = assembly.train_model(model, stacked, options, keep_unproven=True).trained
    for number, (estimator, one, front) in enumerate(zip(made, rows, fronts, strict=True)):
        own = model.select(range(number * folds, (number + 1) * folds))
        own.x_front, own.y_front = front.x_front, front.y_front
        drop_unproven_network(own, one)
        own.eval()
        held = out_of_fold(own, one.x, one.y, one.splits, seed=one.seed)
        own.seen.copy_(torch.tensor([held.lowest, held.highest]))
        estimator.encoder_x_, estimator.encoder_y_ = one.encoder_x, one.encoder_y
        estimator.n_rows_ = size
        estimator._set_model(own)
        estimator.oof_pmi_, estimator.oof_values_ = held.pmi, held.pseudo_values
        estimator.flags_, estimator.history_ = held.flags, trained.history
        estimator.groups_, estimator.bias_, estimator.training_rows_ = None, held.bias, FitRows(one)
        estimator.bound_, estimator.curve_ = held.bound, held.curve
        assert np.isfinite(held.pmi).all()
    return made
