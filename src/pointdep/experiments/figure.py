"""The figure of a comparison: error of MI task by task, and error against seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pointdep.experiments.drawing import COLOURS, MARKERS, save, style
from pointdep.experiments.records import Result
from pointdep.experiments.summary import over_tasks, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEAST_ERROR = 1e-3  # nats; smaller errors are drawn here


def write_figure(results: Sequence[Result], folder: Path) -> None:
    """figure.png and figure.svg in the folder."""
    save(draw(results), folder, "figure", ("png", "svg"))


@style()
def draw(results: Sequence[Result]) -> Figure:
    """One panel a number of rows with the errors of each task, and one of error against seconds."""
    from matplotlib.figure import Figure

    rows = sorted({result.rows for result in results})
    tasks = list(dict.fromkeys(result.task for result in results))
    answered = [result for result in results if result.error is not None]
    estimators = list(dict.fromkeys(result.estimator for result in answered))
    height = max(4.0, 1.6 + len(tasks) * max(0.28, 0.07 * len(estimators)))
    figure = Figure(figsize=(4.0 * len(rows) + 5.0, height), layout="constrained")
    axes = figure.subplots(1, len(rows) + 1, squeeze=False)[0]
    for axis, count in zip(axes, rows, strict=False):
        chosen = [result for result in results if result.rows == count]
        _draw_tasks(axis, chosen, tasks, estimators)
        axis.set_title(f"{count:,} rows")
        axis.sharex(axes[0])
        axis.tick_params(labelleft=axis is axes[0])
    _draw_seconds(axes[-1], results, estimators)
    handles, labels = axes[0].get_legend_handles_labels()
    columns = max(1, min(8, len(labels)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _draw_tasks(
    axis: Axes, results: Sequence[Result], tasks: list[str], estimators: list[str]
) -> None:
    """A line a task: the runs as faint dots, their mean as a marker."""
    spread = np.linspace(-0.3, 0.3, len(estimators)) if len(estimators) > 1 else np.zeros(1)
    for k, estimator in enumerate(estimators):
        runs = [r for r in results if r.estimator == estimator and r.error is not None]
        colour, marker = _style(k)
        axis.scatter(
            [r.error for r in runs if r.error is not None],
            [tasks.index(r.task) + spread[k] for r in runs],
            s=6,
            alpha=0.4,
            color=colour,
            linewidths=0,
        )
        lines = [line for line in summarise(runs) if line.error is not None]
        axis.scatter(
            [line.error for line in lines if line.error is not None],
            [tasks.index(line.task) + spread[k] for line in lines],
            s=26,
            label=estimator,
            color=colour,
            marker=marker,
        )
    axis.axvline(0.0, color="0.4", linewidth=0.8, zorder=0)
    for boundary in np.arange(len(tasks) - 1) + 0.5:
        axis.axhline(boundary, color="0.9", linewidth=0.6, zorder=0)
    axis.set_yticks(range(len(tasks)), tasks)
    axis.set_ylim(len(tasks) - 0.5, -0.5)
    axis.locator_params(axis="x", nbins=6)
    axis.set_xlabel("error of MI (nats)")


def _draw_seconds(axis: Axes, results: Sequence[Result], estimators: list[str]) -> None:
    """Faint markers are tasks; large ones the mean over them, joined from few rows to many."""
    from matplotlib.ticker import LogLocator

    for faint, lines in ((True, summarise(results)), (False, over_tasks(results))):
        for k, estimator in enumerate(estimators):
            points = [
                (line.seconds, max(line.absolute_error, _LEAST_ERROR), line.rows)
                for line in sorted(lines, key=lambda line: line.rows)
                if line.estimator == estimator
                and line.absolute_error is not None
                and line.seconds is not None
            ]
            if not points:
                continue
            seconds, errors, rows = zip(*points, strict=True)
            colour, marker = _style(k)
            if faint:
                axis.scatter(seconds, errors, s=14, alpha=0.3, color=colour, marker=marker)
                continue
            axis.plot(seconds, errors, color=colour, linewidth=1)
            axis.scatter(seconds, errors, s=70, zorder=3, color=colour, marker=marker)
            # The first tells how to read the others, whose numbers would only hide each other.
            for x, y, count in points if len(rows) > 1 and k == 0 else ():
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


def _style(k: int) -> tuple[str, str]:
    """Colour and marker of the k-th estimator."""
    return COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
