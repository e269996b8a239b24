"""Fetching MNIST and CIFAR-10, every file checked against the checksum written here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointdep.data.images.files import Progress
from pointdep.errors import InputError


@dataclass(frozen=True)
class RemoteFile:
    """A file on the web and the MD5 of its content."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        """What it is called, there and here."""
        return self.url.rpartition("/")[2]


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
REMOTE = {
    "mnist": (
        RemoteFile(_MNIST + "train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        RemoteFile(_MNIST + "train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        RemoteFile(_MNIST + "t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        RemoteFile(_MNIST + "t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "cifar10": (
        RemoteFile(
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
        ),
    ),
}


def download(name: str, folder: Path, progress: Progress | None = None) -> None:
    """Fetch into the folder the files of a data set that are not in it; progress is in bytes."""
    try:
        import pooch
    except ImportError:
        raise InputError(
            'a download needs the package pooch: pip install "pointdep[pretrain]"'
        ) from None
    with _quiet(pooch.get_logger()):
        for file in REMOTE[name]:
            # A copy of the user's may be compressed in another way, and is theirs to keep.
            if not (folder / file.name).exists():
                _fetch(pooch, file, folder, progress)


def _fetch(pooch: Any, file: RemoteFile, folder: Path, progress: Progress | None) -> None:
    import requests

    try:
        folder.mkdir(parents=True, exist_ok=True)
        pooch.retrieve(
            file.url,
            known_hash=f"md5:{file.md5}",
            fname=file.name,
            path=folder,
            downloader=pooch.HTTPDownloader(
                progressbar=False if progress is None else _Bytes(progress), chunk_size=1 << 18
            ),
        )
    except requests.RequestException as error:
        raise InputError(
            f"{file.url} could not be fetched ({_cause(error)}): check the network, or put the "
            f"file into {folder} yourself"
        ) from error
    except OSError as error:
        raise InputError(
            f"{file.name} cannot be written to {folder}: {error.strerror or error}"
        ) from error
    except ValueError as error:
        # pooch keeps what it fetches under another name until the checksum has been compared.
        raise InputError(
            f"{file.url} is not the expected file: its checksum is not {file.md5}; what was "
            "fetched has been removed, try again or fetch it from another place"
        ) from error


def _cause(error: Exception) -> str:
    """What went wrong, in the few words that are of use: a status, or the kind of the error."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"status {response.status_code}"
    return {"ConnectionError": "no connection"}.get(type(error).__name__, type(error).__name__)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Bytes:
    """What pooch takes for a progress bar."""

    def __init__(self, progress: Progress) -> None:
        self.total = 0  # set by pooch
        self._progress = progress
        self._done = 0

    def update(self, count: int) -> None:
        """So many more bytes have come; pooch counts the last piece as a whole one."""
        self._done = min(self._done + count, self.total)
        self._progress(self._done, self.total)

    def reset(self) -> None:
        """pooch starts again from nothing to say that all has come."""
        self._done = 0

    def close(self) -> None:
        """Nothing is left to do."""
