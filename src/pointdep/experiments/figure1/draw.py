"""Figure 1: a panel for each method, with every task, the true value and what blew up."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pointdep.core.methods import METHODS
from pointdep.experiments.drawing import COLOURS, save, style
from pointdep.experiments.figure1.curves import Curves
from pointdep.experiments.figure1.settings import Figure1

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

_COLOURS = {"gaussian": COLOURS[0], "cubic": COLOURS[4]}  # one is lighter than the other
_COLUMNS = 5
_MANY = 0.02  # of the values: worth a word when off the axis
_VECTOR_POINTS = 40_000  # of all smooth curves together: keeps the vector files small


def write_figure(curves: Curves, folder: Path) -> None:
    """figure1.png, figure1.svg and figure1.pdf; the same curves give the same files."""
    save(draw(curves), folder, "figure1")


@style()
def draw(curves: Curves) -> Figure:
    """Rows of five panels, in the order of the methods."""
    from matplotlib.figure import Figure

    settings = curves.settings
    columns = min(_COLUMNS, len(settings.methods))
    rows = math.ceil(len(settings.methods) / columns)
    size = (max(2.6 * columns, 5.2) + 0.5, 2.2 * rows + 0.8)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels = list(axes.flat)
    for axis, method in zip(panels, settings.methods, strict=False):
        _draw_method(axis, curves, method)
    for unused in panels[len(settings.methods) :]:
        unused.remove()
    for axis in axes[:, 0]:
        axis.set_ylabel("MI (nats)")
    for column in range(columns):
        lowest = axes[(len(settings.methods) - 1 - column) // columns, column]
        lowest.set_xlabel("iteration")
        lowest.tick_params(labelbottom=True)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def smooth(values: Floats, settings: Figure1) -> Floats:
    """Exponential moving average, (iterations,); not finite where the values are not.

    The span is 200 for 20,000 iterations, and the same share of fewer.
    """
    import pandas as pd

    finite = np.isfinite(values)
    span = max(1, settings.iterations // 100)
    averaged = pd.Series(np.where(finite, values, np.nan)).ewm(span=span).mean().to_numpy()
    return np.where(finite, averaged, np.nan)  # pandas would go on with the last average


def _draw_method(axis: Axes, curves: Curves, method: str) -> None:
    """The first seed's raw values faint and the smooth curve of each seed, for every task."""
    settings = curves.settings
    top = _top(settings)
    iterations = np.arange(settings.iterations)
    step = max(1, math.ceil(settings.iterations * len(curves.cells) / _VECTOR_POINTS))
    for task in settings.tasks:
        cells = [cell for cell in curves.cells if (cell.method, cell.task) == (method, task)]
        for cell in cells:
            # Far outside of the axis one place is as good as another, and 1e30 cannot be drawn.
            values = curves.of(cell).astype(np.float64)
            shown = np.where(np.isfinite(values), np.clip(values, -9 * top, 9 * top), np.nan)
            average = np.clip(smooth(values, settings), -9 * top, 9 * top)
            if cell is cells[0]:
                axis.plot(
                    iterations, shown, color=_COLOURS[task], alpha=0.25, linewidth=0.4,
                    rasterized=True, zorder=1,
                )  # fmt: skip
            axis.plot(
                iterations[::step],
                average[::step],
                color=_COLOURS[task],
                linewidth=1.2 if len(cells) == 1 else 0.7,
                label=task.capitalize() if cell is cells[0] else None,
                zorder=3,
            )
    axis.plot(
        iterations,
        settings.truth(),
        color="black",
        linewidth=0.9,
        drawstyle="steps-post",
        label="true MI",
        zorder=4,
    )
    axis.set_title(textwrap.fill(METHODS[method].name, 28))
    axis.set(xlim=(0, settings.iterations), ylim=(0, top))
    axis.locator_params(axis="x", nbins=4, prune="upper")  # the next panel begins there
    if METHODS[method].bounded_by_batch:
        _draw_ceiling(axis, settings)
    _note_what_is_lost(axis, curves, method)


def _draw_ceiling(axis: Axes, settings: Figure1) -> None:
    ceiling = math.log(settings.batch_size)
    axis.axhline(ceiling, color="0.3", linewidth=0.9, linestyle="--", zorder=2)
    axis.annotate(
        "log(batch size)",
        (0.98, ceiling),  # on the right the truth is far above it
        xycoords=("axes fraction", "data"),
        xytext=(0, 2),
        textcoords="offset points",
        horizontalalignment="right",
        fontsize="small",
        color="0.3",
    )


def _note_what_is_lost(axis: Axes, curves: Curves, method: str) -> None:
    """A cross where a curve ends, and a line for each task with values that cannot be seen."""
    lines = []
    for task in curves.settings.tasks:
        own = [k for k, c in enumerate(curves.cells) if (c.method, c.task) == (method, task)]
        values = curves.values[:, own]
        ends = [end for end in map(_end, values.T) if end < len(values)]
        for end in ends:
            axis.plot(end, 0, marker="x", color=_COLOURS[task], clip_on=False, zorder=5)
        if told := _lost(values, ends, _top(curves.settings)):
            lines.append(textwrap.fill(f"{task}: {told}", 50))
    if lines:
        axis.text(
            0.03, 0.96, "\n".join(lines), transform=axis.transAxes, fontsize="x-small", va="top",
            zorder=6, bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1},
        )  # fmt: skip


def _end(values: NDArray[np.float32]) -> int:
    """The iteration from which on nothing of (iterations,) values is finite."""
    finite = np.flatnonzero(np.isfinite(values))
    return int(finite[-1]) + 1 if len(finite) else 0


def _lost(values: NDArray[np.float32], ends: list[int], top: float) -> str:
    """What the panel does not show of (iterations, seeds) values; nothing where that is little."""
    finite = np.isfinite(values)
    seeds = values.shape[1]
    told = []
    if ends:
        of = "" if seeds == 1 else f" in {len(ends)} of {seeds} seeds"
        told.append(f"not finite from {min(ends):,}{of}")
    elif not finite.all():
        told.append(f"not finite {int((~finite).sum()):,} times")
    outside = float(((values < 0) | (values > top))[finite].mean()) if finite.any() else 0.0
    if outside > _MANY:
        told.append(f"{outside:.0%} off the axis")
    return ", ".join(told)


def _top(settings: Figure1) -> float:
    """Of the axis."""
    return 1.2 * max(settings.levels) or 1.0
