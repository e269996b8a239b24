"""What a person knows a row by: its text, numbers, picture or file."""

import base64
import io
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pointdep.data import files as formats
from pointdep.data.media import RawRows, UnreadableError, kind_of, read_picture
from pointdep.data.readers import read_column
from pointdep.data.row_source import RowSource
from pointdep.errors import InputError
from pointdep.fitting.progress import Progress

IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp")
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")  # of Pillow, which knows others that run programs
SOUNDS = {".wav": "audio/wav", ".mp3": "audio/mpeg", ".ogg": "audio/ogg"}
SOUNDS |= {".flac": "audio/flac", ".m4a": "audio/mp4"}
# How the content of such a file begins, from its byte 0, 4 or 8.
_BEGINNINGS: dict[str, tuple[int, tuple[bytes, ...]]] = {
    ".wav": (8, (b"WAVE",)),
    ".ogg": (0, (b"OggS",)),
    ".flac": (0, (b"fLaC",)),
}
_BEGINNINGS |= {".m4a": (4, (b"ftyp",))}
_BEGINNINGS |= {".mp3": (0, (b"ID3", *(bytes([0xFF, low]) for low in range(0xE0, 0x100))))}
_NUMBERS = 4  # of a row that are shown


@dataclass(frozen=True, eq=False)
class Shown:
    """One side of n rows: texts, n of them, and pictures (n, h, w[, 1, 3 or 4]) uint8, or files.

    files: paths, contents, or pixels (h, w[, 1, 3 or 4]) uint8; None where a row has none. folder:
    where these files must be, links followed; None for anywhere.
    """

    texts: Sequence[str]
    pictures: NDArray[np.uint8] | None = None
    files: Sequence[Any] | None = None
    folder: Path | None = None


class Names(list[Any]):
    """Values read from a file, which may name pictures and sounds of its folder and no others."""

    folder: Path


def as_shown(values: Any, rows: int, name: str) -> Shown | None:
    """What the user gave for one side, or None; `name` is the argument, for errors."""
    if isinstance(values, RawRows):
        files = None if values.kind == "text" else list(values.values)
        values = Shown(values.texts, files=files)
    if values is None or isinstance(values, Shown):
        return values
    if isinstance(values, RowSource):
        pieces = values.read(0, values.rows, values.step())
        values = np.concatenate([piece[:, : _NUMBERS + 1] for piece in pieces])
    folder = values.folder if isinstance(values, Names) else None
    array = _as_array(values, name)
    if array.ndim == 0 or len(array) != rows:
        count = "no rows" if array.ndim == 0 else f"{len(array)} rows"
        raise InputError(f"{name} has {count} where the audit has {rows}: give one value a row")
    if array.ndim > 2:
        return Shown([""] * rows, pictures=_as_pixels(array, name))
    if array.dtype.kind in "iuf":
        return Shown(_number_texts(array.reshape(rows, -1)))
    if array.ndim == 2:
        return Shown([", ".join(map(_as_text, row)) for row in array])
    texts = [_as_text(value) for value in array]
    files = [_as_file(text) for text in texts]
    # One caption that happens to end in ".png" does not make a column of files.
    if 2 * sum(file is not None for file in files) > sum(text != "" for text in texts):
        return Shown(texts, files=files, folder=folder)
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


def _number_texts(array: NDArray[Any]) -> list[str]:
    """The first numbers of each row, as people write them."""
    more = ", …" if array.shape[1] > _NUMBERS else ""
    return [
        ", ".join(f"{value:.4g}" if value % 1 else f"{value:.0f}" for value in row) + more
        for row in array[:, :_NUMBERS].tolist()
    ]


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
        fault = f"{name} has the shape {array.shape}: pictures are (n, height, width)"
        raise InputError(f"{fault}, or (n, height, width, 3) with colours")
    if 0 in array.shape or array.dtype.kind not in "biuf":
        raise InputError(f"{name} holds no pictures: shape {array.shape}, type {array.dtype}")
    if array.dtype == np.uint8:
        return array
    values = np.nan_to_num(array.astype(np.float32), posinf=0.0, neginf=0.0)
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    if low >= 0.0 and high <= 1.0:
        high = 1.0
    return ((values - low) * (255.0 / max(high - low, 1e-12))).astype(np.uint8)


# Pictures and sounds inside the page, as data addresses, up to a stated size.

PAGE_BYTES = 30_000_000
TOTAL_BYTES = 25_000_000  # a page that is opened for a look need not wait for more
SOUND_BYTES = 1_000_000
_SMALL = 64  # pixels below which PNG is both exact and short


@dataclass
class Media:
    """Of both sides: row -> (kind, number), kind "image", "audio" or, of a failure, "said".

    contents: each distinct content once -> its number. size: their bytes, at most `room`.
    rows: how many rows, worst first, have all of theirs.
    """

    x: dict[int, tuple[str, int]] = field(default_factory=dict)
    y: dict[int, tuple[str, int]] = field(default_factory=dict)
    contents: dict[str, int] = field(default_factory=dict)
    files: dict[Path, tuple[str, str]] = field(default_factory=dict)
    room: int = TOTAL_BYTES
    size: int = 0
    left_out: int = 0
    rows: int = 0

    def add(self, place: dict[int, tuple[str, int]], shown: Shown, row: int, pixels: int) -> None:
        """Embed one row of a side, unless it is there or the page would grow too large."""
        path = shown.files[row] if shown.files is not None else None
        if row in place or (path is None and shown.pictures is None):
            return
        if shown.pictures is not None:
            picture = shown.pictures[row]
            grey = picture[..., 0] if picture.shape[2:] == (1,) else picture
            kind, content = "image", _picture(Image.fromarray(grey), pixels)
        elif not isinstance(path, Path):
            kind, content = _content(path, pixels)
        else:  # a file that many rows name is read once
            if path not in self.files:
                self.files[path] = _file(path, pixels, shown.folder)
            kind, content = self.files[path]
        if content not in self.contents:
            if self.size + len(content) > self.room:
                self.left_out += 1
                return
            self.size += len(content)
            self.contents[content] = len(self.contents)
        place[row] = kind, self.contents[content]


_PATIENCE = 20  # pictures that do not fit, one after the other: the page is full


def embed(
    shown_x: Shown | None,
    shown_y: Shown | None,
    rows: Iterable[tuple[int, int | None]],
    pixels: int,
    progress: Progress,
    room: int | None = None,
) -> Media:
    """Media of the rows, worst first, each with the row of its better partner or None.

    room: bytes that they may take, TOTAL_BYTES at the most.
    """
    media = Media(room=TOTAL_BYTES if room is None else min(room, TOTAL_BYTES))
    sides = [side for side in (shown_x, shown_y) if side is not None]
    if all(side.files is None and side.pictures is None for side in sides):
        return media
    wanted = list(rows)
    for done, (row, partner) in enumerate(wanted, start=1):
        if shown_x is not None:
            media.add(media.x, shown_x, row, pixels)
        for one in (row, partner):
            if shown_y is not None and one is not None:
                media.add(media.y, shown_y, one, pixels)
        progress.update(done, len(wanted), "rows")
        media.rows = media.rows if media.left_out else done
        if media.left_out >= _PATIENCE:
            break
    return media


def _file(path: Path, pixels: int, folder: Path | None) -> tuple[str, str]:
    if folder is not None and not path.resolve().is_relative_to(folder.resolve()):
        return "said", "file is outside the folder of the names"
    if not path.is_file():
        return "said", "file not found"
    if path.suffix.lower() in SOUNDS:
        return _sound(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=_FORMATS) as image:
                image.draft(None, (2 * pixels, 2 * pixels))
                return "image", _picture(image, pixels)
    except Exception:
        # Damaged pictures raise errors of many unrelated classes.
        return "said", "file is no picture that can be read"


def _sound(path: Path) -> tuple[str, str]:
    suffix = path.suffix.lower()
    if (size := path.stat().st_size) > SOUND_BYTES:
        return "said", f"sound of {size / 1e6:.1f} MB, too long for this page"
    try:
        content = path.read_bytes()
    except OSError:
        return "said", "file cannot be read"
    start, beginnings = _BEGINNINGS[suffix]
    if not content[start:].startswith(beginnings):
        return "said", f"file is no {suffix} sound"
    return "audio", _address(SOUNDS[suffix], content)


def _content(content: Any, pixels: int) -> tuple[str, str]:
    """A picture or sound that is at hand: the content of its file, or pixels."""
    if isinstance(content, bytes) and kind_of([content]) == "sound":
        if len(content) > SOUND_BYTES:
            return "said", f"sound of {len(content) / 1e6:.1f} MB, too long for this page"
        suffix = {b"RI": ".wav", b"Og": ".ogg", b"fL": ".flac"}.get(content[:2], ".mp3")
        return "audio", _address(SOUNDS[suffix], content)
    try:
        return "image", _picture(Image.fromarray(read_picture(content)), pixels)
    except UnreadableError as error:
        return "said", str(error)


def _picture(image: Image.Image, pixels: int) -> str:
    """At most so many pixels wide and high: PNG for small or transparent ones, else JPEG."""
    transparent = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    if image.mode not in ("L", "RGB") or transparent:
        image = image.convert("RGBA" if transparent else "RGB")
    image.thumbnail((pixels, pixels))
    file = io.BytesIO()
    if transparent or max(image.size) < _SMALL:
        image.save(file, "PNG", optimize=True)
        return _address("image/png", file.getvalue())
    image.save(file, "JPEG", quality=82)
    return _address("image/jpeg", file.getvalue())


def _address(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


# What `--show-x` and `--show-y` name: a column of the data's files, or a file of its own.


def read_shown(option: str, given: str | None, side: int, files: list[Path], values: Any) -> Any:
    """One value a row, as `Audit.to_html` takes it.

    option: "--show-x" or "--show-y", for errors; side: 0 for x, 1 for y; files: those of the data,
    and values what was read from them for this side, shown where nothing was given.
    """
    own = Path(files[min(side, len(files) - 1)])
    if given is None:
        return formats.read_vec(own)[0] if own.suffix.lower() == ".vec" else values
    for path in dict.fromkeys([own, *map(Path, files)]):
        if given in _names(path):
            return _read(path, given)
    # "table.csv:caption" is its file and its column.
    file, colon, column = given.rpartition(":")
    named = formats.is_keyed(Path(file)) or formats.is_table(Path(file))
    split = colon and named and not Path(given).exists()
    path, name = (Path(file), column) if split else (Path(given), None)
    known = sorted((*formats.FORMATS, ".txt"))
    if path.suffix.lower() not in known:
        columns = f"neither a column of {' or '.join(map(str, files))}"
        raise InputError(f"{option} {given!r} is {columns} nor a file of {', '.join(known)}")
    return _read(path, name)


def _names(path: Path) -> Sequence[str]:
    if formats.is_table(path):
        return formats.table_columns(path)
    return formats.array_names(path) if formats.is_keyed(path) else []


def _read(path: Path, name: str | None) -> Any:
    values: Any
    if path.suffix.lower() == ".vec":
        return formats.read_vec(path)[0]
    if path.suffix.lower() == ".txt":
        with formats.loading(path):
            values = path.read_text("utf-8", "replace").removesuffix("\n").split("\n")
    elif path.suffix.lower() == ".npy":
        values = formats.read_npy(path)
    elif formats.is_table(path):
        values = read_column(path, name)
    else:
        arrays = formats.keyed_arrays(path, None if name is None else [name])
        first, *more = arrays
        if more:
            listed = ", ".join(arrays)
            raise InputError(f"{path} holds {listed}: name one, as {path}:{first}")
        values = arrays[first]
    kind = getattr(getattr(values, "dtype", None), "kind", "O")
    if getattr(values, "ndim", 1) != 1 or kind in "biuf":
        return values
    # Names of pictures and sounds count from the folder of the file that holds them.
    names = Names(
        str(path.parent / value)
        if isinstance(value, str) and Path(value[-300:]).suffix.lower() in (*IMAGES, *SOUNDS)
        else value
        for value in values
    )
    names.folder = path.parent
    return names
