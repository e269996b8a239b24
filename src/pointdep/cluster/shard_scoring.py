"""`score_shards`: PMI of the pairs in folders of Parquet shards, written as shards."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointdep.cluster import engines, manifest
from pointdep.cluster.engines import How, SavedModel, Scores
from pointdep.cluster.filesystem import BadShardError, StoragePath, storage_path
from pointdep.cluster.manifest import Names, Side, Task, Work
from pointdep.data.row_source import PIECE_NUMBERS
from pointdep.errors import InputError
from pointdep.fitting.progress import Progress, Shown, show


@dataclass(frozen=True)
class Scored:
    """What a folder of scores holds.

    Attributes
    ----------
    rows : int
        Number of pairs.
    mean_pmi : float
        Mean of their PMI, in nats.
    below_zero : int
        Number of pairs with PMI below zero.
    outside : int
        Number of pairs unlike any of the fit.
    shards : int
        Number of output shards.
    found : int
        How many of them were there before.
    """

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
    """Score the pairs of Parquet shards by a saved model, with one output shard per shard of x.

    Output shard k has the name of shard k of x and its rows in their order, with the columns row
    (from 0, over all shards), pmi, npmi, stderr and outside. Shards are ordered by the numbers and
    letters of their names. If x and y have as many shards, these are partners and must have equal
    rows; otherwise only the totals must be equal.

    A second call does only what is missing, and refuses a folder with results of another model or
    of other rows. Every shard is checked before anything is written; one that proves damaged while
    it is read is named at the end, when the others are done.

    Parameters
    ----------
    model, x : str or Path
        Folders, by path or URI (s3://...).
    y : str or Path, optional
        Folder of y. By default x holds both sides.
    output : str or Path
        Folder to write to.
    x_columns, y_columns : sequence of str, optional
        Columns of each side. By default the column of lists that the model was fitted on if the
        shards have it, otherwise all columns.
    engine : {"local", "ray"}
        In this process, or by the workers of a Ray cluster.
    workers : int, optional
        Number of Ray workers, with one CPU each. By default as many as there is room for.
    gpus_per_worker : float
        GPUs of each Ray worker.
    batch_size : int, optional
        Rows at a time. By default some two million numbers.
    device : str
        "auto", "cpu", "cuda", ...
    progress : bool
        Show progress on standard error.

    Returns
    -------
    Scored
        Totals over all shards.

    Examples
    --------
    >>> score_shards("model", "x", "y", output="scores", engine="ray")  # doctest: +SKIP
    """
    how = How(engine, workers, gpus_per_worker, batch_size, device, progress)
    saved = engines.read_model(storage_path(model))
    with show("looking at shards", enabled=progress, left="about") as shown:
        sides = open_sides(x, y, x_columns, y_columns, shown, saved.list_columns)
    return Scored(**run_shards(saved, sides, Scores(), storage_path(output), how).totals())


def open_sides(
    x: str | Path,
    y: str | Path | None,
    x_columns: Names,
    y_columns: Names,
    progress: Progress,
    known: tuple[str | None, str | None],
) -> tuple[Side, Side]:
    """The shards of both sides, with all footers read; without y, x holds both.

    known: columns of lists, used if no columns are named and the shards have them.
    """
    if y is None:
        if known[0] != known[1]:
            x_columns, y_columns = (
                own if own is not None or column is None else [column]
                for own, column in zip((x_columns, y_columns), known, strict=True)
            )
        if x_columns is None or y_columns is None:
            raise InputError(f"{x} holds both sides: name their --x-columns and --y-columns")
        if shared := [name for name in x_columns if name in y_columns]:
            raise InputError(f"column {shared[0]!r} is on both sides, which would trivially agree")
    asked = ((x, x_columns, "--x-columns", known[0]), (y or x, y_columns, "--y-columns", known[1]))
    first, second = (
        manifest.survey(storage_path(place), wanted, option, progress, column)
        for place, wanted, option, column in asked
    )
    return first, second


@dataclass(frozen=True)
class Done:
    """abouts: what the footer of each output shard says, in order; found: how many were there."""

    work: Work
    tasks: Sequence[Task]
    abouts: Sequence[dict[str, Any]]
    found: int

    def totals(self) -> dict[str, Any]:
        """What `Scored` says of all shards."""
        names = "rows", "below_zero", "outside", "sum_pmi"
        found = {name: sum(about[name] for about in self.abouts) for name in names}
        mean = found.pop("sum_pmi") / found["rows"]
        return {**found, "mean_pmi": mean, "shards": len(self.tasks), "found": self.found}


def plan_work(
    saved: SavedModel, sides: tuple[Side, Side], answer: Scores, output: StoragePath, how: How
) -> Work:
    """What every worker must know; a batch is of a few megabytes unless its size was given."""
    columns = sides[0].columns, sides[1].columns
    width = sum(len(own.names) if own.layout is None else own.layout.width for own in columns)
    batch = how.batch_size or max(1, PIECE_NUMBERS // width)
    return Work(saved, answer, columns, output, batch, how)


def run_shards(
    saved: SavedModel, sides: tuple[Side, Side], answer: Scores, output: StoragePath, how: How
) -> Done:
    """Do what is missing in the output folder; InputError if some of it could not be done."""
    work = plan_work(saved, sides, answer, output, how)
    tasks = manifest.make_tasks(work, *sides)
    done = manifest.finished(work, tasks)
    if missing := [task for task in tasks if task.number not in done]:
        _try_a_row(work, missing)
        work.output.make_folder()
        manifest.write_manifest(work, tasks)
        work.output.sweep()
        try:
            with show("scoring", enabled=how.progress, left="about") as shown:
                _follow(work, tasks, missing, shown)
        finally:
            work.output.sweep()
        done = manifest.finished(work, tasks)
    if gone := [task for task in tasks if task.number not in done]:
        raise InputError(f"{work.output / gone[0].name} is gone or damaged: run it again")
    return Done(work, tasks, [done[task.number] for task in tasks], found=len(tasks) - len(missing))


def _try_a_row(work: Work, tasks: Sequence[Task]) -> None:
    """Answer about one row, so that rows that do not fit the model are refused before anything is
    written. Shards that cannot be read are skipped here, and named when it is their turn."""
    damaged = None
    for task in filter(lambda task: task.rows, tasks):
        try:
            x, y = next(manifest.read_pairs(task, work.columns, 1))
        except BadShardError as error:
            damaged = error
            continue
        engines.Worker(work, "cpu").ask(task, 0, x, y)
        return
    if damaged is not None:
        raise damaged


def _follow(work: Work, tasks: Sequence[Task], missing: Sequence[Task], progress: Progress) -> None:
    """Run the missing tasks and show how far they are; InputError if some ended badly."""
    left = {task.number: task.rows for task in missing}
    total = sum(task.rows for task in tasks)
    rows = total - sum(left.values())

    def update(more: int = 0) -> None:
        """more: rows of a task that has not ended."""
        detail = f"pairs, {len(tasks) - len(left)} of {len(tasks)} shards"
        progress.update(rows + more, total, detail)

    # The time until Ray's first task has ended says nothing about the others.
    slow = work.how.engine == "ray"
    if not slow:
        update()
    failed: list[str] = []
    ended = engines.run_ray(work, missing) if slow else engines.run_local(work, missing, update)
    for number, error in ended:
        if error:
            failed.append(error)
            continue
        rows += left.pop(number)
        if not slow:
            update()
        elif isinstance(progress, Shown):
            progress.begin(rows)
        slow = False
    if failed:
        others = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
        raise InputError(
            f"{failed[0]}{others}; {len(tasks) - len(left)} of {len(tasks)} shards are in "
            f"{work.output}, and the same command does what is missing"
        )
