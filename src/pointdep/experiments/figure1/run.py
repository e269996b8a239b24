"""Train all curves of Figure 1 at once."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pointdep.core.critics import build_critic
from pointdep.core.methods import METHODS
from pointdep.experiments.figure1.curves import Curves
from pointdep.experiments.figure1.settings import TASKS, Cell, Figure1, paper_method
from pointdep.fitting.progress import Progress
from pointdep.fitting.rendezvous import pick_device
from pointdep.fitting.sampler import Draw, StreamEngine

# How many iterations an expected time is read off, and how many seconds they may take.
_TIMED, _TIMED_S = 5, 3.0


def run_figure1(settings: Figure1, progress: Progress | None = None) -> Curves:
    """Every cell trained from start to end; one engine run, on one device."""
    device = pick_device(settings.device)
    precision = resolved_precision(settings, device)
    streamed = make_engine(settings).run(settings.iterations, progress)
    return Curves(
        settings,
        streamed.values.numpy(),
        streamed.setup_seconds,
        streamed.train_seconds,
        str(device),
        precision,
    )


def expected_seconds(settings: Figure1) -> float:
    """How long `run_figure1` will take here, from a few of its iterations."""
    engine = make_engine(settings)
    engine.run(1)
    times: list[float] = []
    while len(times) < _TIMED and sum(times) < _TIMED_S:
        times.append(engine.run(1).train_seconds)
    return min(times) * settings.iterations


def resolved_precision(settings: Figure1, device: torch.device) -> str:
    """What "auto" stands for on this device."""
    if settings.precision != "auto":
        return settings.precision
    return "bf16" if device.type == "cuda" else "float32"


def make_engine(settings: Figure1) -> StreamEngine:
    """The engine with one replica a cell, at its first iteration."""
    device = pick_device(settings.device)
    precision = resolved_precision(settings, device)
    critic = build_critic(
        settings.critic,
        len(settings.cells),
        settings.dim,
        settings.dim,
        hidden=settings.hidden,
        embedding_dim=settings.embedding_dim,
        activation="relu",
    )
    critic.reset([torch.Generator().manual_seed(cell_seed(cell)) for cell in settings.cells])
    # The paper's classifier gives a logit, log r - log(n - 1), where ours gives log r. To start
    # where the paper does, and so to take the same path, ours starts that much higher.
    raised = [
        math.log(settings.batch_size - 1) if cell.method == "pc" else 0.0 for cell in settings.cells
    ]
    critic.raise_scores(torch.tensor(raised))
    generator, draw = make_draw(settings, device, precision)
    return StreamEngine(
        critic,
        [paper_method(cell.method) for cell in settings.cells],
        draw,
        learning_rate=settings.learning_rate,
        precision=precision,
        device=device,
        generator=generator,
    )


def cell_seed(cell: Cell) -> int:
    """The seed of a cell's weights: its own, whichever other cells there are."""
    number = list(METHODS).index(cell.method) * len(TASKS) + TASKS.index(cell.task)
    return 1_000_003 * cell.seed + number


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
