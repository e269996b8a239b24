"""The reference tasks by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from pointdep.data.raw import Array
from pointdep.data.tasks.continuous import (
    ASINH,
    CUBE,
    HALF_CUBE,
    NORMAL_CDF,
    SWISS_ROLL,
    WIGGLY,
    Joint,
    Map,
    Task,
    correlated,
    dense_covariance,
    gaussian,
    mapped,
    sparse_covariance,
    spiral,
    student,
    uniform_noise,
)
from pointdep.data.tasks.discrete import (
    blocks,
    gaussian_mixture,
    labelled_gaussians,
    outcomes,
    outliers,
    zero_inflated,
)
from pointdep.errors import unknown_name


@dataclass(frozen=True, eq=False)
class TaskKind:
    """What a task is, in one line, and its joint distribution."""

    description: str
    joint: Callable[[], Joint]


def make_task(name: str, rows: int, seed: int = 0) -> Task:
    """Independent rows of the task of this name; the same seed gives the same rows."""
    if name not in TASKS:
        raise unknown_name("task", name, TASKS)
    return TASKS[name].joint().draw(name, rows, seed)


def _dense(dim: int) -> Joint:
    return gaussian(dense_covariance(dim, 0.5), dim)


def _sparse(dim: int) -> Joint:
    return gaussian(sparse_covariance(dim, 2, 2.0), dim)


def _both(joint: Joint, change: Map) -> Joint:
    return mapped(joint, x=change, y=change)


def _student(dim: int, freedom: float, correlation: float = 0.0) -> Joint:
    return student(dense_covariance(dim, correlation), dim, freedom)


def _spiral(dim: int) -> Joint:
    """x turns in the plane of its first two coordinates, y in that of its second and third."""

    def plane(first: int, second: int) -> Array:
        generator = np.zeros((dim, dim))
        generator[first, second], generator[second, first] = -1.0, 1.0
        return generator

    return mapped(_sparse(dim), x=spiral(plane(0, 1), 1 / dim), y=spiral(plane(1, 2), 1 / dim))


def _swiss_roll() -> Joint:
    uniform = _both(gaussian(dense_covariance(1, 0.75), 1), NORMAL_CDF)
    return mapped(uniform, x=SWISS_ROLL)


def _cross() -> Joint:
    rising = np.array([[1.0, 0.9], [0.9, 1.0]])
    falling = np.array([[1.0, -0.9], [-0.9, 1.0]])
    return gaussian_mixture([0.5, 0.5], np.zeros((2, 2)), [rising, falling])


def _clusters() -> Joint:
    return gaussian_mixture(
        [0.4, 0.3, 0.3], [[-2.0, 2.0], [0.0, -2.0], [2.5, 1.0]], [0.5 * np.eye(2)] * 3
    )


_TABLE = np.array([[0.20, 0.05, 0.00], [0.05, 0.20, 0.05], [0.00, 0.05, 0.15], [0.05, 0.05, 0.15]])
_ZEROS = np.array([[0.25, 0.10], [0.05, 0.60]])
_TRIANGLE = np.array([[0.0, 0.0], [2.5, 0.0], [0.0, 2.5]])

_GAUSSIANS = {
    "gaussian-1": TaskKind("1 + 1 correlated Gaussians", lambda: correlated(1, 0.5)),
    "gaussian-5": TaskKind("5 + 5 correlated Gaussians", lambda: correlated(5, 1.0)),
    "gaussian-20": TaskKind("20 + 20 correlated Gaussians", lambda: correlated(20, 2.0)),
    "gaussian-50": TaskKind("50 + 50 correlated Gaussians", lambda: correlated(50, 5.0)),
    "dense-2": TaskKind("2 + 2 Gaussians, each correlated with all", lambda: _dense(2)),
    "dense-5": TaskKind("5 + 5 Gaussians, each correlated with all", lambda: _dense(5)),
    "dense-25": TaskKind("25 + 25 Gaussians, each correlated with all", lambda: _dense(25)),
    "dense-50": TaskKind("50 + 50 Gaussians, each correlated with all", lambda: _dense(50)),
    "sparse-2": TaskKind("2 + 2 Gaussians, correlated in two pairs", lambda: _sparse(2)),
    "sparse-5": TaskKind("5 + 5 Gaussians, two pairs correlated", lambda: _sparse(5)),
    "sparse-25": TaskKind("25 + 25 Gaussians, two pairs correlated", lambda: _sparse(25)),
    "sparse-50": TaskKind("50 + 50 Gaussians, two pairs correlated", lambda: _sparse(50)),
    "independent": TaskKind("5 + 5 independent Gaussians", lambda: correlated(5, 0.0)),
}

_MAPPED = {
    "cubic-20": TaskKind("gaussian-20 with y cubed", lambda: mapped(correlated(20, 2.0), y=CUBE)),
    "cubic-5": TaskKind("gaussian-5 with x and y cubed", lambda: _both(correlated(5, 1.0), CUBE)),
    "half-cube-1": TaskKind(
        "gaussian-1 through sign(x) |x|^1.5, both sides",
        lambda: _both(correlated(1, 0.5), HALF_CUBE),
    ),
    "half-cube-25": TaskKind(
        "sparse-25 through sign(x) |x|^1.5, both sides", lambda: _both(_sparse(25), HALF_CUBE)
    ),
    "asinh-1": TaskKind(
        "gaussian-1 through asinh, both sides", lambda: _both(correlated(1, 0.5), ASINH)
    ),
    "normal-cdf-1": TaskKind(
        "gaussian-1 made uniform, both sides", lambda: _both(correlated(1, 0.5), NORMAL_CDF)
    ),
    "normal-cdf-5": TaskKind(
        "sparse-5 made uniform, both sides", lambda: _both(_sparse(5), NORMAL_CDF)
    ),
    "wiggly-1": TaskKind(
        "gaussian-1 through a wiggly map, both sides", lambda: _both(correlated(1, 0.5), WIGGLY)
    ),
    "spiral-3": TaskKind("3 + 3 Gaussians wound into spirals", lambda: _spiral(3)),
    "spiral-5": TaskKind("5 + 5 Gaussians wound into spirals", lambda: _spiral(5)),
    "spiral-25": TaskKind("25 + 25 Gaussians wound into spirals", lambda: _spiral(25)),
    "swiss-roll": TaskKind("a uniform x rolled up in the plane, a uniform y", _swiss_roll),
}

_STUDENTS = {
    "student-1": TaskKind(
        "1 + 1 uncorrelated Student, 1 degree of freedom", lambda: _student(1, 1)
    ),
    "student-2": TaskKind("2 + 2 uncorrelated Student, 2 degrees", lambda: _student(2, 2)),
    "student-3": TaskKind("3 + 3 uncorrelated Student, 2 degrees", lambda: _student(3, 2)),
    "student-5": TaskKind("5 + 5 uncorrelated Student, 2 degrees", lambda: _student(5, 2)),
    "student-dense-5": TaskKind(
        "5 + 5 Student, all correlated, 5 degrees", lambda: _student(5, 5, correlation=0.5)
    ),
    "asinh-student-1": TaskKind(
        "student-1 through asinh, both sides", lambda: _both(_student(1, 1), ASINH)
    ),
    "asinh-student-5": TaskKind(
        "student-5 through asinh, both sides", lambda: _both(_student(5, 2), ASINH)
    ),
}

_OTHERS = {
    "uniform-0.1": TaskKind("uniform x, y = x + uniform noise to 0.1", lambda: uniform_noise(0.1)),
    "uniform-0.75": TaskKind(
        "uniform x, y = x + uniform noise to 0.75", lambda: uniform_noise(0.75)
    ),
    "mixture-cross": TaskKind("1 + 1 Gaussians, rising or falling: uncorrelated", _cross),
    "mixture-clusters": TaskKind("1 + 1, three clusters, independent inside them", _clusters),
    "mixture-outliers": TaskKind(
        "5 + 5 Gaussians, a fifth of the pairs mismatched", lambda: outliers(5, 0.95, 0.2)
    ),
    "mixture-blocks": TaskKind("1 + 1, uniform in the blocks of a table", lambda: blocks(_TABLE)),
    "table": TaskKind("outcomes of a 4 by 3 table with empty cells", lambda: outcomes(_TABLE)),
    "label": TaskKind(
        "three Gaussians in the plane and their label",
        lambda: labelled_gaussians([0.5, 0.3, 0.2], _TRIANGLE),
    ),
    "zero-inflated": TaskKind(
        "1 + 1 Gaussians with many zeros", lambda: zero_inflated(_ZEROS, 0.9)
    ),
}

TASKS: Mapping[str, TaskKind] = MappingProxyType(_GAUSSIANS | _MAPPED | _STUDENTS | _OTHERS)
# One of each kind, small enough to be learned from a thousand rows.
QUICK = (
    "gaussian-5",
    "cubic-5",
    "asinh-student-1",
    "spiral-3",
    "uniform-0.1",
    "mixture-cross",
    "label",
    "zero-inflated",
    "independent",
)
