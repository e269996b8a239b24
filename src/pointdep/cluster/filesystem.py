"""Files and folders by path or by URI (file://, s3://, gs://, memory://, ...).

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
class StoragePath:
    """A folder or a file, which processes on other machines can open too.

    shown: as the user named it. root: an absolute path or a URI; inside: what comes below it.
    """

    shown: str
    root: str
    inside: str = ""

    def __truediv__(self, name: str) -> StoragePath:
        return StoragePath(f"{self.shown}/{name}", self.root, f"{self.inside}/{name}")

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
        """Whether it is on a disk of this machine."""
        return str(self._system.type_name) == "local"

    def _info(self, selector: Any = None) -> Any:
        with _asking(self):
            return self._system.get_file_info(selector or self._path)

    def kind(self) -> str:
        """ "file", "folder", or "" if there is nothing."""
        return {"File": "file", "Directory": "folder"}.get(self._info().type.name, "")

    def files(self) -> dict[str, int]:
        """The names of the files in a folder, and their bytes."""
        from pyarrow import fs

        found = self._info(fs.FileSelector(self._path))
        return {one.base_name: one.size for one in found if one.is_file}

    def modified(self) -> int | None:
        """When the file was written, in nanoseconds; None if the storage does not know."""
        found: int | None = self._info().mtime_ns
        return found

    def open(self) -> Any:
        """The file, as Arrow reads it; the caller closes it."""
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
        """A stream to write in; the file appears complete at the end, or not at all."""
        system, path = self._system, self._path
        folder, name = path.rsplit("/", 1)
        temporary = f"{folder}/{_TEMPORARY}{uuid.uuid4().hex}-{name}.tmp"
        with _asking(self, "written"):
            try:
                with system.open_output_stream(temporary) as stream:
                    yield stream
                if self.is_local:  # a rename must not reach the disk before the rows do
                    _to_disk(temporary)
                system.move(temporary, path)
            except BaseException:
                with contextlib.suppress(Exception):  # it may never have been created
                    system.delete_file(temporary)
                raise

    def sweep(self) -> None:
        """Remove what killed writers left in a folder."""
        for name in filter(is_temporary, self.files()):
            with contextlib.suppress(OSError):
                self._system.delete_file(f"{self._path}/{name}")


def is_temporary(name: str) -> bool:
    """Whether this is the name of a file that a writer did not finish."""
    return name.startswith(_TEMPORARY) and name.endswith(".tmp")


def storage_path(given: str | Path) -> StoragePath:
    """A path or a URI; InputError for storage that cannot be reached from here."""
    shown = str(given).rstrip("/") or "/"
    path = StoragePath(shown, shown if "://" in shown else str(Path(shown).absolute()))
    with _asking(path):
        _resolve(path.root)
    return path


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

        found, path = url_to_fs(uri)
        system = fs.PyFileSystem(fs.FSSpecHandler(found))
    return system, path.rstrip("/")


@contextmanager
def _asking(path: StoragePath, done: str = "read") -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        if isinstance(error, InputError):
            raise
        strerror = error.strerror if isinstance(error, OSError) else None
        reason = strerror or next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"{path} cannot be {done}: {reason}") from error


def _to_disk(path: str) -> None:
    with Path(path).open("rb") as file:
        os.fsync(file.fileno())
