"""The work on shards as a list of tasks, and the manifest that says whose results a folder holds.

Task k makes output shard k, with the name of shard k of x and its rows in their order. Each output
shard has the ticket of its task in its footer: the fingerprint of the model, and of the shards and
rows it was made from. A second run knows from it what is done, and what has another origin.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from pointdep.cluster.filesystem import StoragePath, is_temporary
from pointdep.cluster.survey import Columns, Side, Span, partners, reading
from pointdep.errors import InputError, PointdepError

MANIFEST = "_pointdep.json"
_FORMAT, _VERSION = "pointdep-shards", 1
_KEY = b"pointdep"
_READERS = 16


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
    """What every worker must know: what is made of which columns by which model, and where to.

    kind, made_of: the sort of answer, and what it depends on apart from model and rows; batch: rows
    at a time.
    """

    kind: str
    made_of: str
    model: str
    columns: tuple[Columns, Columns]
    output: StoragePath
    batch: int


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
    known = {task.name: task for task in tasks}
    foreign = [
        name for name in there if name not in known and name != MANIFEST and not is_temporary(name)
    ]
    if MANIFEST in there:
        _require_same(work, output / MANIFEST)
    elif set(there) & set(known):
        foreign = sorted(set(there) & set(known))
    if foreign:
        raise InputError(
            f"{output} holds other files, such as {min(foreign)}: choose an empty or new folder, "
            "or one with nothing but an earlier run of the same command"
        )
    asked = [task for task in tasks if task.name in there]
    with ThreadPoolExecutor(_READERS) as pool:
        found = list(pool.map(lambda task: _about(output / task.name), asked))
    done = {}
    for task, about in zip(asked, found, strict=True):
        if about is None:
            continue
        if about.get("ticket") != task.ticket or about.get("rows") != task.rows:
            source = task.x[0].shard.place if task.x else task.name
            raise InputError(
                f"{output / task.name} was made from other rows or columns than {source} has now, "
                "or that was written anew since: choose another folder, or delete the old one"
            )
        done[task.number] = about
    return done


def write_manifest(work: Work, tasks: Sequence[Task]) -> None:
    """Describe what the folder holds or will hold, in the order of the rows."""
    content = {
        "format": _FORMAT,
        "format_version": _VERSION,
        "pointdep": metadata.version("pointdep"),
        "kind": work.kind,
        "model": work.model,
        "x_columns": list(work.columns[0].names),
        "y_columns": list(work.columns[1].names),
        "rows": sum(task.rows for task in tasks),
        "shards": [
            {
                "name": task.name,
                "first_row": task.first,
                "rows": task.rows,
                "x": [_source(span) for span in task.x],
                "y": [_source(span) for span in task.y],
            }
            for task in tasks
        ],
    }
    with (work.output / MANIFEST).whole_file() as stream:
        stream.write(json.dumps(content, indent=1).encode())


def write_shard(work: Work, task: Task, columns: dict[str, Any], about: dict[str, Any]) -> None:
    """Write the output shard of a task, completely or not at all; about: for its footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    content = {"ticket": task.ticket, **about}
    table = table.replace_schema_metadata({_KEY: json.dumps(content).encode()})
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
    for name, own, what in (
        ("kind", work.kind, f"results of {manifest.get('kind')}, not of {work.kind}"),
        ("model", work.model, f"results of another model ({str(manifest.get('model'))[:12]})"),
    ):
        if manifest.get(name) != own:
            raise InputError(
                f"{work.output} holds {what}: choose another folder, or delete that one"
            )


def _about(place: StoragePath) -> dict[str, Any] | None:
    """The rows of an output shard and what its footer says; None if it is damaged."""
    import pyarrow.parquet as pq

    try:
        with reading(place), place.open() as file:
            known = pq.ParquetFile(file)
            content = json.loads((known.schema_arrow.metadata or {}).get(_KEY, b"{}"))
            return {**content, "rows": known.metadata.num_rows}
    except PointdepError:
        return None


def _ticket(work: Work, first: int, x: Sequence[Span], y: Sequence[Span]) -> str:
    made_of = [
        [work.kind, work.made_of, work.model, first],
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
