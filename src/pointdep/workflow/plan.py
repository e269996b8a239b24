"""`plan`: expected time and memory of a job, for any number of rows.

What a job takes grows as fixed + each * rows (docs/large.md). `pointdep.workflow.dry_run` measures
these laws on a few rows, in a process of its own; here they are applied to the rows that were
asked about.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from pointdep.errors import InputError, PointdepError, require_whole
from pointdep.fitting.progress import show

START = "start of the process"
COMMANDS = ("fit", "score", "audit", "retrieve")

# About where early stopping ended the fits seen: of wide data, and of data with 25 columns or
# fewer, which a network on pairs learns for longer.
_EPOCHS, _EPOCHS_NARROW, NARROW = 20, 60, 25

_MEASUREMENTS = 14  # of a dry run
SEARCHED = 1_000  # queries of the search that is measured

# Shares of each command that a second core divides: benchmarks/results/cost_model_cores.json.
_PARALLEL = {"fit": 0.83, "score": 0.67, "audit": 0.86, "retrieve": 0.91}
LESS_SURE = 1.5  # times the factor of doubt, for each scaling that was not measured here

# Rows that are held of large data: a sample, or those that are scored at a time; some bytes are
# left for every row (docs/large.md). An audit checks so many rows at most. A GPU holds all rows
# that take no more than this.
_SAMPLE_ROWS, _SAMPLE_NUMBERS, _SCORED_NUMBERS, _CHECKED_ROWS = 2**17, 2**26, 2**24, 50_000
_ROW_BYTES = {"fit": 45, "audit": 150, "score": 25}
_RESIDENT_GIB = 32.0
# A search of narrow data scores a list of candidates for each query, about one in 16, and all of
# them for some queries, to know its recall.
_SHORTEST, _LONGEST, _KNOWN_QUERIES, _KNOWN_PAIRS = 200, 5_000, 10, 2**24

_RAY_START_S, _RAY_WORKERS = 20.0, 8  # benchmarks/ray_score.py
_LONG_SCORE_S, _LONG_FIT_S, _LARGE_GIB = 600.0, 3600.0, 32.0
_LONG_FIT = {
    "cpu": "The fit is long for a CPU: use a GPU, fewer folds, or a part of the rows.",
    "gpu": """The fit is long for one GPU: share it among several (docs/distributed.md), or fit on a
        part of the rows and score them all.""",
}


@dataclass(frozen=True)
class Shape:
    """The job that was asked about; None where the estimator chooses."""

    rows: int
    x_dim: int
    y_dim: int
    epochs: int
    folds: int = 5
    queries: int = 10_000
    hidden: tuple[int, ...] | None = None
    embedding_dim: int = 64
    stream: bool | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "x_dim", "y_dim", "epochs", "folds", "queries"):
            require_whole(name, getattr(self, name))
        least = max(10, 2 * self.folds)
        if self.rows < least:
            raise InputError(f"rows={self.rows}: {self.folds} folds need at least {least}")

    @property
    def width(self) -> int:
        """Numbers in a pair."""
        return self.x_dim + self.y_dim

    @property
    def train_share(self) -> float:
        """Share of the rows that a replica trains on: neither left out nor used to stop."""
        return 0.85 * (1 - 1 / self.folds if self.folds > 1 else 0.8)

    def streamed(self, in_memory: int) -> bool:
        """Whether a fit reads its rows as it needs them."""
        return self.rows * self.width > in_memory if self.stream is None else self.stream

    def visits(self, batch: int, least_steps: int) -> float:
        """Rows that all replicas see in an epoch, which has at least some steps."""
        return self.folds * max(self.train_share * self.rows, least_steps * batch)


@dataclass(frozen=True)
class Cost:
    """What one command is expected to take.

    Attributes
    ----------
    command : str
        "fit", "score", "audit" or "retrieve".
    seconds : float
        Expected time.
    gib : float
        Peak memory of the process, without mapped files.
    gpu_gib : float or None
        Peak memory of the GPU; None without one.
    parts : dict of str to float
        Seconds by part, the longest first.
    within, memory_within : float
        Factors within which earlier plans were of measured times and of measured memory.
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
        """The part that takes longest."""
        return next(iter(self.parts))

    @property
    def share(self) -> float:
        """Its share of the time."""
        return self.parts[self.bottleneck] / self.seconds


@dataclass(frozen=True)
class Plan:
    """Expected costs of a fit, of scoring, of an audit (its fit included) and of a search.

    Attributes
    ----------
    shape : Shape
        The job that was asked about.
    device : str
        "cpu" or "gpu".
    machine : str
        What was measured, in words.
    cores : int
        Cores of the CPU that the times are for.
    streamed : bool
        Whether a fit reads its rows as it needs them.
    costs : dict of str to Cost
        One for each command.
    advice : tuple of str
        Sentences: when rows are streamed, when a cluster pays, what is too large.
    """

    shape: Shape
    device: str
    machine: str
    cores: int
    streamed: bool
    costs: Mapping[str, Cost]
    advice: tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """What is known of a machine.

    laws: (fixed, each row) of every quantity, in seconds or GiB. facts: what the estimator does
    with the rows that were asked about. within: factors of time and memory by command.
    """

    machine: str
    laws: Mapping[str, Sequence[float]]
    facts: Mapping[str, Any]
    within: Mapping[str, Sequence[float]]

    def at(self, name: str, rows: float) -> float:
        """A law at some rows."""
        fixed, each = self.laws[name]
        return fixed + each * rows


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
    """Expected time and memory of `fit`, `score`, `audit` and `retrieve`, from a short dry run.

    The dry run takes up to half a minute, in a process of its own.

    Parameters
    ----------
    rows : int
        Pairs to fit on, to score or to audit, and candidates to search.
    dims : int or (int, int)
        Columns of both sides, or of each; numbers, stored as float16.
    gpu : bool, default=False
        Plan for a GPU: the one of this machine, or one NVIDIA H200 if it has none.
    epochs : int, default=None
        Epochs of the fit, which early stopping decides in practice; None for 20, or 60 with at
        most 25 columns.
    folds : int, default=5
        Models trained.
    queries : int, default=10_000
        Queries of the search.
    cores : int, default=None
        Cores of the CPU; None for those of this machine.
    hidden, embedding_dim, stream
        As `PointwiseDependency` takes them; None for its own choice.

    Returns
    -------
    Plan
        Costs by command, and advice.

    Examples
    --------
    >>> from pointdep import plan
    >>> found = plan(10**6, 512, gpu=True)
    >>> list(found.costs), found.streamed
    (['fit', 'score', 'audit', 'retrieve'], True)
    """
    sides = (dims, dims) if isinstance(dims, int) else tuple(dims)
    if len(sides) != 2:
        raise InputError(f"dims={dims!r} must be the columns of both sides, as 512 or (512, 64)")
    if epochs is None:
        epochs = _EPOCHS if max(sides) > NARROW else _EPOCHS_NARROW
    shape = Shape(rows, *sides, epochs, folds, queries, hidden, embedding_dim, stream)
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cores = here if cores is None else cores
    require_whole("cores", cores)
    measured = min(cores, here)
    known = measure(shape, gpu=gpu, cores=measured)
    if not known.laws:
        known = _h200(shape, known.facts)
    planned = measured if gpu else cores
    costs = {name: _cost(name, shape, known, gpu, (measured, planned)) for name in COMMANDS}
    machine = known.machine + (f", scaled to {planned} cores" if planned > here else "")
    in_memory = known.facts["in_memory"]
    advice = tuple(" ".join(one.split()) for one in _advice(shape, in_memory, costs))
    device, streamed = "gpu" if gpu else "cpu", shape.streamed(in_memory)
    return Plan(shape, device, machine, cores, streamed, costs, advice)


def _cost(command: str, shape: Shape, known: Measured, gpu: bool, cores: tuple[int, int]) -> Cost:
    """The laws of one command at the asked rows; cores: measured, and planned for."""
    within, memory_within = known.within[command]
    (measured, planned), share = cores, _PARALLEL[command]
    within *= LESS_SURE if planned > measured else 1.0
    faster = (1 - share + share / planned) / (1 - share + share / measured)  # Amdahl's law
    parts = {name: faster * seconds for name, seconds in _parts(command, shape, known).items()}
    parts[START] = known.at("start", 0)
    ordered = dict(sorted(parts.items(), key=lambda item: -item[1]))
    gib = _gib(command, "gib", shape, known)
    gpu_gib = _gib(command, "gpu gib", shape, known) if gpu else None
    return Cost(command, sum(parts.values()), gib, gpu_gib, ordered, within, memory_within)


def _parts(command: str, shape: Shape, known: Measured) -> dict[str, float]:
    rows, queries = shape.rows, min(shape.queries, shape.rows)
    if command == "score":
        return {"scoring": known.at("score", rows)}
    if command == "retrieve":
        listed = queries * min(max(rows / 16, _SHORTEST), _LONGEST)
        answered = max(_KNOWN_QUERIES * rows, _KNOWN_PAIRS / shape.folds)
        return {
            "index": known.at("retrieve", rows),
            "search": queries / SEARCHED * known.at("search", rows),
            "scoring": known.at("pair", min(queries * rows, listed + answered)),
        }
    visits = shape.epochs * shape.visits(known.facts["batch"], known.facts["least_steps"])
    fit = {"training": known.at("training", visits), "preparation": known.at("preparation", rows)}
    return fit if command == "fit" else {**fit, "judging pairs": known.at("audit", rows)}


def _gib(command: str, memory: str, shape: Shape, known: Measured) -> float:
    """Peak memory, of the process ("gib") or the GPU ("gpu gib"), by the rows that are held."""
    rows, in_memory, law = shape.rows, known.facts["in_memory"], f"{command} {memory}"
    held, least = rows, 0.0
    in_parts = command == "score" and rows * shape.width > in_memory
    streamed = command in ("fit", "audit") and shape.streamed(in_memory)
    if in_parts:
        held = min(rows, _SCORED_NUMBERS // shape.width)
    elif streamed and memory == "gpu gib":
        held = rows if known.laws[law][1] * rows <= _RESIDENT_GIB else 0
    elif streamed:
        held = min(rows, _SAMPLE_ROWS, _SAMPLE_NUMBERS // shape.width)
    if command == "audit":
        least = _gib("fit", memory, shape, known)
        held = min(held, _CHECKED_ROWS) if memory == "gib" else held
    every = _ROW_BYTES[command] * rows / 2**30 if memory == "gib" and (in_parts or streamed) else 0
    return max(least, known.at(law, held) + every)


def _h200(shape: Shape, facts: Mapping[str, Any]) -> Measured:
    """The stored laws of an H200: of 16 columns, and for wide data a power of 128 and 1,024."""
    stored = json.loads(files("pointdep.workflow").joinpath("h200.json").read_text("utf-8"))
    way = "streamed" if shape.streamed(facts["in_memory"]) else "held"
    power = math.log(shape.width / 128) / math.log(1024 / 128)
    laws: dict[str, Sequence[float]] = {"start": (stored["start"], 0.0)}
    for name, (narrow, low, high) in {**stored["both"], **stored[way]}.items():
        wide = [a * (b / a) ** power if a else a for a, b in zip(low, high, strict=True)]
        laws[name] = narrow if max(shape.x_dim, shape.y_dim) <= NARROW else wide
    return Measured(stored["machine"], laws, facts, stored["within"])


def _advice(shape: Shape, in_memory: int, costs: Mapping[str, Cost]) -> Iterator[str]:
    fit, score, search = costs["fit"], costs["score"], costs["retrieve"]
    most = f"{in_memory // shape.width:,} rows of {shape.width} columns"
    if shape.streamed(in_memory):
        yield f"""A fit on more than {most} streams its rows: keep them in memory-mapped .npy files
            or folders of shards, and memory grows by only a few bytes per row (docs/large.md)."""
    else:
        yield f"The rows fit in memory; a fit on more than {most} streams them (docs/large.md)."
    if score.seconds < _LONG_SCORE_S:
        yield "Scoring is quick here: a cluster would not pay."
    else:
        shared = duration(_RAY_START_S + score.seconds / _RAY_WORKERS)
        yield f"""Scoring pays on a cluster: about {shared} with {_RAY_WORKERS} machines like this
            one (pointdep score --engine ray, docs/cluster.md)."""
    if fit.seconds >= _LONG_FIT_S:
        yield _LONG_FIT["cpu" if fit.gpu_gib is None else "gpu"]
    if max(search.gib, search.gpu_gib or 0.0) >= _LARGE_GIB:
        on_gpu = f", and {size(search.gpu_gib)} on the GPU" if search.gpu_gib else ""
        yield f"""A search holds all candidates in memory ({size(search.gib)}{on_gpu}): search them
            in parts, and keep the best of all parts."""


def duration(seconds: float) -> str:
    """A time in words, as exactly as a plan deserves."""
    units = ((31_557_600, "years"), (86_400, "days"), (3_600, "h"), (60, "min"))
    least, name = next((one for one in units if seconds >= 2 * one[0]), (1, "s"))
    return _amount(seconds / least, name)


def size(gib: float) -> str:
    """Memory in words, as exactly as a plan deserves."""
    return _amount(gib / 1024, "TiB") if gib >= 10_000 else _amount(gib, "GiB")


def _amount(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"


def measure(shape: Shape, *, gpu: bool, cores: int) -> Measured:
    """Let a process of its own do the dry run; there are no laws of a GPU that is not here."""
    job = {"asked": asdict(shape), "gpu": gpu, "cores": cores, "spawned": time.time()}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(cores))
    # Threads that spin while they wait for one whose core does other work take four times as long.
    threads |= {"OMP_WAIT_POLICY": "passive", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "pointdep.workflow.dry_run", json.dumps(job)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done, line = 0, ""
    with (
        subprocess.Popen(command, env=os.environ | threads, **pipes) as process,
        show("dry run", left="about") as progress,
    ):
        try:
            for line in process.stdout or ():
                done += line == "measured\n"
                progress.update(min(done, _MEASUREMENTS), _MEASUREMENTS, "measurements")
        finally:
            process.kill()
    if not line.startswith("{"):
        raise PointdepError(f"the dry run of the plan failed: {line.strip()}")
    return Measured(**json.loads(line))
