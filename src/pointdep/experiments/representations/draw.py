"""Figure 2 again: accuracy while the encoders train, a line an objective."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pointdep.contrastive.pretraining.protocols import OBJECTIVES
from pointdep.experiments.drawing import COLOURS, save, style
from pointdep.experiments.representations.pixels import Pixels
from pointdep.experiments.representations.results import Curve
from pointdep.experiments.representations.settings import NAMES, PARTS, SETS, Experiment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))


def write_figure(
    experiment: Experiment, curves: Sequence[Curve], pixels: Pixels, note: str, folder: Path
) -> None:
    """figure.png and figure.svg; note: what was shortened against the paper."""
    save(draw(experiment, curves, pixels, note), folder, "figure", ("png", "svg"))


@style()
def draw(experiment: Experiment, curves: Sequence[Curve], pixels: Pixels, note: str) -> Figure:
    """Against the iterations, or against the epochs and beside it against the minutes."""
    from matplotlib.figure import Figure

    axes_of = ["steps"] if experiment.unit == "iterations" else ["epochs", "seconds"]
    wide = len(axes_of) > 1
    size = (9.6 if wide else 6.4, 4.0)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(axes_of), sharey=True, squeeze=False)[0]
    for axis, quantity in zip(panels, axes_of, strict=True):
        _draw_panel(axis, experiment, curves, pixels, quantity)
    panels[0].set_ylabel("linear accuracy on test images, %")
    part = PARTS[experiment.part]
    figure.suptitle(f"{part.title}, {SETS[str(experiment.dataset)]}", fontsize="medium")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False)
    if note:
        wrapped = textwrap.fill(note, 160 if wide else 105)
        figure.supxlabel(wrapped, fontsize="x-small", color="0.3")
    return figure


def mean_curve(curves: Sequence[Curve], quantity: str) -> tuple[Floats, Floats, Floats]:
    """Where, mean and standard deviation over the seeds, each (evaluations,), accuracies in %.

    Evaluations are matched by their number, the last with the last: runs that end by the clock have
    them at slightly different steps. Those that are not finite are left out of the mean, and so are
    runs that ended because they diverged, where others did not.
    """
    started = [curve for curve in curves if curve.steps]
    whole = [curve for curve in started if not curve.cut] or started
    if not whole:
        return np.empty(0), np.empty(0), np.empty(0)
    count = min(len(curve.steps) for curve in whole)
    kept = [*range(count - 1), -1]
    where = np.array([[getattr(c, quantity)[k] for k in kept] for c in whole], np.float64)
    values = np.array([[c.accuracy[k] for k in kept] for c in whole], np.float64)
    finite = np.isfinite(values)
    seen = finite.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = 100 * np.where(finite, values, 0.0).sum(0) / seen
        squares = np.where(finite, 100 * values - mean, 0.0) ** 2
        sd = np.sqrt(squares.sum(0) / np.maximum(seen - 1, 1))
    return where.mean(0) / (60 if quantity == "seconds" else 1), mean, sd


def _draw_panel(
    axis: Axes, experiment: Experiment, curves: Sequence[Curve], pixels: Pixels, quantity: str
) -> None:
    values = experiment.paper_values
    for objective in dict.fromkeys(curve.objective for curve in curves):
        own = [curve for curve in curves if curve.objective == objective]
        place = OBJECTIVES.index(objective)
        look: dict[str, Any] = {"color": COLOURS[place], "linestyle": _LINES[place]}
        where, mean, sd = mean_curve(own, quantity)
        runs = "1 run" if len(own) == 1 else f"{len(own)} runs"
        diverged = sum(curve.final is None for curve in own)
        runs += f", {diverged} diverged" if diverged else ""
        dots: dict[str, Any] = {"marker": "o", "markersize": 2.5} if len(where) < 40 else {}
        axis.plot(where, mean, label=f"{NAMES[objective]} ({runs})", linewidth=1.3, **look, **dots)
        if len(own) > 1:
            axis.fill_between(
                where, mean - sd, mean + sd, color=COLOURS[place], alpha=0.15, linewidth=0
            )
        if objective in values:
            _mark(axis, 100 * values[objective], COLOURS[place])
    if values:
        axis.plot([], [], color="0.5", linewidth=2, label="right edge: the paper")
    axis.axhline(
        100 * pixels.accuracy, color="0.3", linewidth=0.9, linestyle="--", zorder=1,
        label=f"pixels, {pixels.of}" + "\n(not converged)" * (not pixels.converged),
    )  # fmt: skip
    names = {"steps": "iteration", "epochs": "epoch", "seconds": "minutes of training"}
    axis.set_xlabel(names[quantity])
    axis.set_xlim(left=0)
    axis.margins(y=0.08)
    axis.grid(alpha=0.25, linewidth=0.5)


def _mark(axis: Axes, value: float, colour: str) -> None:
    """On the right edge."""
    across = axis.get_yaxis_transform()
    axis.plot([0.94, 1.0], [value, value], color=colour, linewidth=1.6, transform=across, zorder=5)
