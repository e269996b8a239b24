"""Small data and small fits; a fit asked for twice is done once."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import sklearn
import torch
from torch import Tensor, nn

from pointdep import PointwiseDependency
from pointdep.errors import FitWarning

X_DIM, Y_DIM = 2, 3

FAULTY_CHECKS = {"check_positive_only_tag_during_fit"} if sklearn.__version__ == "1.7.0" else set()
"""Checks of scikit-learn that fail by a mistake of their own: it subtracts floats from integers."""


class PairNet(nn.Module):
    """A user's critic of paired rows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Linear(X_DIM + Y_DIM, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.1)
        )
        self.last = nn.Linear(8, 1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.last(self.net(torch.cat([x, y], -1)))


def encoders() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    return nn.Linear(X_DIM, 4), nn.Sequential(nn.Linear(Y_DIM, 8), nn.Tanh(), nn.Linear(8, 4))


CRITICS = {
    "auto": lambda: "auto",
    "concat": lambda: "concat",
    "separable": lambda: "separable",
    "bilinear": lambda: "bilinear",
    "inner": lambda: "inner",
    "module": PairNet,
    "encoders": encoders,
}


def pairs(rows: int = 120, *, seed: int = 0, x_dim: int = X_DIM, y_dim: int = Y_DIM):
    """Dependent x: (rows, x_dim) and y: (rows, y_dim), float32."""
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((rows, x_dim)), random.standard_normal((rows, y_dim))
    shared = min(x_dim, y_dim)
    y[:, :shared] += x[:, :shared]
    return x.astype(np.float32), y.astype(np.float32)


def small(**options: Any) -> PointwiseDependency:
    """A plain critic, unless another one is asked for: the default one has tests of its own."""
    settings = {
        "critic": "concat",
        "hidden": (8,),
        "embedding_dim": 4,
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
        return small(**options).fit(*(data or pairs()), groups=groups)


@cache
def fitted(method: str = "pc", critic: str = "concat") -> PointwiseDependency:
    """A fit that nobody changes."""
    data = pairs(y_dim=X_DIM) if critic == "inner" else pairs()
    return fit(*data, method=method, critic=CRITICS[critic]())


def new_pairs(critic: str = "concat", rows: int = 30):
    return pairs(rows, seed=9, y_dim=X_DIM if critic == "inner" else Y_DIM)
