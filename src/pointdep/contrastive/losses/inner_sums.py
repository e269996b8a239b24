"""The objectives that are quadratic in inner-product scores, on one process, in few operations.

On a GPU such a loss takes less time than the host needs to ask for it step by step: here value and
gradient are a handful of kernels, all asked for in the forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pointdep.contrastive.losses.precision import full_float32


@dataclass(frozen=True)
class Quadratic:
    """joint[0] E_J[s] + joint[1] E_J[s^2] + product[0] E_M[s] + product[1] E_M[s^2]."""

    joint: tuple[float, float]
    product: tuple[float, float]


def inner_quadratic(anchors: Tensor, candidates: Tensor, weights: Quadratic) -> Tensor:
    """The value, (), of pairs (a_i, c_i) with all other cells as the product; both (n, e)."""
    value: Tensor = _InnerQuadratic.apply(  # type: ignore[no-untyped-call]
        anchors, candidates, weights
    )
    return value


class _InnerQuadratic(torch.autograd.Function):
    """Of the sums over pairs and over all cells: those over all are <A'A, C'C> and 1'A C'1."""

    @staticmethod
    def forward(ctx: Any, anchors: Tensor, candidates: Tensor, weights: Quadratic) -> Tensor:
        rows = len(anchors)
        # Weights of the sums over all cells, and of those over the pairs, which are among them.
        every = [weight / (rows * (rows - 1)) for weight in weights.product]
        own = [j / rows - m for j, m in zip(weights.joint, every, strict=True)]
        scores = (anchors * candidates).sum(1)
        sums = (anchors.sum(0), candidates.sum(0)) if every[0] else None
        with full_float32():
            grams = anchors.T @ anchors, candidates.T @ candidates
            value = torch.dot(grams[0].view(-1), grams[1].view(-1)) * every[1]
            value.add_(scores.sum(), alpha=own[0])
            value.add_(torch.dot(scores, scores), alpha=own[1])
            if sums is not None:
                value.add_(torch.dot(sums[0], sums[1]), alpha=every[0])
            if not any(ctx.needs_input_grad):
                return value
            slopes = (2.0 * own[1] * scores).add_(own[0]).unsqueeze_(1)
            sides = slopes * candidates, slopes * anchors
            sides[0].addmm_(anchors, grams[1], alpha=2.0 * every[1])
            sides[1].addmm_(candidates, grams[0], alpha=2.0 * every[1])
        if sums is not None:
            sides[0].add_(sums[1], alpha=every[0])
            sides[1].add_(sums[0], alpha=every[0])
        ctx.save_for_backward(*sides)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        sides: tuple[Tensor, Tensor] = ctx.saved_tensors
        return sides[0] * gradient, sides[1] * gradient, None
