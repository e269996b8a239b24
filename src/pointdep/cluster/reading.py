"""The pairs of a shard, batch by batch, as `PointwiseDependency` takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pointdep.cluster.places import BadShardError
from pointdep.cluster.shards import Columns, Span, reading
from pointdep.data.shards import to_matrix
from pointdep.data.stored_pairs import side_by_side

_BUFFER = 1 << 20  # bytes of a column read at a time, so that row groups may be large


def read_pairs(
    x: Sequence[Span], y: Sequence[Span], columns: tuple[Columns, Columns], step: int
) -> Iterator[tuple[Any, Any]]:
    """Rows of both sides that belong together, at most `step` at a time: arrays where a side is one
    column of lists, else data frames."""
    sides = [_read_side(spans, own, step) for spans, own in zip((x, y), columns, strict=True)]
    yield from side_by_side(*sides)


def _read_side(spans: Sequence[Span], columns: Columns, step: int) -> Iterator[Any]:
    for span in spans:
        for row, batch in _batches(span, columns, step):
            yield _values(span, row, batch, columns)


def _batches(span: Span, columns: Columns, step: int) -> Iterator[tuple[int, Any]]:
    """Record batches of a span, each with the row of the shard that it begins at."""
    import numpy as np
    import pyarrow.parquet as pq

    shard = span.shard
    # Object storage answers few large questions sooner than many small ones.
    ahead = not shard.place.is_local
    with (
        reading(shard.place),
        shard.place.open() as raw,
        pq.ParquetFile(raw, pre_buffer=ahead, buffer_size=0 if ahead else _BUFFER) as file,
    ):
        about = file.metadata
        if about.num_rows != shard.rows or raw.size() != shard.bytes:
            raise BadShardError(f"{shard.place} was changed while it was being scored")
        sizes = [about.row_group(k).num_rows for k in range(about.num_row_groups)]
        ends = np.cumsum([0, *sizes])
        first = int(np.searchsorted(ends, span.start, side="right")) - 1
        last = int(np.searchsorted(ends, span.stop))
        row = int(ends[first])
        for batch in file.iter_batches(
            batch_size=step,
            row_groups=list(range(first, last)),
            columns=list(columns.names),
            use_threads=False,
        ):
            begin, end = max(row, span.start), min(row + batch.num_rows, span.stop)
            if end > begin:
                yield begin, batch.slice(begin - row, end - begin)
            row += batch.num_rows
        if row < span.stop:
            raise BadShardError(f"{shard.place} ends after row {row} where it promises {span.stop}")


def _values(span: Span, row: int, batch: Any, columns: Columns) -> Any:
    import pandas as pd

    if columns.layout is None:
        return batch.select(list(columns.names)).to_pandas()
    matrix = to_matrix(batch, columns.layout, str(span.shard.place), row)
    if columns.layout.lists:
        return matrix
    return pd.DataFrame(matrix, columns=list(columns.names))
