"""What the pictures share: an axis to draw on, and colours that the colour-blind can tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pointdep.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of Okabe and Ito, readable on white.
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#767676"


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
