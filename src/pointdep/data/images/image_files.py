"""Files of a folder or of a tar archive under one interface, and fetching them from the web.

Nothing is extracted to the disk, sizes are bounded, and errors name the file.
"""

import logging
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from pointdep.data.files import reading
from pointdep.errors import InputError

Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is; a new stage starts again from a small one."""

LARGEST = 1 << 28
"""Bytes a file may have once it is unpacked; those of MNIST and CIFAR-10 stay below 48 million."""

_CIFAR10 = "https://www.cs.toronto.edu/~kriz/"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
REMOTE = {
    "mnist": {
        _MNIST + "train-images-idx3-ubyte.gz": (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
        ),
        _MNIST + "train-labels-idx1-ubyte.gz": (
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
        ),
        _MNIST + "t10k-images-idx3-ubyte.gz": (
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
        ),
        _MNIST + "t10k-labels-idx1-ubyte.gz": (
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
        ),
    },
    "cifar10": {
        _CIFAR10 + "cifar-10-python.tar.gz": (
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
        )
    },
}
"""For each set the addresses of its files, with the SHA-256 of their content."""

_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz")
_HEADERS = b"xgXLK"  # types of members that hold the names and headers of others


def require_size(what: Path | str, size: int, most: int | None = None) -> None:
    """Refuse what would fill the memory: a small archive can unpack to any size."""
    most = LARGEST if most is None else most
    if size > most:
        raise InputError(f"{what} holds more than {most >> 20} MiB: damaged or of another kind")


def read_bounded(what: Path | str, file: BufferedIOBase) -> bytes:
    """What is left in an open file, perhaps compressed, up to the size that a file may have."""
    content = file.read(LARGEST + 1)
    require_size(what, len(content))
    return content


@dataclass(frozen=True)
class Files:
    """Files by their names below a folder, to be read when asked for, or read from an archive.

    place: the folder or archive with its separator, as messages name files.
    """

    place: str
    content: dict[str, Path | bytes]

    def path(self, name: str) -> str:
        """What to call a file in a message."""
        return self.place + name

    def read(self, name: str) -> bytes:
        """The content of a file, or an InputError that says it is missing."""
        found = self.content.get(name)
        if found is None:
            raise InputError(f"{self.path(name)} is missing, where files beside it are there")
        if isinstance(found, bytes):
            return found
        with reading(found):
            require_size(found, found.stat().st_size)
            return found.read_bytes()


def folder_files(folder: Path, patterns: Iterable[str]) -> Files:
    """The files of a folder that match one of the patterns."""
    with reading(folder):
        found = {path for pattern in patterns for path in folder.glob(pattern)}
        named = {path.relative_to(folder).as_posix(): path for path in found}
    return Files(str(folder / "_")[:-1], dict(sorted(named.items())))


def archive_files(archive: Path, wanted: Callable[[str], bool]) -> Files:
    """The files of a tar archive whose names are wanted.

    All are read at once: in a compressed archive each is behind all that come before it.
    """
    content: dict[str, Path | bytes] = {}
    total = 0
    with reading(archive), tarfile.open(archive, tarinfo=_Member) as members:
        for member in members:
            name = member.name.removeprefix("./")
            # A link is no file of its own: extractfile would follow it.
            file = members.extractfile(member) if member.isreg() and wanted(name) else None
            if file is not None:
                total += member.size
                require_size(f"{archive}:{name}", member.size)
                require_size(archive, total, 4 * LARGEST)
                content[name] = file.read()
    return Files(f"{archive}:", dict(sorted(content.items())))


class _Member(tarfile.TarInfo):
    """A member whose long names and other extended headers are of a bounded size.

    tarfile keeps them in memory as it meets them.
    """

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type in _HEADERS:
            require_size(f"{archive.name!s}: a header", self.size, 1 << 20)
        return super()._proc_member(archive)  # type: ignore[misc]


def is_tar(path: Path) -> bool:
    """Whether a file has the name of a tar archive."""
    return path.is_file() and path.name.lower().endswith(_ARCHIVES)


def download(name: str, folder: Path, progress: Progress) -> None:
    """Fetch the files of a set that are not in the folder; progress is in bytes."""
    try:
        import pooch
        import requests
    except ImportError:
        raise InputError('a download needs pooch: pip install "pointdep[pretrain]"') from None
    logger: logging.Logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        for url, sha256 in REMOTE[name].items():
            file = folder / url.rpartition("/")[2]
            # A copy of the user's may be compressed in another way, and is theirs to keep.
            if not file.exists():
                fetcher = pooch.HTTPDownloader(progressbar=_Bytes(progress), chunk_size=1 << 18)
                folder.mkdir(parents=True, exist_ok=True)
                pooch.retrieve(url, f"sha256:{sha256}", file.name, folder, downloader=fetcher)
    except requests.RequestException as error:
        cause = type(error).__name__.replace("ConnectionError", "no connection")
        if error.response is not None:
            cause = f"status {error.response.status_code}"
        fault = f"{url} could not be fetched ({cause})"
        raise InputError(f"{fault}: check the network, or put it into {folder}") from error
    except OSError as error:
        cause = error.strerror or str(error)
        raise InputError(f"{file.name} cannot be written to {folder}: {cause}") from error
    except ValueError as error:
        # pooch keeps what it fetches under another name until the checksum has been compared.
        fault = f"{url} has another checksum than {sha256} and was removed"
        raise InputError(f"{fault}: fetch it from another place") from error
    finally:
        logger.setLevel(level)


class _Bytes:
    """What pooch takes for a progress bar."""

    def __init__(self, progress: Progress) -> None:
        self.total = self._done = 0  # pooch sets the total
        self._progress = progress

    def update(self, count: int) -> None:
        """Add bytes that have come; pooch counts the last piece as a whole one."""
        self._done = min(self._done + count, self.total)
        self._progress(self._done, self.total)

    def reset(self) -> None:
        """pooch starts again from nothing to say that all has come."""
        self._done = 0

    def close(self) -> None:
        """Nothing is left to do."""
