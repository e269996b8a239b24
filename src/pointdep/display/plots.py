"""How training went: the objective of each replica, epoch by epoch."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pointdep.errors import InputError, require_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# What the pictures share: an axis to draw on, and colours that the colour-blind can tell apart.

# Of Okabe and Ito, readable on white.
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#767676"
_Style = dict[str, Any]


def axes(ax: Axes | None, size: tuple[float, float] = (6.0, 3.8)) -> Axes:
    """The given axis, or that of a new figure of so many inches."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise InputError("plots need matplotlib: pip install matplotlib") from error
    _, made = pyplot.subplots(figsize=size, layout="constrained")
    return made


def tidy(ax: Axes) -> Axes:
    """Without the lines above and to the right, which say nothing."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax


# PMI of pairs beside that of mismatched pairs.

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
        name = f"{len(found):,} suspect{'s' if len(found) > 1 else ''}"
        style: _Style = {"color": VERMILION, "markersize": 9, "markeredgewidth": 1.5}
        low = np.full(len(found), 0.02)
        ax.plot(found, low, "|", transform=ax.get_xaxis_transform(), label=name, **style)
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


def _bars(ax: Axes, values: NDArray[Any], edges: NDArray[Any], colour: str, name: str) -> None:
    counts, _ = np.histogram(values, edges)
    for beyond, where in ((values < edges[0], "left"), (values > edges[-1], "right")):
        if beyond.any():
            share = f"{100 * beyond.mean():.2g} %" if beyond.mean() >= 0.001 else "< 0.1 %"
            name += f", {share} off to the {where}"
    heights = counts / (len(values) * np.diff(edges))
    ax.stairs(heights, edges, fill=True, alpha=0.35, color=colour, label=name)
    ax.stairs(heights, edges, color=colour, linewidth=1.2)


# The pairs of highest and lowest PMI.

_WIDEST = 40  # letters of a label
_MOST_NUMBERS = 12  # columns of a heat map with numbers in its cells


def plot_pairs(
    pmi: NDArray[Any],
    *,
    k: int = 10,
    labels: Sequence[Any] | None = None,
    stderr: NDArray[Any] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Bars of the k highest and k lowest of pmi: (n,), the highest above, NaN left out.

    labels: (n,) what to call the rows, their numbers where it is None. stderr: (n,) of pmi.
    """
    require_whole("k", k)
    if labels is not None and len(labels) != len(pmi):
        raise InputError(f"labels has {len(labels)} entries for {len(pmi)} pairs")
    order = np.argsort(-pmi, kind="stable")
    order = order[np.isfinite(pmi[order])]
    if not len(order):
        raise InputError("there is no finite PMI to draw")
    split = len(order) > 2 * k
    chosen = np.concatenate([order[:k], order[-k:]]) if split else order
    ax = axes(ax, (6.0, 0.9 + 0.24 * len(chosen)))
    # Below the highest, a gap says that pairs were left out.
    place = np.arange(len(chosen)) + np.where(split & (np.arange(len(chosen)) >= k), 1, 0)
    values = pmi[chosen]
    error = None if stderr is None else stderr[chosen]
    colours = list(np.where(values >= 0, BLUE, VERMILION))
    whiskers = {"ecolor": "0.25", "elinewidth": 1.0, "capsize": 2}
    ax.barh(place, values, 0.75, color=colours, xerr=error, error_kw=whiskers)
    names = [f"row {row}" if labels is None else short(labels[row]) for row in chosen]
    ax.set_yticks(place, names, fontsize="small")
    ax.invert_yaxis()
    if split:
        style: _Style = {"color": GREY, "fontsize": "small", "ha": "center", "va": "center"}
        style["bbox"] = {"facecolor": ax.get_facecolor(), "edgecolor": "none", "pad": 1.5}
        between = f"{len(order) - 2 * k:,} pairs between"
        ax.text(0.5, k, between, transform=ax.get_yaxis_transform(), zorder=3, **style)
    ax.axvline(0.0, color="black", linewidth=0.8)
    ax.set_xlabel("PMI in nats" + ("" if stderr is None else ", with standard errors"))
    return tidy(ax)


def short(label: Any) -> str:
    """A label on one line, cut where it is long; matplotlib would read dollars as mathematics."""
    text = " ".join(str(label).split())
    text = text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
    return text.replace("$", r"\$")


# The reliability curve as a figure.

_TICKS = (0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
_TWO_SIDED_95 = 1.96


def plot_reliability(curve: Sequence[Any], verdict: str, ax: Axes | None = None) -> Axes:
    """Observed against predicted, both on the logit scale, with 95 % bars and the diagonal.

    curve: bins of pairs of like log r, with `predicted`, `observed` and the `stderr` of the latter.
    """
    ax = axes(ax, (5.0, 5.4))
    predicted = np.array([point.predicted for point in curve])
    observed = np.array([point.observed for point in curve])
    reach = _TWO_SIDED_95 * np.array([point.stderr for point in curve])
    ends = np.concatenate([predicted, observed - reach, observed + reach])
    ends = ends if len(curve) else np.array([-2.0, 2.0])
    margin = 0.05 * np.ptp(ends) + 0.2
    low, high = float(ends.min() - margin), float(ends.max() + margin)
    ax.plot([low, high], [low, high], color="0.6", linewidth=1, label="as it should be")
    if len(curve):
        style: _Style = {"fmt": "o", "color": BLUE, "markersize": 4, "capsize": 2}
        ax.errorbar(predicted, observed, yerr=reach, label="95 % interval", **style)
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    ax.set_xlabel("log r, as estimated")
    ax.set_ylabel("log r, as observed on held-out pairs")
    _probabilities(ax, low, high)
    ax.legend(loc="lower right", frameon=False)
    ax.set_title(textwrap.fill(verdict, 62), fontsize="small", loc="left")
    return ax


def _probabilities(ax: Axes, low: float, high: float) -> None:
    """A second axis above: the same logits as probabilities that a pair belongs together."""
    above = ax.secondary_xaxis("top")
    shown = [p for p in _TICKS if low <= math.log(p / (1 - p)) <= high]
    places = [math.log(p / (1 - p)) for p in shown]
    above.set_xticks(places, [f"{p:g}" for p in shown], fontsize="x-small")
    above.set_xlabel("probability that the pair belongs together", fontsize="small")


# Mutual information against the number of rows.


def plot_mi_against_n(
    rows: Sequence[int],
    nats: Sequence[float],
    ci: Sequence[tuple[float, float]],
    *,
    name: str = "estimate, 95 % interval",
    band: str = "interval of all rows",
    what: str = "mutual information in nats",
    ax: Axes | None = None,
) -> Axes:
    """Estimates with their intervals over a logarithmic axis; the last one as a band.

    name, band: of the points and of the band, for the legend.
    """
    ax = axes(ax)
    values, ends = np.asarray(nats), np.asarray(ci).T
    ax.axhspan(*ends[:, -1], color=BLUE, alpha=0.1, linewidth=0, label=band)
    style: _Style = {"color": BLUE, "linewidth": 1.2, "markersize": 5, "capsize": 3}
    ax.errorbar(rows, values, yerr=np.abs(ends - values), fmt="o-", label=name, **style)
    ax.set_xscale("log")
    ax.set_xticks(rows, [f"{n:,}" for n in rows])
    ax.minorticks_off()
    ax.set_ylim(bottom=min(0.0, float(ends.min())))
    ax.set(xlabel="rows", ylabel=what)
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    return tidy(ax)


def plot_training(history: Sequence[Mapping[str, Sequence[Any]]], ax: Axes | None = None) -> Axes:
    """history: per epoch, "train" and "stop" with one value a replica, None once it has ended."""
    if not history:
        raise InputError("nothing was trained here, so that there are no curves to draw")
    ax = axes(ax)
    trained, held = (np.array([epoch[p] for epoch in history], float) for p in ("train", "stop"))
    epochs = np.arange(1, len(history) + 1)
    for curves, colour in ((trained, BLUE), (held, VERMILION)):
        lines = ax.plot(epochs, curves, color=colour, linewidth=1.1, alpha=0.8)
        lines[0].set_label("training batches" if curves is trained else "rows held out to stop")
    known = np.flatnonzero(np.isfinite(held).any(0))
    best = [int(np.nanargmax(held[:, replica])) for replica in known]
    style: _Style = {"color": VERMILION, "markersize": 5, "markeredgecolor": "white", "zorder": 3}
    ax.plot(epochs[best], held[best, known], "o", label="best, by replica", **style)
    ax.set(xlabel="epoch", ylabel="objective (higher is better)")
    ax.locator_params(axis="x", integer=True)
    ax.legend(frameon=False, fontsize="small")
    return tidy(ax)


def plot_bars(
    names: Sequence[str],
    values: NDArray[Any],
    ends: tuple[NDArray[Any], NDArray[Any]],
    label: str,
    *,
    faint: NDArray[Any],
    ax: Axes | None = None,
) -> Axes:
    """Values (n,) as bars with the ends of their intervals, the first on top; faint ones grey."""
    ax = tidy(axes(ax))
    places = np.arange(len(names))
    reach = np.maximum([values - ends[0], ends[1] - values], 0)
    colours = np.where(faint, GREY, BLUE).tolist()
    how: dict[str, Any] = {"height": 0.7, "error_kw": {"lw": 1, "capsize": 2}}
    ax.barh(places, values, xerr=reach, color=colours, **how)
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    ax.set_xlabel(label)
    return ax


def plot_heat_map(values: NDArray[Any], names: Sequence[str], ax: Axes | None = None) -> Axes:
    """Values (n, n) as colours, and as numbers where there is room."""
    ax = axes(ax, (6.0, 5.0))
    image = ax.imshow(values, cmap="viridis", vmin=0)
    ax.set_xticks(range(len(names)), names, rotation=90)
    ax.set_yticks(range(len(names)), names)
    middle = np.nanmax(values, initial=0) / 2
    for (row, column), value in np.ndenumerate(values) if len(names) <= _MOST_NUMBERS else ():
        if np.isfinite(value):
            colour = "black" if value > middle else "white"
            how: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7, "color": colour}
            ax.text(column, row, f"{value:.2f}", **how)
    ax.figure.colorbar(image, ax=ax, label="mutual information (nats)")
    return ax
