"""`score_shards`: PMI of the pairs in folders of Parquet shards, in as many shards."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pointdep.cluster.engines import ENGINES, Ended, run_local, run_ray
from pointdep.cluster.model import read_model
from pointdep.cluster.places import as_place
from pointdep.cluster.shards import Side, survey
from pointdep.cluster.tasks import Task, Work, finished, make_tasks, write_manifest
from pointdep.cluster.worker import score_task
from pointdep.data.stored.base import PIECE_NUMBERS
from pointdep.errors import InputError, require_whole, unknown_name
from pointdep.fitting.progress import Progress, show

Names = Sequence[str] | None


@dataclass(frozen=True)
class Scored:
    """What a folder of scores holds. shards: how many; found: so many of them were there before."""

    rows: int
    mean_pmi: float
    below_zero: int
    outside: int
    shards: int
    found: int


def score_shards(
    model: str | Path,
    x: str | Path,
    y: str | Path | None = None,
    *,
    output: str | Path,
    x_columns: Names = None,
    y_columns: Names = None,
    engine: str = "local",
    workers: int | None = None,
    gpus_per_worker: float = 0.0,
    batch_size: int | None = None,
    device: str = "auto",
    progress: bool = True,
) -> Scored:
    """Score the pairs of Parquet shards by a saved model, one output shard for each shard of x.

    model, x, y, output: folders, by path or URI (s3://...); without y, x holds both sides. Output
    shard k has the name of shard k of x and its rows in their order, with the columns row (from 0,
    over all shards), pmi, npmi, stderr and outside. Shards follow each other by the numbers and
    letters of their names. Where x and y have as many shards, these are partners and must have
    equal rows; else only the rows of all together must be as many.

    A second call does only what is missing, and refuses a folder with results of another model or
    of other rows. Every shard is looked at before anything is written; one that turns out bad while
    it is read is named at the end, when the others are done.

    engine: "local", in this process, or "ray", by `workers` processes of a Ray cluster (as many as
    there is room for), each with a CPU and `gpus_per_worker` GPUs. batch_size: rows at a time.
    """
    _check_options(engine, workers, gpus_per_worker, batch_size)
    saved = read_model(as_place(model))
    with show("looking at shards", enabled=progress, left="about") as shown:
        sides = _sides(x, y, x_columns, y_columns, shown)
    work = Work(
        kind="score",
        model=saved.fingerprint,
        columns=(sides[0].columns, sides[1].columns),
        output=as_place(output),
        batch=batch_size or _batch(sides),
    )
    tasks = make_tasks(work, *sides)
    done = finished(work, tasks)
    missing = [task for task in tasks if task.number not in done]
    if missing:
        # Rows that do not fit the model show themselves before anything is written.
        score_task(saved.load("cpu"), work, next(task for task in tasks if task.rows), most=1)
        work.output.make_folder()
        write_manifest(work, tasks)
        work.output.sweep()
        try:
            with show("scoring", enabled=progress, left="about") as shown:
                report = _Report(work, tasks, done, shown)
                if engine == "ray":
                    gpus = gpus_per_worker
                    ended = run_ray(saved, work, missing, device=device, workers=workers, gpus=gpus)
                else:
                    ended = run_local(saved, work, missing, device=device, told=report.update)
                report.follow(ended)
        finally:
            work.output.sweep()
    return _summary(work, tasks, found=len(tasks) - len(missing))


def _check_options(engine: str, workers: int | None, gpus: float, batch_size: int | None) -> None:
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    for name, value in (("workers", workers), ("batch_size", batch_size)):
        if value is not None:
            require_whole(name, value)
    if not 0 <= gpus < math.inf:
        raise InputError(f"gpus_per_worker={gpus!r} must be 0 or more, as 1 or 0.5")
    if engine == "local" and (workers is not None or gpus):
        raise InputError("workers and gpus_per_worker are for engine 'ray'; 'local' is one process")


def _sides(
    x: str | Path, y: str | Path | None, x_columns: Names, y_columns: Names, progress: Progress
) -> tuple[Side, Side]:
    if y is not None:
        return (
            survey(as_place(x), x_columns, "--x-columns", progress),
            survey(as_place(y), y_columns, "--y-columns", progress),
        )
    if x_columns is None or y_columns is None:
        raise InputError(
            f"{x} holds both sides: say which columns are which by x_columns and y_columns "
            "(--x-columns and --y-columns)"
        )
    shared = [name for name in x_columns if name in y_columns]
    if shared:
        raise InputError(f"column {shared[0]!r} is on both sides: x and y would trivially agree")
    side = survey(as_place(x), x_columns, "--x-columns", progress)
    return side, survey(as_place(x), y_columns, "--y-columns", progress)


def _batch(sides: tuple[Side, Side]) -> int:
    """Rows that make a batch of a few megabytes."""
    width = sum(
        len(side.columns.names) if side.columns.layout is None else side.columns.layout.width
        for side in sides
    )
    return max(1, PIECE_NUMBERS // width)


class _Report:
    """How far the tasks are."""

    def __init__(
        self, work: Work, tasks: Sequence[Task], done: Collection[int], progress: Progress
    ) -> None:
        self.work, self.tasks, self.progress = work, tasks, progress
        self.done, self.rows = len(done), sum(tasks[number].rows for number in done)
        self.total = sum(task.rows for task in tasks)

    def update(self, more: int = 0) -> None:
        """more: rows of a task that has not ended."""
        detail = f"pairs, {self.done} of {len(self.tasks)} shards"
        self.progress.update(self.rows + more, self.total, detail)

    def follow(self, ended: Iterator[Ended]) -> None:
        """Wait for the tasks; InputError where some ended badly."""
        failed: list[str] = []
        self.update()
        for one in ended:
            if one.error:
                failed.append(one.error)
                continue
            self.done += 1
            self.rows += self.tasks[one.number].rows
            self.update()
        if failed:
            others = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
            raise InputError(
                f"{failed[0]}{others}; {self.done} of {len(self.tasks)} shards are in "
                f"{self.work.output}, and the same command does what is missing"
            )


def _summary(work: Work, tasks: Sequence[Task], *, found: int) -> Scored:
    """From the footers of all output shards, which are thereby seen to be there."""
    done = finished(work, tasks)
    missing = [task for task in tasks if task.number not in done]
    if missing:
        raise InputError(f"{work.output / missing[0].name} is gone or damaged: run it again")
    rows = sum(task.rows for task in tasks)
    return Scored(
        rows=rows,
        mean_pmi=sum(about["sum_pmi"] for about in done.values()) / rows,
        below_zero=sum(about["below_zero"] for about in done.values()),
        outside=sum(about["outside"] for about in done.values()),
        shards=len(tasks),
        found=found,
    )
