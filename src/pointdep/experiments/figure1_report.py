"""The folder that a run of Figure 1 leaves, what is printed of it, and the figure itself."""

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pointdep.core.methods import METHODS
from pointdep.experiments import claims as shared
from pointdep.experiments import reports
from pointdep.experiments.claims import Claim
from pointdep.experiments.figure1 import Cell, Curves, Figure1, halves, summarise
from pointdep.experiments.figure1_claims import NOISE, judge_figure1
from pointdep.experiments.reports import Floats, Line, number

_MARK = "*"
_LEGEND = "bias / sd over the second half of each level, in nats; RMSE below"
# One is lighter than the other.
_TASK_COLOURS = {"gaussian": reports.COLOURS[0], "cubic": reports.COLOURS[4]}
_COLUMNS = 5
_MANY = 0.02  # of the values: worth a word when off the axis
_VECTOR_POINTS = 40_000  # of all smooth curves together: keeps the vector files small


def write_report(
    curves: Curves, folder: Path, recorded: Mapping[str, Any] | None = None
) -> tuple[list[Line], list[Claim]]:
    """Everything into the folder, which is made if it is missing; the numbers and the verdicts.

    curves.csv; table.csv and table.md; claims.md; figure1.png, .svg and .pdf; figure1.json.
    recorded: the `environment` a stored run was made in; None: this machine's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings, by_seed = curves.settings, halves(curves)
    means, claims = summarise(by_seed), judge_figure1(curves)
    write_curves(curves, folder / "curves.csv")
    # The lines of each seed, and the mean over them.
    names = [name for name in by_seed[0] if name != "log_sd_stderr"]
    lines = [*by_seed, *({**mean, "seed": "mean"} for mean in means)]
    reports.write_lines(folder / "table.csv", lines, names)
    (folder / "table.md").write_text(markdown_table(means), "utf-8")
    page = shared.claims_page(claims, [*_caveats(settings), NOISE])
    (folder / "claims.md").write_text(page, "utf-8")
    reports.save(draw(curves), folder, "figure1")
    surroundings = reports.environment(curves.device) if recorded is None else recorded
    # "run" is what was used; "settings" what was asked for, where "auto" may stand for a device.
    content = {
        "command": settings.command,
        "run": {**surroundings, "precision": curves.precision},
        "settings": asdict(settings),
        "times": {
            "setup_seconds": curves.setup_seconds,
            "train_seconds": curves.train_seconds,
            "ms_per_iteration": 1000 * curves.train_seconds / settings.iterations,
        },
        "summary": means,
        "by_seed": by_seed,
        "claims_noise": NOISE,
        "claims": shared.claims_as_dicts(claims),
    }
    reports.write_json(folder / "figure1.json", content)
    return means, claims


def write_curves(curves: Curves, path: Path) -> None:
    """A line per iteration, a column per cell: "cpc gaussian seed 0", with 6 significant digits.

    Values that are not finite are nan, inf and -inf, as pandas.read_csv reads them.
    """
    table = pd.DataFrame(curves.values, columns=[column_of(cell) for cell in curves.cells])
    table.insert(0, "truth", curves.settings.truth())
    table.to_csv(path, index_label="iteration", float_format="%.6g", na_rep="nan")


def column_of(cell: Cell) -> str:
    """The column of a cell in curves.csv."""
    return f"{cell.method} {cell.task} seed {cell.seed}"


def text_table(lines: Sequence[Line]) -> str:
    """Bias / sd and RMSE of each method, task by task; at most 100 columns wide."""
    parts: list[str] = []
    for task, name, rows in _tables(lines):
        rows[0][0] = f"{task}, {name}"
        first = max(len(row[0]) for row in rows)
        widest = max(len(text) for row in rows for text in row[1:])
        columns = max(1, min(5, (reports.WIDTH - first) // (2 + widest)))
        for start in range(1, len(rows[0]), columns):
            parts.append(reports.aligned([[row[0], *row[start : start + columns]] for row in rows]))
    parts.append("\n".join(map(reports.filled, _notes(lines))))
    return "\n\n".join(parts) + "\n"


def markdown_table(lines: Sequence[Line]) -> str:
    """Bias / sd, then RMSE: a row per method and a column per level, for each task."""
    parts = ["# Figure 1 in numbers", " ".join(_notes(lines))]
    for task, name, rows in _tables(lines):
        parts += [f"## {task.capitalize()} task, {name}", reports.markdown(rows)]
    return "\n\n".join(parts).replace(_MARK, f"\\{_MARK}") + "\n"


def _bias_sd(line: Line) -> str:
    bias, sd = line["bias"], line["sd"]
    if bias is None:
        return "-"
    return f"{'+' if bias > 0 else ''}{number(bias)}/{'-' if sd is None else number(sd)}"


def _rmse(line: Line) -> str:
    return "-" if line["rmse"] is None else number(line["rmse"])


def _tables(lines: Sequence[Line]) -> Iterator[tuple[str, str, list[list[str]]]]:
    """Task, what is shown, and rows: a header with the levels, and a row for each method."""
    cells: dict[str, Callable[[Line], str]] = {"bias / sd": _bias_sd, "RMSE": _rmse}
    for task in dict.fromkeys(line["task"] for line in lines):
        for name, cell in cells.items():
            rows = {"": ["method", *(f"{x:g}" for x in dict.fromkeys(o["level"] for o in lines))]}
            for line in (line for line in lines if line["task"] == task):
                shown = cell(line)
                mark = _MARK if line["not_finite"] and shown != "-" else ""
                rows.setdefault(line["method"], [line["method"]]).append(shown + mark)
            yield task, name, list(rows.values())


def _notes(lines: Sequence[Line]) -> list[str]:
    seeds = max(line["seeds"] for line in lines)
    means = f"bias and sd are means over {seeds} seeds, RMSE is over all their values."
    notes = [f"{_LEGEND}; {'one seed.' if seeds == 1 else means}"]
    if any(line["not_finite"] for line in lines):
        notes.append(f"{_MARK} values that are not finite were left out.")
    if any(None in (line["bias"], line["sd"], line["rmse"]) for line in lines):
        notes.append("- where no value is finite, or the statistic is not.")
    return notes


def text_claims(claims: Sequence[Claim], settings: Figure1) -> str:
    """Verdict, sentence and reason of each claim; at most 100 columns wide."""
    where = "The rule of each verdict and all its figures: claims.md."
    return shared.text_claims(claims, [*_caveats(settings), where])


def _caveats(settings: Figure1) -> list[str]:
    """What keeps the verdicts from being about the paper's experiment."""
    notes = []
    if settings.departures:
        notes.append(
            "These are not the paper's settings, and the verdicts are about this run alone: "
            f"{settings.departures}."
        )
    if settings.seeds == 1:
        notes.append("Of one seed: another may give other verdicts; --seeds 3 says how far.")
    return notes


@reports.style()
def draw(curves: Curves) -> Figure:
    """A panel per method, in rows of five: every task, the true value, and what blew up."""
    methods = curves.settings.methods
    columns = min(_COLUMNS, len(methods))
    rows = math.ceil(len(methods) / columns)
    size = (max(2.6 * columns, 5.2) + 0.5, 2.2 * rows + 0.8)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels = list(axes.flat)
    for axis, method in zip(panels, methods, strict=False):
        _draw_method(axis, curves, method)
    for unused in panels[len(methods) :]:
        unused.remove()
    for axis in axes[:, 0]:
        axis.set_ylabel("MI (nats)")
    for column in range(columns):
        lowest = axes[(len(methods) - 1 - column) // columns, column]
        lowest.set_xlabel("iteration")
        lowest.tick_params(labelbottom=True)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def smooth(values: Floats, settings: Figure1) -> Floats:
    """Exponential moving average, (iterations,); not finite where the values are not.

    The span is 200 for 20,000 iterations, and the same share of fewer.
    """
    finite = np.isfinite(values)
    span = max(1, settings.iterations // 100)
    averaged = pd.Series(np.where(finite, values, np.nan)).ewm(span=span).mean().to_numpy()
    return np.where(finite, averaged, np.nan)  # pandas would go on with the last average


def _draw_method(axis: Axes, curves: Curves, method: str) -> None:
    """The first seed's raw values faint and the smooth curve of each seed, for every task."""
    settings = curves.settings
    top = 1.2 * max(settings.levels) or 1.0
    iterations = np.arange(settings.iterations)
    step = max(1, math.ceil(settings.iterations * len(curves.cells) / _VECTOR_POINTS))
    told = []
    for task in settings.tasks:
        colour, found = _TASK_COLOURS[task], curves.seeds_of(method, task).astype(np.float64)
        for position, values in enumerate(found.T):
            # Far outside of the axis one place is as good as another, and 1e30 cannot be drawn.
            shown = np.where(np.isfinite(values), np.clip(values, -9 * top, 9 * top), np.nan)
            average = np.clip(smooth(values, settings), -9 * top, 9 * top)
            if position == 0:
                axis.plot(
                    iterations, shown, color=colour, alpha=0.25, linewidth=0.4, rasterized=True,
                    zorder=1,
                )  # fmt: skip
            axis.plot(
                iterations[::step], average[::step], color=colour, zorder=3,
                linewidth=1.2 if settings.seeds == 1 else 0.7,
                label=task.capitalize() if position == 0 else None,
            )  # fmt: skip
        # A cross where a curve ends: from there on nothing is finite.
        ends = [int(1 + max(np.flatnonzero(np.isfinite(v)), default=-1)) for v in found.T]
        ends = [end for end in ends if end < len(found)]
        for end in ends:
            axis.plot(end, 0, marker="x", color=colour, clip_on=False, zorder=5)
        if lost := _lost(found, ends, top):
            told.append(textwrap.fill(f"{task}: {lost}", 50))
    axis.plot(
        iterations, settings.truth(), color="black", linewidth=0.9, drawstyle="steps-post",
        label="true MI", zorder=4,
    )  # fmt: skip
    axis.set_title(textwrap.fill(METHODS[method].name, 28))
    axis.set(xlim=(0, settings.iterations), ylim=(0, top))
    axis.locator_params(axis="x", nbins=4, prune="upper")  # the next panel begins there
    if METHODS[method].bounded_by_batch:
        ceiling = math.log(settings.batch_size)
        axis.axhline(ceiling, color="0.3", linewidth=0.9, linestyle="--", zorder=2)
        axis.annotate(
            "log(batch size)",
            (0.98, ceiling),  # on the right the truth is far above it
            xycoords=("axes fraction", "data"), xytext=(0, 2), textcoords="offset points",
            horizontalalignment="right", fontsize="small", color="0.3",
        )  # fmt: skip
    if told:
        axis.text(
            0.03, 0.96, "\n".join(told), transform=axis.transAxes, fontsize="x-small", va="top",
            zorder=6, bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1},
        )  # fmt: skip


def _lost(values: Floats, ends: list[int], top: float) -> str:
    """What the panel does not show of (iterations, seeds) values; nothing if that is little."""
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
