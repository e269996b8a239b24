"""`audit_shards`: which pairs of Parquet shards are wrong, by a model that did not see them."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.auditing.decision import check_shares, decide, ranks
from pointdep.auditing.evidence import Mismatched, find_standings
from pointdep.auditing.result import Contamination
from pointdep.cluster import manifest
from pointdep.cluster.engines import Columns, How, Scores, read_model
from pointdep.cluster.filesystem import storage_path
from pointdep.cluster.manifest import Names, Task, Work, read_pairs, reading, write_shard
from pointdep.cluster.shard_scoring import Scored, open_sides, plan_work, run_shards
from pointdep.core.ratio import RatioModel
from pointdep.errors import InputError
from pointdep.estimators.pointwise import PointwiseDependency
from pointdep.fitting.progress import Progress, show
from pointdep.inference.scoring import score_blocks

# Rows drawn from all of a data set, against which each of its pairs is held.

BLOCK = 128
_ROWS = 4096
_READ, _FEWEST, _MOST = 1 << 22, 8, 64  # rows that are read for it, and shards they are from


@dataclass(frozen=True, eq=False)
class Pool:
    """x: (m, dx), y: (m, dy), prepared, of the pairs with these numbers among all rows, (m,)."""

    x: Tensor
    y: Tensor
    numbers: NDArray[np.int64]

    def mismatched(self, model: RatioModel, standing: NDArray[np.float32]) -> Mismatched:
        """PMI and standings of mismatched pairs of the pool; standing: (n,) of all pairs."""
        block = min(BLOCK, len(self.x))
        blocks = len(self.x) // block
        sides = [side[: blocks * block].view(blocks, block, -1) for side in (self.x, self.y)]
        pmi = score_blocks(model, *sides)
        others = ~torch.eye(block, dtype=torch.bool).expand(pmi.shape)
        standings = find_standings(pmi, others)[others].numpy()
        return Mismatched(pmi[others].numpy(), standing, standings)


class Beside(Scores):
    """What an audit asks about pairs: their scores, and how each stands in the pool."""

    def __init__(self, pool: Pool) -> None:
        super().__init__("audit", hashlib.sha256(pool.numbers.tobytes()).hexdigest())
        self.pool = pool

    def __call__(self, fitted: PointwiseDependency, x: Any, y: Any, first: int) -> Columns:
        a, b, _, _ = fitted._encode(x, y)
        standing = stand(fitted.model_, a, b, first, self.pool)
        return {**super().__call__(fitted, x, y, first), "standing": standing}

    def nothing(self) -> Columns:
        return {**super().nothing(), "standing": np.zeros(0, np.float32)}


@torch.no_grad()
def stand(model: RatioModel, x: Tensor, y: Tensor, first: int, pool: Pool) -> NDArray[np.float32]:
    """How each pair stands among mismatched pairs of its own x and its own y, (n,).

    x: (n, dx), y: (n, dy), prepared, the rows from number `first` on. Blocks of rows, by the
    position among all rows, share 127 rows of the pool and one replica, which none of them saw.
    """
    found = np.zeros(len(x), np.float32)
    device, size = model.constant.device, min(BLOCK - 1, len(pool.numbers))
    numbers = first + np.arange(len(x))
    for block in np.unique(numbers // BLOCK):
        rows = np.flatnonzero(numbers // BLOCK == block)
        one = model.select([int(block % model.replicas)])
        chosen = np.random.default_rng([block, 24]).choice(len(pool.numbers), size, replace=False)
        others = torch.from_numpy(numbers[rows, None] != pool.numbers[chosen])
        sides = x[rows], y[rows], pool.x[chosen], pool.y[chosen]
        a, b, pool_x, pool_y = (side.to(device).unsqueeze(0) for side in sides)
        own = one.log_ratio_pairs(a, b)[0].cpu().unsqueeze(1)
        both = one.log_ratio_matrix(a, pool_y)[0], one.log_ratio_matrix(pool_x, b)[0].T
        counts = [((scores.cpu() <= own) & others).sum(1) for scores in both]
        found[rows] = torch.maximum(*counts) / others.sum(1).clamp(min=1)
    return found


def draw_pool(fitted: PointwiseDependency, work: Work, tasks: list[Task], shown: Progress) -> Pool:
    """4096 rows at random, from all shards, or from 8 to 64 of them where they are many."""
    random = np.random.default_rng(0)
    full = [task for task in tasks if task.rows]
    mean = sum(task.rows for task in full) / len(full)
    most = min(len(full), max(_FEWEST, min(_MOST, int(_READ / mean))))
    chosen = [full[k] for k in np.sort(random.choice(len(full), most, replace=False))]
    ends = np.cumsum([task.rows for task in chosen])
    picked = np.sort(random.choice(ends[-1], min(_ROWS, int(ends[-1])), replace=False))
    sides, numbers = [], []
    for done, (task, end) in enumerate(zip(chosen, ends, strict=True), 1):
        low, high = np.searchsorted(picked, [end - task.rows, end])
        own = picked[low:high] - (end - task.rows)
        start = 0
        for x, y in read_pairs(task, work.columns, work.batch) if len(own) else ():
            here = own[(own >= start) & (own < start + len(x))] - start
            if len(here):
                part = [side.iloc[here] if hasattr(side, "iloc") else side[here] for side in (x, y)]
                sides.append(fitted._encode(*part)[:2])
            start += len(x)
        numbers.append(task.first + own)
        shown.update(done, len(chosen), "shards sampled")
    order = torch.from_numpy(random.permutation(len(picked)))
    x, y = (torch.cat(side)[order] for side in zip(*sides, strict=True))
    return Pool(x, y, np.concatenate(numbers)[order.numpy()])


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
        few = f"{x} has {sides[0].rows} rows"
        raise InputError(f"{few}: an audit of shards needs at least {2 * BLOCK}")
    fitted = saved.load("cpu")
    work = plan_work(saved, sides, Scores("suspects"), place, how)
    tasks = manifest.make_tasks(work, *sides)
    manifest.finished(work, tasks)  # refuses a folder that holds something else
    with show("sampling", enabled=progress, left="about") as shown:
        pool = draw_pool(fitted, work, tasks, shown)
    done = run_shards(saved, sides, Beside(pool), place / EVIDENCE, how)
    pmi, standing = (
        np.concatenate([_read(done.work, task.name, [name])[name] for task in done.tasks])
        for name in ("pmi", "standing")
    )
    least = float(pmi.mean() - _CONFIDENT * pmi.std() / math.sqrt(len(pmi)))
    decision = decide(pmi, pool.mismatched(fitted.model_, standing), contamination, least)
    manifest.write_manifest(work, tasks)
    work.output.sweep()
    suspect = decision.q_value <= fdr
    judged = {"posterior": decision.posterior, "q_value": decision.q_value, "suspect": suspect}
    judged |= {"below_zero": pmi < 0, "rank": ranks(pmi)}
    for task in tasks:
        rows = slice(task.first, task.first + task.rows)
        columns = _read(done.work, task.name, _KEPT)
        columns |= {name: values[rows] for name, values in judged.items()}
        write_shard(work, task, columns, {"fdr": fdr})
    told: dict[str, Any] = {"contamination": decision.contamination, "named": decision.named}
    return AuditedShards(**done.totals(), suspects=int(suspect.sum()), **told)


def _read(work: Work, name: str, columns: Sequence[str]) -> dict[str, Any]:
    import pyarrow.parquet as pq

    place = work.output / name
    with reading(place), place.open() as file:
        table = pq.ParquetFile(file).read(columns=list(columns))
        return {column: table[column].to_numpy() for column in columns}
