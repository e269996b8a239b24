"""Where results are written."""

from __future__ import annotations

from pathlib import Path

from pointdep.errors import InputError


def prepare_folder(folder: Path) -> None:
    """Make the folder, or refuse it before anything is run."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: results are written as a folder")
    if not folder.resolve().parent.is_dir():
        raise InputError(f"cannot write {folder}: the folder above it does not exist")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from None
