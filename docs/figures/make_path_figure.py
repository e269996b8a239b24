"""The picture of docs/built.md: a pair's way from file to answer.

python docs/figures/make_path_figure.py

Written twice, for light and dark pages.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

STEPS = (
    ("read", "data", "files → columns → numbers\nreaders, sides, encoder"),
    ("split", "fitting", "folds, stopping rows\nsplits, fold_plan"),
    ("prepare", "estimators", "model, rank maps\nassembly, fit_rows"),
    ("train", "fitting", "all replicas at once\nengine, active_replicas"),
    ("judge", "inference", "out-of-fold log r, bias, flags\nout_of_fold, bias"),
    ("answer", "estimators", "MI, PMI, check, search\npointwise"),
    ("show", "display, cli", "text, JSON, HTML, figures\nshow, plots, html_repr"),
)
COLOURS = {
    "light": {"ink": "#20262b", "box": "#e6f2f0", "edge": "#00796b", "faint": "#5d6b75"},
    "dark": {"ink": "#e3e7ea", "box": "#22332f", "edge": "#4db6a4", "faint": "#98a4ae"},
}


def draw(colours: dict[str, str]) -> Figure:
    """One box per step, from top to bottom."""
    figure = Figure(figsize=(6.4, 5.6))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 10), ylim=(-0.2, len(STEPS)))
    axes.axis("off")
    for number, (step, room, about) in enumerate(STEPS):
        low = len(STEPS) - 1 - number
        axes.add_patch(
            FancyBboxPatch(
                (1.9, low + 0.1),
                7.7,
                0.62,
                boxstyle="round,pad=0.04,rounding_size=0.12",
                facecolor=colours["box"],
                edgecolor=colours["edge"],
                linewidth=1.2,
            )
        )
        middle = low + 0.41
        axes.text(1.6, middle, step, ha="right", va="center", color=colours["ink"], size=13)
        axes.text(2.1, middle, room, va="center", color=colours["edge"], size=12, weight="bold")
        first, second = about.split("\n")
        axes.text(4.7, middle + 0.14, first, va="center", color=colours["ink"], size=10.5)
        axes.text(4.7, middle - 0.16, second, va="center", color=colours["faint"], size=9)
        if number + 1 < len(STEPS):
            axes.annotate(
                "",
                xy=(5.75, low - 0.2),
                xytext=(5.75, low + 0.05),
                arrowprops={"arrowstyle": "->", "color": colours["faint"]},
            )
    return figure


if __name__ == "__main__":
    mpl.rcParams["svg.hashsalt"] = "pointdep"  # the same file each time
    for name, colours in COLOURS.items():
        path = Path(__file__).parent / f"path_{name}.svg"
        draw(colours).savefig(path, transparent=True, metadata={"Date": None})
