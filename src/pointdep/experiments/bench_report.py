"""A comparison of estimators as means over seeds, a table, files and a figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from pointdep.experiments.bench import Bench, Outcome, Result
from pointdep.experiments.reports import (
    COLOURS,
    MARKERS,
    aligned,
    environment,
    save,
    style,
    write_json,
    write_lines,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALL_TASKS = "all tasks"
_COLUMNS = {
    "task": "task",
    "rows": "rows",
    "estimator": "estimator",
    "runs": "runs",
    "error": "error",
    "absolute_error": "|error|",
    "pmi_rmse": "RMSE",
    "pmi_pearson": "corr",
    "pmi_spearman": "rank",
    "coverage": "cover",
    "seconds": "seconds",
}
_FORMATS = {"error": "+.3f", "coverage": ".2f", "seconds": ".1f"}
_LEGEND = (
    "error, |error|: of the mutual information, mean over the seeds, in nats; RMSE, corr, rank:\n"
    "of PMI on fresh rows, its correlation and rank correlation with the exact one; cover: share\n"
    "of the {confidence:g}% intervals that hold the true value; runs: that no error ended."
)
_LEAST_ERROR = 1e-3  # nats; smaller errors are drawn here


@dataclass(frozen=True)
class Summary:
    """Means over the runs that have the number; None if none has.

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


def summarise(results: Sequence[Result], *, over_tasks: bool = False) -> list[Summary]:
    """One line for each task, number of rows and estimator, in the order they come first.

    over_tasks: one line for each number of rows and estimator, over the runs of every task.
    """
    groups: dict[tuple[str, int, str], list[Result]] = {}
    for result in results:
        task = ALL_TASKS if over_tasks else result.task
        groups.setdefault((task, result.rows, result.estimator), []).append(result)
    return [_line(*key, members) for key, members in groups.items()]


def _line(task: str, rows: int, estimator: str, members: list[Result]) -> Summary:
    def mean(values: Iterable[float | None]) -> float | None:
        known = [float(value) for value in values if value is not None]
        return fmean(known) if known else None

    same = "error", "pmi_rmse", "pmi_pearson", "pmi_spearman", "seconds"
    means = {name: mean(getattr(result, name) for result in members) for name in same}
    return Summary(
        task=task,
        rows=rows,
        estimator=estimator,
        runs=len(members),
        failed=sum(result.failed for result in members),
        absolute_error=mean(None if r.error is None else abs(r.error) for r in members),
        coverage=mean(result.covered for result in members),
        **means,
    )


def write_report(bench: Bench, results: Sequence[Result], folder: Path) -> None:
    """summary.csv, results.json and the figure, beside the results.csv that is there."""
    lines = [asdict(line) for line in summarise(results)]
    write_lines(folder / "summary.csv", lines)
    content = {
        "command": bench.command,
        **environment(bench.resolved_device),
        "settings": asdict(bench),
        "summary": lines,
        "results": [asdict(result) for result in results],
    }
    write_json(folder / "results.json", content)
    save(draw(results), folder, "figure", ("png", "svg"))


def outcome_as_dict(bench: Bench, outcome: Outcome) -> dict[str, Any]:
    """The outcome for a program."""
    about = asdict(bench)
    return {
        **{name: about[name] for name in ("tasks", "estimators", "rows", "seeds", "confidence")},
        "runs": len(outcome.results),
        "resumed": outcome.resumed,
        "failed": sum(result.failed for result in outcome.results),
        "summary": [asdict(line) for line in summarise(outcome.results)],
        "notes": [
            {name: getattr(result, name) for name in ("task", "rows", "estimator", "seed")}
            | {"failed": result.failed, "reason": result.reason}
            for result in outcome.results
            if result.reason
        ],
    }


def text_outcome(bench: Bench, outcome: Outcome) -> str:
    """The outcome for a person: task by task, then over the tasks, then why there are gaps."""
    lines = sorted(
        summarise(outcome.results), key=lambda line: (bench.tasks.index(line.task), line.rows)
    )
    if len(bench.tasks) > 1:
        lines += summarise(outcome.results, over_tasks=True)
    rows = [list(_COLUMNS.values())]
    rows += [[_cell(name, line) for name in _COLUMNS] for line in lines]
    said = [aligned(rows, left=(0, 2)), "\n" + _LEGEND.format(confidence=100 * bench.confidence)]
    if outcome.resumed:
        said.append(f"{outcome.resumed} of {len(outcome.results)} runs were there already.")
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for result in outcome.results:
        if result.reason:
            reasons.setdefault((result.estimator, result.reason), {})[result.task] = None
    said += [f"{name} on {', '.join(tasks)}: {why}" for (name, why), tasks in reasons.items()]
    return "\n".join(said)


def _cell(name: str, line: Summary) -> str:
    value = getattr(line, name)
    if name == "runs" and line.failed:
        return f"{line.runs - line.failed}/{line.runs}"
    if value is None:
        return "-"
    return format(value, _FORMATS.get(name, ".3f")) if isinstance(value, float) else str(value)


@style()
def draw(results: Sequence[Result]) -> Figure:
    """A panel per number of rows with the errors on each task, and one of error against seconds."""
    from matplotlib.figure import Figure

    rows = sorted({result.rows for result in results})
    tasks = list(dict.fromkeys(result.task for result in results))
    answered = [result for result in results if result.error is not None]
    looks: dict[str, dict[str, Any]] = {
        name: {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)]}
        for k, name in enumerate(dict.fromkeys(result.estimator for result in answered))
    }
    height = max(4.0, 1.6 + len(tasks) * max(0.28, 0.07 * len(looks)))
    figure = Figure(figsize=(4.0 * len(rows) + 5.0, height), layout="constrained")
    axes = figure.subplots(1, len(rows) + 1, squeeze=False)[0]
    for axis, count in zip(axes, rows, strict=False):
        _draw_tasks(axis, [result for result in answered if result.rows == count], tasks, looks)
        axis.set_title(f"{count:,} rows")
        axis.sharex(axes[0])
        axis.tick_params(labelleft=axis is axes[0])
    _draw_seconds(axes[-1], results, looks)
    handles, labels = axes[0].get_legend_handles_labels()
    columns = max(1, min(8, len(labels)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _draw_tasks(
    axis: Axes, results: Sequence[Result], tasks: list[str], looks: dict[str, dict[str, Any]]
) -> None:
    """A line per task: the runs as faint dots, their mean as a marker."""
    spread = np.linspace(-0.3, 0.3, len(looks)) if len(looks) > 1 else np.zeros(len(looks))
    for shift, (estimator, look) in zip(spread, looks.items(), strict=True):
        runs = [result for result in results if result.estimator == estimator]
        dots: dict[str, Any] = {"s": 6, "alpha": 0.4, "linewidths": 0, "color": look["color"]}
        large = {"s": 26, "label": estimator, **look}
        lines: Sequence[Result | Summary]
        for lines, how in ((runs, dots), (summarise(runs), large)):
            places = [tasks.index(line.task) + shift for line in lines]
            axis.scatter(np.array([line.error for line in lines], float), places, **how)
    axis.axvline(0.0, color="0.4", linewidth=0.8, zorder=0)
    for boundary in np.arange(len(tasks) - 1) + 0.5:
        axis.axhline(boundary, color="0.9", linewidth=0.6, zorder=0)
    axis.set_yticks(range(len(tasks)), tasks)
    axis.set_ylim(len(tasks) - 0.5, -0.5)
    axis.locator_params(axis="x", nbins=6)
    axis.set_xlabel("error of MI (nats)")


def _draw_seconds(axis: Axes, results: Sequence[Result], looks: dict[str, dict[str, Any]]) -> None:
    """Faint markers are tasks; large ones the mean over them, joined from few rows to many."""
    from matplotlib.ticker import LogLocator

    for over_tasks in (False, True):
        lines = sorted(summarise(results, over_tasks=over_tasks), key=lambda line: line.rows)
        for k, (estimator, look) in enumerate(looks.items()):
            points = [
                (line.seconds, max(line.absolute_error, _LEAST_ERROR), line.rows)
                for line in lines
                if line.estimator == estimator
                and line.absolute_error is not None
                and line.seconds is not None
            ]
            seconds, errors = [point[0] for point in points], [point[1] for point in points]
            if not over_tasks:
                axis.scatter(seconds, errors, s=14, alpha=0.3, **look)
                continue
            axis.plot(seconds, errors, color=look["color"], linewidth=1)
            axis.scatter(seconds, errors, s=70, zorder=3, **look)
            # The first tells how to read the others, whose numbers would only hide each other.
            for x, y, count in points if len(points) > 1 and k == 0 else ():
                axis.annotate(f"{count:,}", (x, y), xytext=(6, 5), textcoords="offset points")
    axis.set_xscale("log")
    axis.set_yscale("log")
    for log_axis in (axis.xaxis, axis.yaxis):
        log_axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        log_axis.set_major_formatter("{x:g}")
        log_axis.set_minor_formatter("")
    axis.set_box_aspect(1)  # beside many tasks it would be a tower
    axis.set_anchor("N")
    axis.set_title("small: a task, large: mean over tasks")
    axis.set_xlabel("seconds of a fit")
    axis.set_ylabel("mean absolute error of MI (nats)")
    axis.grid(visible=True, color="0.92", linewidth=0.6)
    axis.set_axisbelow(True)
