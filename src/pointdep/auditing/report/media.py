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
    from PIL.Image import Image

    from pointdep.fitting.progress import Progress

TOTAL_BYTES = 12_000_000
SOUND_BYTES = 1_000_000
_SMALL = 64  # pixels below which PNG is both exact and short


@dataclass
class Media:
    """Of both sides: row -> (kind, content), kind "image", "audio" or, of a failure, "said"."""

    x: dict[int, tuple[str, str]] = field(default_factory=dict)
    y: dict[int, tuple[str, str]] = field(default_factory=dict)
    size: int = 0
    left_out: int = 0

    def add(self, side: str, shown: Shown, row: int, pixels: int) -> None:
        """Embed one row of a side, unless it is there or the page would grow too large."""
        place = self.x if side == "x" else self.y
        if row in place:
            return
        entry = _entry(shown, row, pixels)
        if entry is None:
            return
        if self.size + len(entry[1]) > TOTAL_BYTES:
            self.left_out += 1
            return
        self.size += len(entry[1])
        place[row] = entry


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


def _entry(shown: Shown, row: int, pixels: int) -> tuple[str, str] | None:
    if shown.pictures is not None:
        from PIL import Image

        array = shown.pictures[row]
        return "image", _picture(
            Image.fromarray(array[..., 0] if array.shape[2:] == (1,) else array), pixels
        )
    path = shown.files[row] if shown.files is not None else None
    if path is None:
        return None
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
