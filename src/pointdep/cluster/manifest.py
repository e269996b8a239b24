"""The shards of both sides, the tasks they make, and the manifest of the folder of results.

Task k makes output shard k, with the name of shard k of x and its rows in their order. Each output
shard has the ticket of its task in its footer: the fingerprint of the model, and of the shards and
rows it was made from. A second run knows from it what is done, and what has another origin.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from pointdep.cluster.filesystem import BadShardError, StoragePath, is_temporary
from pointdep.data import files, shards
from pointdep.data.stored_pairs import side_by_side
from pointdep.errors import InputError, PointdepError, unknown_name
from pointdep.fitting.progress import Progress

if TYPE_CHECKING:
    from pointdep.cluster.engines import How, SavedModel, Scores

MANIFEST = "_pointdep.json"
_FORMAT, _VERSION = "pointdep-shards", 1
_KEY = b"pointdep"
_READERS = 16  # footers read at a time: on object storage each takes a while
_MAGIC = b"PAR1"
Names = Sequence[str] | None


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
    layout: shards.Layout | None


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
    place: StoragePath, wanted: Names, option: str, progress: Progress, known: str | None
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
    shards.require_equal_rows(*sizes)
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


reading = partial(files.reading, otherwise="no Parquet file", error=BadShardError)


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
            raise InputError(f"{place / name} is among the shards of {place}, but no .parquet file")
    if not names:
        raise InputError(f"{place} holds no .parquet files")
    return [place / name for name in sorted(names, key=shards.by_numbers)]


def _open_footer(place: StoragePath) -> tuple[Shard, Any]:
    """A shard and its Arrow schema."""
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


def _columns(shard: Shard, schema: Any, wanted: Names, option: str) -> Columns:
    known = [str(name) for name in schema.names]
    names = tuple(wanted) if wanted is not None else tuple(known)
    for name in names:
        if name not in known:
            raise BadShardError(f"{shard.place}: {unknown_name('column', name, known)}")
    types = tuple(str(schema.field(name).type) for name in names)
    if not shards.is_numeric(schema, names):
        return Columns(names, types, None)

    def first() -> Any:
        with reading(shard.place), shard.place.open() as file:
            return next(pq.ParquetFile(file).iter_batches(batch_size=1, columns=list(names)))

    return Columns(names, types, shards.find_layout(str(shard.place), schema, names, first, option))


def _described(columns: Columns) -> str:
    if columns.layout is not None and columns.layout.lists:
        return f"rows of {columns.layout.width} numbers ({columns.layout.dtype})"
    pairs = zip(columns.names, columns.types, strict=True)
    return "the columns " + ", ".join(f"{name} ({kind})" for name, kind in pairs)


def read_pairs(task: Task, columns: Sequence[Columns], step: int) -> Iterator[tuple[Any, Any]]:
    """Rows of both sides of a task that belong together, at most `step` at a time.

    Arrays if a side is one column of lists, otherwise data frames.
    """
    x, y = (_read_side(*side, step) for side in zip((task.x, task.y), columns, strict=True))
    yield from side_by_side(x, y)


def _read_side(spans: Sequence[Span], columns: Columns, step: int) -> Iterator[Any]:
    for span in spans:
        for row, batch in _batches(span, columns, step):
            if columns.layout is None:
                yield batch.select(list(columns.names)).to_pandas()
                continue
            matrix = shards.to_matrix(batch, columns.layout, str(span.shard.place), row)
            lists = columns.layout.lists
            yield matrix if lists else pd.DataFrame(matrix, columns=list(columns.names))


def _batches(span: Span, columns: Columns, step: int) -> Iterator[tuple[int, Any]]:
    """Record batches of a span, each with the row of the shard that it begins at."""
    place, end = span.shard.place, span.start
    # Object storage answers few large requests sooner than many small ones.
    ahead = not place.is_local
    how = {"pre_buffer": ahead, "buffer_size": 0 if ahead else shards.PARQUET_BUFFER}
    with reading(place), place.open() as raw, pq.ParquetFile(raw, **how) as file:
        if (file.metadata.num_rows, raw.size()) != (span.shard.rows, span.shard.bytes):
            raise BadShardError(f"{place} was changed while it was being scored")
        for row, batch in shards.parquet_batches(file, span.start, span.stop, step, columns.names):
            yield row, batch
            end = row + batch.num_rows
        if end < span.stop:
            raise BadShardError(f"{place} ends after row {end} where it promises {span.stop}")


@dataclass(frozen=True)
class Task:
    """One output shard. first: the number of its first row among all rows, from 0."""

    number: int
    name: str
    first: int
    rows: int
    x: tuple[Span, ...]
    y: tuple[Span, ...]
    ticket: str


@dataclass(frozen=True)
class Work:
    """What every worker must know: what is asked of which columns and model, and where to write.

    batch: rows at a time.
    """

    saved: SavedModel
    answer: Scores
    columns: tuple[Columns, Columns]
    output: StoragePath
    batch: int
    how: How


def make_tasks(work: Work, x: Side, y: Side) -> list[Task]:
    """A task for each shard of x."""
    tasks: list[Task] = []
    first = 0
    for number, (shard, theirs) in enumerate(zip(x.shards, partners(x, y), strict=True)):
        own = (Span(shard, 0, shard.rows),) if shard.rows else ()
        ticket = _ticket(work, first, own, theirs)
        tasks.append(Task(number, shard.place.name, first, shard.rows, own, theirs, ticket))
        first += shard.rows
    return tasks


def finished(work: Work, tasks: Sequence[Task]) -> dict[int, dict[str, Any]]:
    """What the footers say about the tasks that are done, by their numbers.

    InputError if the folder holds something else: results of another model or of other rows, or
    other files. A damaged shard counts as not done.
    """
    output = work.output
    kind = output.kind()
    if kind == "file":
        raise InputError(f"{output} is a file: the shards are written in a folder")
    there = output.files() if kind else {}
    known = {task.name for task in tasks}
    foreign = {name for name in {*there} - {*known, MANIFEST} if not is_temporary(name)}
    if MANIFEST in there:
        _require_same(work, output / MANIFEST)
    else:
        foreign |= {*there} & {*known}
    if foreign:
        raise InputError(f"{output} holds other files, such as {min(foreign)}: choose a new folder")
    asked = [task for task in tasks if task.name in there]
    with ThreadPoolExecutor(_READERS) as pool:
        found = list(pool.map(_about, [output / task.name for task in asked]))
    done = {}
    for task, about in zip(asked, found, strict=True):
        if about is None:
            continue
        if about.get("ticket") != task.ticket or about.get("rows") != task.rows:
            source = task.x[0].shard.place if task.x else task.name
            what = f"was made from other rows or columns than {source} has now"
            raise InputError(f"{output / task.name} {what}: choose another folder, or delete it")
        done[task.number] = about
    return done


def write_manifest(work: Work, tasks: Sequence[Task]) -> None:
    """Describe what the folder holds or will hold, in the order of the rows."""
    content = {
        "format": _FORMAT,
        "format_version": _VERSION,
        "pointdep": metadata.version("pointdep"),
        "kind": work.answer.kind,
        "model": work.saved.fingerprint,
        "x_columns": list(work.columns[0].names),
        "y_columns": list(work.columns[1].names),
        "rows": sum(task.rows for task in tasks),
        "shards": [
            {"name": task.name, "first_row": task.first, "rows": task.rows}
            | {"x": [*map(_source, task.x)], "y": [*map(_source, task.y)]}
            for task in tasks
        ],
    }
    with (work.output / MANIFEST).whole_file() as stream:
        stream.write(json.dumps(content, indent=1).encode())


def write_shard(work: Work, task: Task, columns: dict[str, Any], about: dict[str, Any]) -> None:
    """Write the output shard of a task, completely or not at all; about: for its footer."""
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    content = json.dumps({"ticket": task.ticket, **about}).encode()
    table = table.replace_schema_metadata({_KEY: content})
    with (work.output / task.name).whole_file() as stream:
        pq.write_table(table, stream)


def _require_same(work: Work, place: StoragePath) -> None:
    """InputError if the manifest is not one of this work."""
    try:
        manifest = json.loads(place.read_bytes())
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise InputError(f"{place} is damaged or of another program: choose another folder")
    kind, model = (manifest.get(name) for name in ("kind", "model"))
    what = None
    if kind != work.answer.kind:
        what = f"results of {kind}, not of {work.answer.kind}"
    elif model != work.saved.fingerprint:
        what = f"results of another model ({str(model)[:12]})"
    if what:
        raise InputError(f"{work.output} holds {what}: choose another folder, or delete that one")


def _about(place: StoragePath) -> dict[str, Any] | None:
    """The rows of an output shard and what its footer says; None if it is damaged."""
    try:
        with reading(place), place.open() as file:
            known = pq.ParquetFile(file)
            content = json.loads((known.schema_arrow.metadata or {}).get(_KEY, b"{}"))
            return {**content, "rows": known.metadata.num_rows}
    except PointdepError:
        return None


def _ticket(work: Work, first: int, x: Sequence[Span], y: Sequence[Span]) -> str:
    made_of = [
        [work.answer.kind, work.answer.made_of, work.saved.fingerprint, first],
        [[list(own.names), list(own.types)] for own in work.columns],
        [[_source(span) for span in spans] for spans in (x, y)],
    ]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()


def _source(span: Span) -> dict[str, Any]:
    shard = span.shard
    return {
        "file": shard.place.name,
        "bytes": shard.bytes,
        "footer_sha256": shard.footer,
        "modified_ns": shard.modified,
        "rows": [span.start, span.stop],
    }
