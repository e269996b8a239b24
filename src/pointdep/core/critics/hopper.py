"""The pass over cells on NVIDIA's Hopper GPUs, by kernels of our own."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from pointdep.core.critics.pair_layers import compiled, finish
from pointdep.errors import PointdepWarning

_TILE = 64  # rows of y, and of the units that a product runs over
_PAIRS = 16  # pairs of rows of x that a program walks over
_SPLIT = 4  # programs that share the sum over cells of one tile of the weights' gradient
_ROWS, _MOST_ROWS = 128, 512  # the number of rows is a multiple of the first
_HIDDEN = (256, 512)  # widths whose tiles fit shared memory
_LARGEST = 2**31  # what the kernels' indices reach
_TOLERANCE = 0.01  # bfloat16 gives 0.002


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
        and rows <= _MOST_ROWS
        and largest < _LARGEST
        and works(hx.device, hidden, outputs)
    )


@cache
def on_hopper(device: torch.device) -> bool:
    """Whether the device is one, and Triton with its Gluon is here."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != (9, 0):
        return False
    return find_spec("triton") is not None and find_spec("triton.experimental.gluon") is not None


@cache
def works(device: torch.device, hidden: int, outputs: int) -> bool:
    """Whether the kernels compute what they should: Gluon changes from version to version."""
    try:
        error = _error(device, hidden, outputs)
        reason = "" if error < _TOLERANCE else "they give wrong results here"
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as problem:  # whatever Triton raises, there is another way
        reason = f"{type(problem).__name__}: {str(problem).partition(chr(10))[0]}"
    if reason:
        warnings.warn(
            f"the kernels for Hopper GPUs are not used ({reason}): training takes about twice as "
            "long",
            PointdepWarning,
            stacklevel=2,
        )
    return not reason


def _error(device: torch.device, hidden: int, outputs: int) -> float:
    """The largest relative error of the kernels' results on one small problem."""
    draw = torch.Generator().manual_seed(0)
    sizes = (_ROWS, hidden), (_ROWS, hidden), (hidden, outputs), (1, outputs), (1, outputs)
    drawn = [torch.randn(1, *size, generator=draw).to(device) for size in sizes]
    x, y, weight = (values.to(torch.bfloat16) for values in drawn[:3])
    bias, last = drawn[3:]
    first = (x.unsqueeze(2) + y.unsqueeze(1)).relu().flatten(1, 2).float()
    after = (first @ weight.float() + bias).relu()
    gate = (after > 0).float()
    cells = torch.where(first > 0, gate @ weight.float().transpose(1, 2), 0.0)
    cells = cells.view(1, _ROWS, _ROWS, hidden)
    scores = (after @ last.transpose(1, 2)).view(1, _ROWS, _ROWS)
    wanted = scores, cells.sum(2), cells.sum(1), first.transpose(1, 2) @ gate, gate.sum(1)
    part, signs = _forward(x, y, weight, bias, last)
    ones = torch.ones_like(scores)
    found = part, *_backward(ones, ones.to(torch.bfloat16), x, y, weight, signs)
    errors = [(f.sum(1) - w).norm() / w.norm() for f, w in zip(found, wanted, strict=True)]
    return float(torch.stack(errors).nan_to_num(torch.inf).max())


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
    """`finish` of sums over cells that came in parts, (R, parts, ...)."""
    grad_x, grad_y, product, total = (part.sum(1) for part in parts)
    return finish(grad, weight, bias, last_weight, grad_x, grad_y, product, total.unsqueeze(1))


def _forward(
    hx: Tensor, hy: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor
) -> tuple[Tensor, Tensor]:
    """The scores without their constant, (R, parts, n, n), and the signs of the second layer.

    The parts are to be summed. hx, hy and weight in bfloat16; all contiguous.
    """
    from pointdep.core.critics.hopper_forward import forward_kernel

    replicas, rows, hidden = hx.shape
    outputs = weight.shape[2]
    blocks, split = outputs // 128, rows // (2 * _PAIRS)
    part = bias.new_empty(replicas, blocks, rows, rows)
    gate = torch.empty(replicas, rows, rows, blocks, 4, dtype=torch.int32, device=hx.device)
    programs = replicas * blocks * (rows // _TILE) * split
    forward_kernel[(programs,)](
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
    from pointdep.core.critics import hopper_backward as kernels

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
