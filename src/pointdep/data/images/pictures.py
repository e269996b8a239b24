"""CIFAR-10 as pictures in folders: train/<class>/*.png and test/<class>/*.png, or .jpg."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import numpy as np

from pointdep.data.images.files import Files, Progress, reading
from pointdep.data.images.image_set import Parts, Pixels
from pointdep.errors import InputError

PICTURE = re.compile(
    r"(?P<prefix>([^/]+/)?)(?P<part>train|test)/(?P<label>[^/.][^/]*)/[^/.][^/]*\.(png|jpe?g)",
    re.IGNORECASE,
)
_SIDE = 32
_REPORT_EVERY = 500


def read_pictures(
    files: Files, prefix: str, progress: Progress | None
) -> tuple[Parts, tuple[str, ...], bool]:
    """Both parts, the sorted names of the classes, and whether any picture is a JPEG.

    The order is the first picture of each class, then the second of each, and so on, so that the
    first rows are a fair sample of the classes.
    """
    named = [found for name in files.names if (found := PICTURE.fullmatch(name))]
    named = [found for found in named if found["prefix"] == prefix]
    classes = tuple(sorted({found["label"] for found in named}))
    of_part: dict[str, list[tuple[int, int, str]]] = {"train": [], "test": []}
    for part, pictures in of_part.items():
        counts = dict.fromkeys(classes, 0)
        for found in named:
            if found["part"].lower() == part:
                pictures.append((counts[found["label"]], classes.index(found["label"]), found[0]))
                counts[found["label"]] += 1
        pictures.sort()
        _require_classes(files, f"{prefix}{part}", counts)
    train, test = of_part.values()
    names = [name for _, _, name in train + test]
    pixels = _decoded(files, names, progress)
    labels = np.array([label for _, label, _ in train + test], dtype=np.int64)
    cut = len(train)
    lossy = any(not name.lower().endswith(".png") for name in names)
    return Parts(pixels[:cut], labels[:cut], pixels[cut:], labels[cut:]), classes, lossy


def _require_classes(files: Files, part: str, counts: dict[str, int]) -> None:
    lacking = [name for name, count in counts.items() if count == 0]
    if lacking:
        raise InputError(
            f"{files.path(part)} has no picture of {', '.join(lacking)}: train and test must have "
            "pictures of the same classes"
        )
    if len(counts) != 10:
        raise InputError(
            f"{files.path(part)} has {len(counts)} classes, {', '.join(list(counts)[:12])}: "
            "CIFAR-10 has ten"
        )


def _decoded(files: Files, names: Sequence[str], progress: Progress | None) -> Pixels:
    """Images (n, 3, 32, 32) of the named pictures.

    In one thread: pictures this small spend their time in Python, where threads wait for each
    other and two of them take longer than one.
    """
    pixels = np.empty((len(names), 3, _SIDE, _SIDE), dtype=np.uint8)
    for row, name in enumerate(names):
        pixels[row] = read_picture(files.path(name), files.read(name)).transpose(2, 0, 1)
        if progress is not None and ((row + 1) % _REPORT_EVERY == 0 or row + 1 == len(names)):
            progress(row + 1, len(names))
    return pixels


def read_picture(path: str, content: bytes) -> Pixels:
    """One picture, (32, 32, 3)."""
    from PIL import Image

    with reading(path), Image.open(io.BytesIO(content), formats=["PNG", "JPEG"]) as picture:
        if picture.size != (_SIDE, _SIDE):
            raise InputError(
                f"{path} is {picture.width} x {picture.height} pixels: those of CIFAR-10 are "
                f"{_SIDE} x {_SIDE}"
            )
        return np.asarray(picture if picture.mode == "RGB" else picture.convert("RGB"))
