"""One task done: the pairs of a shard read, answered and written. The same in every engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pointdep.answers import pair_columns
from pointdep.cluster.model import SavedModel
from pointdep.cluster.places import BadShardError
from pointdep.cluster.reading import read_pairs
from pointdep.cluster.tasks import Task, Work, write_shard
from pointdep.errors import PointdepError
from pointdep.estimator import PointwiseDependency


class Worker:
    """Holds the model between tasks. A task done twice gives the same file twice."""

    def __init__(self, saved: SavedModel, work: Work, device: str) -> None:
        self.fitted, self.work = saved.load(device), work

    def __call__(self, task: Task, told: Callable[[int], None] | None = None) -> None:
        """Write the output shard; BadShardError where the input cannot be read or scored.

        told: called with the number of rows scored so far.
        """
        columns = score_task(self.fitted, self.work, task, told=told)
        pmi = columns["pmi"].astype(np.float64)
        about = {
            "sum_pmi": float(pmi.sum()),
            "below_zero": int((pmi < 0).sum()),
            "outside": int(columns["outside"].sum()),
        }
        write_shard(self.work, task, columns, about)


def score_task(
    fitted: PointwiseDependency,
    work: Work,
    task: Task,
    *,
    most: int | None = None,
    told: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """row, pmi, npmi, stderr and outside of the pairs of a task, (rows,) each, or of its first."""
    parts: list[dict[str, Any]] = []
    done = 0
    for x, y in read_pairs(task.x, task.y, work.columns, most or work.batch):
        try:
            parts.append(pair_columns(fitted, x, y))
        except PointdepError as error:
            where = f"{task.x[0].shard.place}, rows {done} to {done + len(x) - 1}"
            raise BadShardError(f"{where}: {error}") from error
        done += len(x)
        if told is not None:
            told(done)
        if most is not None:
            break
    if not parts:
        return {"row": np.arange(0), **_NOTHING}
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {"row": np.arange(task.first, task.first + done), **columns}


_NOTHING = {
    **{name: np.zeros(0, np.float32) for name in ("pmi", "npmi", "stderr")},
    "outside": np.zeros(0, bool),
}
