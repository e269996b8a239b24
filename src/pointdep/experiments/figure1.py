"""Figure 1: ten estimators of mutual information, trained while the true value climbs.

`Figure1` holds the settings, `run_figure1` trains every curve at once, and `halves` and `summarise`
reduce the curves to bias, spread and error at each level of the truth.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.critics.build import build_critic
from pointdep.core.methods import METHODS, PAPER_METHODS, get_method
from pointdep.errors import InputError
from pointdep.experiments import reports
from pointdep.experiments.reports import Floats, Line
from pointdep.fitting.progress import Progress
from pointdep.fitting.rendezvous import pick_device
from pointdep.fitting.sampler import PRECISIONS, Draw, StreamEngine

TASKS = ("gaussian", "cubic")
CRITICS = ("concat", "separable")
_OF_THE_PAPER = (
    *("methods", "tasks", "levels", "iterations", "dim", "batch_size", "critic", "hidden"),
    "learning_rate",
)
_IN_COMMAND = (
    *("methods", "tasks", "critic", "dim", "batch_size", "iterations", "hidden", "learning_rate"),
    *("seeds", "seed", "precision", "device"),
)
_FEWEST = 4  # iterations a level: the second half of fewer has no standard deviation
# Neighbouring values of a curve resemble each other; the means of this many parts hardly do.
BATCHES = 20
FEWEST_BATCHES = 5  # the standard deviation of fewer means says nothing


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
        names = {"methods": METHODS, "tasks": TASKS, "critic": CRITICS}
        reports.check_settings(
            self,
            known={**names, "precision": ("auto", *PRECISIONS)},
            distinct=("methods", "tasks", "levels"),
            least={"iterations": 1, "dim": 1, "batch_size": 2, "seeds": 1, "embedding_dim": 1},
            positive=("learning_rate",),
        )
        for method in (METHODS[name] for name in self.methods):
            if method.estimates != "mutual information":
                raise InputError(f"method {method.key!r} infers {method.estimates}: choose another")
            if method.gradient is not None:
                raise InputError(f"method {method.key!r} has a running state: choose 'dv'")
        if min(self.levels) < 0 or not all(map(math.isfinite, self.levels)):
            raise InputError(f"levels={self.levels} must be finite and not negative")
        if self.iterations < _FEWEST * len(self.levels):
            least = f"at least {_FEWEST * len(self.levels)}, {_FEWEST} for each level"
            raise InputError(f"iterations={self.iterations} must be {least}")

    def quick(self) -> Figure1:
        """A smaller version of the same figure, which learns faster for the fewer steps it has."""
        return replace(self, iterations=5000, batch_size=32, hidden=(64, 64), learning_rate=2e-3)

    @property
    def departures(self) -> str:
        """How this differs from the paper's experiment; empty if it does not."""
        return "; ".join(reports.departures(self, Figure1(), _OF_THE_PAPER, ", "))

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        options = {name: getattr(self, name) for name in _IN_COMMAND}
        return reports.command_line("reproduce", "figure1", **options)

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

    def truth(self) -> Floats:
        """The true mutual information of each iteration, (iterations,)."""
        return np.asarray(self.levels)[self.level_of()]

    def second_half(self, level: int) -> NDArray[np.int64]:
        """The iterations over which a level is judged: the second half of its own."""
        own = np.flatnonzero(self.level_of() == level)
        return own[len(own) // 2 :]

    def correlation(self) -> Floats:
        """rho of each iteration: MI = -dim/2 log(1 - rho^2)."""
        return np.sqrt(-np.expm1(-2.0 * self.truth() / self.dim))


@dataclass(frozen=True, eq=False)
class Curves:
    """The inference value of each cell on each training batch, before that batch was learnt from.

    Attributes
    ----------
    values: (iterations, cells), in nats; not finite where a method blew up.
    setup_seconds, train_seconds: compiling and capturing, and training.
    device, precision: what "auto" stood for; of a stored run, the name of its device.
    """

    settings: Figure1
    values: NDArray[np.floating]
    setup_seconds: float
    train_seconds: float
    device: str
    precision: str

    @property
    def cells(self) -> tuple[Cell, ...]:
        return self.settings.cells

    def of(self, cell: Cell) -> NDArray[np.floating]:
        """The curve of one cell, (iterations,)."""
        return self.values[:, self.cells.index(cell)]

    def seeds_of(self, method: str, task: str) -> NDArray[np.floating]:
        """The curves of all seeds, (iterations, seeds)."""
        own = [k for k, c in enumerate(self.cells) if (c.method, c.task) == (method, task)]
        return self.values[:, own]


def run_figure1(settings: Figure1, progress: Progress | None = None) -> Curves:
    """Train every cell from start to end, in one run of the engine on one device."""
    device = pick_device(settings.device)
    streamed = make_engine(settings).run(settings.iterations, progress)
    seconds = streamed.setup_seconds, streamed.train_seconds
    where = str(device), resolved_precision(settings, device)
    return Curves(settings, streamed.values.numpy(), *seconds, *where)


def expected_seconds(settings: Figure1) -> float:
    """How long `run_figure1` will take here, from a few of its iterations."""
    return reports.seconds_per_step(make_engine(settings)) * settings.iterations


def resolved_precision(settings: Figure1, device: torch.device) -> str:
    """What "auto" stands for on this device."""
    if settings.precision != "auto":
        return settings.precision
    return "bf16" if device.type == "cuda" else "float32"


def cell_seed(cell: Cell) -> int:
    """The seed of a cell's weights: its own, whichever other cells there are."""
    number = list(METHODS).index(cell.method) * len(TASKS) + TASKS.index(cell.task)
    return 1_000_003 * cell.seed + number


def make_engine(settings: Figure1) -> StreamEngine:
    """The engine with one replica per cell, at its first iteration."""
    device = pick_device(settings.device)
    precision = resolved_precision(settings, device)
    shape = len(settings.cells), settings.dim, settings.dim
    layers: dict[str, Any] = {"hidden": settings.hidden, "embedding_dim": settings.embedding_dim}
    critic = build_critic(settings.critic, *shape, activation="relu", **layers)
    critic.reset([torch.Generator().manual_seed(cell_seed(cell)) for cell in settings.cells])
    # The paper's classifier gives a logit, log r - log(n - 1), where ours gives log r. To start
    # where the paper does, and so to take the same path, ours starts that much higher.
    shift = math.log(settings.batch_size - 1)
    raised = [shift if cell.method == "pc" else 0.0 for cell in settings.cells]
    critic.raise_scores(torch.tensor(raised))
    generator, draw = make_draw(settings, device, precision)
    # As the paper draws them: `dm2` with the read-out of Table 1, not the corrected one.
    printed: dict[str, dict[str, Any]] = {"dm2": {"corrected": False}}
    methods = [get_method(cell.method, printed.get(cell.method)) for cell in settings.cells]
    how: dict[str, Any] = {"precision": precision, "device": device, "generator": generator}
    return StreamEngine(critic, methods, draw, learning_rate=settings.learning_rate, **how)


def make_draw(
    settings: Figure1, device: torch.device, precision: str
) -> tuple[torch.Generator | None, Draw]:
    """x, eps ~ N(0, I), y = rho x + sqrt(1 - rho^2) eps, y^3 in the Cubic task.

    On a CPU every cell has a generator of its own, so that its curve does not depend on which
    others are drawn; on a GPU one generator draws for all.
    """
    dtype = torch.float64 if precision == "float64" else torch.float32
    rho = torch.as_tensor(settings.correlation(), dtype=dtype, device=device)
    rest = torch.as_tensor((1.0 - settings.correlation() ** 2) ** 0.5, dtype=dtype, device=device)
    cells = settings.cells
    cubic = torch.tensor([cell.task == "cubic" for cell in cells], device=device)[:, None, None]
    shape = 2, settings.batch_size, settings.dim
    options: dict[str, Any] = {"dtype": dtype, "device": device}
    if device.type == "cuda":
        shared = torch.Generator(device).manual_seed(settings.seed)

        def normal() -> Tensor:
            return torch.randn(len(cells), *shape, generator=shared, **options)
    else:
        shared = None
        own = [torch.Generator(device).manual_seed(cell_seed(cell) + 500_000) for cell in cells]

        def normal() -> Tensor:
            return torch.stack([torch.randn(shape, generator=g, **options) for g in own])

    def draw(step: Tensor) -> tuple[Tensor, Tensor]:
        x, noise = normal().unbind(1)
        y = rho.index_select(0, step) * x + rest.index_select(0, step) * noise
        return x, torch.where(cubic, y**3, y)

    return shared, draw


@np.errstate(over="ignore", invalid="ignore")
def halves(curves: Curves) -> list[Line]:
    """Each curve over the second half of each level, in nats: task by task, method by method.

    Statistics are over the finite values. They are None if there are too few (one for `bias` and
    `rmse`, two for `sd`, ten for the errors) or if they overflow.

    iterations, not_finite: how many values there are, and how many of them are not finite. bias,
    sd, rmse: mean error, standard deviation, root mean squared error: rmse^2 = bias^2 + sd^2.
    bias_stderr, log_sd_stderr: standard errors of `bias` and of log `sd` from batch means, which
    hold the noise of this one curve and not what differs from seed to seed.
    """
    settings, lines = curves.settings, []
    for task, method in itertools.product(settings.tasks, settings.methods):
        for seed, curve in enumerate(curves.seeds_of(method, task).T, settings.seed):
            for position, level in enumerate(settings.levels):
                values = curve[settings.second_half(position)].astype(np.float64)
                errors = values[np.isfinite(values)] - level
                line: Line = {"method": method, "task": task, "level": level, "seed": seed}
                line |= {"iterations": len(values), "not_finite": len(values) - len(errors)}
                line["bias"] = _known(errors.mean()) if len(errors) else None
                line["bias_stderr"] = batch_means_error(errors)
                line["sd"] = _known(errors.std()) if len(errors) > 1 else None
                line["log_sd_stderr"] = _log_sd_error(errors)
                line["rmse"] = _known(np.sqrt(np.square(errors).mean())) if len(errors) else None
                lines.append(line)
    return lines


def batches_of(count: int) -> int:
    """Into how many parts so many values are cut, each of at least two."""
    return min(BATCHES, count // 2)


@np.errstate(over="ignore", invalid="ignore")
def batch_means_error(values: Floats) -> float | None:
    """Standard error of the mean of (n,) values that follow each other; None below ten."""
    parts = batches_of(len(values))
    if parts < FEWEST_BATCHES:
        return None
    means = [part.mean() for part in np.array_split(values, parts)]
    return _known(np.std(means, ddof=1) / math.sqrt(parts))


def _log_sd_error(errors: Floats) -> float | None:
    """By the delta method from that of the variance: d log sd = d var / (2 var)."""
    squares = np.square(errors - errors.mean()) if len(errors) else errors
    variance = squares.mean() if len(errors) else 0.0
    # Divided first: of large values, the squares of the squares would overflow.
    error = batch_means_error(squares / variance if variance else squares)
    return None if error is None else error / 2


@np.errstate(over="ignore", invalid="ignore")
def summarise(lines: Sequence[Line]) -> list[Line]:
    """The mean over the seeds that have the statistic, for each method, task and level.

    seeds, blown_up: how many there are, and how many have a value that is not finite. iterations,
    not_finite: values of all seeds, and how many of them are not finite. bias, sd: means over seeds
    of the bias and of the standard deviation within a curve. bias_stderr: over seeds; of a run with
    a single one, from its batch means. rmse: root of the mean over seeds of the mean squares.
    """
    import pandas as pd

    def root_mean_square(values: pd.Series[float]) -> float:
        known = values.dropna()
        return math.hypot(*known) / math.sqrt(len(known)) if len(known) else math.nan

    table = pd.DataFrame(lines).astype(dict.fromkeys(("bias", "bias_stderr", "sd", "rmse"), float))
    table["blown_up"] = table["not_finite"] > 0
    groups = table.groupby(["method", "task", "level"], sort=False)
    means = groups.agg(
        seeds=("seed", "size"),
        blown_up=("blown_up", "sum"),
        iterations=("iterations", "sum"),
        not_finite=("not_finite", "sum"),
        bias=("bias", "mean"),
        bias_stderr=("bias", "sem"),
        sd=("sd", "mean"),
        rmse=("rmse", root_mean_square),
    )
    alone = means["seeds"] == 1
    means["bias_stderr"] = means["bias_stderr"].mask(alone, groups["bias_stderr"].first())
    return reports.records(means.reset_index())


def _known(value: float | np.floating) -> float | None:
    return float(value) if math.isfinite(value) else None
