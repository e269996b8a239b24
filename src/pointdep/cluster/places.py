"""Folders by path or by URI (file://, s3://, gs://, memory://, ...): what is in them, and writing.

Local and cloud storage go through pyarrow, everything else through fsspec.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pointdep.errors import InputError

_TEMPORARY = ".pointdep-"


class BadShardError(InputError):
    """A shard that cannot be read or scored; the others may be."""


@dataclass(frozen=True)
class Place:
    """A folder or a file, also for processes elsewhere.

    shown: as the user named it. root: an absolute path or a URI; inside: what comes below it.
    """

    shown: str
    root: str
    inside: str = ""

    def __truediv__(self, name: str) -> Place:
        return Place(f"{self.shown}/{name}", self.root, f"{self.inside}/{name}")

    def __str__(self) -> str:
        return self.shown

    @property
    def name(self) -> str:
        return self._path.rsplit("/", 1)[-1]

    @property
    def _system(self) -> Any:
        return _resolve(self.root)[0]

    @property
    def _path(self) -> str:
        return _resolve(self.root)[1] + self.inside

    @property
    def is_local(self) -> bool:
        return str(self._system.type_name) == "local"

    def kind(self) -> str:
        """ "file", "folder" or "" where there is nothing."""
        from pyarrow import fs

        with _asking(self):
            found = self._system.get_file_info(self._path).type
        return {fs.FileType.File: "file", fs.FileType.Directory: "folder"}.get(found, "")

    def files(self) -> dict[str, int]:
        """The names of the files in a folder, and their bytes."""
        from pyarrow import fs

        with _asking(self):
            found = self._system.get_file_info(fs.FileSelector(self._path))
        return {one.base_name: one.size for one in found if one.type == fs.FileType.File}

    def modified(self) -> int | None:
        """When the file was written, in nanoseconds, where the storage says so."""
        with _asking(self):
            found: int | None = self._system.get_file_info(self._path).mtime_ns
        return found

    def open(self) -> Any:
        """The file, as Arrow reads it; whoever opens it closes it."""
        return self._system.open_input_file(self._path)

    def read_bytes(self) -> bytes:
        with _asking(self), self.open() as file:
            found: bytes = file.read()
        return found

    def make_folder(self) -> None:
        with _asking(self, "written"):
            self._system.create_dir(self._path, recursive=True)

    @contextmanager
    def whole_file(self) -> Iterator[Any]:
        """A stream to write in, which takes this place at once when all went well."""
        system, path = self._system, self._path
        folder, name = path.rsplit("/", 1)
        temporary = f"{folder}/{_TEMPORARY}{uuid.uuid4().hex}-{name}.tmp"
        with _asking(self, "written"):
            try:
                with system.open_output_stream(temporary) as stream:
                    yield stream
                if self.is_local:
                    _to_disk(temporary)
                system.move(temporary, path)
            except BaseException:
                with contextlib.suppress(Exception):  # it may not have come to be
                    system.delete_file(temporary)
                raise

    def sweep(self) -> None:
        """Remove what killed writers left in a folder."""
        system, path = self._system, self._path
        for name in self.files():
            if is_temporary(name):
                with contextlib.suppress(OSError):
                    system.delete_file(f"{path}/{name}")


def is_temporary(name: str) -> bool:
    """Whether it is the name of a file that a writer had not finished."""
    return name.startswith(_TEMPORARY) and name.endswith(".tmp")


def as_place(given: str | Path) -> Place:
    """A path or a URI; InputError for a kind of storage that cannot be reached from here."""
    shown = str(given).rstrip("/") or "/"
    place = Place(shown, shown if "://" in shown else str(Path(shown).absolute()))
    with _asking(place):
        _resolve(place.root)
    return place


@lru_cache(maxsize=256)
def _resolve(uri: str) -> tuple[Any, str]:
    """The Arrow file system of a URI, and the path there."""
    from pyarrow import fs, lib

    if "://" not in uri:
        return fs.LocalFileSystem(), uri
    try:
        system, path = fs.FileSystem.from_uri(uri)
    except (lib.ArrowInvalid, lib.ArrowNotImplementedError):
        from fsspec.core import url_to_fs

        system, path = url_to_fs(uri)
        system = fs.PyFileSystem(fs.FSSpecHandler(system))
    return system, path.rstrip("/")


@contextmanager
def _asking(place: Place, done: str = "read") -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        if isinstance(error, InputError):
            raise
        strerror = error.strerror if isinstance(error, OSError) else None
        reason = strerror or next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"{place} cannot be {done}: {reason}") from error


def _to_disk(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
