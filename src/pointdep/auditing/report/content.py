"""What a person knows a row by: its text, numbers, picture or file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointdep.data.row_source import RowSource
from pointdep.errors import InputError

IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp")
SOUNDS = {
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
}
_NUMBERS = 4  # of a row that are shown


@dataclass(frozen=True, eq=False)
class Shown:
    """One side of n rows: texts, n of them, and pictures (n, h, w[, 1, 3 or 4]) uint8, or files."""

    texts: Sequence[str]
    pictures: NDArray[np.uint8] | None = None
    files: Sequence[Path | None] | None = None

    @property
    def has_media(self) -> bool:
        """Whether there is more to show than text."""
        return self.pictures is not None or self.files is not None


def as_shown(values: Any, rows: int, name: str) -> Shown | None:
    """What the user gave for one side, or None; `name` is the argument, for errors."""
    if values is None or isinstance(values, Shown):
        return values
    if isinstance(values, RowSource):
        pieces = values.read(0, values.rows, values.step())
        values = np.concatenate([piece[:, : _NUMBERS + 1] for piece in pieces])
    array = _as_array(values, name)
    if array.ndim == 0 or len(array) != rows:
        count = "no rows" if array.ndim == 0 else f"{len(array)} rows"
        raise InputError(f"{name} has {count} where the audit has {rows}: give one value a row")
    if array.ndim > 2:
        return Shown([""] * rows, pictures=_as_pixels(array, name))
    if array.ndim == 2:
        return Shown(_number_texts(array) if _is_numeric(array) else _joined(array))
    if _is_numeric(array):
        return Shown(_number_texts(array[:, None]))
    texts = [_as_text(value) for value in array]
    files = [_as_file(text) for text in texts]
    # One caption that happens to end in ".png" does not make a column of files.
    if 2 * sum(file is not None for file in files) > sum(text != "" for text in texts):
        return Shown(texts, files=files)
    return Shown(texts)


def _as_array(values: Any, name: str) -> NDArray[Any]:
    if isinstance(values, list | tuple) and any(isinstance(one, str | Path) for one in values):
        # NumPy would give every string the length of the longest.
        texts = np.empty(len(values), dtype=object)
        texts[:] = values
        return texts
    array: NDArray[Any]
    try:
        array = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{name} cannot be read as one value a row: {error}") from error
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _is_numeric(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "iuf"


def _number_texts(array: NDArray[Any]) -> list[str]:
    """The first numbers of each row, as people write them."""
    more = ", …" if array.shape[1] > _NUMBERS else ""
    return [
        ", ".join(f"{value:.4g}" if value % 1 else f"{value:.0f}" for value in row) + more
        for row in array[:, :_NUMBERS].tolist()
    ]


def _joined(array: NDArray[Any]) -> list[str]:
    return [", ".join(_as_text(value) for value in row) for row in array]


def _as_text(value: Any) -> str:
    import pandas as pd

    if not isinstance(value, str | Path) and pd.isna(value) is True:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _as_file(text: str) -> Path | None:
    suffix = Path(text).suffix.lower() if len(text) < 4096 else ""
    return Path(text) if suffix in IMAGES or suffix in SOUNDS else None


def _as_pixels(array: NDArray[Any], name: str) -> NDArray[np.uint8]:
    """(n, h, w[, channels]) as bytes; other numbers than bytes are stretched over their range."""
    if array.ndim > 4 or (array.ndim == 4 and array.shape[3] not in (1, 3, 4)):
        raise InputError(
            f"{name} has the shape {array.shape}: pictures are (n, height, width), or "
            "(n, height, width, 3) with colours"
        )
    if 0 in array.shape or array.dtype.kind not in "biuf":
        raise InputError(f"{name} holds no pictures: shape {array.shape}, type {array.dtype}")
    if array.dtype == np.uint8:
        return array
    values = np.nan_to_num(array.astype(np.float32), posinf=0.0, neginf=0.0)
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    if low >= 0.0 and high <= 1.0:
        high = 1.0
    scaled: NDArray[np.uint8] = ((values - low) * (255.0 / max(high - low, 1e-12))).astype(np.uint8)
    return scaled
