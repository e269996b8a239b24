"""One batch shared out among several processes: the numbers of one process with all of it.

Every process takes some rows of each batch. What is costly, a critic's work on them, is divided;
what is small, the vectors of a separable critic or the scores of any other, is exchanged, and the
objective of the whole batch is then computed in every process from the same numbers. So each has
the gradient of the objective by everything that was exchanged, and goes on with the part that came
from its own rows: the sum of the processes' gradients is that of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from pointdep.core.blocked import InnerScores, Others, Pairs
from pointdep.core.critics.base import Critic
from pointdep.core.ratio import RatioModel
from pointdep.errors import InputError
from pointdep.fitting.batches import Batches, Cells, LeanCells, in_blocks
from pointdep.fitting.processes import Processes

Score = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class SharedCells:
    """The rows of a batch that this process has, and the weights of all its cells.

    x: (A, c, dx) and y: (A, c, dy), of the G * b rows of the blocks. joint, product: as in `Cells`,
    or as in `LeanCells`.
    """

    x: Tensor
    y: Tensor
    joint: Tensor | Pairs
    product: Tensor | Others
    blocks: int
    block: int

    @property
    def lean(self) -> bool:
        """Whether the cells are not to be laid out."""
        return isinstance(self.product, Others)


class Sharing:
    """How the batches of a critic are shared out.

    Rows in a row, where it is separable: its vectors of x and y are exchanged. Whole blocks, where
    it sees pairs and there is a block for each process; else rows of x within each block, against
    all of its y. Then the scores are exchanged.
    """

    def __init__(self, processes: Processes, critic: Critic) -> None:
        if any(isinstance(module, _BatchNorm) for module in critic.modules()):
            raise InputError(
                "a critic with batch norm would see the statistics of one process's rows: use "
                "another normalisation, such as LayerNorm, or fit in one process"
            )
        self.processes, self.separable = processes, critic.separable

    def divides(self, blocks: int, block: int) -> bool:
        """Whether there is something for every process."""
        most = blocks * block if self.separable else max(blocks, block)
        return most >= self.processes.size

    def require(self, batch_size: int, block: int) -> None:
        """Refuse batches of so many rows that are too small."""
        blocks = batch_size // block
        if not self.divides(blocks, block):
            raise InputError(
                f"batch_size={blocks * block} in blocks of {block} rows cannot be shared by "
                f"{self.processes.size} processes: choose a larger batch_size, or fewer processes"
            )

    def sizes(self, blocks: int, block: int) -> list[int]:
        """How many of the rows in a row each process has."""
        if self._by_block(blocks):
            return [block * count for count in self.processes.sizes(blocks)]
        return self.processes.sizes(blocks * block)

    def own(self, blocks: int, block: int) -> slice:
        """Which of them this process has."""
        sizes, rank = self.sizes(blocks, block), self.processes.rank
        start = sum(sizes[:rank])
        return slice(start, start + sizes[rank])

    def take(self, cells: Cells | LeanCells) -> SharedCells:
        """This process's share of a batch."""
        blocks, block = cells.x.shape[1:3]
        own = self.own(blocks, block)
        x, y = (side.flatten(1, 2)[:, own] for side in (cells.x, cells.y))
        return SharedCells(x, y, cells.joint, cells.product, blocks, block)

    def raw(self, model: RatioModel, cells: SharedCells, score: Score) -> Tensor:
        """The critic's output for all cells of the batch, (A, G, b, b).

        score: x: (A, G, n, dx), y: (A, G, m, dy) -> (A, G, n, m).
        """
        shape = cells.blocks, cells.block
        if self.separable:
            vectors_x, vectors_y, own_x, own_y = self._factors(model, cells)
            scores = vectors_x @ vectors_y.transpose(-1, -2)
            scores = scores if own_x is None else scores + own_x.unsqueeze(-1)
            return scores if own_y is None else scores + own_y.unsqueeze(-2)
        if self._by_block(cells.blocks):
            x, y = (in_blocks(side, cells.block) for side in (cells.x, cells.y))
            return self.joined(score(x, y), self.processes.sizes(cells.blocks), 1)
        x, y = (
            in_blocks(self.joined(side, self.sizes(*shape), 1), cells.block)
            for side in (cells.x, cells.y)
        )
        scores = score(x[:, :, self.processes.own(cells.block)], y)
        return self.joined(scores, self.processes.sizes(cells.block), 2)

    def inner_scores(self, model: RatioModel, cells: SharedCells) -> InnerScores:
        """The same of a separable critic, without the matrix."""
        return InnerScores(*self._factors(model, cells), parts=True)

    def joined(self, tensor: Tensor, sizes: Sequence[int], dim: int) -> Tensor:
        """Those of all processes along a dimension, where each has as many as `sizes` says."""
        rows = tensor.movedim(dim, 0)
        whole: Tensor = _Joined.apply(rows, sizes, self.processes.rank)  # type: ignore[no-untyped-call]
        return whole.movedim(0, dim)

    def _by_block(self, blocks: int) -> bool:
        return not self.separable and blocks >= self.processes.size

    def _factors(
        self, model: RatioModel, cells: SharedCells
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Vectors of x and of y, (A, G, b, e), and their own terms, (A, G, b), of all processes."""
        critic, shape = model.critic, (cells.blocks, cells.block)
        critic.batch_part = cells.blocks * cells.block, self.own(*shape)
        x, y, own_x, own_y = critic.factors(model.x_map(cells.x), model.y_map(cells.y))
        terms = [own.unsqueeze(-1) for own in (own_x, own_y) if own is not None]
        told = torch.cat([x, y, *terms], -1)
        whole = in_blocks(self.joined(told, self.sizes(*shape), 1), cells.block)
        x, y, *found = torch.split(whole, [x.shape[-1], y.shape[-1], *(1 for _ in terms)], -1)
        told_own = iter(found)
        own_x, own_y = (
            None if own is None else next(told_own).squeeze(-1) for own in (own_x, own_y)
        )
        return x, y, own_x, own_y


class SharedBatches:
    """The batches of one process, of which each of several takes its share."""

    def __init__(self, batches: Batches, sharing: Sharing) -> None:
        self.batches, self.sharing = batches, sharing

    def steps(self, minimum: int) -> int:
        """Steps in an epoch."""
        return self.batches.steps(minimum)

    def draw(
        self, epoch: int, first: int, steps: int, replicas: Sequence[int]
    ) -> Iterator[SharedCells]:
        """This process's shares of the batches."""
        for cells in self.batches.draw(epoch, first, steps, replicas):
            yield self.sharing.take(cells)


class _Joined(torch.autograd.Function):
    """Rows of all processes; the gradient of a process's own is at hand, as all compute the same
    of the joined rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: Sequence[int], rank: int) -> Tensor:
        import torch.distributed as dist

        ctx.start, ctx.stop = sum(sizes[:rank]), sum(sizes[: rank + 1])
        padded = rows.contiguous()
        if len(rows) < max(sizes):
            padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
            padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient[ctx.start : ctx.stop], None, None
