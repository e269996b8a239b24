"""Files of a folder or of a tar archive under one face, and errors that name them."""

from __future__ import annotations

import tarfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from pointdep.errors import InputError

Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is; a new stage starts again from a small one."""

LARGEST = 1 << 28
"""Bytes a file may have once it is unpacked; those of MNIST and CIFAR-10 stay below 48 million."""

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz")
_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


@contextmanager
def reading(what: Path | str) -> Iterator[None]:
    """Turn whatever goes wrong while `what` is read into an InputError that names it."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except PermissionError as error:
        raise InputError(f"{what} may not be read (permission denied)") from error
    except Exception as error:
        # Damaged files raise errors of many unrelated classes in the libraries that parse them.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"{what} cannot be read, it is truncated, damaged or of another kind: {lines[0]}"
        ) from error


def require_size(what: Path | str, size: int, most: int | None = None) -> None:
    """Refuse what would fill the memory: a small archive can unpack to any size."""
    most = LARGEST if most is None else most
    if size > most:
        raise InputError(
            f"{what} holds more than {most >> 20} MiB, far more than MNIST and CIFAR-10 need: "
            "it is damaged or of another kind"
        )


def read_bounded(what: Path | str, file: BufferedIOBase) -> bytes:
    """What is left in an open file, compressed perhaps, and at most as much as a file may have."""
    content = file.read(LARGEST + 1)
    require_size(what, len(content))
    return content


class Files(ABC):
    """The files of interest, by their names below a folder or in an archive."""

    names: list[str]

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The content of a file that is among the names."""

    @abstractmethod
    def path(self, name: str) -> str:
        """What to call a file in a message."""

    def required(self, name: str) -> bytes:
        """The content of a file, or an InputError that says it is missing."""
        if name not in self.names:
            raise InputError(f"{self.path(name)} is missing, where files beside it are there")
        return self.read(name)


class FolderFiles(Files):
    """The files of a folder that match one of the patterns, read when they are asked for."""

    def __init__(self, folder: Path, patterns: Sequence[str]) -> None:
        self._folder = folder
        with reading(folder):
            found = (path for pattern in patterns for path in folder.glob(pattern))
            self.names = sorted({path.relative_to(folder).as_posix() for path in found})

    def read(self, name: str) -> bytes:
        path = self._folder / name
        with reading(path):
            require_size(path, path.stat().st_size)
            return path.read_bytes()

    def path(self, name: str) -> str:
        return str(self._folder / name)


class _Member(tarfile.TarInfo):
    """A member whose long names and other extended headers, which tarfile keeps in memory as it
    meets them, are of a bounded size."""

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type in _HEADERS:
            require_size(f"{archive.name!s}: a header", self.size, 1 << 20)
        return super()._proc_member(archive)  # type: ignore[misc]


class ArchiveFiles(Files):
    """The files of a tar archive whose names are wanted, all read at once: in a compressed archive
    each one is behind all that come before it. Nothing is extracted to the disk."""

    def __init__(self, archive: Path, wanted: Callable[[str], bool]) -> None:
        self._archive = archive
        self._content: dict[str, bytes] = {}
        total = 0
        with reading(archive), tarfile.open(archive, tarinfo=_Member) as members:
            for member in members:
                name = member.name.removeprefix("./")
                # A link is no file of its own: extractfile would follow it.
                file = members.extractfile(member) if member.isreg() and wanted(name) else None
                if file is not None:
                    total += member.size
                    require_size(self.path(name), member.size)
                    require_size(archive, total, 4 * LARGEST)
                    self._content[name] = file.read()
        self.names = sorted(self._content)

    def read(self, name: str) -> bytes:
        return self._content[name]

    def path(self, name: str) -> str:
        return f"{self._archive}:{name}"


def is_archive(path: Path) -> bool:
    """Whether a file has the name of a tar archive."""
    return path.is_file() and path.name.lower().endswith(ARCHIVES)
