"""Sums and joined batches over the processes of `torch.distributed`, with exact gradients.

The convention: every rank returns the SAME value, the loss of the joined batch, and every rank
calls backward on it. The gradients of all ranks' (equal) losses are therefore added, and a local
tensor receives world-size times the gradient of the joined loss. DistributedDataParallel then takes
the MEAN over ranks of the parameters' gradients, which divides by the world size again: what the
optimiser sees is exactly the gradient of one process that holds the whole batch. (A loss that
gathers without gradients, or whose ranks return different means, is off by that factor.)

Parameters inside the loss, such as a critic's or a learned scale, follow the same rule: each rank's
gradient is world-size times the part that went through its own rows, and the mean is the sum of the
parts. So wrap a loss that has parameters in DDP too, or average their gradients yourself.

Backward passes are sums and gatherings again, so that a gradient can be differentiated: then by
the sum of what the ranks make of it, a gradient being world-size times that of the joined loss.

Ranks may hold different numbers of rows on gloo, where the sizes are exchanged first. NCCL needs
the same number on every rank: an exchange of sizes would stall the GPU at each step.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world() -> tuple[int, int]:
    """(rank, world size); (0, 1) where torch.distributed is not in use."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def gather(tensor: Tensor, dim: int = 0) -> Tensor:
    """The rows of all ranks along `dim`, in rank order; backward sums the ranks' gradients.

    On one process it is the tensor itself. All other dimensions must be the same on every rank.
    """
    if world()[1] == 1:
        return tensor
    joined: Tensor = _Gather.apply(tensor.movedim(dim, 0))  # type: ignore[no-untyped-call]
    return joined.movedim(0, dim)


def all_sum(tensor: Tensor) -> Tensor:
    """The sum over ranks, the same on each; backward is the sum over ranks again."""
    if world()[1] == 1:
        return tensor
    total: Tensor = _AllSum.apply(tensor)  # type: ignore[no-untyped-call]
    return total


@torch.no_grad()
def all_max(tensor: Tensor) -> Tensor:
    """The largest over ranks, entry by entry, without gradient."""
    largest = tensor.detach()
    if world()[1] > 1:
        largest = largest.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest


def row_counts(tensor: Tensor) -> list[int]:
    """How many rows (dimension 0) each rank holds; on NCCL, as many as here."""
    size = world()[1]
    if size == 1 or _on_nccl(tensor):
        return [len(tensor)] * size
    own = torch.tensor([len(tensor)])
    counts = [torch.zeros_like(own) for _ in range(size)]
    dist.all_gather(counts, own)
    return [int(count) for count in counts]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        rank, size = world()
        counts = row_counts(rows)
        ctx.start, ctx.stop = sum(counts[:rank]), sum(counts[: rank + 1])
        rows = rows.contiguous()
        if _on_nccl(rows):
            joined = rows.new_empty((size * len(rows), *rows.shape[1:]))
            dist.all_gather_into_tensor(joined, rows)
            return joined
        padded = rows.new_zeros((max(counts), *rows.shape[1:]))
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor]:
        # A function again, and not the operation alone, so that it can be differentiated too.
        return (_OwnSum.apply(gradient, ctx.start, ctx.stop),)  # type: ignore[no-untyped-call]


class _OwnSum(torch.autograd.Function):
    """The sum over ranks, of which each keeps its own rows: what `_Gather` is in reverse."""

    @staticmethod
    def forward(_: Any, rows: Tensor, start: int, stop: int) -> Tensor:
        rows = rows.clone(memory_format=torch.contiguous_format)
        if _on_nccl(rows):
            own = rows[start:stop].clone()
            dist.reduce_scatter_tensor(own, rows)
            return own
        dist.all_reduce(rows)
        return rows[start:stop]

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _Gather.apply(gradient), None, None  # type: ignore[no-untyped-call]


class _AllSum(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, tensor: Tensor) -> Tensor:
        total = tensor.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return all_sum(gradient)


def _on_nccl(tensor: Tensor) -> bool:
    """Whether tensors of this device travel by NCCL."""
    pairs = (part.split(":") for part in dist.get_backend_config().split(","))
    return dict(pairs).get(tensor.device.type) == "nccl"
