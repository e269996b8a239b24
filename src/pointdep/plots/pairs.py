"""The pairs of highest and lowest PMI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pointdep.errors import InputError, require_whole
from pointdep.plots.axes import BLUE, GREY, VERMILION, axes, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDEST = 40  # letters of a label


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
    colours = np.where(values >= 0, BLUE, VERMILION)
    ax.barh(
        place,
        values,
        0.75,
        color=list(colours),
        xerr=error,
        error_kw={"ecolor": "0.25", "elinewidth": 1.0, "capsize": 2},
    )
    names = [f"row {row}" if labels is None else short(labels[row]) for row in chosen]
    ax.set_yticks(place, names, fontsize="small")
    ax.invert_yaxis()
    if split:
        ax.text(
            0.5,
            k,
            f"{len(order) - 2 * k:,} pairs between",
            color=GREY,
            fontsize="small",
            ha="center",
            va="center",
            transform=ax.get_yaxis_transform(),
            bbox={"facecolor": ax.get_facecolor(), "edgecolor": "none", "pad": 1.5},
            zorder=3,
        )
    ax.axvline(0.0, color="black", linewidth=0.8)
    ax.set_xlabel("PMI in nats" + ("" if stderr is None else ", with standard errors"))
    return tidy(ax)


def short(label: Any) -> str:
    """A label on one line, cut where it is long; matplotlib would read dollars as mathematics."""
    text = " ".join(str(label).split())
    text = text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
    return text.replace("$", r"\$")
