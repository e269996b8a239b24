"""The file formats, one entry each in `FORMATS`; every failure is one line that names the file."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pointdep.errors import DataWarning, InputError, unknown_name, warn_caller

if TYPE_CHECKING:
    from pointdep.data.raw import Array


@contextmanager
def reading(
    what: object, otherwise: str = "of another kind", error: type[InputError] = InputError
) -> Iterator[None]:
    """Turn whatever goes wrong while `what` is read into an InputError that names it.

    otherwise: what it may be if it is neither truncated nor damaged.
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except PermissionError as fault:
        raise error(f"{what} may not be read (permission denied)") from fault
    except Exception as fault:
        # Damaged files raise errors of many unrelated classes in the libraries that parse them.
        lines = str(fault).strip().splitlines() or [type(fault).__name__]
        what_is = f"it is truncated, damaged or {otherwise}: {lines[0]}"
        raise error(f"{what} cannot be read, {what_is}") from fault


@contextmanager
def loading(path: Path) -> Iterator[None]:
    """The same for a user's file, which must be there and not be empty."""
    with reading(path, f"no {path.suffix} file"):
        if not path.exists():
            raise InputError(f"{path} does not exist")
        if path.is_dir():
            raise InputError(f"{path} is a folder: give a file")
        if path.stat().st_size == 0:
            raise InputError(f"{path} is empty (0 bytes)")
        yield


@contextmanager
def _loading_numpy(path: Path) -> Iterator[None]:
    """The same for a file of numpy's, which may not hold Python objects."""
    objects = InputError(
        f"{path} holds Python objects (a pickle), which is not loaded for safety: save numbers"
    )
    with loading(path):
        with path.open("rb") as file:
            start = file.read(6)
        # What begins otherwise numpy would take for a pickle, and offer to load as one.
        if start[:1] == b"\x80":  # as every pickle since protocol 2 starts
            raise objects
        if not start.startswith((b"\x93NUMPY"[: len(start)], b"PK"[: len(start)])):
            raise InputError(f"{path} cannot be read, it is damaged or no {path.suffix} file")
        try:
            yield
        except ValueError as error:
            if "Python objects" in str(error) or "Object arrays" in str(error):
                raise objects from error
            raise


def read_npy(path: Path, *, empty: bool = False) -> Array:
    """The array of a .npy file, memory-mapped; empty: it may be without rows."""
    import numpy as np

    with _loading_numpy(path):
        values = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(values, np.ndarray):
            raise InputError(f"{path} is a .npz archive: rename it to end in .npz")
    if not empty:
        _require_rows(path, [values])
    return values


def read_npz(path: Path, keys: Sequence[str] | None) -> dict[str, Array]:
    """The named arrays of a .npz file, or all of them."""
    import numpy as np

    with _loading_numpy(path):
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise InputError(f"{path} is a single array: rename it to end in .npy")
        with archive:
            arrays = {key: archive[key] for key in _known_keys(path, keys, archive.files)}
    _require_rows(path, arrays.values())
    return arrays


def read_safetensors(path: Path, keys: Sequence[str] | None) -> dict[str, Any]:
    """The named tensors of a .safetensors file, or all of them."""
    from safetensors import safe_open

    # As torch tensors, because NumPy has no bfloat16.
    with loading(path), safe_open(path, framework="pt") as archive:
        known = _known_keys(path, keys, list(archive.keys()))
        tensors = {key: archive.get_tensor(key) for key in known}
    _require_rows(path, tensors.values())
    return tensors


def table_columns(path: Path) -> list[str]:
    """The names of the columns of a table."""
    with loading(path):
        return [str(name) for name in _table_format(path).names(path)]


def read_table(path: Path, columns: Sequence[str] | None) -> Any:
    """The named columns of a table, or all of them, as a pandas DataFrame."""
    known = table_columns(path)
    if path.suffix.lower() == ".csv":
        if all(is_number(name) for name in known):
            raise InputError(f"{path} has numbers in its first line: add one with the names")
        if len(known) == 1 and set(";\t|") & set(known[0]):
            raise InputError(f"{path} has one column, {known[0]!r}: separate columns by commas")
    for name in columns or ():
        if name not in known:
            raise InputError(f"{path}: {unknown_name('column', name, known)}")
    chosen = None if columns is None else list(columns)
    with loading(path):
        table = _table_format(path).load(path, chosen)
        if len(table) == 0:
            raise InputError(f"{path} is empty: it has a header but no rows")
    return _without_index(table, path) if chosen is None else table[chosen]


def _without_index(table: Any, path: Path) -> Any:
    """The table less the row numbers that pandas writes as a first column without a name.

    On both sides they would make every row of x recognise its own row of y.
    """
    first = str(table.columns[0])
    unnamed = first.startswith("Unnamed:") or first == "__index_level_0__"
    if table.shape[1] < 2 or not unnamed or list(table.iloc[:, 0]) != list(range(len(table))):
        return table
    warn_caller(f"{path}: left out the first column, without a name: it counts rows", DataWarning)
    return table.iloc[:, 1:]


def is_number(text: str) -> bool:
    """Whether a text can be read as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_vec(path: Path) -> tuple[list[str], Array]:
    """Words and their (rows, dim) float32 vectors from word2vec's text format.

    The first line is "rows dim", each other one "word v1 ... v_dim".
    """
    import numpy as np

    words: list[str] = []
    numbers = array("f")
    with loading(path), path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        header = lines.readline().split()
        if len(header) != 2 or not all(cell.isdecimal() and int(cell) for cell in header):
            raise InputError(f'{path} line 1: a .vec file starts with "rows dimensions", above 0')
        rows, dim = map(int, header)
        for number, line in enumerate(lines, start=2):
            # A word may itself hold spaces, so the numbers are taken from the right.
            word, *cells = line.rstrip(" \r\n").rsplit(" ", dim)
            where = f"{path} line {number}"
            if len(words) == rows:
                raise InputError(f"{where}: more rows than the {rows} in line 1")
            if len(cells) != dim:
                raise InputError(f"{where}: {len(cells)} numbers where line 1 promises {dim}")
            try:
                numbers.extend([float(cell) for cell in cells])
            except ValueError as error:
                raise InputError(f"{where}: not a word and then {dim} numbers ({error})") from error
            words.append(word)
    if len(words) < rows:
        raise InputError(f"{path} ends after {len(words)} rows where line 1 promises {rows}")
    return words, np.frombuffer(numbers, dtype=np.float32).reshape(rows, dim)


def read_vec_pair(x_path: Path, y_path: Path) -> tuple[list[str], Array, Array]:
    """Words and the vectors of two .vec files, which have the same words in the same order."""
    (x_words, x), (y_words, y) = read_vec(x_path), read_vec(y_path)
    for row, (one, other) in enumerate(zip_longest(x_words, y_words)):
        if one != other:
            differ = f"line {row + 2} is {one!r} in {x_path} and {other!r} in {y_path}"
            raise InputError(f"{differ}: both need the same words in the same order")
    return x_words, x, y


def _known_keys(path: Path, keys: Sequence[str] | None, found: Sequence[str]) -> Sequence[str]:
    if not found:
        raise InputError(f"{path} is empty: it holds no arrays")
    for key in keys or ():
        if key not in found:
            raise InputError(f"{path} holds no array {key!r}: it holds {', '.join(sorted(found))}")
    return found if keys is None else keys


def _require_rows(path: Path, arrays: Iterable[Any]) -> None:
    if any(len(values.shape) > 0 and values.shape[0] == 0 for values in arrays):
        raise InputError(f"{path} is empty: it holds an array without rows")


@dataclass(frozen=True)
class ArrayFormat:
    """A file that holds one array. load: path -> (rows,) or (rows, columns)."""

    load: Callable[[Path], Any]


@dataclass(frozen=True)
class KeyedFormat:
    """A file that holds arrays by name. load: (path, names or None for all) -> the arrays."""

    load: Callable[[Path, Sequence[str] | None], dict[str, Any]]


@dataclass(frozen=True)
class TableFormat:
    """A file of named columns. load: (path, columns or None for all) -> a pandas DataFrame."""

    names: Callable[[Path], Sequence[Any]]
    load: Callable[[Path, list[str] | None], Any]


def _csv(path: Path, columns: list[str] | None = None, rows: int | None = None) -> Any:
    import pandas as pd

    return pd.read_csv(path, usecols=columns, nrows=rows)


def _parquet(path: Path, columns: list[str] | None) -> Any:
    import pandas as pd

    return pd.read_parquet(path, columns=columns)


def _parquet_names(path: Path) -> Sequence[Any]:
    import pyarrow.parquet as pq

    return list(pq.read_schema(path).names)


FORMATS: dict[str, ArrayFormat | KeyedFormat | TableFormat] = {
    ".csv": TableFormat(lambda path: _csv(path, rows=0).columns, _csv),
    ".npy": ArrayFormat(read_npy),
    ".npz": KeyedFormat(read_npz),
    ".parquet": TableFormat(_parquet_names, _parquet),
    ".safetensors": KeyedFormat(read_safetensors),
    ".vec": ArrayFormat(lambda path: read_vec(path)[1]),
}
"""How files are read, by suffix. A new format is an entry here; `data.shards.SHARDS` has those
whose rows can be read in parts."""


def is_table(path: Path) -> bool:
    """Whether a file has named columns, by its suffix."""
    return not path.is_dir() and isinstance(FORMATS.get(path.suffix.lower()), TableFormat)


def is_keyed(path: Path) -> bool:
    """Whether a file holds arrays by name, by its suffix."""
    return isinstance(FORMATS.get(path.suffix.lower()), KeyedFormat)


def keyed_arrays(path: Path, keys: Sequence[str] | None) -> dict[str, Any]:
    """The named arrays of a file that holds several, or all of them."""
    found = FORMATS[path.suffix.lower()]
    assert isinstance(found, KeyedFormat)
    return found.load(path, keys)


def _table_format(path: Path) -> TableFormat:
    found = FORMATS[path.suffix.lower()]
    assert isinstance(found, TableFormat)
    return found
