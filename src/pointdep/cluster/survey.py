"""The shards of both sides: their footers, columns and partners, and the pairs in them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pointdep.cluster.filesystem import BadShardError, StoragePath
from pointdep.data.shards import (
    PARQUET_BUFFER,
    Layout,
    by_numbers,
    find_layout,
    is_numeric,
    parquet_batches,
    require_equal_rows,
    to_matrix,
)
from pointdep.data.stored_pairs import side_by_side
from pointdep.errors import InputError, PointdepError, unknown_name
from pointdep.fitting.progress import Progress

_READERS = 16  # footers read at a time: on object storage each takes a while
_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Shard:
    """A Parquet file: its rows, its bytes, the SHA-256 of its footer, and when it was written.

    The footer has the position, size and usually the extremes of every column of every row group,
    so that other rows have another footer. Only reordered rows may not: the time (in nanoseconds,
    None if the storage does not know it) tells these.
    """

    place: StoragePath
    rows: int
    bytes: int
    footer: str
    modified: int | None


@dataclass(frozen=True)
class Columns:
    """The columns of one side.

    types: as Arrow calls them. layout: how they make rows of numbers; None if some are categories.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    layout: Layout | None


@dataclass(frozen=True)
class Span:
    """The rows from start to stop of a shard."""

    shard: Shard
    start: int
    stop: int


@dataclass(frozen=True)
class Side:
    """The shards of one side, in their order, of one schema."""

    place: StoragePath
    shards: tuple[Shard, ...]
    columns: Columns

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)


def survey(
    place: StoragePath,
    wanted: Sequence[str] | None,
    option: str,
    progress: Progress,
    known: str | None = None,
) -> Side:
    """Read every footer; InputError names the first shard that cannot be used.

    wanted: the columns of this side; None takes `known` if the shards have it, and otherwise all
    columns. option: what a user calls `wanted`.
    """
    places = _shard_places(place)
    with ThreadPoolExecutor(_READERS) as pool:
        found = []
        for done, one in enumerate(pool.map(_open_footer, places), 1):
            found.append(one)
            progress.update(done, len(places), "shards looked at")
    kept = [one for one in found if one[0].rows]
    if not kept:
        raise InputError(f"{place} is empty: its shards have no rows")
    first, schema = kept[0]
    if wanted is None and known in schema.names:
        wanted = [str(known)]
    columns = _columns(first, schema, wanted, option)
    for shard, other in kept[1:]:
        own = _columns(shard, other, columns.names if wanted is None else wanted, option)
        if own != columns:
            raise BadShardError(
                f"{shard.place} has {_described(own)} where {first.place} has "
                f"{_described(columns)}: all shards need one schema"
            )
    return Side(place, tuple(shard for shard, _ in found), columns)


def partners(x: Side, y: Side) -> list[tuple[Span, ...]]:
    """For each shard of x the rows of y that belong to it: row i of all x with row i of all y."""
    sizes = [(s.place, [(shard.place, shard.rows) for shard in s.shards]) for s in (x, y)]
    require_equal_rows(*sizes)
    found, number, start = [], 0, 0
    for shard in x.shards:
        missing, spans = shard.rows, []
        while missing:
            theirs = y.shards[number]
            stop = min(theirs.rows, start + missing)
            if stop > start:
                spans.append(Span(theirs, start, stop))
            missing -= stop - start
            number, start = (number + 1, 0) if stop == theirs.rows else (number, stop)
        found.append(tuple(spans))
    return found


@contextmanager
def reading(place: StoragePath) -> Iterator[None]:
    """Turn whatever goes wrong with a shard into an error that names it."""
    try:
        yield
    except (PointdepError, MemoryError):
        raise
    except Exception as error:
        # Damaged files raise errors of many unrelated classes in the libraries that parse them.
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise BadShardError(
            f"{place} cannot be read, it is truncated, damaged or no Parquet file: {reason}"
        ) from error


def _shard_places(place: StoragePath) -> list[StoragePath]:
    kind = place.kind()
    if not kind:
        raise InputError(f"{place} does not exist")
    if kind == "file":
        if not place.name.lower().endswith(".parquet"):
            raise InputError(f"{place} is no .parquet file and no folder of such files")
        return [place]
    names = [name for name in place.files() if not name.startswith((".", "_"))]
    for name in names:
        if not name.lower().endswith(".parquet"):
            raise InputError(
                f"{place / name} is among the shards of {place}: a folder is scored into a folder "
                "from .parquet files alone; with -o pmi.parquet, into one file, also from others"
            )
    if not names:
        raise InputError(f"{place} holds no .parquet files")
    return [place / name for name in sorted(names, key=by_numbers)]


def _open_footer(place: StoragePath) -> tuple[Shard, Any]:
    """A shard and its Arrow schema."""
    import pyarrow.parquet as pq

    with reading(place), place.open() as file:
        size = file.size()
        end = file.read_at(8, size - 8) if size >= 12 else b""
        if end[4:] != _MAGIC:
            raise BadShardError(f"{place} is truncated or no Parquet file: it does not end as one")
        length = int.from_bytes(end[:4], "little")
        footer = file.read_at(length, max(size - 8 - length, 0))
        known = pq.ParquetFile(file)
        digest = hashlib.sha256(footer).hexdigest()
        shard = Shard(place, known.metadata.num_rows, size, digest, place.modified())
        return shard, known.schema_arrow


def _columns(shard: Shard, schema: Any, wanted: Sequence[str] | None, option: str) -> Columns:
    known = [str(name) for name in schema.names]
    names = tuple(wanted) if wanted is not None else tuple(known)
    for name in names:
        if name not in known:
            raise BadShardError(f"{shard.place}: {unknown_name('column', name, known)}")
    types = tuple(str(schema.field(name).type) for name in names)
    if not is_numeric(schema, names):
        return Columns(names, types, None)

    def first() -> Any:
        import pyarrow.parquet as pq

        with reading(shard.place), shard.place.open() as file:
            return next(pq.ParquetFile(file).iter_batches(batch_size=1, columns=list(names)))

    return Columns(names, types, find_layout(str(shard.place), schema, names, first, option))


def _described(columns: Columns) -> str:
    if columns.layout is not None and columns.layout.lists:
        return f"rows of {columns.layout.width} numbers ({columns.layout.dtype})"
    pairs = zip(columns.names, columns.types, strict=True)
    return "the columns " + ", ".join(f"{name} ({kind})" for name, kind in pairs)


def read_pairs(
    x: Sequence[Span], y: Sequence[Span], columns: tuple[Columns, Columns], step: int
) -> Iterator[tuple[Any, Any]]:
    """Rows of both sides that belong together, at most `step` at a time.

    Arrays if a side is one column of lists, otherwise data frames.
    """
    yield from side_by_side(_read_side(x, columns[0], step), _read_side(y, columns[1], step))


def _read_side(spans: Sequence[Span], columns: Columns, step: int) -> Iterator[Any]:
    import pandas as pd

    for span in spans:
        for row, batch in _batches(span, columns, step):
            if columns.layout is None:
                yield batch.select(list(columns.names)).to_pandas()
                continue
            matrix = to_matrix(batch, columns.layout, str(span.shard.place), row)
            lists = columns.layout.lists
            yield matrix if lists else pd.DataFrame(matrix, columns=list(columns.names))


def _batches(span: Span, columns: Columns, step: int) -> Iterator[tuple[int, Any]]:
    """Record batches of a span, each with the row of the shard that it begins at."""
    import pyarrow.parquet as pq

    place, end = span.shard.place, span.start
    # Object storage answers few large requests sooner than many small ones.
    ahead = not place.is_local
    with (
        reading(place),
        place.open() as raw,
        pq.ParquetFile(raw, pre_buffer=ahead, buffer_size=0 if ahead else PARQUET_BUFFER) as file,
    ):
        if (file.metadata.num_rows, raw.size()) != (span.shard.rows, span.shard.bytes):
            raise BadShardError(f"{place} was changed while it was being scored")
        for row, batch in parquet_batches(file, span.start, span.stop, step, columns.names):
            yield row, batch
            end = row + batch.num_rows
        if end < span.stop:
            raise BadShardError(f"{place} ends after row {end} where it promises {span.stop}")
