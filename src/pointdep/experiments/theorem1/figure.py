"""The figure of Theorem 1: error against rows on logarithmic axes, and the parts of the error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pointdep.experiments.drawing import COLOURS, MARKERS, save, style
from pointdep.experiments.theorem1.run import Outcome
from pointdep.experiments.theorem1.slopes import THEOREM, Slope, Summary, slopes, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARGIN = 10.0


def write_figure(outcome: Outcome, folder: Path) -> None:
    """figure.png, figure.svg and figure.pdf in the folder."""
    save(draw(outcome), folder, "figure")


@style()
def draw(outcome: Outcome) -> Figure:
    """Left the RMSE with the fitted slopes, right the bias and the standard deviation in it."""
    from matplotlib.figure import Figure

    settings = outcome.settings
    lines, found = summarise(outcome), slopes(outcome)
    figure = Figure(figsize=(10.0, 5.2 + 0.4 * len(settings.methods)), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    _draw_errors(left, outcome, lines, found)
    _draw_parts(right, outcome, lines)
    for axis in (left, right):
        _dress(axis, settings.rows)
    # A bias that is zero by chance, or an interval from two seeds, would squeeze all else.
    levels = [level for line in lines for level in (line.rmse, line.in_sample_rmse, line.exact_sd)]
    low, high = left.get_ylim()
    left.set_ylim(max(low, min(levels) / _MARGIN), min(high, max(levels) * _MARGIN))
    left.set_ylabel("nats")
    figure.suptitle(
        f"Theorem 1: {settings.dim} + {settings.dim} Gaussians, MI = {settings.mi:g}; "
        f"{settings.critic} critic of {outcome.weights:,} weights, {settings.folds} folds, "
        f"{settings.seeds} seeds",
        fontsize=10,
    )
    return figure


def _draw_errors(
    axis: Axes, outcome: Outcome, lines: Sequence[Summary], found: Sequence[Slope]
) -> None:
    """Held out with intervals and solid, in sample dotted; one who knows r, and slope -1/2."""
    settings = outcome.settings
    rows = np.array(settings.rows, float)
    for k, method in enumerate(settings.methods):
        own = [line for line in lines if line.method == method]
        held, seen = (slope for slope in found if slope.method == method)
        low, middle, high = np.array([[line.low, line.rmse, line.high] for line in own]).T
        axis.errorbar(
            rows,
            middle,
            yerr=np.stack([middle - low, high - middle]).clip(min=0.0),
            label=f"{method}, held out: {_said(held)}",
            capsize=2,
            **_style(k),
        )
        axis.plot(
            rows,
            [line.in_sample_rmse for line in own],
            linestyle=":",
            fillstyle="none",
            label=f"{method}, in sample: {_said(seen)}",
            **_style(k),
        )
    _draw_exact(axis, outcome)
    # Through the middle of the first method's errors.
    first = [line.rmse for line in lines if line.method == settings.methods[0]]
    middle = np.log(first).mean() - THEOREM * np.log(rows).mean()
    axis.plot(
        rows,
        np.exp(middle) * rows**THEOREM,
        color="0.6",
        linewidth=4,
        alpha=0.5,
        zorder=0,
        label="slope -0.50, for comparison",
    )
    axis.set_title("RMSE of the mutual information")


def _draw_parts(axis: Axes, outcome: Outcome, lines: Sequence[Summary]) -> None:
    """What the held-out error is made of."""
    for k, method in enumerate(outcome.settings.methods):
        own = [line for line in lines if line.method == method]
        rows = [line.rows for line in own]
        style = _style(k)
        axis.plot(rows, [abs(line.bias) for line in own], label=f"{method}: |bias|", **style)
        axis.plot(
            rows,
            [line.sd for line in own],
            linestyle="-.",
            fillstyle="none",
            label=f"{method}: standard deviation",
            **style,
        )
    _draw_exact(axis, outcome)
    axis.set_title("held out: bias and standard deviation over seeds")


def _draw_exact(axis: Axes, outcome: Outcome) -> None:
    rows = outcome.settings.rows
    axis.plot(
        rows,
        [outcome.settings.exact_sd(count) for count in rows],
        color="black",
        linestyle="--",
        linewidth=1,
        label=r"exact $\log r$: sd(PMI) / $\sqrt{n}$",
    )


def _dress(axis: Axes, rows: Sequence[int]) -> None:
    from matplotlib.container import ErrorbarContainer
    from matplotlib.ticker import LogLocator

    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(rows, [f"{count:,}" for count in rows])
    axis.minorticks_off()
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("rows n")
    axis.grid(visible=True, color="0.92", linewidth=0.6)
    axis.set_axisbelow(True)
    handles, labels = axis.get_legend_handles_labels()
    # Matplotlib puts lines with error bars last; here they are what the figure is about.
    order = sorted(range(len(labels)), key=lambda k: not isinstance(handles[k], ErrorbarContainer))
    axis.legend(
        [handles[k] for k in order],
        [labels[k] for k in order],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.12),
        frameon=False,
    )


def _said(slope: Slope) -> str:
    return f"slope {slope.value:.2f} ({slope.low:.2f} to {slope.high:.2f})"


def _style(k: int) -> dict[str, Any]:
    """Colour and marker of the k-th method."""
    return {
        "color": COLOURS[k % len(COLOURS)],
        "marker": MARKERS[k % len(MARKERS)],
        "markersize": 5.0,
        "linewidth": 1.2,
    }
