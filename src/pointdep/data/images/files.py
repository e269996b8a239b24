"""Files of a folder or of a tar archive under one face, and errors that name them."""

from __future__ import annotations

import tarfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pointdep.errors import InputError

Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is; a new stage starts again from a small one."""

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz")


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
        with reading(self.path(name)):
            return (self._folder / name).read_bytes()

    def path(self, name: str) -> str:
        return str(self._folder / name)


class ArchiveFiles(Files):
    """The files of a tar archive whose names are wanted, all read at once: in a compressed archive
    each one is behind all that come before it. Nothing is extracted to the disk."""

    def __init__(self, archive: Path, wanted: Callable[[str], bool]) -> None:
        self._archive = archive
        self._content: dict[str, bytes] = {}
        with reading(archive), tarfile.open(archive) as members:
            for member in members:
                name = member.name.removeprefix("./")
                # A link is no file of its own: extractfile would follow it.
                file = members.extractfile(member) if member.isreg() and wanted(name) else None
                if file is not None:
                    self._content[name] = file.read()
        self.names = sorted(self._content)

    def read(self, name: str) -> bytes:
        return self._content[name]

    def path(self, name: str) -> str:
        return f"{self._archive}:{name}"


def is_archive(path: Path) -> bool:
    """Whether a file has the name of a tar archive."""
    return path.is_file() and path.name.lower().endswith(ARCHIVES)
