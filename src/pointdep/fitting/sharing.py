"""One batch shared out among several processes: the numbers of one process with all of it.

Every process takes some rows of each batch. What is costly, a critic's work on them, is divided;
what is small, the vectors of a separable critic or the scores of any other, is exchanged, and the
objective of the whole batch is then computed in every process from the same numbers. So each has
the gradient of the objective by everything that was exchanged, and goes on with the part that came
from its own rows: the sum of the processes' gradients is that of the whole batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from pointdep.core.blocked import InnerScores
from pointdep.core.critics.base import Critic, Factors, inner_matrix
from pointdep.core.ratio import RatioModel
from pointdep.errors import InputError
from pointdep.fitting.batches import Cells, in_blocks
from pointdep.fitting.processes import Processes

Score = Callable[[Tensor, Tensor], Tensor]


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

    def take(self, cells: Cells) -> Cells:
        """This process's share of a batch."""
        blocks, block = cells.x.shape[1:3]
        own = self.own(blocks, block)
        x, y = (side.flatten(1, 2)[:, own] for side in (cells.x, cells.y))
        return replace(cells, x=x, y=y, whole=(blocks, block))

    def scores(self, model: RatioModel, cells: Cells, score: Score) -> Tensor | InnerScores:
        """The critic's output for all cells of the batch that is shared, (A, G, b, b).

        score: x: (A, G, n, dx), y: (A, G, m, dy) -> (A, G, n, m), of critics that see pairs.
        """
        assert cells.whole is not None
        blocks, block = cells.whole
        if self.separable:
            factors = self._factors(model, cells, blocks, block)
            return InnerScores(*factors, parts=True) if cells.lean else inner_matrix(*factors)
        if self._by_block(blocks):
            x, y = (in_blocks(side, block) for side in (cells.x, cells.y))
            return self.joined(score(x, y), self.processes.sizes(blocks), 1)
        sizes = self.sizes(blocks, block)
        x, y = (in_blocks(self.joined(side, sizes, 1), block) for side in (cells.x, cells.y))
        scores = score(x[:, :, self.processes.own(block)], y)
        return self.joined(scores, self.processes.sizes(block), 2)

    def joined(self, tensor: Tensor, sizes: Sequence[int], dim: int) -> Tensor:
        """Those of all processes along a dimension, where each has as many as `sizes` says."""
        rows = tensor.movedim(dim, 0)
        whole: Tensor = _Joined.apply(rows, sizes, self.processes.rank)  # type: ignore[no-untyped-call]
        return whole.movedim(0, dim)

    def _by_block(self, blocks: int) -> bool:
        return not self.separable and blocks >= self.processes.size

    def _factors(self, model: RatioModel, cells: Cells, blocks: int, block: int) -> Factors:
        """Vectors of x and of y, (A, G, b, e), and their own terms, (A, G, b), of all processes."""
        model.critic.batch_part = blocks * block, self.own(blocks, block)
        parts = model.critic.factors(model.x_map(cells.x), model.y_map(cells.y))
        # Side by side they are exchanged in one go.
        told = list(parts[:2])
        told += [own.unsqueeze(-1) for own in parts[2:] if own is not None]
        whole = self.joined(torch.cat(told, -1), self.sizes(blocks, block), 1)
        found = iter(torch.split(in_blocks(whole, block), [part.shape[-1] for part in told], -1))
        x, y = next(found), next(found)
        own_x, own_y = (None if own is None else next(found).squeeze(-1) for own in parts[2:])
        return x, y, own_x, own_y


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
