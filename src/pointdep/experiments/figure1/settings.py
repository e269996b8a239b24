"""What Figure 1 is made of: methods, tasks, the staircase of true values, the network."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointdep.core.methods import METHODS, PAPER_METHODS, Method, get_method
from pointdep.errors import InputError, require_whole, unknown_name
from pointdep.fitting.sampler import PRECISIONS

TASKS = ("gaussian", "cubic")
CRITICS = ("concat", "separable")
_OF_THE_PAPER = (
    "methods",
    "tasks",
    "levels",
    "iterations",
    "dim",
    "batch_size",
    "critic",
    "hidden",
    "learning_rate",
)
_FEWEST = 4  # iterations a level: the second half of fewer has no standard deviation


@dataclass(frozen=True)
class Cell:
    """One curve: a method on a task, with a network and samples of its own."""

    method: str
    task: str
    seed: int


@dataclass(frozen=True)
class Figure1:
    """The experiment; the defaults are the paper's.

    Attributes
    ----------
    levels: true mutual information, in nats, of equal shares of the iterations.
    seeds: how many times every curve is drawn, with seeds `seed`, `seed` + 1, ...
    precision: of the matrix products; "auto" is bf16 on a GPU and float32 elsewhere. Losses and
        read-outs are never below float32.
    """

    methods: tuple[str, ...] = PAPER_METHODS
    tasks: tuple[str, ...] = TASKS
    levels: tuple[float, ...] = (2.0, 4.0, 6.0, 8.0, 10.0)
    iterations: int = 20_000
    dim: int = 20
    batch_size: int = 128
    critic: str = "concat"
    hidden: tuple[int, ...] = (512, 512)
    embedding_dim: int = 32
    learning_rate: float = 1e-3
    seeds: int = 1
    seed: int = 0
    precision: str = "auto"
    device: str = "auto"

    def __post_init__(self) -> None:
        for name in self.methods:
            _check_method(name)
        for name in self.tasks:
            if name not in TASKS:
                raise unknown_name("task", name, TASKS)
        for part in ("methods", "tasks", "levels"):
            if not getattr(self, part):
                raise InputError(f"{part} must name at least one")
            object.__setattr__(self, part, tuple(dict.fromkeys(getattr(self, part))))
        if self.critic not in CRITICS:
            raise unknown_name("critic", self.critic, CRITICS)
        if self.precision not in ("auto", *PRECISIONS):
            raise unknown_name("precision", self.precision, ("auto", *PRECISIONS))
        for name in ("iterations", "dim", "batch_size", "seeds", "embedding_dim"):
            require_whole(name, getattr(self, name))
        if self.batch_size < 2:
            raise InputError(
                f"batch_size={self.batch_size} must be at least 2: every pair is set against the "
                "mismatched pairs of its batch"
            )
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"learning_rate={self.learning_rate!r} must be positive")
        if min(self.levels) < 0 or not all(map(math.isfinite, self.levels)):
            raise InputError(f"levels={self.levels} must be finite and not negative")
        if self.iterations < _FEWEST * len(self.levels):
            raise InputError(
                f"iterations={self.iterations} must be at least {_FEWEST * len(self.levels)}, "
                f"{_FEWEST} for each of the {len(self.levels)} levels"
            )

    def quick(self) -> Figure1:
        """A smaller version of the same figure, which learns faster for the fewer steps it has."""
        return replace(self, iterations=5000, batch_size=32, hidden=(64, 64), learning_rate=2e-3)

    @property
    def departures(self) -> str:
        """In what this differs from the paper's experiment; empty where it does not."""
        paper = Figure1()
        changed = [n for n in _OF_THE_PAPER if getattr(self, n) != getattr(paper, n)]
        names = [
            f"{name.replace('_', ' ')} {_shown(getattr(self, name))}, not "
            f"{_shown(getattr(paper, name))}"
            for name in changed
        ]
        return "; ".join(names)

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        return (
            f"pointdep reproduce figure1 --methods {','.join(self.methods)} --tasks "
            f"{','.join(self.tasks)} --critic {self.critic} --dim {self.dim} --batch-size "
            f"{self.batch_size} --iterations {self.iterations} --hidden "
            f"{','.join(map(str, self.hidden))} --learning-rate {self.learning_rate!r} --seeds "
            f"{self.seeds} --seed {self.seed} --precision {self.precision} --device {self.device}"
        )

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every curve, in the order of the replicas that draw them."""
        return tuple(
            Cell(method, task, self.seed + number)
            for number in range(self.seeds)
            for task in self.tasks
            for method in self.methods
        )

    def level_of(self) -> NDArray[np.int64]:
        """Which level each iteration belongs to, (iterations,)."""
        return np.arange(self.iterations) * len(self.levels) // self.iterations

    def truth(self) -> NDArray[np.float64]:
        """The true mutual information of each iteration, (iterations,)."""
        return np.asarray(self.levels)[self.level_of()]

    def second_half(self, level: int) -> NDArray[np.int64]:
        """The iterations over which a level is judged: the second half of its own."""
        own = np.flatnonzero(self.level_of() == level)
        return own[len(own) // 2 :]

    def correlation(self) -> NDArray[np.float64]:
        """rho of each iteration: MI = -dim/2 log(1 - rho^2)."""
        return np.sqrt(-np.expm1(-2.0 * self.truth() / self.dim))


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _check_method(name: str) -> None:
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    if METHODS[name].estimates != "mutual information":
        raise InputError(f"method {name!r} infers {METHODS[name].estimates}: choose another")
    if METHODS[name].gradient is not None:
        raise InputError(f"method {name!r} has a running state, and cannot be drawn: choose 'dv'")


def paper_method(key: str) -> Method:
    """The method as the paper draws it: `dm2` with the read-out of Table 1, not the corrected."""
    options: dict[str, Any] = {"corrected": False} if key == "dm2" else {}
    return get_method(key, options)
