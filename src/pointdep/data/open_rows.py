"""From a path to a source of rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pointdep.data.files import loading
from pointdep.data.shards import (
    SHARDS,
    ArrowShard,
    NpyShard,
    ParquetShard,
    ShardedRows,
    has_lists,
    is_numeric,
)
from pointdep.errors import InputError

TABLE_SHARDS = (".parquet", ".arrow", ".feather", ".ipc")


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
    files = shard_files(Path(path))
    shards = [SHARDS[file.suffix.lower()](file) for file in files]
    kept = [shard for shard in shards if shard.rows]
    if not kept:
        raise InputError(f"{path} is empty: it has no rows")
    layout = kept[0].layout(wanted, option)
    for shard in kept[1:]:
        other = shard.layout(wanted if wanted is not None else layout.columns or None, option)
        if other != layout:
            raise InputError(
                f"{shard.path} has {_described(other)} where {kept[0].path} has "
                f"{_described(layout)}: all shards need one schema"
            )
    return ShardedRows(shards, layout)


def shard_files(path: Path) -> list[Path]:
    """The file itself, or the files of a folder in their order."""
    if not path.is_dir():
        with loading(path):
            return [path]
    found = [f for f in path.iterdir() if f.is_file() and not f.name.startswith((".", "_"))]
    if not found:
        raise InputError(
            f"{path} is a folder that holds no shards ({', '.join(SHARDS)}): give one that does, "
            "or a file"
        )
    found.sort(key=lambda file: by_numbers(file.name))
    kind = found[0].suffix.lower()
    for file in found:
        if file.suffix.lower() not in SHARDS or file.suffix.lower() != kind:
            raise InputError(
                f"{file} is among the shards of {path}: a folder of shards holds files of one "
                f"kind, {', '.join(SHARDS)}"
            )
    return found


def first_schema(path: Path) -> Any:
    """The Arrow schema of the first of a path's files, None for .npy."""
    shard = SHARDS[shard_files(path)[0].suffix.lower()](shard_files(path)[0])
    return None if isinstance(shard, NpyShard) else shard.schema


def column_names(path: Path) -> list[str]:
    """Of the tables at a path; none for .npy."""
    schema = first_schema(path)
    return [] if schema is None else [str(name) for name in schema.names]


def has_embedding(path: Path, columns: Sequence[str] | None) -> bool:
    """Whether these columns hold a list of numbers a row."""
    schema = first_schema(path)
    return schema is not None and has_lists(schema, columns)


def all_numbers(path: Path, columns: Sequence[str] | None) -> bool:
    """Whether these columns are numbers, and none of them categories."""
    schema = first_schema(path)
    return schema is None or is_numeric(schema, columns)


def read_tables(path: Path, columns: Sequence[str] | None) -> Any:
    """Columns of any kind, of all files together, as a pandas DataFrame in memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import feather

    tables: list[Any] = []
    for file in shard_files(path):
        with loading(file):
            chosen = None if columns is None else list(columns)
            known = SHARDS[file.suffix.lower()](file)
            assert isinstance(known, ParquetShard | ArrowShard)
            for name in chosen or ():
                if name not in known.schema.names:
                    raise InputError(f"{file} has no column {name!r}")
            if file.suffix.lower() == ".parquet":
                table = pq.read_table(file, columns=chosen)
            else:
                table = feather.read_table(file, columns=chosen)
            names = tables[0].schema.names if tables else table.schema.names
            if sorted(table.schema.names) == sorted(names):
                table = table.select(names)
            if tables and not table.schema.equals(tables[0].schema):
                raise InputError(f"{file} has other columns than {shard_files(path)[0]}")
            tables.append(table)
    return pa.concat_tables(tables).to_pandas()


def by_numbers(name: str) -> tuple[list[tuple[int, str]], str]:
    """ "part-10" -> parts that compare as numbers where they are numbers; "1" goes after "01"."""
    parts = re.findall(r"\d+|\D+", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], name


def _described(layout: Any) -> str:
    if layout.lists:
        return f"rows of {layout.width} numbers ({layout.dtype})"
    return f"the columns {', '.join(layout.columns)} ({layout.dtype})"
