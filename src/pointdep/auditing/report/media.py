"""Pictures and sounds inside the page, as data addresses, up to a stated size."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pointdep.auditing.report.content import SOUNDS, Shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    from pointdep.fitting.progress import Progress

TOTAL_BYTES = 12_000_000
SOUND_BYTES = 1_000_000
_SMALL = 64  # pixels below which PNG is both exact and short


@dataclass
class Media:
    """Of both sides: row -> (kind, number), kind "image", "audio" or, of a failure, "said".

    contents: each distinct content once -> its number.
    """

    x: dict[int, tuple[str, int]] = field(default_factory=dict)
    y: dict[int, tuple[str, int]] = field(default_factory=dict)
    contents: dict[str, int] = field(default_factory=dict)
    files: dict[Path, tuple[str, str]] = field(default_factory=dict)
    size: int = 0
    left_out: int = 0

    def add(self, side: str, shown: Shown, row: int, pixels: int) -> None:
        """Embed one row of a side, unless it is there or the page would grow too large."""
        place = self.x if side == "x" else self.y
        if row in place:
            return
        entry = self._entry(shown, row, pixels)
        if entry is None:
            return
        kind, content = entry
        if content not in self.contents:
            if self.size + len(content) > TOTAL_BYTES:
                self.left_out += 1
                return
            self.size += len(content)
            self.contents[content] = len(self.contents)
        place[row] = kind, self.contents[content]

    def _entry(self, shown: Shown, row: int, pixels: int) -> tuple[str, str] | None:
        """Kind and content of a row; a file that many rows name is read once."""
        if shown.pictures is not None:
            return "image", _array(shown.pictures[row], pixels)
        path = shown.files[row] if shown.files is not None else None
        if path is None:
            return None
        if path not in self.files:
            self.files[path] = _file(path, pixels)
        return self.files[path]


def embed(
    shown_x: Shown | None,
    shown_y: Shown | None,
    rows: Iterable[tuple[int, int | None]],
    pixels: int,
    progress: Progress,
) -> Media:
    """Media of the rows, worst first, each with the row of its better partner or None."""
    media = Media()
    wanted = list(rows)
    for done, (row, partner) in enumerate(wanted, start=1):
        if shown_x is not None:
            media.add("x", shown_x, row, pixels)
        if shown_y is not None:
            media.add("y", shown_y, row, pixels)
            if partner is not None:
                media.add("y", shown_y, partner, pixels)
        progress.update(done, len(wanted), "rows")
    return media


def _array(pixels_of: NDArray[np.uint8], pixels: int) -> str:
    from PIL import Image

    grey = pixels_of.shape[2:] == (1,)
    return _picture(Image.fromarray(pixels_of[..., 0] if grey else pixels_of), pixels)


def _file(path: Path, pixels: int) -> tuple[str, str]:
    if not path.is_file():
        return "said", "file not found"
    if path.suffix.lower() in SOUNDS:
        return _sound(path)
    return _picture_file(path, pixels)


def _sound(path: Path) -> tuple[str, str]:
    try:
        size = path.stat().st_size
        if size > SOUND_BYTES:
            return "said", f"sound of {size / 1e6:.1f} MB, too long for this page"
        content = path.read_bytes()
    except OSError:
        return "said", "file cannot be read"
    return "audio", _address(SOUNDS[path.suffix.lower()], content)


def _picture_file(path: Path, pixels: int) -> tuple[str, str]:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                image.draft(None, (2 * pixels, 2 * pixels))
                return "image", _picture(image, pixels)
    except Exception:
        # Damaged pictures raise errors of many unrelated classes.
        return "said", "file is no picture that can be read"


def _picture(image: Image, pixels: int) -> str:
    """At most so many pixels wide and high: PNG for small or transparent ones, else JPEG."""
    transparent = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    if image.mode not in ("L", "RGB") or transparent:
        image = image.convert("RGBA" if transparent else "RGB")
    image.thumbnail((pixels, pixels))
    exact = transparent or max(image.size) < _SMALL
    options: dict[str, Any] = {"optimize": True} if exact else {"quality": 82}
    file = io.BytesIO()
    image.save(file, "PNG" if exact else "JPEG", **options)
    return _address("image/png" if exact else "image/jpeg", file.getvalue())


def _address(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
