"""Batches from chunks of stored rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from pointdep.core.blocked import Others, Pairs
from pointdep.fitting.batches import Cells, LeanCells, different_groups
from pointdep.fitting.progress import Progress
from pointdep.fitting.streamed.plan import FoldPlan
from pointdep.fitting.streamed.rows import Prepared, StreamedRows

_LEAST_BATCHES = 8  # of every replica in a chunk


class StreamedBatches:
    """Batches of each replica's training rows, an epoch being one shuffled pass over all rows.

    What `RowBatches` is for rows in memory, and the same batches where all rows are one chunk:
    a function of (seed, replica, epoch). Within a chunk every replica shuffles its own rows freely;
    what is left over when they are cut into batches, fewer than a batch and some rows, takes no
    part in the epoch.
    """

    def __init__(
        self,
        rows: StreamedRows,
        plan: FoldPlan,
        *,
        batch_size: int,
        block: int,
        seed: int,
        max_epochs: int,
        progress: Progress,
        lean: bool = False,
    ) -> None:
        """lean: as `RowBatches` takes it."""
        self.rows, self.plan, self.block, self.seed = rows, plan, block, seed
        self.batch_size = batch_size - batch_size % block
        self.max_epochs, self.progress = max_epochs, progress
        self._training = plan.training_rows()
        self.lean = lean
        if not lean:
            eye = torch.eye(block, device=rows.x.device).repeat(self.batch_size // block, 1)
            self._joint, self._product = eye, 1.0 - eye

    def steps(self, minimum: int) -> int:
        """Steps in an epoch, about."""
        del minimum
        return max(1, min(self._training) // self.batch_size)

    def draw(
        self, epoch: int, first: int, steps: int, replicas: Sequence[int]
    ) -> Iterator[Cells | LeanCells]:
        """The batches of these replicas in an epoch, counted from 0."""
        del first, steps
        least = _LEAST_BATCHES * self.batch_size * self.rows.rows // max(1, min(self._training))
        orders = {r: np.random.default_rng([self.seed, r, epoch, 2]) for r in replicas}
        done = 0
        for chunk in self.rows.shuffled(epoch + 1, least):
            yield from self._of_chunk(chunk, orders)
            done += len(chunk.numbers)
            told = f"epochs, {done:,} of {self.rows.rows:,} rows of the next"
            self.progress.update(epoch, self.max_epochs, told)

    def _of_chunk(
        self, chunk: Prepared, orders: dict[int, np.random.Generator]
    ) -> Iterator[Cells | LeanCells]:
        by_number = np.argsort(chunk.numbers)
        numbers = chunk.numbers[by_number]
        own = [by_number[self.plan.trains(r, numbers)] for r in range(self.plan.replicas)]
        count = min(len(rows) for rows in own) // self.batch_size
        if not count:
            return
        drawn = [
            random.permutation(own[r])[: count * self.batch_size].reshape(count, -1)
            for r, random in orders.items()
        ]
        index = torch.from_numpy(np.stack(drawn, 1)).to(chunk.x.device)
        shape = (len(drawn), -1, self.block)
        for batch in index:
            groups = None
            if self.plan.codes is not None:
                codes = torch.from_numpy(self.plan.codes[chunk.numbers[batch.cpu().numpy()]])
                groups = codes.to(batch.device).view(shape)
            x = chunk.x[batch].view(*shape, chunk.x.shape[1])
            y = chunk.y[batch].view(*shape, chunk.y.shape[1])
            if self.lean:
                yield LeanCells(x, y, Pairs(), Others(ids=groups))
                continue
            product = self._product
            if groups is not None:
                product = product * different_groups(groups).flatten(1, 2)
            yield Cells(x, y, self._joint, product)
