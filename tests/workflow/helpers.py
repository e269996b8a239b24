"""Small data and small fits."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from pointdep import PointwiseDependency
from pointdep.errors import FitWarning


def pairs(rows: int = 120, *, seed: int = 0):
    """Dependent x: (rows, 2) and y: (rows, 3), float32."""
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((rows, 2)), random.standard_normal((rows, 3))
    y[:, :2] += x
    return x.astype(np.float32), y.astype(np.float32)


def small(**options: Any) -> PointwiseDependency:
    settings = {
        "critic": "concat",
        "hidden": (8,),
        "folds": 2,
        "max_epochs": 3,
        "learning_rate": 1e-2,
        "random_state": 0,
        "device": "cpu",
        "progress": False,
    }
    return PointwiseDependency(**{**settings, **options})


def fit(*data: Any, groups: Any = None, **options: Any) -> PointwiseDependency:
    """Without the warnings that so short a fit earns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        return small(**options).fit(*data, groups=groups)
