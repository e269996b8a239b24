"""The pass over cells on NVIDIA's Hopper GPUs, by kernels of our own."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from pointdep.core.critics.pair_layers import compiled, finish

_TILE = 64  # rows of y, and of the units that a product runs over
_PAIRS = 16  # pairs of rows of x that a program walks over
_SPLIT = 4  # programs that share the sum over cells of one tile of the weights' gradient
_ROWS = 128  # the number of rows is a multiple of this
_HIDDEN = (256, 512)  # widths whose tiles fit shared memory
_LARGEST = 2**31  # what the kernels' indices reach


def fits(dtype: torch.dtype, hx: Tensor, hy: Tensor, weight: Tensor) -> bool:
    """Whether the kernels take these shapes, on this device."""
    if dtype != torch.bfloat16 or not on_hopper(hx.device):
        return False
    rows, hidden, outputs = hx.shape[1], weight.shape[1], weight.shape[2]
    largest = len(hx) * max(_SPLIT * hidden * outputs, rows * rows * hidden // 16)
    return (
        {hidden, outputs} <= set(_HIDDEN)
        and rows == hy.shape[1]
        and rows % _ROWS == 0
        and largest < _LARGEST
    )


@cache
def on_hopper(device: torch.device) -> bool:
    """Whether the device is one, and Triton with its Gluon is here."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != (9, 0):
        return False
    return find_spec("triton") is not None and find_spec("triton.experimental.gluon") is not None


class ByKernels(torch.autograd.Function):
    """The same as `pair_layers.pair_scores`, in bfloat16."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> Tensor:
        del dtype
        ctx.save_for_backward(*tensors)
        operands = compiled(_operands)(*tensors[:5])
        parts, ctx.gate = _forward(*operands)
        ctx.x, ctx.y = operands[:2]
        return parts.sum(1) + tensors[-1]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        grad = grads[0].contiguous()
        weight, bias, last_weight = ctx.saved_tensors[2:5]
        half, back = compiled(_operands_back)(grad, weight, last_weight)
        parts = _backward(grad, half, ctx.x, ctx.y, back, ctx.gate)
        return None, *compiled(_finish_parts)(grad, weight, bias, last_weight, *parts)


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
    return finish(grad, weight, bias, last_weight, grad_x, grad_y, product, total.unsqueeze(1))


def _forward(
    hx: Tensor, hy: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor
) -> tuple[Tensor, Tensor]:
    """The scores without their constant, (R, parts, n, n), and the signs of the second layer.

    The parts are to be summed. hx, hy and weight in bfloat16; all contiguous.
    """
    from pointdep.core.critics import hopper_kernels as kernels

    replicas, rows, hidden = hx.shape
    outputs = weight.shape[2]
    blocks, split = outputs // 128, rows // (2 * _PAIRS)
    part = bias.new_empty(replicas, blocks, rows, rows)
    gate = torch.empty(replicas, rows, rows, blocks, 4, dtype=torch.int32, device=hx.device)
    programs = replicas * blocks * (rows // _TILE) * split
    kernels.forward_kernel[(programs,)](
        hx, hy, weight, bias, last_weight, part, gate, rows, split, hidden, outputs, _PAIRS,
        num_warps=8,
    )  # fmt: skip
    return part, gate


def _backward(
    grad: Tensor, half_grad: Tensor, hx: Tensor, hy: Tensor, back: Tensor, gate: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of hx and hy, h1' (d g), and d g summed over y, in parts.

    Shapes (R, parts, n, h) twice, (R, parts, h, k), (R, parts, k). grad: (R, n, n), and the same in
    bfloat16; back: (R, h, k), the weights times w, in bfloat16; all contiguous.
    """
    from pointdep.core.critics import hopper_kernels as kernels

    replicas, rows, hidden = hx.shape
    outputs = back.shape[2]
    split = rows // (2 * _PAIRS)
    part_x = grad.new_empty(replicas, rows // 16, rows, hidden)
    part_y = grad.new_empty(replicas, 2 * split, rows, hidden)
    product = grad.new_empty(replicas, _SPLIT, hidden, outputs)
    total = grad.new_empty(replicas, rows, outputs)
    programs = replicas * (hidden // _TILE) * (rows // _TILE) * split
    # With 128 registers a thread, two programs share a multiprocessor.
    kernels.sides_kernel[(programs,)](
        gate, back, hx, hy, grad, part_x, part_y, rows, split, hidden, outputs, _PAIRS,
        num_warps=8, maxnreg=128,
    )  # fmt: skip
    programs = replicas * (outputs // 256) * (hidden // 128) * _SPLIT
    kernels.weight_kernel[(programs,)](
        hx, hy, gate, half_grad.view(torch.int16), product, rows, _SPLIT, hidden, outputs,
        rows // _TILE, num_warps=8,
    )  # fmt: skip
    kernels.gated_sum_kernel[(replicas * rows,)](gate, grad, total, rows, outputs, 16, num_warps=4)
    return part_x, part_y, product, total
