"""MNIST from its four idx files, plain or compressed by gzip."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from pointdep.data.images.files import Progress, read_bounded, reading
from pointdep.data.images.image_set import ImageSet, Labels, Parts, Pixels, check_labels
from pointdep.errors import InputError

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_PLACES = ("", "MNIST/raw", "raw")
_SIDE = 28


def find_mnist(folder: Path) -> Path | None:
    """Where all four files are: in the folder, or in MNIST/raw or raw below it."""
    if folder.is_file():
        raise InputError(f"{folder} is a file: give the folder of the four idx files of MNIST")
    for place in _PLACES:
        if all(_path(folder / place, name) for name in FILES):
            return folder / place
    return None


def mnist_expected(folder: Path) -> str:
    """What should have been in the folder, for the message when it is not."""
    there = [name for name in FILES if any(_path(folder / place, name) for place in _PLACES)]
    lacking = [name for name in FILES if name not in there]
    some = f" (of which {', '.join(lacking)} is not there)" if there and lacking else ""
    return f"{', '.join(FILES)}{some}, each plain or .gz, in it, in MNIST/raw or in raw"


def read_mnist(place: Path, progress: Progress | None = None) -> ImageSet:
    """The images of both parts, (n, 1, 28, 28)."""
    parts = []
    for part in ("train", "t10k"):
        images, labels = read_part(place, part)
        parts.append((images[:, None], labels))
        if progress is not None:
            progress(len(parts), 2)
    tensors = Parts(*parts[0], *parts[1]).tensors()
    classes = tuple(str(digit) for digit in range(10))
    return ImageSet("mnist", *tensors, classes=classes, source="MNIST from idx files")


def read_part(place: Path, part: str) -> tuple[Pixels, Labels]:
    """Images (n, 28, 28) and labels (n,) of "train" or "t10k"."""
    images = read_idx(_required(place, f"{part}-images-idx3-ubyte"), 3)
    path = _required(place, f"{part}-labels-idx1-ubyte")
    labels = read_idx(path, 1).astype(np.int64)
    if images.shape[1:] != (_SIDE, _SIDE):
        raise InputError(
            f"{_path(place, f'{part}-images-idx3-ubyte')} holds images of "
            f"{images.shape[1]} x {images.shape[2]} pixels: those of MNIST are {_SIDE} x {_SIDE}"
        )
    return images, check_labels(str(path), labels, len(images), 10)


def read_idx(path: Path, dimensions: int) -> Pixels:
    """The array of bytes in an idx file, which must have so many dimensions."""
    with reading(path), path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        content = read_bounded(path, gzip.GzipFile(fileobj=file) if packed else file)
    magic = bytes([0, 0, 8, dimensions])
    if content[:4] != magic:
        raise InputError(
            f"{path} is no idx file of bytes in {dimensions} dimensions: it begins with "
            f"0x{content[:4].hex()}, not 0x{magic.hex()}"
        )
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise InputError(f"{path} is truncated: it ends within its header")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dimensions, offset=4))
    values = np.frombuffer(content, np.uint8, offset=start)
    promised = int(np.prod(shape, dtype=object))
    if len(values) != promised:
        fault = "truncated" if len(values) < promised else "too long"
        raise InputError(
            f"{path} is {fault}: it holds {len(values)} values where its header promises {promised}"
        )
    if promised == 0:
        raise InputError(f"{path} is empty: its header promises no values")
    return values.reshape(shape).copy()


def _path(place: Path, name: str) -> Path | None:
    for path in (place / name, place / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def _required(place: Path, name: str) -> Path:
    path = _path(place, name)
    if path is None:
        raise InputError(f"{place} has no {name} or {name}.gz")
    return path
