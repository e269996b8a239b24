"""Files with texts, pictures and sounds: what they hold, as the sides of pairs.

Tables that name files or hold texts or the content of files; folders of pictures or sounds; lines
of text; data sets that Hugging Face's `datasets` has saved; and tar archives of WebDataset.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from pointdep.data import files
from pointdep.data.media import PICTURES, SOUNDS, RawRows, files_of, kind_of, raw_rows
from pointdep.errors import InputError, listed, unknown_name

TEXTS = (".txt", ".text")
_CAPTIONS = (".txt", ".caption", ".text")


@dataclass(frozen=True, eq=False)
class RawFile:
    """What one of these files holds: a pandas DataFrame, and folders of the files that it names.

    A column without a name, "", is the only one.
    """

    frame: Any
    folders: tuple[Path, ...]


def open_raw(path: Path) -> RawFile | None:
    """The rows of a file of these kinds; None for others, among them tables."""
    if path.is_dir():
        return _open_folder(path)
    if path.suffix.lower() in files.FORMATS:  # a user's own format may be of .txt
        return None  # told by its name: what reads archives loads torch
    if path.suffix.lower() in TEXTS:
        return RawFile(_frame({"": _lines(path)}), (path.parent,))
    from pointdep.data.images.image_files import is_tar

    return RawFile(_archive(path), ()) if is_tar(path) else None


def _open_folder(path: Path) -> RawFile | None:
    if (path / "dataset_dict.json").exists():
        splits = sorted(p.name for p in path.iterdir() if (p / "state.json").exists())
        raise InputError(
            f"{path} holds several sets: name one, as {path / (splits or ['train'])[0]}"
        )
    if (path / "state.json").exists():
        return RawFile(_saved_set(path), (path,))
    for kind in ("picture", "sound"):
        found = files_of(path, kind)
        if found:
            return RawFile(_frame({"": [str(one.relative_to(path)) for one in found]}), (path,))
    return None


def _frame(columns: dict[str, Any]) -> Any:
    import pandas as pd

    return pd.DataFrame({name: pd.Series(v, dtype=object) for name, v in columns.items()})


def _lines(path: Path) -> list[str]:
    with files.loading(path):
        content = path.read_bytes()
        return content.decode(files.encoding_of(path), "replace").removesuffix("\n").split("\n")


def _saved_set(path: Path) -> Any:
    """The rows of `Dataset.save_to_disk`: Arrow streams, named in state.json."""
    import pyarrow as pa

    with files.loading(path / "state.json"):
        state = json.loads((path / "state.json").read_text("utf-8"))
        names = [str(entry["filename"]) for entry in state["_data_files"]]
    parts = []
    for name in names:
        with files.loading(path / name), pa.memory_map(str(path / name)) as source:
            parts.append(pa.ipc.open_stream(source).read_all())
    if not parts or not sum(map(len, parts)):
        raise InputError(f"{path} is empty: it has no rows")
    table = pa.concat_tables(parts)
    if state.get("_indices_data_files"):
        raise InputError(f"{path} was saved with a selection of rows: call flatten_indices() first")
    return table.to_pandas()


def _archive(path: Path) -> Any:
    """The samples of an archive: files that have their names up to the first dot in common."""
    from pointdep.data.images.image_files import archive_files

    samples: dict[str, dict[str, Any]] = {}
    found = archive_files(path, lambda name: not PurePosixPath(name).name.startswith("."))
    for name in found.content:
        base = PurePosixPath(name)
        stem, dot, suffix = base.name.partition(".")
        if dot:
            content = found.read(name)
            cells = samples.setdefault(str(base.parent / stem), {})
            cells |= _cells(suffix.lower(), content)
    if not samples:
        raise InputError(f"{path} holds no files with a suffix, as a WebDataset archive does")
    names = dict.fromkeys(name for cells in samples.values() for name in cells)
    return _frame({n: [cells.get(n) for cells in samples.values()] for n in names})


def _cells(suffix: str, content: bytes) -> Iterator[tuple[str, Any]]:
    """The columns that one file of a sample gives."""
    last = f".{suffix.rpartition('.')[2]}"
    if last == ".json":
        try:
            told = json.loads(content)
        except ValueError:
            return
        if not isinstance(told, dict):
            return
        yield from ((k, v) for k, v in told.items() if isinstance(v, str | int | float))
    elif last in (*_CAPTIONS, ".cls"):
        yield suffix, content.decode("utf-8", "replace").strip()
    elif last in (*PICTURES, *SOUNDS):
        # A sample may be a .jpg and the next one a .png.
        yield ("picture" if last in PICTURES else "sound"), content


# Sides.


def sided(frame: Any, folders: Sequence[Path], encoder: str | None, side: str) -> object:
    """Columns of a file as one side: one column of texts or files as `RawRows`.

    encoder: what --x-encoder or --y-encoder names; side: "x" or "y".
    """
    wide = getattr(frame, "ndim", 2) != 2 or len(getattr(frame, "columns", "12")) != 1
    kind = None if wide else kind_of(frame.iloc[:, 0])
    if kind is None and encoder is not None and not wide and _is_strings(frame.iloc[:, 0]):
        kind = "text"
    if kind is None:
        if encoder is not None:
            option = f"--{side}-encoder {encoder}"
            raise InputError(f"{option} takes one column of texts or files, and {side} is none")
        return frame
    return raw_rows(frame.iloc[:, 0], kind, folders, encoder, str(frame.columns[0]) or None)


def _is_strings(values: Any) -> bool:
    return all(value is None or isinstance(value, str) for value in values[:100])


def guess_columns(frame: Any, path: Path) -> tuple[str, str]:
    """Which columns are x and y where that is clear: files and texts, or two texts."""
    kinds = {str(name): kind_of(frame[name]) for name in frame.columns}
    of_files = [name for name, kind in kinds.items() if kind in ("picture", "sound")]
    texts = [name for name, kind in kinds.items() if kind == "text"]
    others = [name for name, kind in kinds.items() if kind is None]
    if len(of_files) == 1 and (len(texts) == 1 or (not texts and len(others) == 1)):
        return of_files[0], (texts or others)[0]
    if len(of_files) == 2 and not texts:
        return of_files[0], of_files[1]
    if not of_files and len(texts) == 2:
        return texts[0], texts[1]
    columns = f"--x-columns and --y-columns, from its columns {listed(frame.columns)}"
    raise InputError(f"{path} is a table: give {columns}")


def one_column(found: RawFile, path: Path, names: Sequence[str] | None, side: str) -> Any:
    """The named columns of a file that is one side, or its only one."""
    frame = found.frame
    if names is None and len(frame.columns) > 1:
        raise InputError(f"{path}: give --{side}-columns, from its columns {listed(frame.columns)}")
    for name in names or ():
        if name not in frame.columns:
            raise InputError(f"{path}: {unknown_name('column', name, list(frame.columns))}")
    return frame if names is None else frame[list(names)]


def beside_folder(
    frame: Any, folder_is_x: bool, columns: tuple[str | None, str | None]
) -> tuple[str | None, str] | None:
    """For a folder of files and a table about them: the column that names files, and the other.

    The names are None where the table has no such column, and its rows follow the files' order.
    columns: those that were named, of x and y.
    """
    own, other = columns if folder_is_x else columns[::-1]
    kinds = {str(name): kind_of(frame[name]) for name in frame.columns}
    names = [own] if own else [n for n, kind in kinds.items() if kind in ("picture", "sound")]
    rest = [other] if other else [n for n, kind in kinds.items() if kind == "text"]
    if not rest:
        rest = [name for name in kinds if name not in names]
    if len(names) > 1 or len(rest) != 1:
        return None
    return (names[0] if names else None), rest[0]


def group_by_file(rows: Any) -> Any:
    """A group for each file that several rows name, (n,); None if all differ or there are none."""
    if not isinstance(rows, RawRows) or rows.kind == "text":
        return None
    names = [
        str(one) if isinstance(one, str | Path) else f"row {n}" for n, one in enumerate(rows.values)
    ]
    return np.array(names) if len(set(names)) < len(names) else None
