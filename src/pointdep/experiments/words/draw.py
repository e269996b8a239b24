"""Figure 3: histograms of PMI with the negative part marked, and the endings of those words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pointdep.experiments.drawing import COLOURS, save, style
from pointdep.experiments.words.figure3 import (
    PAPER_ENDINGS,
    WordPmi,
    endings,
    lowest_words,
)
from pointdep.experiments.words.numbers import Floats
from pointdep.experiments.words.settings import PAPER_WORDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _RED = COLOURS[0], COLOURS[1]
_BINS = 60
_TAIL = 0.5  # percent of the words that may lie beyond each end of an axis
_NAMED = 8
_HEADROOM = 1.5  # for the words above the bars


def write_figure(found: WordPmi, folder: Path) -> None:
    """figure3.png, figure3.svg and figure3.pdf in the folder."""
    save(draw(found), folder, "figure3")


@style()
def draw(found: WordPmi) -> Figure:
    """Left in sample, as the paper; middle the same words out of sample; right their endings."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.5, 4.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.0, 1.0, 0.9))
    _histogram(left, found.in_sample, "in sample, as in the paper")
    _histogram(middle, found.out_of_sample, "out of sample: by networks that did not see the word")
    _draw_endings(right, found)
    named = [
        f'below zero in sample, "-{ending}", lowest first: {", ".join(words)}'
        for ending in PAPER_ENDINGS
        if (words := lowest_words(found, ending, _NAMED))
    ]
    if named:
        figure.supxlabel("\n".join(named), fontsize=8, x=0.01, ha="left")
    settings = found.settings
    other = "" if found.all_words == PAPER_WORDS else "; not the paper's vectors"
    figure.suptitle(
        f"PMI of {len(found.words):,} training words, pc, {settings.epochs} epochs, "
        f"batches of {settings.batch_size}{other}",
        fontsize=10,
    )
    return figure


def _histogram(axis: Axes, values: Floats, title: str) -> None:
    """The negative part in another colour, and the Gaussian of the same mean and spread."""
    low, high = np.percentile(values, [_TAIL, 100 - _TAIL])
    margin = 0.05 * (high - low) or 1.0
    edges = _edges(low - margin, high + margin)
    counts, _ = np.histogram(values, edges)
    colours = [_RED if right <= 0 else _BLUE for right in edges[1:]]
    axis.bar(edges[:-1], counts, np.diff(edges), align="edge", color=colours, linewidth=0)
    grid = np.linspace(edges[0], edges[-1], 400)
    mean, spread = values.mean(), values.std() or 1.0
    width = edges[1] - edges[0]
    gaussian = np.exp(-0.5 * ((grid - mean) / spread) ** 2) / (spread * np.sqrt(2 * np.pi))
    axis.plot(grid, len(values) * width * gaussian, color="black", linewidth=1, linestyle="--",
              label="Gaussian of this mean and sd")  # fmt: skip
    axis.axvline(0.0, ymax=1 / _HEADROOM, color="0.3", linewidth=0.8)
    axis.set_xlim(edges[0], edges[-1])
    axis.set_ylim(0, _HEADROOM * max(counts.max(), 1))
    negative = int((values < 0).sum())
    outside = int(((values < edges[0]) | (values > edges[-1])).sum())
    said = [
        f"mean {mean:.2f}, sd {spread:.2f}",
        f"below zero: {negative:,} ({negative / len(values):.2%})",
    ]
    if outside:
        said.append(
            f"{outside:,} beyond the axis, lowest {values.min():.1f}, highest {values.max():.1f}"
        )
    axis.text(0.03, 0.97, "\n".join(said), transform=axis.transAxes, va="top")
    axis.legend(loc="upper left", bbox_to_anchor=(0.0, 0.83), frameon=False)
    axis.set_title(title, fontsize=9)
    axis.set_xlabel("PMI (nats)")
    axis.set_ylabel("words")


def _edges(low: float, high: float) -> Floats:
    """Equal bins, of which none holds zero inside."""
    width = (high - low) / _BINS
    first, last = np.floor(low / width), np.ceil(high / width)
    return width * np.arange(first, last + 1)


def _draw_endings(axis: Axes, found: WordPmi) -> None:
    """Share of each ending among the words below zero, beside that among all."""
    groups = (
        ("all training words", "0.6", None),
        ("below zero in sample", _RED, endings(found.words, found.in_sample)),
        ("below zero out of sample", COLOURS[4], endings(found.words, found.out_of_sample)),
    )
    base = endings(found.words, found.in_sample)
    places = np.arange(len(base))
    for position, (name, colour, lines) in enumerate(groups):
        if lines is None:
            shares = [100 * line.words / line.all_words for line in base]
        else:
            shares = [100 * line.negative / max(line.all_negative, 1) for line in lines]
        axis.barh(places + 0.27 * (position - 1), shares, 0.26, color=colour, label=name)
    axis.set_yticks(places, [f"-{line.ending}" for line in base])
    axis.invert_yaxis()
    axis.set_xlabel("words that end so (%)")
    axis.set_title("endings", fontsize=9)
    axis.legend(loc="lower right", frameon=False)
