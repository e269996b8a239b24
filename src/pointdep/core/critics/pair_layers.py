"""The part of a concat critic that runs once per cell, with a backward pass written by hand.

Score of row i and column j, all with a leading replica dimension:

    h1 = relu(hx_i + hy_j),   z = W'h1 + b,   s = w . relu(z) + c.

Its gradient needs little of what the forward pass made. With d = dL/ds, a number a cell, and the
gate g = [z > 0], the gradient of z is d w g: only the gate is left of z. So

    G = sum over cells of h1 (d g)',   dW = G w',   dw = column sums of W * G + b (sum of d g),
    dh1 = (d g) (w W)',

two products, whose operands are h1 and d g, instead of two products and passes over z, over
relu(z) and over its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from pointdep.core.critics.part_threads import of_each

_CACHED = 1 << 18  # numbers, a megabyte


def pair_scores(dtype: torch.dtype, hx: Tensor, hy: Tensor, *weights: Tensor) -> Tensor:
    """Scores (R, n, m) of hx: (R, n, h), hy: (R, m, h), products in `dtype`, sums in hx's own.

    weights: W (R, h, k), b (R, 1, k), w (R, k, 1), c (R, 1, 1).
    """
    way: Any = _AllAtOnce if hx.device.type == "cuda" else _FewByFew
    scores: Tensor = way.apply(dtype, hx, hy, *weights)
    return scores


class _FewByFew(torch.autograd.Function):
    """A few replicas after another: their layers fit a CPU's caches, those of all do not."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        parts = [(dtype, *part) for part in _few_by_few(tensors, *tensors[:2])]
        done = of_each(_forward, parts)
        ctx.layers = [layers for _, *layers in done]
        return torch.cat([scores for scores, *_ in done])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        hx, hy = ctx.saved_tensors[:2]
        parts = _few_by_few([*grads, *ctx.saved_tensors], hx, hy)
        whole = [(*part, *layers) for part, layers in zip(parts, ctx.layers, strict=True)]
        done = of_each(_backward, whole)
        return None, *(torch.cat(column) for column in zip(*done, strict=True))


class _AllAtOnce(torch.autograd.Function):
    """All replicas in one product, and what is between the products compiled."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        scores: Tensor
        scores, *ctx.layers = compiled(_forward)(dtype, *tensors)
        return scores

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        return None, *compiled(_backward)(*grads, *ctx.saved_tensors, *ctx.layers)


def _few_by_few(tensors: Sequence[Tensor], hx: Tensor, hy: Tensor) -> Iterator[list[Any]]:
    """The tensors, cut along the replicas so that a part's first layer is `_CACHED` numbers."""
    few = max(1, _CACHED // (hx.shape[1] * hy.shape[1] * hx.shape[2]))
    for first in range(0, len(hx), few):
        yield [tensor[first : first + few] for tensor in tensors]


def _forward(
    dtype: torch.dtype,
    hx: Tensor,
    hy: Tensor,
    weight: Tensor,
    bias: Tensor,
    last_weight: Tensor,
    last_bias: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, and the two hidden layers, (R, n m, h) and (R, n m, k)."""
    first = (hx.unsqueeze(2) + hy.unsqueeze(1)).relu_().to(dtype).flatten(1, 2)
    second = torch.bmm(first, weight.to(dtype)).add_(bias).relu_()
    if len(hx) > 1 and hx.device.type == "cpu":
        # A batch of matrix-vector products is several times slower on a CPU than this.
        scores = (second * last_weight.transpose(1, 2)).sum(-1, keepdim=True) + last_bias
    else:
        scores = torch.bmm(second, last_weight.to(dtype)).to(hx.dtype) + last_bias
    return scores.view(len(hx), hx.shape[1], hy.shape[1]), first, second


def _backward(
    grad: Tensor,
    hx: Tensor,
    hy: Tensor,
    weight: Tensor,
    bias: Tensor,
    last_weight: Tensor,
    last_bias: Tensor,
    first: Tensor,
    second: Tensor,
) -> tuple[Tensor, ...]:
    """The gradients of the six inputs."""
    del last_bias
    spread = grad.flatten(1).unsqueeze(-1).to(first.dtype).expand_as(second)
    gated = _where_positive(spread, second)
    back = (weight * last_weight.transpose(1, 2)).to(first.dtype).transpose(1, 2)
    cells = _where_positive(torch.bmm(gated, back), first)
    cells = cells.view(len(hx), hx.shape[1], hy.shape[1], -1)
    grad_x, grad_y = cells.sum(2, dtype=hx.dtype), cells.sum(1, dtype=hx.dtype)
    product = torch.bmm(first.transpose(1, 2), gated).to(hx.dtype)
    total = gated.sum(1, keepdim=True, dtype=hx.dtype)
    return finish(grad, weight, bias, last_weight, grad_x, grad_y, product, total)


def finish(
    grad: Tensor,
    weight: Tensor,
    bias: Tensor,
    last_weight: Tensor,
    grad_x: Tensor,
    grad_y: Tensor,
    product: Tensor,
    total: Tensor,
) -> tuple[Tensor, ...]:
    """The gradients of the six inputs from the sums over cells."""
    last_row = last_weight.transpose(1, 2)
    grad_last = (weight * product).sum(1, keepdim=True) + bias * total
    return (
        grad_x,
        grad_y,
        product * last_row,
        total * last_row,
        grad_last.transpose(1, 2),
        grad.sum((1, 2)).view(-1, 1, 1),
    )


def _where_positive(values: Tensor, gate: Tensor) -> Tensor:
    """The values where the gate is above zero, else zero: the gradient of relu."""
    kept: Tensor = torch.ops.aten.threshold_backward(values, gate, 0.0)
    return kept


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile, once for each function."""
    return torch.compile(function, dynamic=False)
