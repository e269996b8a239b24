"""One task done: the pairs of a shard read, answered and written. The same in every engine."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pointdep.cluster.model import SavedModel
from pointdep.cluster.places import BadShardError
from pointdep.cluster.reading import read_pairs
from pointdep.cluster.tasks import Task, Work, write_shard
from pointdep.errors import PointdepError
from pointdep.estimators.pointwise import PointwiseDependency, pair_columns

Columns = dict[str, NDArray[Any]]


class Answer(Protocol):
    """What is asked about pairs; it travels to the workers.

    kind: its name, in the manifest. made_of: what it depends on beside the model and the rows.
    """

    kind: str
    made_of: str

    def __call__(self, fitted: PointwiseDependency, x: Any, y: Any, first: int) -> Columns:
        """Of some pairs, (n,) each; first: the number of the first among all rows."""
        ...

    def nothing(self) -> Columns:
        """The same of no pairs."""
        ...


class Scores:
    """pmi, npmi, stderr and outside."""

    kind, made_of = "score", ""

    def __call__(self, fitted: PointwiseDependency, x: Any, y: Any, first: int) -> Columns:
        del first  # a pair is answered whoever stands beside it
        return pair_columns(fitted, x, y)

    def nothing(self) -> Columns:
        numbers = {name: np.zeros(0, np.float32) for name in ("pmi", "npmi", "stderr")}
        return {**numbers, "outside": np.zeros(0, bool)}


class Worker:
    """Holds the model between tasks. A task done twice gives the same file twice."""

    def __init__(self, saved: SavedModel, work: Work, answer: Answer, device: str) -> None:
        self.fitted, self.work, self.answer = saved.load(device), work, answer

    def __call__(self, task: Task, told: Callable[[int], None] | None = None) -> None:
        """Write the output shard; BadShardError where the input cannot be read or scored.

        told: called with the number of rows scored so far.
        """
        columns = answer_task(self.fitted, self.work, self.answer, task, told=told)
        pmi = columns["pmi"].astype(np.float64)
        about = {
            "sum_pmi": float(pmi.sum()),
            "below_zero": int((pmi < 0).sum()),
            "outside": int(columns["outside"].sum()),
        }
        write_shard(self.work, task, columns, about)


def answer_task(
    fitted: PointwiseDependency,
    work: Work,
    answer: Answer,
    task: Task,
    *,
    most: int | None = None,
    told: Callable[[int], None] | None = None,
) -> Columns:
    """row and the columns of the answer, (rows,) each, of the pairs of a task, or of its first."""
    parts: list[Columns] = []
    done = 0
    for x, y in read_pairs(task.x, task.y, work.columns, most or work.batch):
        try:
            parts.append(answer(fitted, x, y, task.first + done))
        except PointdepError as error:
            raise BadShardError(_located(str(error), task, done, len(x))) from error
        done += len(x)
        if told is not None:
            told(done)
        if most is not None:
            break
    parts = parts or [answer.nothing()]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {"row": np.arange(task.first, task.first + done), **columns}


def _located(message: str, task: Task, first: int, count: int) -> str:
    """A message about some rows of a task, with their shard, and its rows for theirs.

    first, count: those rows, all from one shard of either side. The side is what the message begins
    with, else x.
    """
    spans = iter(task.y if message.startswith("Y ") else task.x)
    span = next(spans)
    while first >= span.stop - span.start:
        first -= span.stop - span.start
        span = next(spans)
    start = span.start + first
    message = re.sub(r"\bin row (\d+)", lambda row: f"in row {start + int(row[1])}", message)
    return f"{span.shard.place}, rows {start} to {start + count - 1}: {message}"
