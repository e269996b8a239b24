"""Pairs that are read, encoded and mapped chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pointdep.data.stored.ahead import ahead
from pointdep.data.stored.pairs import Chunk, PairSource
from pointdep.fitting.processes import ALONE, Processes
from pointdep.fitting.splits import Rows
from pointdep.fitting.streamed.side import StreamedSide, as_tensor

_SHARE = 0.25  # of a GPU's free memory that the rows may take


@dataclass(frozen=True, eq=False)
class Prepared:
    """Some rows: their numbers (n,), and x: (n, dx), y: (n, dy) float32 on the device."""

    numbers: Rows
    x: Tensor
    y: Tensor


class StreamedRows:
    """All pairs as often as they are asked for; a thread reads the next chunk meanwhile.

    On a GPU the chunk is copied there as it was stored, from pinned memory, and converted there;
    and where all rows fit in a quarter of its free memory, it keeps them when they are shuffled for
    the first time. Of several processes each reads a part of its own.
    """

    def __init__(
        self,
        pairs: PairSource,
        x: StreamedSide,
        y: StreamedSide,
        seed: int,
        processes: Processes = ALONE,
        *,
        keep: bool = True,
    ) -> None:
        """keep: all rows on a GPU, where they fit."""
        self.pairs, self.x, self.y, self.seed = pairs, x, y, seed
        self.processes = processes
        self._kept: tuple[Tensor, Tensor] | None = None
        self._keeps = keep and processes.size == 1 and self._fits()

    @property
    def rows(self) -> int:
        return self.pairs.rows

    def ordered(self) -> Iterator[Prepared]:
        """In the order they are stored in."""
        own, step = self.processes.own(self.rows), self.pairs.chunk_rows()
        if self._kept is None:
            yield from self._prepared(self.pairs.read(own.start, own.stop, step))
            return
        parts = (torch.split(side, step) for side in self._kept)
        for number, (x, y) in enumerate(zip(*parts, strict=True)):
            yield Prepared(np.arange(number * step, number * step + len(x)), x, y)

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
        if not self._keeps:
            yield from self._prepared(self.pairs.shuffled(rows, random, most, own))
            return
        x, y = self._all_rows()
        for chunk in ahead(self.pairs.numbers_only().shuffled(rows, random, most, own)):
            at = torch.from_numpy(chunk.numbers).to(x.device)
            yield Prepared(chunk.numbers, x[at], y[at])

    def _fits(self) -> bool:
        """Whether the device keeps all rows: a GPU with memory enough."""
        return self.rows * (self.x.dim + self.y.dim) * 4 <= _SHARE * _free_bytes(self.x.device)

    def _all_rows(self) -> tuple[Tensor, Tensor]:
        """x: (rows, dx) and y: (rows, dy), prepared, on the device; read when first asked for."""
        if self._kept is None:
            x, y = (
                torch.empty(self.rows, side.dim, device=side.device) for side in (self.x, self.y)
            )
            for part in self.ordered():
                first, stop = int(part.numbers[0]), int(part.numbers[-1]) + 1
                x[first:stop], y[first:stop] = part.x, part.y
            self._kept = x, y
        return self._kept

    def _prepared(self, chunks: Iterator[Chunk]) -> Iterator[Prepared]:
        on_gpu = self.x.device.type == "cuda"
        for chunk in ahead(_pinned(chunks) if on_gpu else chunks):
            yield Prepared(chunk.numbers, self.x.tensor(chunk.x), self.y.tensor(chunk.y))


def _free_bytes(device: torch.device) -> int:
    """Of a GPU; of others, whose memory is the host's, none."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 0


def _pinned(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    for chunk in chunks:
        x, y = (as_tensor(side).pin_memory().numpy() for side in (chunk.x, chunk.y))
        yield Chunk(chunk.numbers, x, y)
