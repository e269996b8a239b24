"""What a run of Theorem 1 leaves: files, a table with its reading, and the figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

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
from pointdep.experiments.theorem1 import THEOREM, Outcome, Slope, Summary, slopes, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = {
    "method": ("method", ""),
    "rows": ("rows", ","),
    "rmse": ("RMSE", ".4f"),
    "bias": ("bias", "+.4f"),
    "sd": ("sd", ".4f"),
    "in_sample_rmse": ("in-sample RMSE", ".4f"),
    "in_sample_bias": ("its bias", "+.4f"),
    "exact_rmse": ("exact RMSE", ".4f"),
    "exact_sd": ("exact sd", ".4f"),
    "at_limit": ("at limit", ".2%"),
}
LEGEND = (
    "In nats. RMSE, bias, sd: of the mean of log r over all rows, each by a network that did not "
    "see it (by chance the bias is about sd / sqrt(seeds) even where there is none); in-sample: by "
    "each network over the rows that it trained on, the plug-in of which the theorem speaks, but "
    "with 2 folds a network has half of the n rows, and trains on 85% of these; exact RMSE, exact "
    "sd: of the mean of the exact PMI over the same rows, measured and sd(PMI) / sqrt(n); at "
    "limit: share of held-out pairs at a limit of the read-out."
)
KNOWN = (
    "Intervals: from leaving out one seed after the other, with Student's t. The theorem says that "
    "some network has an error of at most this order, not that training finds it. What can make "
    "the exponent another: the network is the same at every n, and what it cannot represent stays; "
    "training stops early and at a constant learning rate, which leaves something unlearned; the "
    "bias of well-fitted weights falls like 1/n, faster than the noise of a mean; a ratio that is "
    "fitted as a number (drf) may fall to its floor, whose logarithm is far off."
)
_VERDICTS = {
    "agrees": "-1/2 lies in it",
    "steeper": "steeper than -1/2, which is no contradiction: the theorem bounds from above",
    "shallower": "shallower than -1/2",
}
_FEW_AT_LIMIT = 5e-4
_MARGIN = 10.0


def write_report(outcome: Outcome, folder: Path) -> None:
    """runs.csv, summary.csv, results.json and the figure."""
    lines, found = summarise(outcome), slopes(outcome)
    runs, summary = [asdict(run) for run in outcome.runs], [asdict(line) for line in lines]
    write_lines(folder / "runs.csv", runs)
    write_lines(folder / "summary.csv", summary)
    content = {
        "command": outcome.settings.command,
        **environment(outcome.device),
        "settings": asdict(outcome.settings),
        "weights": outcome.weights,
        "seconds": dict(zip(map(str, outcome.settings.rows), outcome.seconds, strict=True)),
        "slopes": [slope_as_dict(slope) for slope in found],
        "reading": reading(lines, found),
        "summary": summary,
        "runs": runs,
    }
    write_json(folder / "results.json", content)
    save(draw(outcome), folder, "figure")


def slope_as_dict(slope: Slope) -> dict[str, Any]:
    """The slope with its verdict."""
    return {**asdict(slope), "verdict": slope.verdict}


def text_table(lines: Sequence[Summary]) -> str:
    """The summary as aligned columns."""
    rows = [[head for head, _ in _COLUMNS.values()]]
    for line in lines:
        rows.append([format(getattr(line, name), how) for name, (_, how) in _COLUMNS.items()])
    return aligned(rows)


def reading(lines: Sequence[Summary], found: Sequence[Slope]) -> list[str]:
    """What the numbers say, a paragraph per method."""
    pairs = zip(found[::2], found[1::2], strict=True)  # held out and in sample, as `slopes` has it
    return [
        _read(held, seen, [line for line in lines if line.method == held.method])
        for held, seen in pairs
    ]


def _read(held: Slope, seen: Slope, lines: Sequence[Summary]) -> str:
    first, before, last = lines[0], lines[-2], lines[-1]
    said = [
        f"{held.method}: the held-out RMSE falls like n^{held.value:.2f}, 95% interval "
        f"{held.low:.2f} to {held.high:.2f}: {_VERDICTS[held.verdict]}.",
        f"From {before.rows:,} to {last.rows:,} rows alone the exponent is {held.last:.2f} "
        f"({held.last_low:.2f} to {held.last_high:.2f}).",
        f"In sample it is {seen.value:.2f} ({seen.low:.2f} to {seen.high:.2f}): "
        f"{_VERDICTS[seen.verdict]}.",
        f"Bias makes up {first.bias_share:.0%} of the squared held-out error at {first.rows:,} "
        f"rows and {last.bias_share:.0%} at {last.rows:,}.",
    ]
    if last.at_limit > _FEW_AT_LIMIT:
        said.append(
            f"At {last.rows:,} rows {last.at_limit:.1%} of the held-out pairs are at a limit of "
            f"the read-out; they alone make {last.limit_error:+.4f} nats of the bias of "
            f"{last.bias:+.4f}."
        )
    ended = sum(line.ended_early for line in lines)
    if ended:
        said.append(f"{ended} network(s) did not train to their end.")
    return " ".join(said)


@style()
def draw(outcome: Outcome) -> Figure:
    """Left the RMSE with the fitted slopes, right the bias and the standard deviation in it."""
    from matplotlib.figure import Figure

    settings, lines, found = outcome.settings, summarise(outcome), slopes(outcome)
    figure = Figure(figsize=(10.0, 5.2 + 0.4 * len(settings.methods)), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    for k, method in enumerate(settings.methods):
        look = {
            "color": COLOURS[k % len(COLOURS)],
            "marker": MARKERS[k % len(MARKERS)],
            "markersize": 5.0,
            "linewidth": 1.2,
        }
        own = [line for line in lines if line.method == method]
        _draw_method(left, right, own, found[2 * k : 2 * k + 2], look)
    rows = np.array(settings.rows, float)
    exact = [settings.exact_sd(count) for count in settings.rows]
    for axis in (left, right):
        axis.plot(
            rows, exact, color="black", linestyle="--", linewidth=1,
            label=r"exact $\log r$: sd(PMI) / $\sqrt{n}$",
        )  # fmt: skip
    # The theorem's slope, through the middle of the first method's errors.
    first = [line.rmse for line in lines if line.method == settings.methods[0]]
    middle = np.log(first).mean() - THEOREM * np.log(rows).mean()
    left.plot(
        rows, np.exp(middle) * rows**THEOREM, color="0.6", linewidth=4, alpha=0.5, zorder=0,
        label="slope -0.50, for comparison",
    )  # fmt: skip
    left.set_title("RMSE of the mutual information")
    right.set_title("held out: bias and standard deviation over seeds")
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


def _draw_method(
    left: Axes, right: Axes, lines: Sequence[Summary], found: Sequence[Slope], look: dict[str, Any]
) -> None:
    """Left: held out with intervals and solid, in sample dotted. Right: the parts of the error."""
    method, rows = lines[0].method, [line.rows for line in lines]
    held, seen = (f"slope {s.value:.2f} ({s.low:.2f} to {s.high:.2f})" for s in found)
    low, middle, high = np.array([[line.low, line.rmse, line.high] for line in lines]).T
    reach = np.stack([middle - low, high - middle]).clip(min=0.0)
    label = f"{method}, held out: {held}"
    left.errorbar(rows, middle, yerr=reach, label=label, capsize=2, **look)
    in_sample = [line.in_sample_rmse for line in lines]
    label = f"{method}, in sample: {seen}"
    left.plot(rows, in_sample, linestyle=":", fillstyle="none", label=label, **look)
    right.plot(rows, [abs(line.bias) for line in lines], label=f"{method}: |bias|", **look)
    spread, label = [line.sd for line in lines], f"{method}: standard deviation"
    right.plot(rows, spread, linestyle="-.", fillstyle="none", label=label, **look)


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
