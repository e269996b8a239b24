"""Where results are written."""

from __future__ import annotations

import json
from pathlib import Path

from pointdep.errors import InputError

_RESULTS = ("figure1.json", "results.json")  # where commands write how results were made


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


def refuse_other_results(folder: Path, command: str) -> None:
    """InputError where the folder holds the results of another command than this."""
    for summary in (folder / name for name in _RESULTS):
        if not summary.exists():
            continue
        try:
            before = json.loads(summary.read_text("utf-8"))["command"]
        except (OSError, ValueError, KeyError, TypeError):
            before = "something else"
        if before != command:
            raise InputError(
                f"{folder} holds the results of another run ({before}): choose another --output, "
                "or remove it"
            )
