"""Where tasks are done: here, one after the other, or by the workers of a Ray cluster."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pointdep.cluster.model import SavedModel
from pointdep.cluster.places import BadShardError
from pointdep.cluster.tasks import Task, Work
from pointdep.cluster.worker import Answer, Worker
from pointdep.errors import InputError, PointdepError

ENGINES = ("local", "ray")
_ATTEMPTS = 6  # at a shard whose workers are lost: it may be what kills them


@dataclass(frozen=True)
class Ended:
    """A task that was done, or whose shard is no good: then why."""

    number: int
    error: str = ""


def run_local(
    saved: SavedModel,
    work: Work,
    answer: Answer,
    tasks: Sequence[Task],
    *,
    device: str,
    told: Callable[[int], None],
) -> Iterator[Ended]:
    """In this process. told: called with the number of rows of the current task that are done."""
    worker = Worker(saved, work, answer, device)
    for task in tasks:
        try:
            worker(task, told)
        except BadShardError as error:
            yield Ended(task.number, str(error))
        else:
            yield Ended(task.number)


def run_ray(
    saved: SavedModel,
    work: Work,
    answer: Answer,
    tasks: Sequence[Task],
    *,
    device: str,
    workers: int | None,
    gpus: float,
) -> Iterator[Ended]:
    """By Ray Data: a row of the dataset is a task, an actor of its pool a worker.

    Ray starts a killed worker again and gives its task to one that lives. What a task made is in
    the output folder; only its number comes back, in the order of ending.
    """
    ray = _import_ray()
    with contextlib.redirect_stdout(sys.stderr), _connected(ray, workers):  # Ray prints its woes
        count = min(_workers(ray, workers, gpus), len(tasks))
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = False
        attempts = ray.remote(num_cpus=0)(_Attempts).remote()
        shared = ray.put((saved, work, answer, {task.number: task for task in tasks}, device))
        numbers = [{"number": task.number} for task in tasks]
        ended = ray.data.from_items(numbers, override_num_blocks=len(numbers)).map_batches(
            _Actor,
            fn_constructor_args=(shared, attempts),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=count, max_tasks_in_flight_per_actor=1),
            num_cpus=1,
            num_gpus=gpus or None,
        )
        try:
            for row in ended.iter_rows():
                if row["fatal"]:
                    raise InputError(str(row["error"]))
                yield Ended(int(row["number"]), str(row["error"]))
        except ray.exceptions.RayError as error:
            reason = [type(error).__name__, *str(error).strip().splitlines()][-1].strip()
            raise InputError(
                f"the workers cannot go on ({reason}): finished shards are kept, and the same "
                "command does what is missing"
            ) from error


class _Attempts:
    """How often each task was begun: Ray itself would try for ever."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def begin(self, number: int) -> int:
        self.counts[number] = self.counts.get(number, 0) + 1
        return self.counts[number]


class _Actor:
    """A worker in a process of Ray's."""

    def __init__(self, shared: Any, attempts: Any) -> None:
        import ray

        saved, work, answer, self.tasks, device = ray.get(shared)
        self.worker, self.attempts = Worker(saved, work, answer, device), attempts

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        import ray

        task = self.tasks[int(batch["number"][0])]
        error, fatal = "", False
        if ray.get(self.attempts.begin.remote(task.number)) > _ATTEMPTS:
            error = (
                f"{task.name} was given up after {_ATTEMPTS} workers were lost over it: if they "
                "ran out of memory, give a smaller --batch-size"
            )
        else:
            try:
                self.worker(task)
            except PointdepError as found:
                error, fatal = str(found), not isinstance(found, BadShardError)
        return {"number": [task.number], "error": [error], "fatal": [fatal]}


def _import_ray() -> Any:
    # Read when Ray is imported: nothing is reported to its makers, and no lines of its own
    # machinery are mixed with ours.
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
    """To the cluster that RAY_ADDRESS names or that runs here, else to one of this machine."""
    import logging

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    if ray.is_initialized():
        yield
        return
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    with without_lines(b"RAY_BACKEND_LOG_LEVEL"):  # Ray repeats what it was told in `_import_ray`
        try:
            ray.init(address="auto", **quiet)
        except ConnectionError as error:
            if os.environ.get("RAY_ADDRESS"):
                raise InputError(
                    f"no Ray cluster answers at RAY_ADDRESS={os.environ['RAY_ADDRESS']}"
                ) from error
            cpus = max(workers or 1, os.cpu_count() or 1)
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def without_lines(mark: bytes) -> Iterator[None]:
    """What is written to standard error, also from C++, comes at the end, without marked lines."""
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


def _workers(ray: Any, workers: int | None, gpus: float) -> int:
    """As many as were asked for, or as the cluster has room for."""
    if workers is not None:
        return workers
    there = ray.cluster_resources()
    room = int(there.get("GPU", 0) / gpus) if gpus else int(there.get("CPU", 0))
    if room < 1:
        raise InputError(
            f"the Ray cluster has {there.get('GPU', 0):g} GPUs and {there.get('CPU', 0):g} CPUs, "
            "no room for a worker: change --gpus-per-worker, or give --workers where it will grow"
        )
    return room
