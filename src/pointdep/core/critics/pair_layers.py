"""The part of a concat critic that runs once per cell, with a backward pass written by hand.

Score of row i and column j, all with a leading replica dimension:

    h1 = relu(hx_i + hy_j),   z = W'h1 + b,   s = w . relu(z) + c.

Its gradient needs little of what the forward pass made. With d = ds/dL, a number a cell, and the
gate g = [z > 0], the gradient of z is d w g: only the gate is left of z. So

    G = sum over cells of h1 (d g)',   dW = G w',   dw = column sums of W * G + b (sum of d g),
    dh1 = (d g) (w W)',

two products, whose operands are h1 and d g, instead of two products and passes over z, over
relu(z) and over its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor

from pointdep.core.critics import hopper


def pair_scores(
    hx: Tensor,
    hy: Tensor,
    weight: Tensor,
    bias: Tensor,
    last_weight: Tensor,
    last_bias: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """Scores (R, n, m) of hx: (R, n, h), hy: (R, m, h), products in `dtype`, sums in hx's own.

    weight: (R, h, k), bias: (R, 1, k), last_weight: (R, k, 1), last_bias: (R, 1, 1).
    """
    scores: Tensor = _PairScores.apply(hx, hy, weight, bias, last_weight, last_bias, dtype)
    return scores


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *tensors, dtype = inputs
        ctx.save_for_backward(*tensors)
        ctx.by_kernels = hopper.fits(*tensors[:3], dtype)
        if ctx.by_kernels:
            ctx.operands = _compiled(_operands)(*tensors[:5])
            parts, ctx.gate = hopper.forward(*ctx.operands)
            return parts.sum(1) + tensors[-1]
        if tensors[0].device.type == "cuda":
            scores, *ctx.layers = _compiled(_forward)(*tensors, dtype)
            return scores
        # One replica after another: what a replica's layers hold fits the caches, all do not.
        parts = [_forward(*part, dtype) for part in _one_by_one(tensors)]
        ctx.layers = [layers for _, *layers in parts]
        return torch.cat([scores for scores, *_ in parts])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        tensors = [grad, *ctx.saved_tensors]
        if ctx.by_kernels:
            weight, bias, last_weight = ctx.saved_tensors[2:5]
            half, back = _compiled(_operands_back)(grad, weight, last_weight)
            x, y = ctx.operands[:2]
            parts = hopper.backward(grad.contiguous(), half, x, y, back, ctx.gate)
            return *_compiled(_finish_parts)(grad, weight, bias, last_weight, *parts), None
        if grad.device.type == "cuda":
            return *_compiled(_backward)(*tensors, *ctx.layers), None
        parts = [
            _backward(*part, *layers)
            for part, layers in zip(_one_by_one(tensors), ctx.layers, strict=True)
        ]
        return *(torch.cat(column) for column in zip(*parts, strict=True)), None


def _one_by_one(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    for replica in range(len(tensors[0])):
        yield [tensor[replica : replica + 1] for tensor in tensors]


def _forward(
    hx: Tensor,
    hy: Tensor,
    weight: Tensor,
    bias: Tensor,
    last_weight: Tensor,
    last_bias: Tensor,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, and the two hidden layers, (R, n m, h) and (R, n m, k)."""
    first = (hx.unsqueeze(2) + hy.unsqueeze(1)).relu_().to(dtype).flatten(1, 2)
    second = torch.bmm(first, weight.to(dtype)).add_(bias).relu_()
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
    return _finish(grad, weight, bias, last_weight, grad_x, grad_y, product, total)


def _finish(
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


def _operands(
    hx: Tensor, hy: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor
) -> tuple[Tensor, ...]:
    """What the kernels of the forward pass take."""
    half = [t.to(torch.bfloat16).contiguous() for t in (hx, hy, weight)]
    return *half, bias.contiguous(), last_weight.contiguous()


def _operands_back(grad: Tensor, weight: Tensor, last_weight: Tensor) -> tuple[Tensor, Tensor]:
    """What the kernels of the backward pass take beside those."""
    back = (weight * last_weight.transpose(1, 2)).to(torch.bfloat16)
    return grad.to(torch.bfloat16).contiguous(), back.contiguous()


def _finish_parts(
    grad: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, *parts: Tensor
) -> tuple[Tensor, ...]:
    """`_finish` of sums over cells that came in parts, (R, parts, ...)."""
    grad_x, grad_y, product, total = (part.sum(1) for part in parts)
    return _finish(grad, weight, bias, last_weight, grad_x, grad_y, product, total.unsqueeze(1))


def _where_positive(values: Tensor, gate: Tensor) -> Tensor:
    """The values where the gate is above zero, else zero: the gradient of relu."""
    kept: Tensor = torch.ops.aten.threshold_backward(values, gate, 0.0)
    return kept


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)
