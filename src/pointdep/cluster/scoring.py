"""`score_shards`: PMI of the pairs in folders of Parquet shards, in as many shards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pointdep.cluster.model import read_model
from pointdep.cluster.places import as_place
from pointdep.cluster.run import How, Names, open_sides, run_shards
from pointdep.cluster.worker import Scores
from pointdep.fitting.progress import show


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
    how = How(engine, workers, gpus_per_worker, batch_size, device, progress)
    saved = read_model(as_place(model))
    with show("looking at shards", enabled=progress, left="about") as shown:
        sides = open_sides(x, y, x_columns, y_columns, shown, saved.list_columns)
    done = run_shards(saved, sides, Scores(), as_place(output), how)
    rows = sum(task.rows for task in done.tasks)
    return Scored(
        rows=rows,
        mean_pmi=done.total("sum_pmi") / rows,
        below_zero=done.total("below_zero"),
        outside=done.total("outside"),
        shards=len(done.tasks),
        found=done.found,
    )
