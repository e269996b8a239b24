"""Files and folders that appear whole or not at all, whenever the process ends."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from pointdep.errors import InputError, ModelFileError

_Found = TypeVar("_Found")
_NEW, _OLD = "new", "old"  # in the folder of a writer
_ATTEMPTS = 50
_WAIT_S = 0.01


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write in, which takes the place of path when all went well."""
    target = path.resolve()  # through a link to the file it names, rather than replacing the link
    temporary = _temporary(target)
    try:
        sweep(target)
        while True:
            file = temporary.open("xb")
            _lock(file.fileno())
            if temporary.exists():
                break
            file.close()  # swept before it was locked
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":  # where an open file cannot be moved
                file.close()
            temporary.replace(target)
        _to_disk(target.parent)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """A folder to write in, which takes the place of `path` at the end if nothing went wrong."""
    path = path.resolve()  # through a link to the folder it names, rather than replacing the link
    try:
        with _scratch_folder(path) as scratch:
            new = scratch / _NEW
            new.mkdir()
            yield new
            for part in (*new.rglob("*"), new):
                _to_disk(part)
            _put(new, path, scratch / _OLD)
            _to_disk(path.parent)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None


def try_folder(path: Path) -> None:
    """Make the folder that a later save needs next to `path`, and remove it; OSError if not."""
    with _scratch_folder(path.resolve()):
        pass


def steady(path: Path, read: Callable[[], _Found]) -> _Found:
    """What `read` finds in a folder that another process may replace meanwhile.

    It reads again if the folder was replaced, so that nothing is of two folders.
    """
    place = path.resolve()
    for attempt in range(_ATTEMPTS):
        before = _identity(place)
        if before is None and _leftovers(place):
            sweep(place)  # of a writer that was killed between two moves
            before = _identity(place)
        last = attempt == _ATTEMPTS - 1
        try:
            found = read()
        except (ModelFileError, OSError, RuntimeError):
            waits = before is None and bool(_leftovers(place))  # for a writer between two moves
            if last or not (waits or before != _identity(place)):
                raise
        else:
            if last or before == _identity(place):
                return found
        time.sleep(_WAIT_S)
    raise AssertionError


@contextmanager
def held(path: Path, said: str) -> Iterator[None]:
    """Keep others from writing this file too, as long as the process lives.

    said: the refusal where another process holds it already.
    """
    lock = path.resolve().with_name(f".{path.name}.lock")
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:  # as on a full disk: whoever writes the file itself says why it cannot
            yield
            return
        taken = _lock(descriptor)
        with suppress(FileNotFoundError):
            # Whoever had it may have removed the file before it was locked here.
            if taken is not True or os.fstat(descriptor).st_ino == lock.stat().st_ino:
                break
        os.close(descriptor)
    try:
        if taken is False:
            raise InputError(said)
        yield
    finally:
        if taken:
            lock.unlink(missing_ok=True)
        os.close(descriptor)
        if taken is None:
            lock.unlink(missing_ok=True)


def _temporary(target: Path) -> Path:
    """A name that no other writer has, on this machine or another."""
    return target.with_name(f".{target.name}.{uuid.uuid4().hex}.saving")


def _leftovers(target: Path) -> list[Path]:
    """What writers of `target` have next to it, whether they still run or were killed."""
    pattern = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{32}\.saving")
    try:
        return [one for one in target.parent.iterdir() if pattern.fullmatch(one.name)]
    except OSError:
        return []


def sweep(target: Path) -> None:
    """Remove what killed writers left; an older folder that one had moved aside comes back."""
    for left in _leftovers(target):
        with suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY)
            try:
                if _lock(descriptor) is not True:
                    continue
                if (left / _OLD).is_dir() and not target.exists():
                    (left / _OLD).replace(target)
                if left.is_dir():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink()
            finally:
                os.close(descriptor)


@contextmanager
def _scratch_folder(target: Path) -> Iterator[Path]:
    """A folder next to `target`, on the same file system, removed at the end."""
    sweep(target)
    scratch, descriptor = _temporary(target), None
    try:
        while not scratch.is_dir():  # again, if it was swept before it was locked
            scratch.mkdir()
            with suppress(OSError):  # folders cannot be opened everywhere
                descriptor = os.open(scratch, os.O_RDONLY)
                _lock(descriptor)
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def _put(new: Path, path: Path, aside: Path) -> None:
    """Move a new folder to its place, and the old one away."""
    if _exchanged(new, path):
        return
    # Either there is no old folder, or there is no exchange here: then the old one comes back if
    # the second move fails, and `sweep` brings it back if this process ends between the two.
    try:
        if path.exists():
            path.replace(aside)
        new.replace(path)
    except BaseException:
        if aside.exists() and not path.exists():
            aside.replace(path)
        raise


def _exchanged(one: Path, other: Path) -> bool:
    """Let two folders change places in one move; False where that cannot be."""
    import ctypes

    swap, here = 2, -100  # RENAME_EXCHANGE or RENAME_SWAP, AT_FDCWD
    if sys.platform == "win32" or not other.exists():
        return False
    library, paths = ctypes.CDLL(None), (os.fsencode(one), os.fsencode(other))
    if hasattr(library, "renameat2"):
        return bool(library.renameat2(here, paths[0], here, paths[1], swap) == 0)
    if hasattr(library, "renamex_np"):  # macOS
        return bool(library.renamex_np(*paths, swap) == 0)
    return False


def _identity(path: Path) -> tuple[int, int, int] | None:
    """What tells one folder from another that has its name later; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns  # inodes alone are used again


def _lock(descriptor: int) -> bool | None:
    """Whether the lock of an open file or folder was free, and is ours until it is closed.

    None where there are no locks, as on Windows and on some network file systems.
    """
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def _to_disk(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    with suppress(PermissionError):  # folders cannot be opened on Windows
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
