"""Small data and small fits; a fit asked for twice is done once."""

from functools import cache
from typing import Any

import numpy as np
import sklearn
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import check_estimator
from torch import Tensor, nn

from pointdep import PointwiseDependency
from pointdep.data.sides import as_side
from pointdep.errors import FitWarning
from refusals import quietly

X_DIM, Y_DIM = 2, 3

FAULTY_CHECKS = {"check_positive_only_tag_during_fit"} if sklearn.__version__ == "1.7.0" else set()
"""Checks of scikit-learn that fail by a mistake of their own: it subtracts floats from integers."""


def assert_scikit_learn_checks(estimator: BaseEstimator) -> None:
    """All of scikit-learn's checks pass but for those that ask for something else."""
    expected = {
        "check_fit1d": "one-dimensional X is one column, not an error",
        "check_n_features_in_after_fitting": "calls score(X, y=...) by name; the second array is Y",
    }
    with quietly():
        results = check_estimator(
            estimator, expected_failed_checks=expected, on_skip=None, on_fail=None
        )
    assert len({result["check_name"] for result in results}) > 30
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert set(failed) == FAULTY_CHECKS, failed
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(expected)


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


OWN = {"module": PairNet, "encoders": encoders}
CRITICS = ("auto", "concat", "separable", "bilinear", "inner", *OWN)


def pairs(rows: int = 120, *, seed: int = 0, x_dim: int = X_DIM, y_dim: int = Y_DIM):
    """Dependent x: (rows, x_dim) and y: (rows, y_dim), float32."""
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((rows, x_dim)), random.standard_normal((rows, y_dim))
    shared = min(x_dim, y_dim)
    y[:, :shared] += x[:, :shared]
    return x.astype(np.float32), y.astype(np.float32)


def small(**options: Any) -> PointwiseDependency:
    """A plain critic, unless another one is asked for: the default one has tests of its own."""
    settings = {"critic": "concat", "hidden": (8,), "embedding_dim": 4, "folds": 2, "max_epochs": 3}
    quiet = {"learning_rate": 1e-2, "random_state": 0, "device": "cpu", "progress": False}
    return PointwiseDependency(**{**settings, **quiet, **options})


def fit(*data: Any, groups: Any = None, **options: Any) -> PointwiseDependency:
    """Without the warnings that so short a fit earns."""
    with quietly(FitWarning):
        return small(**options).fit(*(data or pairs()), groups=groups)


def encoded(model: PointwiseDependency, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Both sides as the networks get them."""
    sides = ((model.encoder_x_, x, "X"), (model.encoder_y_, y, "Y"))
    read = (e.encode(as_side(side, name, discrete=e.discrete)) for e, side, name in sides)
    return model.model_.prepare(*map(torch.from_numpy, read))


@cache
def fitted(method: str = "pc", critic: str = "concat") -> PointwiseDependency:
    """A fit that nobody changes."""
    data = pairs(y_dim=X_DIM) if critic == "inner" else pairs()
    return fit(*data, method=method, critic=OWN[critic]() if critic in OWN else critic)


def new_pairs(critic: str = "concat", rows: int = 30):
    return pairs(rows, seed=9, y_dim=X_DIM if critic == "inner" else Y_DIM)
