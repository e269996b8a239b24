"""Batches from chunks of stored rows."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from pointdep.errors import InputError
from pointdep.fitting.batches import Batches, Cells, TrainingOptions, in_blocks, require_batch
from pointdep.fitting.fold_plan import FoldPlan
from pointdep.fitting.progress import Progress
from pointdep.fitting.sharing import Sharing
from pointdep.fitting.splits import Rows
from pointdep.fitting.streamed_rows import Prepared, StreamedRows

_LEAST_BATCHES = 8  # of every replica in a chunk


class StreamedBatches(Batches):
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
        options: TrainingOptions,
        *,
        progress: Progress,
        lean: bool = False,
        sharing: Sharing | None = None,
    ) -> None:
        super().__init__(options, rows.x.device, lean=lean)
        self.rows, self.plan, self.max_epochs = rows, plan, options.max_epochs
        self.progress, self.sharing = progress, sharing
        # Rows of a batch that this process draws.
        self.own = slice(0, self.batch_size)
        if sharing is not None:
            self.own = sharing.own(self.blocks, self.block)
        self._smallest = min(plan.training_rows())
        require_batch(self.batch_size, self._smallest)

    def steps(self, minimum: int) -> int:
        """About as many as the smallest split has batches."""
        del minimum
        return max(1, self._smallest // self.batch_size)

    def draw(self, epoch: int, first: int, steps: int, replicas: Sequence[int]) -> Iterator[Cells]:
        del first, steps
        processes, rows = self.rows.processes, self.rows.rows
        least = _LEAST_BATCHES * self.batch_size * rows // self._smallest
        rank = [processes.rank] if processes.rank else []
        orders = {r: np.random.default_rng([self.seed, r, epoch, 2, *rank]) for r in replicas}
        # As many of the rows as of each batch, so that no process runs out of them early.
        start, stop = (rows * at // self.batch_size for at in (self.own.start, self.own.stop))
        chunks = self.rows.shuffled(epoch + 1, least, part=slice(start, stop))
        done = steps = 0
        while (count := min(processes.every(lambda: self._take(chunks)))) >= 0:
            chunk, rows_of = self._taken
            steps += count
            yield from self._of_chunk(chunk, rows_of, count, orders)
            done += len(chunk.numbers)
            told = f"epochs, {done:,} of {stop - start:,} rows of the next"
            self.progress.update(epoch, self.max_epochs, told)
        if not steps:
            raise InputError(
                f"no chunk of the rows has a batch of {self.batch_size} for every model: rows that "
                "lie together are of few groups; shuffle them on disk, or choose a smaller "
                "batch_size or fewer folds"
            )

    def _take(self, chunks: Iterator[Prepared]) -> int:
        """Take a chunk, and the places in it of each replica's rows: how many batches they make.

        -1 if there are no more chunks.
        """
        chunk = next(chunks, None)
        if chunk is None:
            return -1
        by_number = np.argsort(chunk.numbers)
        numbers = chunk.numbers[by_number]
        rows = [by_number[self.plan.trains(r, numbers)] for r in range(self.plan.replicas)]
        self._taken = chunk, rows
        return min(len(part) for part in rows) // (self.own.stop - self.own.start)

    def _of_chunk(
        self, chunk: Prepared, rows: list[Rows], count: int, orders: dict[int, np.random.Generator]
    ) -> Iterator[Cells]:
        if not count:
            return
        used = count * (self.own.stop - self.own.start)
        codes, sharing = self.plan.codes, self.sharing
        drawn = [one.permutation(rows[r])[:used].reshape(count, -1) for r, one in orders.items()]
        for batch in np.stack(drawn, 1):
            at = torch.from_numpy(batch).to(chunk.x.device)
            at = at if sharing is not None else in_blocks(at, self.block)
            groups = None
            if codes is not None:
                groups = torch.from_numpy(codes[chunk.numbers[batch]]).to(at.device)
                if sharing is not None:  # those of the rows that others have
                    groups = sharing.joined(groups, sharing.sizes(self.blocks, self.block), 1)
                groups = in_blocks(groups, self.block)
            cells = self.weighted(chunk.x[at], chunk.y[at], groups)
            whole = None if sharing is None else (self.blocks, self.block)
            yield replace(cells, whole=whole)
