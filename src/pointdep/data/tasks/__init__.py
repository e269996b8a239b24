"""Reference tasks whose mutual information and PMI are known exactly, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from pointdep.data.tasks import continuous as c
from pointdep.data.tasks import discrete as d
from pointdep.data.tasks.continuous import Joint, Map, Task, correlated_gaussians, mapped
from pointdep.data.tasks.discrete import discrete_table, table_pmi
from pointdep.errors import require_known

__all__ = ["QUICK", "TASKS", "Joint", "Task", "TaskKind", "make_task"]
__all__ += ["correlated_gaussians", "discrete_table", "table_pmi"]


@dataclass(frozen=True, eq=False)
class TaskKind:
    """What a task is, in one line, and its joint distribution."""

    description: str
    joint: Callable[[], Joint]


def make_task(name: str, rows: int, seed: int = 0) -> Task:
    """Independent rows of the task of this name; the same seed gives the same rows."""
    require_known("task", name, TASKS)
    return TASKS[name].joint().draw(name, rows, seed)


def _gaussians(dim: int, nats: float) -> TaskKind:
    return TaskKind(f"{dim} + {dim} correlated Gaussians", partial(c.correlated, dim, nats))


def _dense(dim: int) -> TaskKind:
    return TaskKind(
        f"{dim} + {dim} Gaussians, each correlated with all",
        lambda: c.gaussian(c.dense_covariance(dim, 0.5), dim),
    )


def _sparse(dim: int, words: str = "two pairs correlated") -> TaskKind:
    return TaskKind(
        f"{dim} + {dim} Gaussians, {words}",
        lambda: c.gaussian(c.sparse_covariance(dim, 2, 2.0), dim),
    )


def _both_sides(base: str, words: str, change: Map) -> TaskKind:
    """Another task with the same map on x and on y."""
    return TaskKind(f"{base} {words}", lambda: mapped(TASKS[base].joint(), x=change, y=change))


def _student(dim: int, freedom: float, words: str, correlation: float = 0.0) -> TaskKind:
    dispersion = c.dense_covariance(dim, correlation)
    return TaskKind(f"{dim} + {dim} {words}", partial(c.student, dispersion, dim, freedom))


def _spiral(dim: int) -> TaskKind:
    """x turns in the plane of its first two coordinates, y in that of its second and third."""

    def turning(first: int, second: int) -> Map:
        generator = np.zeros((dim, dim))
        generator[first, second], generator[second, first] = -1.0, 1.0
        return c.spiral(generator, 1 / dim)

    return TaskKind(
        f"{dim} + {dim} Gaussians wound into spirals",
        lambda: mapped(_sparse(dim).joint(), x=turning(0, 1), y=turning(1, 2)),
    )


def _uniform(width: float) -> TaskKind:
    return TaskKind(f"uniform x, y = x + uniform noise to {width}", partial(c.uniform_noise, width))


def _swiss_roll() -> Joint:
    joint = c.gaussian(c.dense_covariance(1, 0.75), 1)
    return mapped(mapped(joint, x=c.NORMAL_CDF, y=c.NORMAL_CDF), x=c.SWISS_ROLL)


def _cross() -> Joint:
    rising, falling = c.dense_covariance(1, 0.9), c.dense_covariance(1, -0.9)
    return d.gaussian_mixture([0.5, 0.5], np.zeros((2, 2)), [rising, falling])


def _clusters() -> Joint:
    means = [[-2.0, 2.0], [0.0, -2.0], [2.5, 1.0]]
    return d.gaussian_mixture([0.4, 0.3, 0.3], means, [0.5 * np.eye(2)] * 3)


_TABLE = np.array([[0.20, 0.05, 0.00], [0.05, 0.20, 0.05], [0.00, 0.05, 0.15], [0.05, 0.05, 0.15]])
_ZEROS = np.array([[0.25, 0.10], [0.05, 0.60]])
_TRIANGLE = np.array([[0.0, 0.0], [2.5, 0.0], [0.0, 2.5]])

_GAUSSIANS = {
    "gaussian-1": _gaussians(1, 0.5),
    "gaussian-5": _gaussians(5, 1.0),
    "gaussian-20": _gaussians(20, 2.0),
    "gaussian-50": _gaussians(50, 5.0),
    **{f"dense-{dim}": _dense(dim) for dim in (2, 5, 25, 50)},
    "sparse-2": _sparse(2, "correlated in two pairs"),
    **{f"sparse-{dim}": _sparse(dim) for dim in (5, 25, 50)},
    "independent": TaskKind("5 + 5 independent Gaussians", partial(c.correlated, 5, 0.0)),
}

_MAPPED = {
    "cubic-20": TaskKind(
        "gaussian-20 with y cubed", lambda: mapped(c.correlated(20, 2.0), y=c.CUBE)
    ),
    "cubic-5": _both_sides("gaussian-5", "with x and y cubed", c.CUBE),
    "half-cube-1": _both_sides("gaussian-1", "through sign(x) |x|^1.5, both sides", c.HALF_CUBE),
    "half-cube-25": _both_sides("sparse-25", "through sign(x) |x|^1.5, both sides", c.HALF_CUBE),
    "asinh-1": _both_sides("gaussian-1", "through asinh, both sides", c.ASINH),
    "normal-cdf-1": _both_sides("gaussian-1", "made uniform, both sides", c.NORMAL_CDF),
    "normal-cdf-5": _both_sides("sparse-5", "made uniform, both sides", c.NORMAL_CDF),
    "wiggly-1": _both_sides("gaussian-1", "through a wiggly map, both sides", c.WIGGLY),
    **{f"spiral-{dim}": _spiral(dim) for dim in (3, 5, 25)},
    "swiss-roll": TaskKind("a uniform x rolled up in the plane, a uniform y", _swiss_roll),
}

_STUDENTS = {
    "student-1": _student(1, 1, "uncorrelated Student, 1 degree of freedom"),
    **{f"student-{dim}": _student(dim, 2, "uncorrelated Student, 2 degrees") for dim in (2, 3, 5)},
    "student-dense-5": _student(5, 5, "Student, all correlated, 5 degrees", correlation=0.5),
    "asinh-student-1": _both_sides("student-1", "through asinh, both sides", c.ASINH),
    "asinh-student-5": _both_sides("student-5", "through asinh, both sides", c.ASINH),
}

_OTHERS = {
    **{f"uniform-{width}": _uniform(width) for width in (0.1, 0.75)},
    "mixture-cross": TaskKind("1 + 1 Gaussians, rising or falling: uncorrelated", _cross),
    "mixture-clusters": TaskKind("1 + 1, three clusters, independent inside them", _clusters),
    "mixture-outliers": TaskKind(
        "5 + 5 Gaussians, a fifth of the pairs mismatched", partial(d.outliers, 5, 0.95, 0.2)
    ),
    "mixture-blocks": TaskKind(
        "1 + 1, uniform in the blocks of a table", partial(d.blocks, _TABLE)
    ),
    "table": TaskKind("outcomes of a 4 by 3 table with empty cells", partial(d.outcomes, _TABLE)),
    "label": TaskKind(
        "three Gaussians in the plane and their label",
        partial(d.labelled_gaussians, [0.5, 0.3, 0.2], _TRIANGLE),
    ),
    "zero-inflated": TaskKind(
        "1 + 1 Gaussians with many zeros", partial(d.zero_inflated, _ZEROS, 0.9)
    ),
}

TASKS: Mapping[str, TaskKind] = MappingProxyType(_GAUSSIANS | _MAPPED | _STUDENTS | _OTHERS)
# One of each kind, small enough to be learned from a thousand rows.
QUICK = (
    *("gaussian-5", "cubic-5", "asinh-student-1", "spiral-3", "uniform-0.1", "mixture-cross"),
    *("label", "zero-inflated", "independent"),
)
