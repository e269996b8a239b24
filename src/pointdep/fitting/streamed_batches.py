"""Batches from chunks of stored rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from pointdep.core.blocked import Others, Pairs
from pointdep.errors import InputError
from pointdep.fitting.batches import Cells, LeanCells, different_groups, in_blocks
from pointdep.fitting.fold_plan import FoldPlan
from pointdep.fitting.progress import Progress
from pointdep.fitting.sharing import SharedCells, Sharing
from pointdep.fitting.splits import Rows
from pointdep.fitting.streamed_rows import Prepared, StreamedRows

_LEAST_BATCHES = 8  # of every replica in a chunk


class StreamedBatches:
    """Batches of each replica's training rows, an epoch being one shuffled pass over all rows.

    What `RowBatches` is for rows in memory, and the same batches where all rows are one chunk:
    a function of (seed, replica, epoch). Within a chunk every replica shuffles its own rows freely;
    what is left over when they are cut into batches, fewer than a batch and some rows, takes no
    part in the epoch.

    Several processes draw their shares of a batch each from its own part of the rows, chunk by
    chunk, and an epoch ends when one of them has no more.
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
        sharing: Sharing | None = None,
    ) -> None:
        """lean: as `RowBatches` takes it."""
        self.rows, self.plan, self.block, self.seed = rows, plan, block, seed
        self.batch_size = batch_size - batch_size % block
        self.max_epochs, self.progress, self.sharing = max_epochs, progress, sharing
        blocks = self.batch_size // block
        self.own = slice(0, self.batch_size) if sharing is None else sharing.own(blocks, block)
        self.drawn = self.own.stop - self.own.start  # rows of a batch that this process draws
        self._training = plan.training_rows()
        if min(self._training) < self.batch_size:
            raise InputError(
                f"batch_size={self.batch_size} but a split has only {min(self._training)} training "
                "rows: choose a smaller one, leave it at 'auto', or give more rows or groups"
            )
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
    ) -> Iterator[Cells | LeanCells | SharedCells]:
        """The batches of these replicas in an epoch, counted from 0."""
        del first, steps
        processes = self.rows.processes
        least = _LEAST_BATCHES * self.batch_size * self.rows.rows // max(1, min(self._training))
        rank = [processes.rank] if processes.rank else []
        orders = {r: np.random.default_rng([self.seed, r, epoch, 2, *rank]) for r in replicas}
        # As many of the rows as of each batch, so that no process runs out of them early.
        start, stop = (
            self.rows.rows * at // self.batch_size for at in (self.own.start, self.own.stop)
        )
        done, of = 0, stop - start
        chunks = self.rows.shuffled(epoch + 1, least, part=slice(start, stop))
        steps = 0
        while True:
            found = processes.together(lambda: self._next(chunks))
            count = processes.least(-1 if found is None else found[2])
            if found is None or count < 0:
                break
            chunk, rows, _ = found
            steps += count
            yield from self._of_chunk(chunk, rows, count, orders)
            done += len(chunk.numbers)
            told = f"epochs, {done:,} of {of:,} rows of the next"
            self.progress.update(epoch, self.max_epochs, told)
        if not steps:
            raise InputError(
                f"no chunk of the rows has a batch of {self.batch_size} for every model: rows that "
                "lie together are of few groups; shuffle them on disk, or choose a smaller "
                "batch_size or fewer folds"
            )

    def _next(self, chunks: Iterator[Prepared]) -> tuple[Prepared, list[Rows], int] | None:
        """A chunk, the places in it of each replica's rows, and how many batches they make."""
        chunk = next(chunks, None)
        if chunk is None:
            return None
        by_number = np.argsort(chunk.numbers)
        numbers = chunk.numbers[by_number]
        rows = [by_number[self.plan.trains(r, numbers)] for r in range(self.plan.replicas)]
        return chunk, rows, min(len(part) for part in rows) // self.drawn

    def _of_chunk(
        self,
        chunk: Prepared,
        rows: list[Rows],
        count: int,
        orders: dict[int, np.random.Generator],
    ) -> Iterator[Cells | LeanCells | SharedCells]:
        if not count:
            return
        drawn = [
            random.permutation(rows[r])[: count * self.drawn].reshape(count, -1)
            for r, random in orders.items()
        ]
        for batch in torch.from_numpy(np.stack(drawn, 1)).to(chunk.x.device):
            yield self._cells(chunk.x[batch], chunk.y[batch], self._groups(chunk, batch))

    def _cells(
        self, x: Tensor, y: Tensor, groups: Tensor | None
    ) -> Cells | LeanCells | SharedCells:
        """The batch of the rows drawn here, (A, c, d); groups: (A, G, b), of all its rows."""
        blocks, block = self.batch_size // self.block, self.block
        product = self._weights(groups)
        if self.sharing is not None:
            joint = Pairs() if self.lean else self._joint
            return SharedCells(x, y, joint, product, blocks, block)
        x, y = in_blocks(x, block), in_blocks(y, block)
        if isinstance(product, Others):
            return LeanCells(x, y, Pairs(), product)
        return Cells(x, y, self._joint, product)

    def _weights(self, groups: Tensor | None) -> Tensor | Others:
        """Those of the product."""
        if self.lean:
            return Others(ids=groups)
        if groups is None:
            return self._product
        return self._product * different_groups(groups).flatten(1, 2)

    def _groups(self, chunk: Prepared, batch: Tensor) -> Tensor | None:
        """The groups of a batch's rows, here and elsewhere, (A, G, b)."""
        if self.plan.codes is None:
            return None
        codes = torch.from_numpy(self.plan.codes[chunk.numbers[batch.cpu().numpy()]])
        groups = codes.to(batch.device)
        if self.sharing is not None:
            sizes = self.sharing.sizes(self.batch_size // self.block, self.block)
            groups = self.sharing.joined(groups, sizes, 1)
        return in_blocks(groups, self.block)
