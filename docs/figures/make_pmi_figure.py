"""The picture of the start page: what PMI is, by counting.

python docs/figures/make_pmi_figure.py

600 pairs of Gaussians with correlation 0.85, the same shuffled, and the exact log r. Written four
times: for light and dark pages, in a row for wide screens and in a column for narrow ones.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import PathPatch
from matplotlib.path import Path as MarkerPath

FOLDER = Path(__file__).parent
PAIRS, CORRELATION, RADIUS, EDGE = 600, 0.85, 0.45, 2.9
PLACES = {"A": (1.5, 1.5), "B": (-0.6, 0.7)}
COLOURS = {
    "light": {"ink": "#20262b", "faint": "#c4cbd0", "came": "#00796b", "chance": "#7a8691",
              "low": "#e8833a", "none": "#ffffff", "high": "#1f9e8c"},
    "dark": {"ink": "#e3e7ea", "faint": "#4d565e", "came": "#4db6a4", "chance": "#98a4ae",
             "low": "#c9702c", "none": "#262b33", "high": "#1c8a7a"},
}  # fmt: skip


def exact_pmi(x, y):
    """log r of the Gaussian with this correlation."""
    rest = 1 - CORRELATION**2
    bent = CORRELATION**2 * (x**2 + y**2) - 2 * CORRELATION * x * y
    return -0.5 * np.log(rest) - bent / (2 * rest)


def draw():
    """(pairs as they came, the same shuffled), each (600, 2)."""
    random = np.random.default_rng(6)
    x = random.normal(size=PAIRS)
    y = CORRELATION * x + np.sqrt(1 - CORRELATION**2) * random.normal(size=PAIRS)
    return np.stack([x, y], 1), np.stack([x, random.permutation(y)], 1)


def near(points, place):
    """How many points the circle there holds."""
    return int((np.hypot(*(points - np.array(place)).T) < RADIUS).sum())


def panel(axis, title, colours):
    axis.set(xlim=(-EDGE, EDGE), ylim=(-EDGE, EDGE), xticks=[], yticks=[], aspect="equal")
    axis.set_title(title, color=colours["ink"], fontsize=13, linespacing=1.25, pad=9)
    axis.set_xlabel("x", color=colours["ink"], fontsize=12, labelpad=2)
    axis.set_ylabel("y", color=colours["ink"], fontsize=12, rotation=0, labelpad=9)
    axis.set_facecolor("none")
    for spine in axis.spines.values():
        spine.set_color(colours["faint"])


def dots(axis, points, colour):
    """All of them as one path, a tenth of the file that as many markers would be."""
    ends = np.repeat(points, 2, axis=0)
    ends[1::2] += 1e-4
    codes = np.tile([MarkerPath.MOVETO, MarkerPath.LINETO], len(points))
    line = {"edgecolor": colour, "lw": 3.0, "capstyle": "round", "facecolor": "none"}
    path = MarkerPath(ends, codes)
    path.should_simplify = False
    axis.add_patch(PathPatch(path, **line))


def mark(axis, notes, colours):
    """The two circles, each with its note."""
    for name, (x, y) in PLACES.items():
        axis.add_patch(plt.Circle((x, y), RADIUS, fill=False, color=colours["ink"], lw=1.8))
        box = {"facecolor": colours["none"], "edgecolor": "none", "pad": 2.0, "alpha": 0.92}
        at, side = ((EDGE - 0.12, y + 0.6), "right") if name == "A" else ((x, y + 0.6), "center")
        axis.text(*at, notes[name], color=colours["ink"], fontsize=13, fontweight="bold",
                  ha=side, va="bottom", bbox=box)  # fmt: skip


def figure(scheme, stacked):
    colours = COLOURS[scheme]
    came, chance = draw()
    shape, size = ((3, 1), (4.2, 13.2)) if stacked else ((1, 3), (12.6, 4.6))
    made, axes = plt.subplots(*shape, figsize=size, layout="constrained")
    panel(axes[0], "The pairs as they came\np(x, y)", colours)
    dots(axes[0], came, colours["came"])
    panel(axes[1], "The same x and y, put together by chance\np(x) p(y)", colours)
    dots(axes[1], chance, colours["chance"])
    panel(axes[2], "PMI: the logarithm of how much more\noften than by chance they come", colours)
    grid = np.linspace(-EDGE, EDGE, 60)
    ramp = LinearSegmentedColormap.from_list("", [colours[k] for k in ("low", "none", "high")])
    values = np.clip(exact_pmi(*np.meshgrid(grid, grid)), -3.99, 3.99)
    axes[2].contourf(grid, grid, values, levels=np.linspace(-4, 4, 9), cmap=ramp)
    axes[2].contour(grid, grid, values, levels=[0], colors=colours["ink"], linewidths=0.8)
    axes[2].text(-2.6, 2.35, "PMI < 0", color=colours["ink"], fontsize=11)
    axes[2].text(-2.55, -2.6, "PMI > 0", color=colours["ink"], fontsize=11)
    counts = {name: (near(came, at), near(chance, at)) for name, at in PLACES.items()}
    mark(axes[0], {name: f"{name}: {n}" for name, (n, _) in counts.items()}, colours)
    mark(axes[1], {name: f"{name}: {n}" for name, (_, n) in counts.items()}, colours)
    told = {name: f"{name}: log {a}/{b} = {np.log(a / b):+.1f}" for name, (a, b) in counts.items()}
    mark(
        axes[2], {name: text.replace("-", "\N{MINUS SIGN}") for name, text in told.items()}, colours
    )
    made.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    return made, counts


def main():
    mpl.rcParams["svg.hashsalt"] = "pmi"
    for scheme in COLOURS:
        for stacked in (False, True):
            made, counts = figure(scheme, stacked)
            text = io.StringIO()
            made.savefig(text, format="svg", transparent=True, metadata={"Date": None})
            plt.close(made)
            name = f"pmi-{'narrow' if stacked else 'wide'}-{scheme}.svg"
            plain = re.sub(r"[ \t]+\n", "\n", re.sub(r"(\d\d\.\d\d)\d+", r"\1", text.getvalue()))
            (FOLDER / name).write_text(plain, "utf-8")
    for name, (a, b) in counts.items():
        print(f"{name}: {a} came, {b} by chance, log {np.log(a / b):+.2f}, exact at the middle "
              f"{exact_pmi(*PLACES[name]):+.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
