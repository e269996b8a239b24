"""How training went: the objective of each replica, epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pointdep.errors import InputError
from pointdep.plots.axes import BLUE, VERMILION, axes, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_training(history: Sequence[dict[str, Sequence[Any]]], ax: Axes | None = None) -> Axes:
    """history: per epoch, "train" and "stop" with one value a replica, None once it has ended."""
    if not history:
        raise InputError("nothing was trained here, so that there are no curves to draw")
    ax = axes(ax)
    curves = {
        part: np.array([epoch[part] for epoch in history], float) for part in ("train", "stop")
    }
    epochs = np.arange(1, len(history) + 1)
    for part, colour, name in (
        ("train", BLUE, "training batches"),
        ("stop", VERMILION, "rows held out to stop"),
    ):
        lines = ax.plot(epochs, curves[part], color=colour, linewidth=1.1, alpha=0.8)
        lines[0].set_label(name)
    held = curves["stop"]
    known = np.flatnonzero(np.isfinite(held).any(0))
    best = [int(np.nanargmax(held[:, replica])) for replica in known]
    ax.plot(
        epochs[best],
        held[best, known],
        "o",
        color=VERMILION,
        markersize=5,
        markeredgecolor="white",
        label="best, by replica",
        zorder=3,
    )
    ax.set(xlabel="epoch", ylabel="objective (higher is better)")
    ax.locator_params(axis="x", integer=True)
    ax.legend(frameon=False, fontsize="small")
    return tidy(ax)
