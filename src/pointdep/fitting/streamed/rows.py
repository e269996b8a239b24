"""Pairs that are read, encoded and mapped chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from pointdep.data.stored.ahead import ahead
from pointdep.data.stored.pairs import Chunk, PairSource
from pointdep.fitting.processes import ALONE, Processes
from pointdep.fitting.splits import Rows
from pointdep.fitting.streamed.side import StreamedSide, as_tensor


@dataclass(frozen=True, eq=False)
class Prepared:
    """Some rows: their numbers (n,), and x: (n, dx), y: (n, dy) float32 on the device."""

    numbers: Rows
    x: Tensor
    y: Tensor


class StreamedRows:
    """All pairs as often as they are asked for; a thread reads the next chunk meanwhile.

    On a GPU the chunk is copied there as it was stored, from pinned memory, and converted there.
    Of several processes each reads a part of its own.
    """

    def __init__(
        self,
        pairs: PairSource,
        x: StreamedSide,
        y: StreamedSide,
        seed: int,
        processes: Processes = ALONE,
    ) -> None:
        self.pairs, self.x, self.y, self.seed = pairs, x, y, seed
        self.processes = processes

    @property
    def rows(self) -> int:
        return self.pairs.rows

    def ordered(self) -> Iterator[Prepared]:
        """In the order they are stored in."""
        own = self.processes.own(self.rows)
        yield from self._prepared(self.pairs.read(own.start, own.stop, self.pairs.chunk_rows()))

    def shuffled(
        self, number: int, least: int = 1, most: int | None = None, part: slice | None = None
    ) -> Iterator[Prepared]:
        """In the random order of this number; a chunk has at least `least` rows, if there are.

        least: in all processes together. part: of the rows in this order, for this process.
        """
        own = part or self.processes.own(self.rows)
        random = np.random.default_rng([self.seed, number, 22])
        together = self.pairs.chunk_rows(least, self.processes.size)
        rows = -(-together * (own.stop - own.start) // self.rows)
        yield from self._prepared(self.pairs.shuffled(rows, random, most, own))

    def _prepared(self, chunks: Iterator[Chunk]) -> Iterator[Prepared]:
        on_gpu = self.x.device.type == "cuda"
        for chunk in ahead(_pinned(chunks) if on_gpu else chunks):
            yield Prepared(chunk.numbers, self.x.tensor(chunk.x), self.y.tensor(chunk.y))


def _pinned(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    for chunk in chunks:
        x, y = (as_tensor(side).pin_memory().numpy() for side in (chunk.x, chunk.y))
        yield Chunk(chunk.numbers, x, y)
