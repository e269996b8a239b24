"""Means over seeds, one line for each task, number of rows and estimator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pointdep.experiments.records import Result

ALL_TASKS = "all tasks"


@dataclass(frozen=True)
class Summary:
    """Means over the runs that have the number; None where none has.

    coverage: share of the intervals that hold the true mutual information.
    """

    task: str
    rows: int
    estimator: str
    runs: int
    failed: int
    error: float | None
    absolute_error: float | None
    pmi_rmse: float | None
    pmi_pearson: float | None
    pmi_spearman: float | None
    coverage: float | None
    seconds: float | None


def summarise(results: Sequence[Result]) -> list[Summary]:
    """One line for each task, number of rows and estimator, in the order they come first."""
    return _grouped(results, lambda result: result.task)


def over_tasks(results: Sequence[Result]) -> list[Summary]:
    """One line for each number of rows and estimator, over the runs of every task."""
    return _grouped(results, lambda _: ALL_TASKS)


def _grouped(results: Sequence[Result], task_of: Callable[[Result], str]) -> list[Summary]:
    groups: dict[tuple[str, int, str], list[Result]] = {}
    for result in results:
        key = task_of(result), result.rows, result.estimator
        groups.setdefault(key, []).append(result)
    return [_line(*key, members) for key, members in groups.items()]


def _line(task: str, rows: int, estimator: str, members: list[Result]) -> Summary:
    def mean(name: str) -> float | None:
        return _mean(getattr(result, name) for result in members)

    return Summary(
        task=task,
        rows=rows,
        estimator=estimator,
        runs=len(members),
        failed=sum(result.failed for result in members),
        error=mean("error"),
        absolute_error=_mean(None if r.error is None else abs(r.error) for r in members),
        pmi_rmse=mean("pmi_rmse"),
        pmi_pearson=mean("pmi_pearson"),
        pmi_spearman=mean("pmi_spearman"),
        coverage=mean("covered"),
        seconds=mean("seconds"),
    )


def _mean(values: Iterable[Any]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return fmean(known) if known else None
