"""`plan`: expected time and memory, with what takes most of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pointdep.errors import InputError, require_whole
from pointdep.planning import memory, work
from pointdep.planning.advice import advice
from pointdep.planning.constants import COMMANDS, constants
from pointdep.planning.shape import WIDE, Shape

EPOCHS, EPOCHS_NARROW = 20, 60
"""Epochs that are planned for, where nobody says: about where early stopping ended the fits seen,
of data with many columns and, where a network on pairs learns for longer, with 25 or fewer."""

START = "start of the process"


@dataclass(frozen=True)
class Cost:
    """What one command is expected to take.

    seconds: in all. gib: memory of the process at its peak, without mapped files; gpu_gib: of the
    GPU, None without one. parts: seconds by part, the longest first; bottleneck: the first of them,
    and share its share. within, memory_within: the factors that held-out measurements were within,
    of memory that of the process or of the GPU, whichever is larger.
    """

    command: str
    seconds: float
    gib: float
    gpu_gib: float | None
    parts: Mapping[str, float]
    within: float
    memory_within: float

    @property
    def bottleneck(self) -> str:
        return next(iter(self.parts))

    @property
    def share(self) -> float:
        return self.parts[self.bottleneck] / self.seconds


@dataclass(frozen=True)
class Plan:
    """Costs of a fit, of scoring as many pairs, of an audit (its fit included) and of a search.

    device: "cpu" or "gpu"; machine: what was measured, in words; cores: of a CPU. streamed: whether
    a fit reads its rows as it needs them. advice: sentences.
    """

    shape: Shape
    device: str
    machine: str
    cores: int
    costs: Mapping[str, Cost]
    advice: tuple[str, ...]

    @property
    def streamed(self) -> bool:
        return self.shape.streamed


def plan(
    rows: int,
    dims: int | tuple[int, int],
    *,
    gpu: bool = False,
    epochs: int | None = None,
    folds: int = 5,
    queries: int = 10_000,
    cores: int | None = None,
    hidden: tuple[int, ...] | None = None,
    embedding_dim: int = 64,
    stream: bool | None = None,
) -> Plan:
    """Expected time and memory of `fit`, `score`, `audit` and `retrieve`, from measured constants.

    rows: pairs to fit on, to score or to audit, and candidates to search among. dims: columns of
    both sides, or of each; numbers, stored as float16.
    gpu: on a GPU; otherwise on so many `cores` of a CPU, by default those of this machine, or one
    where the constants are of one.
    epochs: of the fit, which stops early at one that nobody knows before; None for 20, or 60 with
    25 columns or fewer. queries: of the search.
    hidden, embedding_dim, stream: as `PointwiseDependency` takes them, None for its own choice.
    """
    sides = (dims, dims) if isinstance(dims, int) else tuple(dims)
    if len(sides) != 2:
        raise InputError(f"dims={dims!r} must be the columns of both sides, as 512 or (512, 64)")
    if epochs is None:
        epochs = EPOCHS if max(sides) > WIDE else EPOCHS_NARROW
    shape = Shape(rows, *sides, epochs, folds, queries, hidden, embedding_dim, stream, keeping=gpu)
    device = "gpu" if gpu else "cpu"
    cores = _cores(device, cores)
    costs = {name: cost(name, shape, device, cores) for name in COMMANDS}
    told = {name: (c.seconds, c.gib, c.gpu_gib or 0.0) for name, c in costs.items()}
    said = advice(shape, device, told)
    machine = str(constants(device)["machine"])
    return Plan(shape, device, machine, cores, costs, said)


def _cores(device: str, cores: int | None) -> int:
    """As many as are asked for or are here; one where no more have been measured."""
    known = device == "gpu" or bool(constants(device)["parallel"])
    if cores is None:
        here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return (here or 1) if known else 1
    require_whole("cores", cores)
    if cores > 1 and not known:
        raise InputError(f"cores={cores}: one core has been measured, no more yet: leave it out")
    return cores


def cost(command: str, shape: Shape, device: str, cores: int) -> Cost:
    """What one command takes; an audit has its fit in it, and needs no less memory."""
    known = constants(device)
    stages = ("fit", "audit") if command == "audit" else (command,)
    parts: dict[str, float] = {START: known["start_seconds"]}
    for name in stages:
        slower = 1.0 if device == "gpu" else _divided(known["parallel"].get(name, 0.0), cores)
        for part, seconds in part_seconds(known, name, shape).items():
            parts[part] = parts.get(part, 0.0) + slower * seconds
    ordered = dict(sorted(parts.items(), key=lambda item: -item[1]))
    within = known["within"][command]
    return Cost(
        command,
        sum(parts.values()),
        _peak(known["bytes"], memory.of_host, stages, shape),
        _peak(known["gpu_bytes"], memory.of_gpu, stages, shape) if device == "gpu" else None,
        ordered,
        within["seconds"],
        max(within["bytes"], within.get("gpu_bytes", 0.0)),
    )


def _peak(
    rates: Mapping[str, Mapping[str, float]],
    held: Callable[[str, Shape], Mapping[str, float]],
    stages: Sequence[str],
    shape: Shape,
) -> float:
    """GiB of the stage that holds most."""
    return max(_weighed(rates[name], held(name, shape)) for name in stages) / 2**30


def part_seconds(known: Mapping[str, Any], command: str, shape: Shape) -> dict[str, float]:
    """Seconds of each part of a command on one core, or on the GPU."""
    rates: Mapping[str, Mapping[str, float]] = known["seconds"][command]
    return {
        part: _weighed(rates.get(part, {}), counts)
        for part, counts in work.COMMANDS[command](shape).items()
    }


def _weighed(rates: Mapping[str, float], counts: Mapping[str, float]) -> float:
    return sum(rates.get(kind, 0.0) * count for kind, count in counts.items())


def _divided(parallel: float, cores: int) -> float:
    """Amdahl's law: what is left of the time of one core."""
    return 1.0 - parallel + parallel / cores
