"""Rows of unit length."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pointdep.contrastive.losses.precision import own_functions_apply

_LEAST = 1e-12  # as `F.normalize`: a row of zeros stays one


def unit_rows(*sides: Tensor) -> list[Tensor]:
    """`F.normalize` of each side, (n, d), with fewer operations in the backward pass."""
    if not own_functions_apply():
        return [F.normalize(rows, dim=-1, eps=_LEAST) for rows in sides]
    units_and_lengths = _UnitRows.apply(*sides)  # type: ignore[no-untyped-call]
    return list(units_and_lengths[: len(sides)])


class _UnitRows(torch.autograd.Function):
    """Units and their lengths: being outputs, both may be saved and differentiated once more."""

    @staticmethod
    def forward(ctx: Any, *sides: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        lengths = [
            torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp_(min=_LEAST)
            for rows in sides
        ]
        units = [rows / length for rows, length in zip(sides, lengths, strict=True)]
        ctx.save_for_backward(*units, *lengths)
        return *units, *lengths

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        saved, half = ctx.saved_tensors, len(gradients) // 2
        sides = zip(gradients[:half], gradients[half:], saved[:half], saved[half:], strict=True)
        return tuple(_through_length(*side) for side in sides)


def _through_length(
    of_unit: Tensor | None, of_length: Tensor | None, unit: Tensor, length: Tensor
) -> Tensor | None:
    """The gradient of rows, (n, d), from those of their unit rows and of their lengths, (n, 1)."""
    found = None
    if of_unit is not None:
        along = (of_unit * unit).sum(-1, keepdim=True)
        found = torch.addcmul(of_unit, unit, along, value=-1.0).div_(length)
    if of_length is None:  # but in a second derivative
        return found
    own = of_length * unit
    return own if found is None else found + own
