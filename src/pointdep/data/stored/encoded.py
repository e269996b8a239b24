"""Sides with categories, which are held as they were given and encoded when they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pointdep.data.encoder import SideEncoder
from pointdep.data.raw import Array, RawSide
from pointdep.data.stored.base import RowSource


class EncodedRows(RowSource):
    """The encoded rows, (rows, encoder.dim) float32, of a side in memory."""

    def __init__(self, raw: RawSide, encoder: SideEncoder) -> None:
        self.raw, self.encoder = raw, encoder
        self.rows, self.named = raw.rows, False
        self.names = tuple(str(position) for position in range(encoder.dim))
        self.dtype = np.dtype(np.float32)

    def read(self, start: int, stop: int, step: int) -> Iterator[Array]:
        for first in range(start, stop, step):
            yield self.encoder.encode(_part(self.raw, slice(first, min(first + step, stop))))


def _part(raw: RawSide, rows: slice) -> RawSide:
    """The same side with these rows alone."""
    categorical = tuple((name, values[rows]) for name, values in raw.categorical)
    count = len(range(*rows.indices(raw.rows)))
    numeric = None if raw.numeric is None else raw.numeric[rows]
    return replace(raw, numeric=numeric, categorical=categorical, rows=count)
