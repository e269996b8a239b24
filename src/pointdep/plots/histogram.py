"""PMI of pairs beside that of mismatched pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pointdep.errors import InputError
from pointdep.plots.axes import BLUE, GREY, VERMILION, axes, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 40
_HEADROOM = 1.5  # times the highest bar, for the legend
_TAIL = 0.005  # share of the pairs that may lie beyond either end
_ROOM = 0.6  # ranges of the pairs by which the axis goes beyond them, at the most


def plot_pmi(
    pairs: NDArray[Any],
    mismatched: NDArray[Any] | None = None,
    suspects: NDArray[np.bool_] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Histograms of pairs: (n,) and of mismatched: (m,), NaN left out; each has area one.

    The pairs decide the range: mismatched pairs often have a long tail, and the legend says how
    many lie beyond. suspects: (n,) marks pairs, which are drawn as ticks on the axis.
    """
    known = pairs[np.isfinite(pairs)]
    if not len(known):
        raise InputError("there is no finite PMI to draw")
    ax = axes(ax)
    others = known[:0] if mismatched is None else mismatched[np.isfinite(mismatched)]
    edges = _edges(known, others)
    if len(others):
        _bars(ax, others, edges, GREY, "mismatched pairs")
    _bars(ax, known, edges, BLUE, f"{len(known):,} pairs")
    ax.axvline(0.0, color="black", linewidth=0.8)
    mean = float(known.mean())
    ax.axvline(mean, color=BLUE, linewidth=1.2, linestyle="--", label=f"mean of pairs, {mean:.2f}")
    if suspects is not None and suspects.any():
        found = np.clip(pairs[suspects], edges[0], edges[-1])
        ax.plot(
            found,
            np.full(len(found), 0.02),
            "|",
            color=VERMILION,
            markersize=9,
            markeredgewidth=1.5,
            transform=ax.get_xaxis_transform(),
            label=f"{len(found):,} suspect{'s' if len(found) > 1 else ''}",
        )
    ax.set(xlabel="PMI in nats (0: no more often together than by chance)", ylabel="density")
    ax.set_ylim(0.0, _HEADROOM * ax.get_ylim()[1])
    ax.legend(frameon=False, fontsize="small")
    return tidy(ax)


def _edges(pairs: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64]:
    low, high = (float(np.quantile(pairs, share)) for share in (_TAIL, 1 - _TAIL))
    if high <= low:
        low, high = low - 0.5, high + 0.5
    if len(others):
        room = _ROOM * (high - low)
        low = min(low, max(float(others.min()), low - room))
        high = max(high, min(float(others.max()), high + room))
    edges: NDArray[np.float64] = np.linspace(low, high, _BINS + 1)
    return edges


def _bars(
    ax: Axes, values: NDArray[Any], edges: NDArray[np.float64], colour: str, name: str
) -> None:
    counts, _ = np.histogram(values, edges)
    for beyond, where in ((values < edges[0], "left"), (values > edges[-1], "right")):
        if beyond.any():
            share = f"{100 * beyond.mean():.2g} %" if beyond.mean() >= 0.001 else "< 0.1 %"
            name += f", {share} off to the {where}"
    heights = counts / (len(values) * np.diff(edges))
    ax.stairs(heights, edges, fill=True, alpha=0.35, color=colour, label=name)
    ax.stairs(heights, edges, color=colour, linewidth=1.2)
