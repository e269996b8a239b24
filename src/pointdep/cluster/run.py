"""Shards answered into shards: what is missing, by the engine that was asked for."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointdep.cluster.engines import ENGINES, Ended, run_local, run_ray
from pointdep.cluster.model import SavedModel
from pointdep.cluster.places import BadShardError, Place, as_place
from pointdep.cluster.reading import read_pairs
from pointdep.cluster.shards import Side, survey
from pointdep.cluster.tasks import Task, Work, finished, make_tasks, write_manifest
from pointdep.cluster.worker import Answer, answer_task
from pointdep.data.row_source import PIECE_NUMBERS
from pointdep.errors import InputError, require_whole, unknown_name
from pointdep.fitting.progress import Progress, begin, show

Names = Sequence[str] | None


@dataclass(frozen=True)
class How:
    """By which engine, with what; see `score_shards`."""

    engine: str = "local"
    workers: int | None = None
    gpus_per_worker: float = 0.0
    batch_size: int | None = None
    device: str = "auto"
    progress: bool = True

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise unknown_name("engine", self.engine, ENGINES)
        for name in ("workers", "batch_size"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name))
        gpus = self.gpus_per_worker
        if not 0 <= gpus < math.inf:
            raise InputError(f"gpus_per_worker={gpus!r} must be 0 or more, as 1 or 0.5")
        if self.engine == "local" and (self.workers is not None or gpus):
            raise InputError(
                "workers and gpus_per_worker are for engine 'ray'; 'local' is one process"
            )


@dataclass(frozen=True)
class Done:
    """abouts: what the footer of each output shard says, in order; found: so many were there."""

    work: Work
    tasks: Sequence[Task]
    abouts: Sequence[dict[str, Any]]
    found: int

    def total(self, name: str) -> Any:
        return sum(about[name] for about in self.abouts)


def plan_work(
    saved: SavedModel, sides: tuple[Side, Side], answer: Answer, output: Place, how: How
) -> Work:
    return Work(
        kind=answer.kind,
        made_of=answer.made_of,
        model=saved.fingerprint,
        columns=(sides[0].columns, sides[1].columns),
        output=output,
        batch=how.batch_size or batch_rows(sides),
    )


def _try_a_row(saved: SavedModel, work: Work, answer: Answer, tasks: Sequence[Task]) -> None:
    """Answer for one row, so that rows that do not fit the model are told before anything is
    written. Shards that cannot be read are passed over here, and named when it is their turn."""
    damaged = None
    for task in tasks:
        if not task.rows:
            continue
        try:
            next(read_pairs(task.x, task.y, work.columns, 1))
        except BadShardError as error:
            damaged = error
            continue
        answer_task(saved.load("cpu"), work, answer, task, most=1)
        return
    if damaged is not None:
        raise damaged


def run_shards(
    saved: SavedModel, sides: tuple[Side, Side], answer: Answer, output: Place, how: How
) -> Done:
    """Do what is missing in the output folder; InputError where some of it could not be done."""
    work = plan_work(saved, sides, answer, output, how)
    tasks = make_tasks(work, *sides)
    done = finished(work, tasks)
    missing = [task for task in tasks if task.number not in done]
    if missing:
        _try_a_row(saved, work, answer, missing)
        work.output.make_folder()
        write_manifest(work, tasks)
        work.output.sweep()
        try:
            with show("scoring", enabled=how.progress, left="about") as shown:
                report = _Report(work, tasks, done, shown)
                ended = _started(saved, work, answer, missing, how, report)
                report.follow(ended, starts_slowly=how.engine == "ray")
        finally:
            work.output.sweep()
        done = finished(work, tasks)
    gone = [task for task in tasks if task.number not in done]
    if gone:
        raise InputError(f"{work.output / gone[0].name} is gone or damaged: run it again")
    abouts = [done[task.number] for task in tasks]
    return Done(work, tasks, abouts, found=len(tasks) - len(missing))


def _started(
    saved: SavedModel,
    work: Work,
    answer: Answer,
    tasks: Sequence[Task],
    how: How,
    report: _Report,
) -> Iterator[Ended]:
    if how.engine == "local":
        return run_local(saved, work, answer, tasks, device=how.device, told=report.update)
    return run_ray(
        saved,
        work,
        answer,
        tasks,
        device=how.device,
        workers=how.workers,
        gpus=how.gpus_per_worker,
    )


def open_sides(
    x: str | Path,
    y: str | Path | None,
    x_columns: Names,
    y_columns: Names,
    progress: Progress,
    known: tuple[str | None, str | None] = (None, None),
) -> tuple[Side, Side]:
    """The shards of both sides, all of them looked at; without y, x holds both.

    known: columns of lists, taken where no columns are named and the shards have them.
    """
    for given in (x, y):
        if given is not None and not as_place(given).kind():
            raise InputError(f"{given} does not exist")
    if y is not None:
        return (
            survey(as_place(x), x_columns, "--x-columns", progress, known[0]),
            survey(as_place(y), y_columns, "--y-columns", progress, known[1]),
        )
    if known[0] != known[1]:
        x_columns, y_columns = (
            own if own is not None or column is None else [column]
            for own, column in zip((x_columns, y_columns), known, strict=True)
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


def batch_rows(sides: tuple[Side, Side]) -> int:
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

    def follow(self, ended: Iterator[Ended], *, starts_slowly: bool) -> None:
        """Wait for the tasks; InputError where some ended badly.

        starts_slowly: the time until the first has ended says nothing about the others.
        """
        failed: list[str] = []
        if not starts_slowly:
            self.update()
        for one in ended:
            if one.error:
                failed.append(one.error)
                continue
            self.done += 1
            self.rows += self.tasks[one.number].rows
            if starts_slowly:
                begin(self.progress, self.rows)
                starts_slowly = False
            else:
                self.update()
        if failed:
            others = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
            raise InputError(
                f"{failed[0]}{others}; {self.done} of {len(self.tasks)} shards are in "
                f"{self.work.output}, and the same command does what is missing"
            )
