"""`audit_shards`: which pairs of Parquet shards are wrong, by a model that did not see them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointdep.auditing.deciding import Decision, check_shares, decide, ranks
from pointdep.auditing.pool import BLOCK, Beside, draw_pool
from pointdep.auditing.result import Contamination
from pointdep.cluster.engines import How, Scores, read_model
from pointdep.cluster.filesystem import storage_path
from pointdep.cluster.manifest import Task, Work, finished, make_tasks, write_manifest, write_shard
from pointdep.cluster.shard_scoring import Done, Names, Scored, open_sides, plan_work, run_shards
from pointdep.cluster.survey import reading
from pointdep.errors import InputError
from pointdep.fitting.progress import show

EVIDENCE = "_evidence"
_KEPT = ("row", "pmi", "npmi", "stderr", "outside")
_CONFIDENT = 1.96


@dataclass(frozen=True)
class AuditedShards(Scored):
    """What `score_shards` says, how many pairs are suspects, and the share that came by chance.

    named: whether suspects could be named; not where pairs cannot be told from chance pairs.
    """

    suspects: int
    contamination: Contamination
    named: bool = True


def audit_shards(
    model: str | Path,
    x: str | Path,
    y: str | Path | None = None,
    *,
    output: str | Path,
    x_columns: Names = None,
    y_columns: Names = None,
    fdr: float = 0.1,
    contamination: float | None = None,
    engine: str = "local",
    workers: int | None = None,
    gpus_per_worker: float = 0.0,
    batch_size: int | None = None,
    device: str = "auto",
    progress: bool = True,
) -> AuditedShards:
    """`score_shards`, with which of the pairs are suspects, as `audit` decides it.

    For pairs that the model was not fitted on: of those it was, `audit` must decide. fdr,
    contamination: as in `audit`. Output shards have the columns of `score_shards` and posterior,
    q_value, suspect, below_zero and rank, over all shards.

    What workers find is kept in the folder _evidence of the output, so that a second call does what
    is missing, also with another fdr. The decision takes about 100 bytes a row in this process.
    """
    check_shares(fdr, contamination)
    how = How(engine, workers, gpus_per_worker, batch_size, device, progress)
    saved, place = read_model(storage_path(model)), storage_path(output)
    with show("looking at shards", enabled=progress, left="about") as shown:
        sides = open_sides(x, y, x_columns, y_columns, shown, saved.list_columns)
    if sides[0].rows < 2 * BLOCK:
        raise InputError(
            f"{x} has {sides[0].rows} rows: an audit of shards needs at least {2 * BLOCK}"
        )
    fitted = saved.load("cpu")
    work = replace(plan_work(saved, sides, Scores(), place, how), kind="suspects")
    tasks = make_tasks(work, *sides)
    finished(work, tasks)  # refuses a folder that holds something else
    with show("sampling", enabled=progress, left="about") as shown:
        pool = draw_pool(fitted, work, tasks, shown)
    done = run_shards(saved, sides, Beside(pool), place / EVIDENCE, how)
    pmi, standing = (_column(done, name) for name in ("pmi", "standing"))
    least = float(pmi.mean() - _CONFIDENT * pmi.std() / math.sqrt(len(pmi)))
    decision = decide(pmi, pool.mismatched(fitted.model_, standing), contamination, least)
    write_manifest(work, tasks)
    work.output.sweep()
    suspect = _write(work, tasks, done.work, decision, ranks(pmi), fdr)
    return AuditedShards(
        rows=len(pmi),
        mean_pmi=done.total("sum_pmi") / len(pmi),
        below_zero=done.total("below_zero"),
        outside=done.total("outside"),
        shards=len(tasks),
        found=done.found,
        suspects=int(suspect.sum()),
        contamination=decision.contamination,
        named=decision.named,
    )


def _column(done: Done, name: str) -> NDArray[np.float32]:
    """A column of what the workers found, over all shards."""
    parts = [_read(done.work, task.name, [name])[name] for task in done.tasks]
    found: NDArray[np.float32] = np.concatenate(parts)
    return found


def _read(work: Work, name: str, columns: Sequence[str]) -> dict[str, Any]:
    import pyarrow.parquet as pq

    place = work.output / name
    with reading(place), place.open() as file:
        table = pq.ParquetFile(file).read(columns=list(columns))
        return {column: table[column].to_numpy() for column in columns}


def _write(
    work: Work,
    tasks: Sequence[Task],
    evidence: Work,
    decision: Decision,
    rank: NDArray[np.int64],
    fdr: float,
) -> NDArray[np.bool_]:
    """The table, shard by shard; which rows are suspects, (n,)."""
    suspect: NDArray[np.bool_] = decision.q_value <= fdr
    for task in tasks:
        rows = slice(task.first, task.first + task.rows)
        known = _read(evidence, task.name, _KEPT)
        columns = {
            **known,
            "posterior": decision.posterior[rows],
            "q_value": decision.q_value[rows],
            "suspect": suspect[rows],
            "below_zero": known["pmi"] < 0,
            "rank": rank[rows],
        }
        write_shard(work, task, columns, {"fdr": fdr})
    return suspect
