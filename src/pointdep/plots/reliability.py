"""The reliability curve as a figure."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from pointdep.plots.axes import BLUE, axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TICKS = (0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
_TWO_SIDED_95 = 1.96


class Bin(Protocol):
    """Pairs of like log r: logits, predicted and observed, and the error of the latter."""

    @property
    def predicted(self) -> float: ...
    @property
    def observed(self) -> float: ...
    @property
    def stderr(self) -> float: ...


def plot_reliability(curve: Sequence[Bin], verdict: str, ax: Axes | None = None) -> Axes:
    """Observed against predicted, both on the logit scale, with 95 % bars and the diagonal."""
    ax = axes(ax, (5.0, 5.4))
    predicted = [point.predicted for point in curve]
    observed = [point.observed for point in curve]
    reach = [_TWO_SIDED_95 * point.stderr for point in curve]
    ends = [
        *predicted,
        *(o - r for o, r in zip(observed, reach, strict=True)),
        *(o + r for o, r in zip(observed, reach, strict=True)),
    ] or [-2.0, 2.0]
    margin = 0.05 * (max(ends) - min(ends)) + 0.2
    low, high = min(ends) - margin, max(ends) + margin
    ax.plot([low, high], [low, high], color="0.6", linewidth=1, label="as it should be")
    if curve:
        ax.errorbar(
            predicted,
            observed,
            yerr=reach,
            fmt="o",
            color=BLUE,
            markersize=4,
            capsize=2,
            label="95 % interval",
        )
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
