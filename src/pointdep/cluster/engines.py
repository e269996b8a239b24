"""Workers that score shards: in this process, one after the other, or on a Ray cluster."""

import contextlib
import hashlib
import importlib
import json
import math
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointdep.cluster.filesystem import BadShardError, StoragePath
from pointdep.cluster.manifest import Task, Work, read_pairs, write_shard
from pointdep.core.registry import is_path
from pointdep.data.atomic import steady
from pointdep.data.storage import MODEL_FILES
from pointdep.errors import (
    InputError,
    ModelFileError,
    PointdepError,
    all_at_once,
    require_known,
    require_whole,
)
from pointdep.estimators.pointwise import PointwiseDependency, pair_columns

ENGINES = ("local", "ray")
_ATTEMPTS = 6  # workers lost over one shard: the shard may be what kills them

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class How:
    """The engine and its options; see `score_shards`."""

    engine: str = "local"
    workers: int | None = None
    gpus_per_worker: float = 0.0
    batch_size: int | None = None
    device: str = "auto"
    progress: bool = True

    def __post_init__(self) -> None:
        require_known("engine", self.engine, ENGINES)
        for name in ("workers", "batch_size"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name))
        gpus = self.gpus_per_worker
        if not 0 <= gpus < math.inf:
            raise InputError(f"gpus_per_worker={gpus!r} must be 0 or more, as 1 or 0.5")
        if self.engine == "local" and (self.workers is not None or gpus):
            raise InputError("workers and gpus_per_worker are for engine 'ray', not for 'local'")


@dataclass(frozen=True)
class SavedModel:
    """The files of a model's folder as bytes: workers need no folder that all machines share.

    shown: where they come from. imports: modules of the user's own method and critic, which the
    process that read the model had imported.
    """

    files: dict[str, bytes]
    shown: str
    imports: tuple[str, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """Of all that the model is: model.json has the digest of the weights."""
        return hashlib.sha256(self.files[MODEL_FILES[0]]).hexdigest()

    @property
    def list_columns(self) -> tuple[str | None, str | None]:
        """For x and for y, the column of lists that the model was fitted on, or None."""
        about = json.loads(self.files[MODEL_FILES[0]])
        if any(about[f"encoder_{side}"].get("front") for side in "xy"):
            raise InputError(
                f"{self.shown} was fitted on texts, pictures or sounds, which shards do not hold: "
                "score their file, as in pointdep score model/ captions.csv -o scores.csv"
            )
        x, y = (about[f"encoder_{side}"].get("list_column") for side in "xy")
        return x, y

    def load(self, device: str) -> PointwiseDependency:
        """The fitted model, which shows no progress."""
        for module in self.imports:
            importlib.import_module(module)
        with tempfile.TemporaryDirectory(prefix="pointdep-") as scratch:
            for name, content in self.files.items():
                Path(scratch, name).write_bytes(content)
            try:
                found: PointwiseDependency = PointwiseDependency.load(scratch, device=device)
            except ModelFileError as error:
                raise ModelFileError(str(error).replace(scratch, self.shown)) from None
        found.progress = False
        return found


def read_model(place: StoragePath) -> SavedModel:
    """Read a model and make sure that it is complete; ModelFileError otherwise."""
    return steady(Path(str(place)), lambda: _read_model(place))


def _read_model(place: StoragePath) -> SavedModel:
    if place.kind() != "folder":
        raise ModelFileError(f"no model at {place}: there is no such folder")
    there = place.files()
    files = {name: (place / name).read_bytes() for name in MODEL_FILES if name in there}
    saved = SavedModel(files, str(place))
    params = saved.load("cpu").fit_params_
    named = [str(params.get(option)) for option in ("method", "critic")]
    return replace(saved, imports=tuple(n.partition(":")[0] for n in named if is_path(n)))


@dataclass
class Scores:
    """What is asked about pairs, and the columns that answer it: pmi, npmi, stderr and outside.

    kind: of results, as the manifest names it. made_of: what the columns depend on besides model
    and pairs, as a digest.
    """

    kind: str = "score"
    made_of: str = ""

    def __call__(self, fitted: PointwiseDependency, x: Any, y: Any, first: int) -> Columns:  # noqa: ARG002
        return pair_columns(fitted, x, y)  # it does not depend on the other rows

    def nothing(self) -> Columns:
        numbers = {name: np.zeros(0, np.float32) for name in ("pmi", "npmi", "stderr")}
        return {**numbers, "outside": np.zeros(0, bool)}


Ended = tuple[int, str]
"""The number of a task, and why its shard cannot be used, "" if the task is done."""


class Worker:
    """Holds the model between tasks. A task done twice gives the same file twice."""

    def __init__(self, work: Work, device: str) -> None:
        self.fitted, self.work = work.saved.load(device), work

    def __call__(self, task: Task, told: Callable[[int], object] | None = None) -> None:
        """Write the output shard; BadShardError if the input cannot be read or scored.

        told: called with the number of rows scored so far.
        """
        parts: list[Columns] = []
        done = 0
        for x, y in read_pairs(task, self.work.columns, self.work.batch):
            parts.append(self.ask(task, done, x, y))
            done += len(x)
            if told is not None:
                told(done)
        parts = parts or [self.work.answer.nothing()]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        columns = {"row": np.arange(task.first, task.first + done), **columns}
        pmi = columns["pmi"].astype(np.float64)
        about = {
            "sum_pmi": float(pmi.sum()),
            "below_zero": int((pmi < 0).sum()),
            "outside": int(columns["outside"].sum()),
        }
        write_shard(self.work, task, columns, about)

    def ask(self, task: Task, first: int, x: Any, y: Any) -> Columns:
        """The answer about pairs of a task; first: the number of the first among its rows."""
        try:
            return self.work.answer(self.fitted, x, y, task.first + first)
        except PointdepError as error:
            problems = getattr(error, "problems", None) or [error]
            located = [InputError(_located(str(one), task, first, len(x))) for one in problems]
            raise BadShardError(str(all_at_once(located))) from error


def _located(message: str, task: Task, first: int, count: int) -> str:
    """A message about some rows of a task, which names their shard and their rows in it.

    first, count: these rows, all from one shard of either side. The message begins with the side,
    otherwise it is about x.
    """
    for span in task.y if message.startswith("Y ") else task.x:
        start = span.start + first
        if start < span.stop:
            break
        first = start - span.stop
    message = re.sub(r"\bin row (\d+)", lambda row: f"in row {start + int(row[1])}", message)
    return f"{span.shard.place}, rows {start} to {start + count - 1}: {message}"


def run_local(work: Work, tasks: Sequence[Task], told: Callable[[int], object]) -> Iterator[Ended]:
    """In this process. told: called with the number of rows of the current task that are done."""
    worker = Worker(work, work.how.device)
    for task in tasks:
        error = ""
        try:
            worker(task, told)
        except BadShardError as found:
            error = str(found)
        yield task.number, error


def run_ray(work: Work, tasks: Sequence[Task]) -> Iterator[Ended]:
    """By Ray Data: a row of the dataset is a task, an actor of its pool a worker.

    Ray restarts a killed worker and gives its task to another. What a task made is in the output
    folder; only its number comes back, in the order of ending.
    """
    ray = _import_ray()
    # Ray prints warnings to standard output, which may be read as JSON.
    with contextlib.redirect_stdout(sys.stderr), _connected(ray, work.how.workers):
        count = min(_workers(ray, work.how), len(tasks))
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = False
        attempts = ray.remote(num_cpus=0)(_Attempts).remote()
        shared = ray.put((work, {task.number: task for task in tasks}))
        numbers = [{"number": task.number} for task in tasks]
        ended = ray.data.from_items(numbers, override_num_blocks=len(numbers)).map_batches(
            _Actor,
            fn_constructor_args=(shared, attempts),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=count, max_tasks_in_flight_per_actor=1),
            num_cpus=1,
            num_gpus=work.how.gpus_per_worker or None,
        )
        try:
            for row in ended.iter_rows():
                if row["fatal"]:
                    raise InputError(str(row["error"]))
                yield int(row["number"]), str(row["error"])
        except ray.exceptions.RayError as error:
            reason = [type(error).__name__, *str(error).strip().splitlines()][-1].strip()
            raise InputError(f"the workers cannot go on ({reason}): run it again") from error


class _Attempts:
    """How often each task was begun: Ray itself would try for ever."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def begin(self, number: int) -> int:
        self.counts[number] += 1
        return self.counts[number]


class _Actor:
    """A worker in a process of Ray's."""

    def __init__(self, shared: Any, attempts: Any) -> None:
        import ray

        work, self.tasks = ray.get(shared)
        self.worker, self.attempts = Worker(work, work.how.device), attempts

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        import ray

        task = self.tasks[int(batch["number"][0])]
        error, fatal = "", False
        if ray.get(self.attempts.begin.remote(task.number)) > _ATTEMPTS:
            said = f"{task.name} was given up after {_ATTEMPTS} workers were lost over it"
            error = f"{said}: if they ran out of memory, give a smaller --batch-size"
        else:
            try:
                self.worker(task)
            except PointdepError as found:
                error, fatal = str(found), not isinstance(found, BadShardError)
        return {"number": [task.number], "error": [error], "fatal": [fatal]}


def _import_ray() -> Any:
    # Ray reads these when it is imported: no usage reports, and no log lines of its own.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise InputError(
            f"--engine ray needs Ray ({error}): pip install 'pointdep[ray]', or use --engine local"
        ) from error
    return ray


@contextlib.contextmanager
def _connected(ray: Any, workers: int | None) -> Iterator[None]:
    """To the cluster that RAY_ADDRESS names or that runs here, otherwise to a new one here."""
    import logging

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    if ray.is_initialized():
        yield
        return
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    with without_lines(b"RAY_BACKEND_LOG_LEVEL"):  # Ray repeats the setting of `_import_ray`
        try:
            ray.init(address="auto", **quiet)
        except ConnectionError as error:
            if os.environ.get("RAY_ADDRESS"):
                raise InputError(f"no Ray at RAY_ADDRESS={os.environ['RAY_ADDRESS']}") from error
            cpus = max(workers or 1, os.cpu_count() or 1)
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def without_lines(mark: bytes) -> Iterator[None]:
    """Hold back what is written to standard error, also from C++, and drop lines with the mark."""
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            held.seek(0)
            for line in held:
                if mark not in line:
                    os.write(2, line)


def _workers(ray: Any, how: How) -> int:
    """As many as were asked for, or as the cluster has room for."""
    if how.workers is not None:
        return how.workers
    there, gpus = ray.cluster_resources(), how.gpus_per_worker
    room = int(there.get("GPU", 0) / gpus) if gpus else int(there.get("CPU", 0))
    if room < 1:
        raise InputError(
            f"the Ray cluster has {there.get('GPU', 0):g} GPUs and {there.get('CPU', 0):g} CPUs, "
            "no room for a worker: change --gpus-per-worker, or give --workers if it will grow"
        )
    return room
