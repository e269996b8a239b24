"""Pairs of any kind, cut into parts of the same rows, or sampled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pointdep.data.stored.base import ArrayRows, Rows, RowSource
from pointdep.data.stored.pairs import side_by_side
from pointdep.data.stored.shards import require_partners
from pointdep.errors import InputError


def paired_parts(x: Any, y: Any, step: int) -> Iterator[tuple[int, Any, Any]]:
    """The first row's number and the same at most `step` rows of x and of y, from first to last."""
    require_partners(x, y)
    if len(x) != len(y):
        raise InputError(
            f"inconsistent numbers of samples: X has {len(x)} rows, Y has {len(y)} rows; row i of "
            "each must describe the same pair"
        )
    start = 0
    for a, b in side_by_side(_parts(x, step), _parts(y, step)):
        yield start, _like(x, a), _like(y, b)
        start += len(a)


def sampled(values: Any, rows: Rows) -> Any:
    """The rows of these numbers, in memory."""
    if isinstance(values, RowSource):
        return ArrayRows(values.take(rows), values.names, values.named)
    return values.iloc[rows] if hasattr(values, "iloc") else values[rows]


def _parts(values: Any, step: int) -> Iterator[Any]:
    if isinstance(values, RowSource):
        yield from values.read(0, values.rows, step)
        return
    for first in range(0, len(values), step):
        yield _slice(values, first, first + step)


def _slice(values: Any, start: int, stop: int) -> Any:
    return values.iloc[start:stop] if hasattr(values, "iloc") else values[start:stop]


def _like(whole: Any, part: Any) -> Any:
    """A piece of a source with the names of the source."""
    return ArrayRows(part, whole.names, whole.named) if isinstance(whole, RowSource) else part
