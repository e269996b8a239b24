"""What `--show-x` and `--show-y` name: a column of the data's files, or a file of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pointdep.auditing.report.content import IMAGES, SOUNDS
from pointdep.data.files import (
    FORMATS,
    is_keyed,
    is_table,
    keyed_arrays,
    loading,
    read_npy,
    read_vec,
    table_columns,
)
from pointdep.data.readers import read_column
from pointdep.errors import InputError


def read_shown(
    option: str, given: str | None, side: int, files: Sequence[Path], values: Any
) -> Any:
    """One value a row, as `Audit.to_html` takes it.

    option: "--show-x" or "--show-y", for errors; side: 0 for x, 1 for y; files: those of the data,
    and values what was read from them for this side, shown where nothing was given.
    """
    own = Path(files[min(side, len(files) - 1)])
    if given is None:
        return read_vec(own)[0] if own.suffix.lower() == ".vec" else values
    for path in dict.fromkeys([own, *map(Path, files)]):
        if given in _names(path):
            return _read(path, given)
    path, name = _file_and_name(given)
    known = sorted((*FORMATS, ".txt"))
    if path.suffix.lower() not in known:
        raise InputError(
            f"{option} {given!r} is neither a column of {' or '.join(str(file) for file in files)} "
            f"nor a file of the kinds {', '.join(known)}"
        )
    return _read(path, name)


def _file_and_name(given: str) -> tuple[Path, str | None]:
    """ "table.csv:caption" -> its file and its column."""
    file, colon, name = given.rpartition(":")
    named = is_keyed(Path(file)) or is_table(Path(file))
    if colon and not Path(given).exists() and named:
        return Path(file), name
    return Path(given), None


def _names(path: Path) -> Sequence[str]:
    if is_table(path):
        return table_columns(path)
    return list(keyed_arrays(path, None)) if is_keyed(path) else []


def _read(path: Path, name: str | None) -> Any:
    suffix = path.suffix.lower()
    if suffix == ".txt":
        with loading(path):
            return _beside(path, path.read_text("utf-8", "replace").removesuffix("\n").split("\n"))
    if suffix == ".vec":
        return read_vec(path)[0]
    if suffix == ".npy":
        return _beside(path, read_npy(path))
    if is_table(path):
        return _beside(path, read_column(path, name))
    arrays = keyed_arrays(path, None if name is None else [name])
    if len(arrays) > 1:
        raise InputError(
            f"{path} holds {', '.join(arrays)}: name one, as {path}:{next(iter(arrays))}"
        )
    return _beside(path, next(iter(arrays.values())))


def _beside(path: Path, values: Any) -> Any:
    """Names of pictures and sounds count from the folder of the file that holds them."""
    if (
        getattr(values, "ndim", 1) != 1
        or getattr(getattr(values, "dtype", None), "kind", "O") in "biuf"
    ):
        return values
    return [
        str(path.parent / value)
        if isinstance(value, str) and Path(value[-300:]).suffix.lower() in (*IMAGES, *SOUNDS)
        else value
        for value in values
    ]
