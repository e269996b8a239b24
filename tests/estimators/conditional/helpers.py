"""Rows of three variables whose conditional dependency is known exactly."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import multivariate_normal

from pointdep import ConditionalDependency, PointwiseDependency
from pointdep.errors import FitWarning
from refusals import quietly

ROWS = 2000


@dataclass(frozen=True, eq=False)
class Gaussian:
    """(x, y, z) with this covariance, of dims (dx, dy, dz)."""

    covariance: np.ndarray
    dims: tuple[int, int, int]

    @property
    def places(self) -> dict[str, np.ndarray]:
        """Where each variable stands in the covariance."""
        parts = np.split(np.arange(sum(self.dims)), np.cumsum(self.dims)[:-1])
        return dict(zip("xyz", parts, strict=True))

    def block(self, names: str) -> tuple[np.ndarray, np.ndarray]:
        at = np.concatenate([self.places[name] for name in names])
        return at, self.covariance[np.ix_(at, at)]

    @property
    def information(self) -> float:
        """I(X; Y | Z) from determinants: 1/2 log |xz| |yz| / (|xyz| |z|)."""
        log_det = {n: np.linalg.slogdet(self.block(n)[1])[1] for n in ("xz", "yz", "xyz", "z")}
        return 0.5 * (log_det["xz"] + log_det["yz"] - log_det["xyz"] - log_det["z"])

    def rows(self, count: int = ROWS, seed: int = 0) -> tuple[np.ndarray, ...]:
        random = np.random.default_rng(seed)
        sample = random.multivariate_normal(np.zeros(sum(self.dims)), self.covariance, count)
        return tuple(sample[:, at] for at in self.places.values())

    def pmi(self, *rows: np.ndarray) -> np.ndarray:
        """log p(x,y,z) p(z) / (p(x,z) p(y,z)) from the densities."""
        sample = np.concatenate(rows, 1)

        def density(names: str) -> np.ndarray:
            at, block = self.block(names)
            return multivariate_normal(np.zeros(len(at)), block).logpdf(sample[:, at])

        return density("xyz") + density("z") - density("xz") - density("yz")


def linear(weights: np.ndarray, dims: tuple[int, int, int]) -> Gaussian:
    """weights: (d, k), of (x, y, z) = weights @ (k independent standard normal numbers)."""
    return Gaussian(weights @ weights.T, dims)


# Each row says what one variable is made of; the columns are independent normal numbers.
CHAIN = linear(np.array([[1, 0, 0], [0.72, 0.54, 0.6], [0.8, 0.6, 0]]), (1, 1, 1))  # x -> z -> y
CAUSE = linear(np.array([[0.8, 0.6, 0], [0.7, 0, 0.7], [1, 0, 0]]), (1, 1, 1))  # x <- z -> y
# x - 0.6 z and y - 0.8 z are correlated with 0.7.
MADE_OF = np.array([[0.6, 0.8, 0], [0.8, 0.6 * 0.7, 0.6 * np.sqrt(0.51)], [1, 0, 0]])
PARTIAL = linear(MADE_OF, (1, 1, 1))


# Dimensions 2, 2 and 3 of which each depends on each.
MIXED = np.eye(7) + 0.35 * np.random.default_rng(3).standard_normal((7, 7))
WIDE = linear(MIXED, (2, 2, 3))


def small(**options: Any) -> PointwiseDependency:
    """A short fit, for tests that ask for no accuracy."""
    settings = {"critic": "concat", "hidden": (8,), "folds": 2, "max_epochs": 1, "device": "cpu"}
    return PointwiseDependency(**{**settings, "learning_rate": 1e-2, **options})


def conditional(estimator: PointwiseDependency | None = None, **options: Any):
    settings = {"random_state": 0, "progress": False}
    return ConditionalDependency(estimator or small(), **{**settings, **options})


def fit(*data: Any, groups: Any = None, estimator: Any = None, **options: Any):
    """Without the warnings that so short a fit earns."""
    with quietly(FitWarning):
        return conditional(estimator, **options).fit(*data, groups=groups)


def accurate(**options: Any) -> PointwiseDependency:
    """The default critic, with a small network that gives up soon."""
    settings = {"hidden": (32, 16), "folds": 4, "patience": 3, "device": "cpu"}
    return PointwiseDependency(**{**settings, **options})


@cache
def learned(name: str) -> tuple[Gaussian, tuple[np.ndarray, ...], ConditionalDependency]:
    """A distribution, rows of it, and a fit that nobody changes."""
    task = {"chain": CHAIN, "cause": CAUSE, "partial": PARTIAL, "wide": WIDE}[name]
    rows = task.rows(seed=1)
    return task, rows, conditional(accurate()).fit(*rows)


def triples(rows: int = 120, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Dependent x: (rows, 2), y: (rows, 1) and z: (rows, 2)."""
    random = np.random.default_rng(seed)
    x, y, z = (random.standard_normal((rows, d)) for d in (2, 1, 2))
    return x, y + x[:, :1] + z[:, :1], z


@cache
def base() -> ConditionalDependency:
    """A short fit of these that nobody changes."""
    return fit(*triples())
