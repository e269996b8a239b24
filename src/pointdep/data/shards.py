"""Files of rows that are read in parts: Parquet by row groups, Arrow by record batches, .npy."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from pointdep.data.files import SHARD_SUFFIXES, loading, read_npy, reading, require_plausible
from pointdep.data.raw import MEND, Array
from pointdep.data.row_source import ArrayRows, Rows, RowSource
from pointdep.errors import InputError, listed, unknown_name

Names = Sequence[str] | None
"""Columns; None for all there are."""
Batches = Iterator[tuple[int, Any]]
"""Record batches, each with the number of its first row."""

# Columns of Arrow tables as (rows, width) arrays of numbers.


@dataclass(frozen=True)
class Layout:
    """Which columns of a table make the rows: one column of lists, or columns of single numbers.

    width: numbers in a row; dtype: of all of them.
    """

    columns: tuple[str, ...]
    width: int
    dtype: np.dtype[Any]
    lists: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns of numbers; those of lists have their positions, as in an array."""
        return tuple(str(k) for k in range(self.width)) if self.lists else self.columns

    def __str__(self) -> str:
        if self.lists:
            return f"rows of {self.width} numbers ({self.dtype})"
        return f"the columns {', '.join(self.columns)} ({self.dtype})"


def _checked_schema(path: Path, schema: Any) -> Any:
    """The schema of an Arrow or Parquet file, if all its names and types can be read."""
    names = [str(field.name) for field in schema if str(field.type)]
    if not names:
        raise InputError(f"{path} is empty: it has no columns")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{path} has more than one column {twice!r}: give each a name of its own")
    return schema


def row_index(schema: Any) -> set[str]:
    """The columns that pandas keeps the row numbers or names of a table in."""
    try:
        kept = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))["index_columns"]
        return {name for name in kept if isinstance(name, str)}
    except (LookupError, TypeError, ValueError, RecursionError):
        return set()  # what pandas says of itself is not needed to read the columns


def _data_columns(schema: Any) -> list[str]:
    """All columns but the row index, if that leaves some."""
    names, index = [str(name) for name in schema.names], row_index(schema)
    return [name for name in names if name not in index] or names


def has_lists(schema: Any, columns: Names) -> bool:
    """Whether one of the named columns, or of all, is of lists."""
    return any(_is_list(field.type) for field in schema if columns is None or field.name in columns)


def is_numeric(schema: Any, columns: Names) -> bool:
    """Whether the named columns, or all, are numbers or lists of them (no categories)."""
    fields = [field for field in schema if columns is None or field.name in columns]
    return all(_dtype(field.type) is not None for field in fields)


def find_layout(path: Path | str, schema: Any, columns: Names, first: Any, option: str) -> Layout:
    """How rows are made of the columns of a file; first: called for a batch of its first row.

    columns: those wanted, or None for all; option: how a user names them, for the message.
    """
    known = [str(name) for name in schema.names]
    for name in columns or ():
        if name not in known:
            raise InputError(f"{path}: {unknown_name('column', name, known)}")
    chosen = tuple(_data_columns(schema) if columns is None else columns)
    types = {name: schema.field(name).type for name in chosen}
    lists = [name for name, kind in types.items() if _is_list(kind)]
    if lists and len(chosen) > 1:
        what = f"{path} has the column {lists[0]!r} of lists beside others"
        raise InputError(f"{what}: name one column with {option}, from {listed(known)}")
    dtypes = []
    for name, kind in types.items():
        if (dtype := _dtype(kind)) is None:
            raise InputError(f"{path}: column {name!r} is of type {kind}, which holds no numbers")
        dtypes.append(dtype)
    if not lists:
        return Layout(chosen, len(chosen), np.result_type(*dtypes), False)
    width = getattr(types[chosen[0]], "list_size", -1)
    if width <= 0:
        column = first().column(chosen[0])
        _require_no_nulls(column, chosen[0], path, 0)
        width = len(column[0])
    if width == 0:
        raise InputError(f"{path}: column {chosen[0]!r} has an empty list in row 0")
    return Layout(chosen, int(width), dtypes[0], True)


def to_matrix(batch: Any, layout: Layout, path: Path | str, row: int) -> Array:
    """A record batch that begins at this row of its file -> (rows, width)."""
    if not layout.lists:
        columns = [_numbers(batch.column(name), name, path, row) for name in layout.columns]
        return np.column_stack(columns).astype(layout.dtype, copy=False)
    name = layout.columns[0]
    column = batch.column(name)
    _require_no_nulls(column, name, path, row)
    if hasattr(column, "value_lengths"):
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        wrong = lengths != layout.width
        if wrong.any():
            at = int(wrong.argmax())
            found = f"a list of {int(lengths[at])} numbers in row {row + at}"
            raise InputError(f"{path}: column {name!r} has {found}, others have {layout.width}")
    return _numbers(column.flatten(), name, path, row, layout.width).reshape(-1, layout.width)


def _numbers(values: Any, name: str, path: Path | str, row: int, width: int = 1) -> Array:
    _require_no_nulls(values, name, path, row, width)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _require_no_nulls(values: Any, name: str, path: Path | str, row: int, width: int = 1) -> None:
    if values.null_count:
        at = int(values.is_null().to_numpy(zero_copy_only=False).argmax()) // width
        raise InputError(f"{path}: column {name!r} has a missing value in row {row + at}: {MEND}")


def _is_list(kind: Any) -> bool:
    return str(kind).startswith(("list<", "large_list<", "fixed_size_list<"))


def _dtype(kind: Any) -> np.dtype[Any] | None:
    """NumPy's name of an Arrow type of numbers or of lists of them, None for any other."""
    names = {"halffloat": "float16", "float": "float32", "double": "float64"}
    found = str(kind.value_type if _is_list(kind) else kind)
    found = names.get(found, found)
    return np.dtype(found) if re.fullmatch(r"float(16|32|64)|u?int(8|16|32|64)", found) else None


PARQUET_BUFFER = 1 << 20  # bytes of a column read at a time, so that row groups may be large
_NPY_CUT = 64  # rows


class TableShard(ABC):
    """One file. cuts: rows of it at which reading may begin, the first 0 and the last `rows`."""

    path: Path
    cuts: Rows
    schema: Any

    @property
    def rows(self) -> int:
        return int(self.cuts[-1])

    @abstractmethod
    def batches(self, start: int, stop: int, step: int, columns: Names) -> Batches:
        """Record batches of at most `step` rows from start to stop, each with the number of its
        first row."""

    def layout(self, columns: Names, option: str) -> Layout:
        """How rows are made of its columns."""

        def first() -> Any:
            return next(self.batches(0, self.rows, 1, columns))[1]

        return find_layout(self.path, self.schema, columns, first, option)

    def read(self, start: int, stop: int, step: int, layout: Layout) -> Iterator[Array]:
        """Rows from start to stop, in pieces (at most step, width)."""
        end = start
        for row, batch in self.batches(start, stop, step, layout.columns):
            yield to_matrix(batch, layout, self.path, row)
            end = row + batch.num_rows
        if end != stop:
            raise InputError(f"{self.path} ends after row {end} where it promises {stop}")


class ParquetShard(TableShard):
    """A Parquet file, opened for each read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as file:
            self.schema = _checked_schema(path, file.schema_arrow)
            self.cuts = _plausible_cuts(path, _group_sizes(file))

    def batches(self, start: int, stop: int, step: int, columns: Names) -> Batches:
        with self._opened() as file:
            yield from parquet_batches(file, start, stop, step, columns)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        import pyarrow.parquet as pq

        how: dict[str, Any] = {"pre_buffer": False, "buffer_size": PARQUET_BUFFER}
        with loading(self.path), pq.ParquetFile(self.path, **how) as file:
            yield file


def _plausible_cuts(path: Path, sizes: Sequence[int]) -> Rows:
    """Where parts of these numbers of rows end; InputError for more than the file's size allows."""
    promised = -1 if min(sizes, default=0) < 0 else 4 * sum(sizes)
    require_plausible(path, promised, path.stat().st_size)
    return np.cumsum([0, *sizes], dtype=np.int64)


def _group_sizes(file: Any) -> list[int]:
    """Rows of the row groups of an open `ParquetFile`."""
    about = file.metadata
    return [about.row_group(k).num_rows for k in range(about.num_row_groups)]


def _between(cuts: Rows, start: int, stop: int) -> range:
    """Numbers of the stretches between cuts that hold these rows."""
    return range(int(np.searchsorted(cuts, start, "right")) - 1, int(np.searchsorted(cuts, stop)))


def parquet_batches(file: Any, start: int, stop: int, step: int, columns: Names) -> Batches:
    """Record batches of some rows of an open `ParquetFile`, each with the number of its first row.

    Only row groups that hold some of these rows are read, in pieces of at most `step` rows.
    """
    cuts = np.cumsum([0, *_group_sizes(file)], dtype=np.int64)
    groups, chosen = _between(cuts, start, stop), None if columns is None else list(columns)
    row = int(cuts[groups.start])
    for batch in file.iter_batches(step, list(groups), columns=chosen, use_threads=False):
        begin, end = max(row, start), min(row + batch.num_rows, stop)
        if end > begin:
            yield begin, batch.slice(begin - row, end - begin)
        row += batch.num_rows


class ArrowShard(TableShard):
    """An Arrow (Feather) file, memory-mapped; one in the streaming format too."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self.path, self._sound = path, set[int]()
        self._get: Callable[[int], Any]
        with loading(path):
            file = pa.memory_map(str(path))
            try:
                reader = pa.ipc.open_file(file)
            except pa.ArrowInvalid:
                file.seek(0)
                reader = pa.ipc.open_stream(file)
                kept = list(reader)
                self._get, count = kept.__getitem__, len(kept)
            else:
                self._get, count = reader.get_batch, reader.num_record_batches
            sizes = [self._get(k).num_rows for k in range(count)]
            self.schema = _checked_schema(path, reader.schema)
            self.cuts = _plausible_cuts(path, sizes)

    def _batch(self, number: int) -> Any:
        """One record batch. Arrow believes what a file says of its buffers, until it is asked."""
        with loading(self.path):
            batch = self._get(number)
            if number not in self._sound:
                batch.validate(full=True)
                self._sound.add(number)
        return batch

    def batches(self, start: int, stop: int, step: int, columns: Names) -> Batches:
        del columns  # all are mapped
        for number in _between(self.cuts, start, stop):
            batch = self._batch(number)
            begin, end = self.cuts[number : number + 2].tolist()
            last = min(stop, end)
            for row in range(max(start, begin), last, step):
                yield row, batch.slice(row - begin, min(step, last - row))


class NpyShard:
    """A .npy file, memory-mapped, as a shard without a schema."""

    schema = None

    def __init__(self, path: Path) -> None:
        self.path = path
        values = read_npy(path, empty=True)
        if values.ndim not in (1, 2) or values.dtype.kind not in "iuf":
            kind = f"{values.shape} of {values.dtype}"
            raise InputError(f"{path} holds {kind}: shards are rows of numbers")
        self.values = values if values.ndim == 2 else values[:, None]
        self.rows = len(values)
        self.cuts = np.append(np.arange(0, self.rows, _NPY_CUT, dtype=np.int64), self.rows)

    def layout(self, columns: Names, option: str) -> Layout:
        if columns is not None:
            raise InputError(f"{self.path} has no named columns: leave out {option}")
        return Layout((), self.values.shape[1], self.values.dtype, True)

    def read(self, start: int, stop: int, step: int, layout: Layout) -> Iterator[Array]:
        del layout  # an array has one only
        return ArrayRows(self.values).read(start, stop, step)


Shard = ParquetShard | ArrowShard | NpyShard
SHARDS: dict[str, type[Shard]] = {
    **dict.fromkeys(SHARD_SUFFIXES, ArrowShard),
    ".parquet": ParquetShard,
    ".npy": NpyShard,
}


class ShardedRows(RowSource):
    """The rows of files of one kind and one layout, one after the other."""

    def __init__(self, shards: Sequence[Shard], layout: Layout) -> None:
        self.shards, self.layout = shards, layout
        self.starts = np.cumsum([0, *(shard.rows for shard in shards)], dtype=np.int64)
        self.rows = int(self.starts[-1])
        self.names, self.named = layout.names, not layout.lists
        self.dtype = layout.dtype
        self.list_column = layout.columns[0] if layout.lists and layout.columns else None
        cuts = [s.cuts + at for s, at in zip(shards, self.starts[:-1], strict=True)]
        self.cuts = np.unique(np.concatenate(cuts))

    def _described(self) -> str:
        first, last = self.shards[0].path, self.shards[-1].path
        if len(self.shards) == 1:
            return f", {first}"
        return f", {len(self.shards)} files {first} to {last.name}"

    def whereabouts(self, row: int) -> str:
        shard = int(np.searchsorted(self.starts, row, side="right")) - 1
        return f"row {row - self.starts[shard]} of {self.shards[shard].path}"

    def read(self, start: int, stop: int, step: int) -> Iterator[Array]:
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        for shard, at in zip(self.shards[first:], self.starts[first:].tolist(), strict=False):
            if at >= stop:
                break
            yield from shard.read(max(start - at, 0), min(stop - at, shard.rows), step, self.layout)


def require_partners(x: object, y: object) -> None:
    """InputError naming the first shard whose number of rows is not that of its partner."""
    if isinstance(x, ShardedRows) and isinstance(y, ShardedRows):
        folders = [side.shards[0].path.parent for side in (x, y)]
        files = [[(shard.path, shard.rows) for shard in side.shards] for side in (x, y)]
        require_equal_rows(*zip(folders, files, strict=True))


ShardSizes = tuple[object, Sequence[tuple[object, int]]]
"""A folder, and its files with their numbers of rows."""


def require_equal_rows(x: ShardSizes, y: ShardSizes) -> None:
    """InputError unless row i of all x can belong to row i of all y.

    If both sides have as many files, these are partners and must have the same numbers of rows.
    """
    pairs = [sorted(pair, key=itemgetter(1)) for pair in zip(x[1], y[1], strict=False)]
    differ = [
        f"{one} has {rows} rows but its partner {other} has {others}"
        for (one, rows), (other, others) in pairs
        if rows != others
    ]
    if len(x[1]) != len(y[1]):
        n, m = (sum(rows for _, rows in files) for _, files in (x, y))
        here = f"{x[0]} has {n} rows in {len(x[1])} file(s)"
        differ = [f"{here} and {y[0]} has {m} rows in {len(y[1])}"] if n != m else []
    if differ:
        raise InputError(f"{differ[0]}: row i of each must describe the same pair")


# From a path to a source of rows.

TABLE_SHARDS = tuple(suffix for suffix, kind in SHARDS.items() if issubclass(kind, TableShard))


def open_rows(
    path: str | Path, columns: Sequence[str] | str | None = None, *, option: str = "columns="
) -> ShardedRows:
    """The rows of a file, or of a folder of shards, as they stand on disk.

    path: a .parquet, .arrow, .feather or .npy file, or a folder of such files of one kind, which
    follow each other by the numbers and letters of their names (part-2 before part-10).
    columns: one column of lists (an embedding), or columns of numbers; None for all there are.
    Nothing is read yet but the sizes and the layout of every file, which must be the same in all.
    """
    wanted = [columns] if isinstance(columns, str) else columns
    shards = [SHARDS[file.suffix.lower()](file) for file in shard_files(Path(path))]
    kept = [shard for shard in shards if shard.rows]
    if not kept:
        raise InputError(f"{path} is empty: it has no rows")
    layout = kept[0].layout(wanted, option)
    for shard in kept[1:]:
        other = shard.layout(wanted if wanted is not None else layout.columns or None, option)
        if other != layout:
            first = f"{kept[0].path} has {layout}: all shards need one schema"
            raise InputError(f"{shard.path} has {other} where {first}")
    return ShardedRows(shards, layout)


def shard_files(path: Path) -> list[Path]:
    """The file itself, or the files of a folder in their order."""
    if not path.is_dir():
        with loading(path):
            return [path]
    found = [f for f in path.iterdir() if f.is_file() and not f.name.startswith((".", "_"))]
    found.sort(key=lambda file: by_numbers(file.name))
    known = f"shards ({', '.join(SHARDS)})"
    if not found:
        raise InputError(f"{path} is a folder that holds no {known}: give one that does, or a file")
    for file in found:
        if file.suffix.lower() not in SHARDS or file.suffix.lower() != found[0].suffix.lower():
            raise InputError(f"{file} is among the shards: a folder holds one kind of {known}")
    return found


def first_schema(path: Path) -> Any:
    """The Arrow schema of the first of a path's files, None for .npy."""
    file = shard_files(path)[0]
    return SHARDS[file.suffix.lower()](file).schema


def read_tables(path: Path, columns: Names) -> Any:
    """Columns of any kind, of all files together, as a pandas DataFrame in memory."""
    import pyarrow as pa

    tables: list[Any] = []
    for file in shard_files(path):
        table = _read_table(file, columns)
        names = tables[0].schema.names if tables else table.schema.names
        if sorted(table.schema.names) == sorted(names):
            table = table.select(names)
        if tables and not table.schema.equals(tables[0].schema):
            raise InputError(f"{file} has other columns than {shard_files(path)[0]}")
        tables.append(table)
    with reading(path):
        # What pandas has written of its index could move a wanted column there.
        return pa.concat_tables(tables).replace_schema_metadata(None).to_pandas()


def _read_table(file: Path, columns: Names) -> Any:
    """The named columns of one file, or all but the row index, as an Arrow table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    shard = SHARDS[file.suffix.lower()](file)
    assert isinstance(shard, TableShard)
    known = [str(name) for name in shard.schema.names]
    for name in columns or ():
        if name not in known:
            raise InputError(f"{file} has no column {name!r}")
    chosen = _data_columns(shard.schema) if columns is None else list(columns)
    with loading(file):
        if isinstance(shard, ArrowShard):
            batches = [batch for _, batch in shard.batches(0, shard.rows, shard.rows or 1, None)]
            return pa.Table.from_batches(batches, shard.schema).select(chosen)
        kinds = [shard.schema.field(name).type for name in chosen]
        bits = sum(kind.bit_width if pa.types.is_primitive(kind) else 64 for kind in kinds)
        require_plausible(file, shard.rows * bits // 8, file.stat().st_size)
        with pq.ParquetFile(file) as opened:
            table = opened.read(columns=chosen).select(chosen)
        table.validate(full=True)
        return table


def by_numbers(name: str) -> tuple[list[tuple[int, str]], str]:
    """ "part-10" -> parts that compare as numbers where they are numbers; "1" goes after "01"."""
    parts = re.findall(r"\d+|\D+", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], name
