"""What the figures share: colours, style, and files that are the same for the same figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can tell apart, and markers for print in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A7F00")
MARKERS = "osD^vPX*<>"
FORMATS = ("png", "svg", "pdf")
_DPI = 150
# With a date, the same figure would give another file each time.
_METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


@contextmanager
def style() -> Iterator[None]:
    """Sizes of text while a figure is made; also decorates the function that makes it."""
    import matplotlib as mpl

    # Without a salt, the names inside an SVG would differ each time.
    with mpl.rc_context({"svg.hashsalt": "pointdep", "font.size": 9}):
        yield


def save(figure: Figure, folder: Path, name: str, formats: Sequence[str] = FORMATS) -> None:
    """One file `name.format` for each format; the same figure gives the same files."""
    with style():
        for suffix in formats:
            metadata = _METADATA.get(suffix)
            figure.savefig(folder / f"{name}.{suffix}", dpi=_DPI, metadata=metadata)
