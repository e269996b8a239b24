"""One call for every set of images: find it, fetch it if asked to, decode it."""

import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pointdep.data.files import reading
from pointdep.data.images.cifar10 import EXPECTED, read_cifar10
from pointdep.data.images.image_files import Progress, read_bounded
from pointdep.data.images.image_files import download as fetch
from pointdep.data.images.image_set import ImageSet, Part, Pixels, check_labels, make_set
from pointdep.data.raw import Array
from pointdep.errors import InputError, require_known

DATASETS = ("mnist", "cifar10", "digits")
_TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
_DIGITS = tuple("0123456789")
_DIGITS_TRAIN = 1437
_IDX = [f"{p}-{kind}-ubyte" for p in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
_IDX_PLACES = ("", "MNIST/raw", "raw")


def load_images(
    name: str,
    folder: Path | str | None = None,
    *,
    download: bool = False,
    progress: Progress | None = None,
) -> ImageSet:
    """Read "mnist", "cifar10" or "digits" into memory.

    Parameters
    ----------
    name : str
        "mnist", "cifar10", or "digits", the 8 x 8 digits of scikit-learn, which need no files.
    folder : str or Path, optional
        Holds the files in one of their public layouts (the error when nothing is found lists
        them), and for CIFAR-10 may be the archive itself; by default `default_folder(name)`.
    download : bool, default=False
        Fetch what is missing into the folder, and check it.
    progress : callable, optional
        ``progress(done, total)`` is called while files are fetched, in bytes, and while they are
        decoded, in files or pictures.

    Returns
    -------
    ImageSet
        The images, on the CPU.

    Examples
    --------
    >>> from pointdep.data.images import load_images
    >>> images = load_images("digits")
    >>> len(images.train), len(images.test), images.shape
    (1437, 360, (1, 8, 8))
    """
    require_known("set of images", name, DATASETS)
    if name == "digits":
        if folder is not None:
            raise InputError(f"digits come with scikit-learn and are not read from {folder}")
        return _read_digits()
    place = default_folder(name) if folder is None else Path(folder).expanduser()
    read, report = _read_mnist if name == "mnist" else read_cifar10, progress or _ignore
    images = read(place, report)
    if images is None and download:
        fetch(name, place, report)
        images = read(place, report)
    if images is None:
        expected = _mnist_expected(place) if name == "mnist" else EXPECTED
        missing = "" if place.exists() else ", which does not exist"
        found = f"found no {_TITLES[name]} in {place}{missing}"
        raise InputError(f"{found}: expected {expected}; or set download=True (--download)")
    return images


def default_folder(name: str) -> Path:
    """Where `load_images` looks for a set unless told.

    $POINTDEP_DATA/name if there is such a folder, else $POINTDEP_DATA; without the variable
    pointdep/name in the user's cache folder ($XDG_CACHE_HOME or ~/.cache).
    """
    if root := os.environ.get("POINTDEP_DATA"):
        inside = Path(root).expanduser() / name
        return inside if inside.is_dir() else inside.parent
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "pointdep" / name


def _ignore(done: int, total: int) -> None:
    """Progress that nobody asked for."""


def _read_mnist(folder: Path, progress: Progress) -> ImageSet | None:
    """The images of both parts, (n, 1, 28, 28), from four idx files, plain or by gzip."""
    if folder.is_file():
        raise InputError(f"{folder} is a file: give the folder of the four idx files of MNIST")
    for place in _IDX_PLACES:
        if all(_idx_path(folder / place, name) for name in _IDX):
            parts: list[Part] = []
            for part in ("train", "t10k"):
                images, labels = read_part(folder / place, part)
                parts.append((images[:, None], labels))
                progress(len(parts), 2)
            return make_set("mnist", parts[0], parts[1], _DIGITS, "MNIST from idx files")
    return None


def read_part(place: Path, part: str) -> Part:
    """MNIST's images (n, 28, 28) and labels (n,) of "train" or "t10k"."""
    names = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
    of_images, of_labels = (_idx_path(place, name) or place / name for name in names)
    images, labels = read_idx(of_images, 3), read_idx(of_labels, 1).astype(np.int64)
    if images.shape[1:] != (28, 28):
        size = "{} x {}".format(*images.shape[1:])
        raise InputError(f"{of_images} holds images of {size} pixels: those of MNIST are 28 x 28")
    return images, check_labels(str(of_labels), labels, len(images), 10)


def read_idx(path: Path, dimensions: int) -> Pixels:
    """The array of bytes in an idx file, which must have so many dimensions."""
    with reading(path), path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        content = read_bounded(path, gzip.GzipFile(fileobj=file) if packed else file)
    magic, begins = bytes([0, 0, 8, dimensions]).hex(), content[:4].hex()
    if begins != magic:
        raise InputError(f"{path} is no idx file: it begins with 0x{begins}, not 0x{magic}")
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise InputError(f"{path} is truncated: it ends within its header")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dimensions, offset=4))
    values = np.frombuffer(content, np.uint8, offset=start)
    promised = int(np.prod(shape, dtype=object))
    if len(values) != promised or promised == 0:
        fault = "truncated" if len(values) < promised else "too long" if promised else "empty"
        raise InputError(f"{path} is {fault}: {len(values)} values where {promised} are promised")
    return values.reshape(shape).copy()


def _idx_path(place: Path, name: str) -> Path | None:
    return next((p for p in (place / name, place / f"{name}.gz") if p.is_file()), None)


def _mnist_expected(folder: Path) -> str:
    """What should have been in the folder, for the message when it is not."""
    there = [name for name in _IDX if any(_idx_path(folder / place, name) for place in _IDX_PLACES)]
    lacking = [name for name in _IDX if name not in there]
    some = f" (of which {', '.join(lacking)} is not there)" if there and lacking else ""
    return f"{', '.join(_IDX)}{some}, each plain or .gz, in it, in MNIST/raw or in raw"


def _read_digits() -> ImageSet:
    """The images, (n, 1, 8, 8), with their values of 0 to 16 spread over 0 to 255."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    # RandomState, since its streams never change from one version of numpy to the next.
    order = np.random.RandomState(0).permutation(len(digits.target))
    pixels = np.round(digits.images[order, None] * (255 / 16)).astype(np.uint8)
    labels, cut = digits.target[order].astype(np.int64), _DIGITS_TRAIN
    train, test = (pixels[:cut], labels[:cut]), (pixels[cut:], labels[cut:])
    return make_set("digits", train, test, _DIGITS, "8 x 8 digits of scikit-learn")


@dataclass(frozen=True, eq=False)
class DigitHalves:
    """Handwritten digits cut in two, with some halves put to the wrong digit on purpose.

    x, y: (1797, 32) upper and lower halves; labels: (1797,) the digit of x; swapped: (1797,) bool,
    the rows whose y is another digit's.
    """

    x: Array
    y: Array
    labels: Array
    swapped: Array


def digit_halves(swapped: float = 0.05, seed: int = 0) -> DigitHalves:
    """Halves of scikit-learn's digits; a fraction `swapped` of the rows exchange their lower ones.

    Parameters
    ----------
    swapped : float, default=0.05
        The fraction, from 0 to 1.
    seed : int, default=0
        Decides which rows.

    Returns
    -------
    DigitHalves
        The halves, the labels, and which rows were swapped.
    """
    if not 0 <= swapped <= 1:
        raise InputError(f"swapped must be a fraction between 0 and 1, not {swapped}")
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels, labels = np.asarray(digits.data), np.asarray(digits.target)
    x, y = pixels[:, :32], pixels[:, 32:].copy()
    count = round(swapped * len(pixels))
    if count == 1:
        raise InputError(f"swapped={swapped} is a single row, which has none to exchange with")
    rows = np.random.default_rng(seed).permutation(len(pixels))[:count]
    # One cycle through the chosen rows leaves none of them in its place.
    y[rows] = y[np.roll(rows, 1)]
    mask = np.zeros(len(pixels), dtype=bool)
    mask[rows] = True
    return DigitHalves(x, y, labels, mask)
