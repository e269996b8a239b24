"""The file formats, one entry each in `FORMATS`; every failure is one line that names the file."""

from __future__ import annotations

import codecs
import csv
import json
import math
import sys
import zipfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pointdep.errors import (
    DataWarning,
    InputError,
    PointdepError,
    listed,
    unknown_name,
    warn_caller,
)

if TYPE_CHECKING:
    from pointdep.data.raw import Array


_QUOTED = 300  # characters of another library's message

# What a file promises is believed up to this size, or this many times its own. Data that compress
# better are rare; without a limit 6 MB can become 6 GB before anything is compared.
_SURELY = 1 << 28
_EXPANDS = 100


def require_plausible(path: object, promised: int, stored: int) -> None:
    """InputError when what a file of `stored` bytes promises to hold cannot be meant."""
    if promised < 0 or promised > max(_SURELY, _EXPANDS * stored):
        size = f"{promised / 1e9:.1f} GB from {stored:,} bytes"
        raise InputError(f"{path} promises {size}: it is damaged, or write it without compression")


@contextmanager
def reading(
    what: object, otherwise: str = "of another kind", error: type[PointdepError] = InputError
) -> Iterator[None]:
    """Turn whatever goes wrong while `what` is read into an error that names it.

    otherwise: what it may be if it is neither truncated nor damaged.
    """
    try:
        yield
    except PointdepError:
        raise
    except MemoryError as fault:
        raise error(f"{what} cannot be read: it takes more memory than there is") from fault
    except PermissionError as fault:
        raise error(f"{what} may not be read (permission denied)") from fault
    except Exception as fault:
        # Damaged files raise errors of many unrelated classes in the libraries that parse them.
        # They may quote the whole file.
        lines = str(fault)[:_QUOTED].strip().splitlines() or [type(fault).__name__]
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


def _numpy_header(path: Path, file: IO[bytes], size: int) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of the array in an open .npy file of `size` bytes, which must hold it."""
    from numpy.lib import format as numpy_format

    version = numpy_format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise InputError(f"{path} is of version {version[0]}.{version[1]}, not 1.0 or 2.0")
    old = version == (1, 0)
    header = numpy_format.read_array_header_1_0 if old else numpy_format.read_array_header_2_0
    shape, _, dtype = header(file)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded")
    if dtype.itemsize == 0:
        raise InputError(f"{path} holds values of no size ({dtype}): it is damaged or of no use")
    promised = file.tell() + math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or promised > size:
        held = f"{promised} bytes where it has {size}"
        raise InputError(f"{path} is truncated or damaged: its header promises {held}")
    return shape, dtype


def _require_text(path: Path, values: Array) -> None:
    """InputError for text whose characters do not exist, as after a flipped bit."""
    import numpy as np

    if values.dtype.kind == "U" and values.size:
        codes = np.ascontiguousarray(values).view(values.dtype.byteorder + "u4")
        if codes.max() > sys.maxunicode or ((codes >= 0xD800) & (codes < 0xE000)).any():
            raise InputError(f"{path} holds characters that do not exist: it is damaged")


def read_npy(path: Path, *, empty: bool = False) -> Array:
    """The array of a .npy file, memory-mapped; empty: it may be without rows."""
    import numpy as np

    with _loading_numpy(path):
        with path.open("rb") as file:
            if file.read(2) == b"PK":
                raise InputError(f"{path} is a .npz archive: rename it to end in .npz")
            file.seek(0)
            shape, _ = _numpy_header(path, file, path.stat().st_size)
        values: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        _require_text(path, values)
    _require_rows(path, [shape[1:] if empty else shape])
    return values


def _npz_members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The arrays of an archive; it may hold other files too."""
    listed = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    return {info.filename.removesuffix(".npy"): info for info in listed}


@contextmanager
def _opened_npz(path: Path) -> Iterator[zipfile.ZipFile]:
    with _loading_numpy(path), path.open("rb") as file:
        if file.read(2) != b"PK":
            raise InputError(f"{path} is a single array: rename it to end in .npy")
        with zipfile.ZipFile(file) as archive:
            yield archive


def _npz_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    with _opened_npz(path) as archive:
        shapes = {}
        for key, info in _npz_members(archive).items():
            with archive.open(info) as member:
                shapes[key] = _numpy_header(path, member, info.file_size)[0]
        return shapes


def read_npz(path: Path, keys: Sequence[str] | None) -> dict[str, Array]:
    """The named arrays of a .npz file, or all of them."""
    from numpy.lib import format as numpy_format

    arrays: dict[str, Array] = {}
    with _opened_npz(path) as archive:
        members = _npz_members(archive)
        known = _known_keys(path, keys, list(members))
        promised = sum(members[key].file_size for key in known)
        require_plausible(path, promised, path.stat().st_size)
        for key in known:
            with archive.open(members[key]) as member:
                _numpy_header(path, member, members[key].file_size)
            with archive.open(members[key]) as member:
                arrays[key] = numpy_format.read_array(member, allow_pickle=False)
            _require_text(path, arrays[key])
    _require_rows(path, [array.shape for array in arrays.values()])
    return arrays


_OF_TORCH = {"BF16", "F8_E4M3", "F8_E5M2"}  # float32 holds their values exactly, for NumPy
_TENSORS = {"F64", "F32", "F16", "BOOL"} | _OF_TORCH
_TENSORS |= {f"{sign}{bits}" for sign in "IU" for bits in (8, 16, 32, 64)}


@contextmanager
def _opened_tensors(path: Path) -> Iterator[Any]:
    from safetensors import safe_open

    # As torch tensors, because NumPy has no bfloat16.
    with loading(path), safe_open(path, framework="pt") as archive:
        yield archive


def _tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    with _opened_tensors(path) as archive:
        found = {key: archive.get_slice(key).get_shape() for key in archive.keys()}  # noqa: SIM118
    return {key: tuple(shape) for key, shape in found.items()}


def read_safetensors(path: Path, keys: Sequence[str] | None) -> dict[str, Any]:
    """The named tensors of a .safetensors file, or all of them."""
    tensors = {}
    with _opened_tensors(path) as archive:
        for key in _known_keys(path, keys, list(archive.keys())):
            kind = archive.get_slice(key).get_dtype()
            if kind not in _TENSORS:
                raise InputError(f"{path}: {key!r} is of type {kind}: save it as F32 or F16")
            tensor = archive.get_tensor(key)
            tensors[key] = tensor.float() if kind in _OF_TORCH else tensor
    _require_rows(path, [tuple(tensor.shape) for tensor in tensors.values()])
    return tensors


def table_columns(path: Path) -> list[str]:
    """The names of the columns of a table."""
    with loading(path):
        return list(_table_format(path).names(path))


def read_table(path: Path, columns: Sequence[str] | None) -> Any:
    """The named columns of a table, or all of them, as a pandas DataFrame."""
    known = table_columns(path)
    if path.suffix.lower() in (".csv", ".tsv"):
        if all(is_number(name) for name in known):
            raise InputError(f"{path} has numbers in its first line: add one with the names")
        if len(known) == 1 and set(";\t|,") & set(known[0]):
            wanted = "tabs" if _separator(path) == "\t" else "commas"
            raise InputError(f"{path} has one column, {known[0]!r}: separate columns by {wanted}")
    for name in columns or ():
        if name not in known:
            raise InputError(f"{path}: {unknown_name('column', name, known)}")
    chosen = None if columns is None else list(columns)
    if (count := len(known if chosen is None else chosen)) > _MOST_COLUMNS:
        most = f"a table may have {_MOST_COLUMNS:,}"
        raise InputError(f"{path} has {count:,} columns: {most}; save an array, as .npy")
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
            raise InputError(f"{path} holds no array {key!r}: it holds {listed(sorted(found))}")
    return found if keys is None else keys


def _require_rows(path: Path, shapes: Iterable[Sequence[int]]) -> None:
    if any(0 in shape for shape in shapes):
        raise InputError(f"{path} is empty: it holds an array without rows")


@dataclass(frozen=True)
class ArrayFormat:
    """A file that holds one array. load: path -> (rows,) or (rows, columns)."""

    load: Callable[[Path], Any]


@dataclass(frozen=True)
class KeyedFormat:
    """A file that holds arrays by name. load: (path, names or None for all) -> the arrays.

    shapes: of all of them, by name, without reading them.
    """

    load: Callable[[Path, Sequence[str] | None], dict[str, Any]]
    shapes: Callable[[Path], dict[str, tuple[int, ...]]]


@dataclass(frozen=True)
class TableFormat:
    """A file of named columns. load: (path, columns or None for all) -> a pandas DataFrame."""

    names: Callable[[Path], Sequence[Any]]
    load: Callable[[Path, list[str] | None], Any]


# With more columns pandas takes longer than anyone waits.
_MOST_COLUMNS = 100_000


def _separator(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


_NO_TEXT = bytes([*range(9), *range(14, 27), *range(28, 32)])  # control characters


def encoding_of(path: Path, *, told: bool = True) -> str:
    """UTF-8, or what a text file of another encoding is most often in, with a warning if `told`."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        try:
            while block := file.read(1 << 20):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            if block.translate(None, _NO_TEXT) != block:
                raise InputError(f"{path} is no text: it is damaged or of another kind") from None
            if told:
                warn_caller(f"{path} is not UTF-8: read as Windows-1252 (Latin-1)", DataWarning)
            return "cp1252"
    return "utf-8-sig"


def _csv_names(path: Path) -> list[str]:
    """The names in the header line, each once, as pandas makes them."""
    header: list[str] = []
    with _csv_records(path) as records:
        header = next((cells for cells in records if len(cells) > 1 or "".join(cells).strip()), [])
    if not header:
        raise ValueError("it has no header line")
    names: dict[str, None] = {}
    count: dict[str, int] = {}
    for position, cell in enumerate(header):
        name = first = cell or f"Unnamed: {position}"
        while name in names:
            count[first] = count.get(first, 0) + 1
            name = f"{first}.{count[first]}"
        names[name] = None
    return list(names)


@contextmanager
def _csv_records(path: Path) -> Iterator[Any]:
    """The records of a .csv file, as lists of texts."""
    most = csv.field_size_limit(sys.maxsize)
    try:
        how: dict[str, Any] = {"encoding": encoding_of(path, told=False), "errors": "replace"}
        with path.open(newline="", **how) as file:
            yield csv.reader(file, delimiter=_separator(path))
    finally:
        csv.field_size_limit(most)


def _csv(path: Path, columns: list[str] | None) -> Any:
    import pandas as pd

    names, separator = _csv_names(path), _separator(path)
    _require_fields(path, len(names))
    at = list(range(len(names)))
    if columns is not None:
        wanted = set(columns)
        at = [position for position, name in enumerate(names) if name in wanted]
    how: dict[str, Any] = {"encoding": encoding_of(path), "encoding_errors": "replace"}
    table = pd.read_csv(path, sep=separator, usecols=at, index_col=False, **how)
    table.columns = [names[position] for position in at]
    return table


def _require_fields(path: Path, width: int) -> None:
    """InputError naming the first line that has more fields than the header.

    pandas does not tell: it cuts such rows, or takes the first column for an index.
    """
    separator = _separator(path).encode()
    with path.open("rb") as file:
        if all(line.count(separator) < width for line in file):
            return
    # Some of the separators may stand in quotes.
    with _csv_records(path) as records:
        for cells in records:
            if len(cells) > width:
                found = f"{len(cells)} fields where the header has {width}"
                raise InputError(f"{path} line {records.line_num}: {found}")


def _json_lines(path: Path, columns: list[str] | None) -> Any:
    import pandas as pd

    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: every line must be an object, as {{...}}")
    return pd.DataFrame(rows, columns=columns)


def _parquet(path: Path, columns: list[str] | None) -> Any:
    from pointdep.data.shards import read_tables

    return read_tables(path, columns)


def _parquet_names(path: Path) -> Sequence[Any]:
    from pointdep.data.shards import first_schema

    return list(first_schema(path).names)


FORMATS: dict[str, ArrayFormat | KeyedFormat | TableFormat] = {
    ".csv": TableFormat(_csv_names, _csv),
    ".jsonl": TableFormat(lambda path: list(_json_lines(path, None).columns), _json_lines),
    ".npy": ArrayFormat(read_npy),
    ".npz": KeyedFormat(read_npz, _npz_shapes),
    ".parquet": TableFormat(_parquet_names, _parquet),
    ".safetensors": KeyedFormat(read_safetensors, _tensor_shapes),
    ".tsv": TableFormat(_csv_names, _csv),
    ".vec": ArrayFormat(lambda path: read_vec(path)[1]),
}
"""How files are read, by suffix. A new format is an entry here; `data.shards.SHARDS` has those
whose rows can be read in parts."""


# Those that a folder of shards may have: `data.shards.SHARDS` reads them.
SHARD_SUFFIXES = (".parquet", ".arrow", ".feather", ".ipc", ".npy")


def is_table(path: Path) -> bool:
    """Whether a file has named columns, by its suffix."""
    return not path.is_dir() and isinstance(FORMATS.get(path.suffix.lower()), TableFormat)


def is_keyed(path: Path) -> bool:
    """Whether a file holds arrays by name, by its suffix."""
    return isinstance(FORMATS.get(path.suffix.lower()), KeyedFormat)


def array_names(path: Path) -> list[str]:
    """The names of the arrays in a file that holds several."""
    found = FORMATS[path.suffix.lower()]
    assert isinstance(found, KeyedFormat)
    return list(found.shapes(path))


def keyed_arrays(path: Path, keys: Sequence[str] | None) -> dict[str, Any]:
    """The named arrays of a file that holds several, or all of them."""
    found = FORMATS[path.suffix.lower()]
    assert isinstance(found, KeyedFormat)
    return found.load(path, keys)


def _table_format(path: Path) -> TableFormat:
    found = FORMATS[path.suffix.lower()]
    assert isinstance(found, TableFormat)
    return found
