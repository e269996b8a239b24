"""Mutual information against the number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pointdep.plots.axes import BLUE, axes, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_mi_against_n(
    rows: Sequence[int],
    nats: Sequence[float],
    ci: Sequence[tuple[float, float]],
    *,
    confidence: float = 0.95,
    what: str = "mutual information in nats",
    ax: Axes | None = None,
) -> Axes:
    """Estimates with their intervals over a logarithmic axis; the last one as a band."""
    ax = axes(ax)
    values, ends = np.asarray(nats), np.asarray(ci).T
    ax.axhspan(*ends[:, -1], color=BLUE, alpha=0.1, linewidth=0, label="interval of all rows")
    ax.errorbar(
        rows,
        values,
        yerr=np.abs(ends - values),
        fmt="o-",
        color=BLUE,
        linewidth=1.2,
        markersize=5,
        capsize=3,
        label=f"estimate, {100 * confidence:g} % interval",
    )
    ax.set_xscale("log")
    ax.set_xticks(rows, [f"{n:,}" for n in rows])
    ax.minorticks_off()
    ax.set_ylim(bottom=min(0.0, float(ends.min())))
    ax.set(xlabel="rows", ylabel=what)
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    return tidy(ax)
