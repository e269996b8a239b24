"""Rows as people have them: files of pictures and sounds, and texts.

`RawRows` holds one side. Its rows become numbers by an encoder that is learned from that side, or
by one that the user names. A row that cannot be read has a reason instead, and is left out.
"""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointdep.errors import InputError

PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")
SOUNDS = (".wav", ".mp3", ".ogg", ".flac", ".m4a")
MOST_BYTES = 100_000_000
"""Of a file of a picture or sound."""
MOST_PIXELS = 100_000_000
MOST_CHARACTERS = 100_000
"""Of a text: what comes after them is not read."""
MOST_SECONDS = 60
"""Of a sound: what comes after them is not read."""
_MOST_RATE = 1_000_000  # samples per second: more would take all memory to bring to another rate
_READ_TOGETHER = 4  # pictures and sounds, most of whose decoding runs without Python's lock


class UnreadableError(InputError):
    """One row cannot be read; its message is the reason."""


@dataclass(frozen=True, eq=False)
class RawRows:
    """One side of n pairs: texts, pictures or sounds that are not numbers yet.

    kind: "text", "picture" or "sound". values: (n,) objects, None where one is missing: texts; or
    paths, contents of files (bytes), pixels (h, w[, 1, 3 or 4]) or samples (m,) at 16,000 per
    second. encoder: the name of an encoder, or None for the built-in one. column: where they
    come from. told: called with how many rows were read, and how many there are.
    """

    kind: str
    values: NDArray[np.object_]
    encoder: str | None = None
    column: str | None = None
    told: Callable[[int, int], None] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Any:
        """x[3] -> the value of one row; x[:5], x[[1, 4]] or x[mask] -> these rows."""
        found = self.values[rows]
        return replace(self, values=found) if isinstance(rows, slice | list | np.ndarray) else found

    def __repr__(self) -> str:
        by = f", encoder={self.encoder!r}" if self.encoder else ""
        return f"RawRows({len(self)} {self.kind}s{by})"

    @property
    def texts(self) -> list[str]:
        """What a person reads of each row: the text, or the name of the file."""
        shown = (str, Path)
        return [str(value) if isinstance(value, shown) else "" for value in self.values]

    def contents(self, size: int | None = None) -> tuple[list[Any], dict[int, str]]:
        """What an encoder takes of each row, None for those with a reason, and the reasons.

        Texts; pictures (size, size, 3) uint8, or as they are if size is None; samples.
        """
        read = {"text": read_text, "picture": lambda value: read_picture(value, size)}
        one = _caught(read.get(self.kind, read_sound))
        found: list[Any] = []
        reasons: dict[int, str] = {}
        with ThreadPoolExecutor(_READ_TOGETHER if self.kind != "text" else 1) as threads:
            for row, (content, reason) in enumerate(threads.map(one, self.values)):
                found.append(content)
                if content is None:
                    reasons[row] = reason
                if self.told is not None:
                    self.told(row + 1, len(self))
        return found, reasons


def telling(values: Any, told: Callable[[int, int], None]) -> Any:
    """The same values; `RawRows` will tell how far they are read."""
    return replace(values, told=told) if isinstance(values, RawRows) else values


def _caught(read: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, str]]:
    """read(value), and the reason where there is nothing."""

    def one(value: Any) -> tuple[Any, str]:
        try:
            return read(value), ""
        except UnreadableError as error:
            return None, str(error)

    return one


def is_missing(value: Any) -> bool:
    """Whether a cell is empty."""
    nan = isinstance(value, float | np.floating) and math.isnan(value)
    return value is None or nan or type(value).__name__ in ("NAType", "NaTType")


# One row. Each function gives the content or raises the reason why there is none.


def read_text(value: Any) -> str:
    """A text, cut after MOST_CHARACTERS."""
    if is_missing(value):
        raise UnreadableError("empty text")
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    if not text.strip():
        raise UnreadableError("empty text")
    return text[:MOST_CHARACTERS]


def content_of(value: Any) -> bytes:
    """The bytes of a file, named or given."""
    if isinstance(value, bytes):
        size, path = len(value), None
    elif isinstance(value, str | Path) and str(value):
        path = Path(value)
        try:
            size = path.stat().st_size
        except (OSError, ValueError):
            raise UnreadableError("file not found") from None
        if path.is_dir():
            raise UnreadableError("a folder, not a file")
    else:
        raise UnreadableError("no file is named")
    if size > MOST_BYTES:
        limit = f"the limit is {MOST_BYTES // 10**6} MB"
        raise UnreadableError(f"file of {size / 1e6:.0f} MB: {limit}")
    if size == 0:
        raise UnreadableError("file is empty")
    try:
        return value if path is None else path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"file cannot be read ({error.strerror})") from None


def read_picture(value: Any, size: int | None = None) -> NDArray[np.uint8]:
    """Pixels (h, w, 3) uint8 of a picture; size: what h and w become."""
    from PIL import Image

    if isinstance(value, np.ndarray):
        pixels = value[..., 0] if value.shape[2:] == (1,) else value
        return _pixels(Image.fromarray(pixels), size)
    content = content_of(value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content)) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    limit = f"the limit is {MOST_PIXELS // 10**6} million"
                    raise UnreadableError(f"picture of {width} x {height} pixels: {limit}")
                if size is not None:  # JPEG decodes small at once
                    image.draft("RGB", (2 * size, 2 * size))
                return _pixels(image, size)
    except UnreadableError:
        raise
    except Exception:
        # Damaged pictures raise errors of many unrelated classes.
        raise UnreadableError("file is no picture that can be read") from None


def _pixels(image: Any, size: int | None) -> NDArray[np.uint8]:
    from PIL import Image

    if image.mode not in ("L", "RGB"):
        # Transparent parts are white, as on a page.
        layers = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layers.size, "white"), layers)
    image = image.convert("RGB")
    if size is not None and image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR, reducing_gap=3.0)
    return np.array(image)


def read_sound(value: Any) -> NDArray[np.float32]:
    """Samples (m,) of a sound, one channel at 16,000 per second, cut after MOST_SECONDS."""
    from pointdep.data.features import RATE

    if isinstance(value, np.ndarray):
        samples, rate = np.asarray(value, np.float32), RATE
    else:
        samples, rate = _decoded(content_of(value))
    if samples.ndim == 2:
        samples = samples.mean(1)
    if not len(samples) or not np.isfinite(samples).all():
        raise UnreadableError("sound without samples" if not len(samples) else "sound holds NaN")
    if not 0 < rate <= _MOST_RATE:
        raise UnreadableError(f"sound of {rate} samples per second: it is damaged")
    samples = samples[: MOST_SECONDS * rate]
    if rate != RATE:
        from scipy.signal import resample_poly

        shared = math.gcd(rate, RATE)
        samples = resample_poly(samples, RATE // shared, rate // shared)
    return samples.astype(np.float32)


def _decoded(content: bytes) -> tuple[NDArray[np.float32], int]:
    """Samples (m,) or (m, channels) in [-1, 1] and their rate: .wav here, others by soundfile."""
    try:
        import soundfile

        try:
            return soundfile.read(io.BytesIO(content), dtype="float32")  # type: ignore[no-any-return]
        except RuntimeError:
            raise UnreadableError("file is no sound that can be read") from None
    except ImportError:
        if not content.startswith((b"RIFF", b"RIFX")):
            needed = "only .wav is read without soundfile: pip install soundfile"
            raise UnreadableError(f"file is no .wav ({needed})") from None
    from scipy.io import wavfile

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", wavfile.WavFileWarning)
            rate, samples = wavfile.read(io.BytesIO(content))
    except Exception:
        # Damaged files raise errors of many unrelated classes.
        raise UnreadableError("file is no sound that can be read") from None
    if samples.dtype.kind == "f":
        return samples.astype(np.float32), rate
    middle = 128.0 if samples.dtype == np.uint8 else 0.0
    most = 128.0 if samples.dtype == np.uint8 else float(np.iinfo(samples.dtype).max)
    return ((samples - middle) / most).astype(np.float32), rate


# What users give.


def as_text(values: Any, *, encoder: str | None = None) -> RawRows:
    """Texts (n,) as one side of pairs: a list, a Series or an array of strings.

    encoder: name or folder of a text encoder; the built-in one by default.
    """
    name = getattr(values, "name", None)
    return RawRows(
        "text", _objects(values, "as_text"), encoder, None if name is None else str(name)
    )


def as_images(
    values: Any, *, folder: str | Path | None = None, encoder: str | None = None
) -> RawRows:
    """Pictures as one side of pairs.

    values: a folder, whose pictures are taken in the order of their names; or (n,) paths or
    contents of files; or pixels (n, h, w) or (n, h, w, 3), uint8.
    folder: that relative paths start from; by default the working directory.
    encoder: name or folder of a picture encoder; the built-in one by default.
    """
    return _of_files("picture", "as_images", values, folder, encoder)


def as_sounds(
    values: Any, *, folder: str | Path | None = None, encoder: str | None = None
) -> RawRows:
    """Sounds as one side of pairs: a folder, or (n,) paths or contents of .wav files.

    Files of other kinds need the package soundfile. folder, encoder: as for `as_images`.
    """
    return _of_files("sound", "as_sounds", values, folder, encoder)


def _of_files(
    kind: str, call: str, values: Any, folder: str | Path | None, encoder: str | None
) -> RawRows:
    if isinstance(values, str | Path):
        given = Path(values)
        if not given.is_dir():
            raise InputError(f"{call}: {given} is no folder: give one, or a list of files")
        found: list[Any] = files_of(given, kind)
        if not found:
            raise InputError(f"{call}: {given} holds no {kind}s")
        return RawRows(kind, _objects(found, call), encoder)
    rows = _objects(values, call)
    for row, value in enumerate(rows):
        if isinstance(value, str | os.PathLike):
            rows[row] = located(str(value), [Path(folder)] if folder is not None else [])
        elif isinstance(value, dict):  # as Hugging Face's datasets keep files
            rows[row] = value.get("bytes") or value.get("path") or None
    return RawRows(kind, rows, encoder, _name(values))


def _name(values: Any) -> str | None:
    """Of the column that a Series is."""
    name = getattr(values, "name", None)
    return None if name is None else str(name)


def _objects(values: Any, call: str) -> NDArray[np.object_]:
    """(n,) of Python objects, missing ones as None."""
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise InputError(f"{call} takes a list, a Series or an array of rows, not {values!r:.40}")
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    listed = list(values)
    rows = np.empty(len(listed), dtype=object)
    for row, value in enumerate(listed):
        rows[row] = None if is_missing(value) else value
    if not len(rows):
        raise InputError(f"{call}: there are no rows")
    return rows


def files_of(folder: Path, kind: str) -> list[Path]:
    """The pictures or sounds below a folder, in the order of their names."""
    from pointdep.data.shards import by_numbers

    known = PICTURES if kind == "picture" else SOUNDS
    found = [path for path in folder.rglob("*") if path.suffix.lower() in known and path.is_file()]
    return sorted(found, key=lambda path: by_numbers(path.relative_to(folder).as_posix()))


def located(name: str, folders: Sequence[Path]) -> Path | None:
    """Where a file is that a table names: below one of these folders, or as it stands."""
    if not name.strip():
        return None
    for folder in folders:
        try:
            if (folder / name).exists():
                return folder / name
        except (OSError, ValueError):  # a name that no file can have
            continue
    return (folders[0] if folders else Path()) / name


_FEW_WORDS, _MANY = 2.5, 20
_TRIED = 1000  # rows by which a column is judged


def kind_of(values: Any) -> str | None:
    """What a column holds: "picture" or "sound" files, "text", or None for numbers and labels.

    Text has several words in a cell, and many different cells.
    """
    rows = [value for value in list(values) if not is_missing(value)]
    some = rows[:: max(1, len(rows) // _TRIED)]
    if not some:
        return None
    if all(isinstance(value, bytes | dict) for value in some):
        return _kind_of_content(some[0])
    if not all(isinstance(value, str) for value in some):
        return None
    for kind, known in (("picture", PICTURES), ("sound", SOUNDS)):
        if 2 * sum(Path(v[-300:]).suffix.lower() in known for v in some) > len(some):
            return kind
    words = sum(len(value.split()) for value in some) / len(some)
    return "text" if words >= _FEW_WORDS and len(set(some)) > min(_MANY, len(some) / 2) else None


def _kind_of_content(value: bytes | dict[str, Any]) -> str | None:
    content = value if isinstance(value, bytes) else value.get("bytes")
    if not content:
        name = value.get("path") if isinstance(value, dict) else None
        return kind_of([name]) if isinstance(name, str) else None
    sound = content.startswith((b"RIFF", b"OggS", b"fLaC", b"ID3", b"\xff\xfb"))
    return "sound" if sound and content[8:12] != b"WEBP" else "picture"


def raw_rows(
    values: Any, kind: str, folders: Sequence[Path], encoder: str | None, column: str | None
) -> RawRows:
    """A column of a file as one side; folders: where the files that it names may be."""
    if kind == "text":
        return replace(as_text(values, encoder=encoder), column=column)
    made = as_images(values, encoder=encoder) if kind == "picture" else as_sounds(values)
    rows = made.values
    for row, value in enumerate(rows):
        if isinstance(value, Path):
            rows[row] = located(str(value), folders)
    return replace(made, encoder=encoder, column=column)
