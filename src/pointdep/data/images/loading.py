"""One call for every set of images: find it, fetch it if asked to, decode it."""

from __future__ import annotations

import os
from pathlib import Path

from pointdep.data.images.cifar10 import EXPECTED, find_cifar10, read_cifar10
from pointdep.data.images.digits import read_digits
from pointdep.data.images.download import download as fetch
from pointdep.data.images.files import Progress
from pointdep.data.images.image_set import ImageSet
from pointdep.data.images.mnist import find_mnist, mnist_expected, read_mnist
from pointdep.errors import InputError, unknown_name

DATASETS = ("mnist", "cifar10", "digits")
_TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}


def load_images(
    name: str,
    folder: Path | str | None = None,
    *,
    download: bool = False,
    progress: Progress | None = None,
) -> ImageSet:
    """The images of "mnist", "cifar10" or "digits", on the CPU.

    folder holds the files in one of their public layouts (the error when nothing is found lists
    them), and for CIFAR-10 may be the archive itself; None is `default_folder(name)`, and "digits"
    needs none. With download, what is not there is fetched into the folder and checked.
    progress(done, total) is called while files are fetched, in bytes, and while they are decoded,
    in files or pictures.
    """
    if name not in DATASETS:
        raise unknown_name("set of images", name, DATASETS)
    if name == "digits":
        if folder is not None:
            raise InputError(f"digits come with scikit-learn and are not read from {folder}")
        return read_digits()
    place = default_folder(name) if folder is None else Path(folder).expanduser()
    images = _read(name, place, progress)
    if images is None and download:
        fetch(name, place, progress)
        images = _read(name, place, progress)
    if images is None:
        raise _nothing_found(name, place)
    return images


def default_folder(name: str) -> Path:
    """$POINTDEP_DATA/name where there is such a folder, else $POINTDEP_DATA; without the variable
    pointdep/name in the user's cache folder ($XDG_CACHE_HOME or ~/.cache)."""
    if root := os.environ.get("POINTDEP_DATA"):
        inside = Path(root).expanduser() / name
        return inside if inside.is_dir() else inside.parent
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "pointdep" / name


def _read(name: str, place: Path, progress: Progress | None) -> ImageSet | None:
    if name == "mnist":
        folder = find_mnist(place)
        return None if folder is None else read_mnist(folder, progress)
    found = find_cifar10(place)
    return None if found is None else read_cifar10(found, progress)


def _nothing_found(name: str, place: Path) -> InputError:
    expected = mnist_expected(place) if name == "mnist" else EXPECTED
    missing = "" if place.exists() else ", which does not exist"
    return InputError(
        f"found no {_TITLES[name]} in {place}{missing}: expected {expected}; or have it downloaded "
        "(download=True, --download)"
    )
