"""The objectives that are quadratic in inner-product scores, on one process, in few operations.

On a GPU such a loss takes less time than the host needs to ask for it step by step: here value and
gradient are a handful of kernels, all asked for in the forward pass. Only where the gradient itself
is differentiated (`create_graph=True`) is it computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pointdep.core.precision import full_float32


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
        with full_float32():
            sums = _Sums(anchors, candidates, weights)
            value = sums.value()
            if any(ctx.needs_input_grad):
                ctx.weights = weights
                ctx.save_for_backward(anchors, candidates, *sums.gradients())
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        anchors, candidates, *sides = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted: the gradient as a function
            with full_float32():
                sides = _Sums(anchors, candidates, ctx.weights).gradients()
        return sides[0] * gradient, sides[1] * gradient, None


class _Sums:
    """What value and gradients have in common; every step can be differentiated."""

    def __init__(self, anchors: Tensor, candidates: Tensor, weights: Quadratic) -> None:
        rows = len(anchors)
        self.anchors, self.candidates = anchors, candidates
        # Weights of the sums over all cells, and of those over the pairs, which are among them.
        self.every = [weight / (rows * (rows - 1)) for weight in weights.product]
        self.own = [j / rows - m for j, m in zip(weights.joint, self.every, strict=True)]
        self.scores = (anchors * candidates).sum(1)
        self.sums = (anchors.sum(0), candidates.sum(0)) if self.every[0] else None
        self.grams = anchors.T @ anchors, candidates.T @ candidates

    def value(self) -> Tensor:
        """The objective, ()."""
        value = torch.dot(self.grams[0].view(-1), self.grams[1].view(-1)) * self.every[1]
        value.add_(self.scores.sum(), alpha=self.own[0])
        value.add_(torch.dot(self.scores, self.scores), alpha=self.own[1])
        if self.sums is not None:
            value.add_(torch.dot(self.sums[0], self.sums[1]), alpha=self.every[0])
        return value

    def gradients(self) -> list[Tensor]:
        """Its gradients with respect to anchors and candidates, (n, e) each."""
        slopes = (2.0 * self.own[1] * self.scores).add_(self.own[0]).unsqueeze_(1)
        sides = [slopes * self.candidates, slopes * self.anchors]
        sides[0].addmm_(self.anchors, self.grams[1], alpha=2.0 * self.every[1])
        sides[1].addmm_(self.candidates, self.grams[0], alpha=2.0 * self.every[1])
        if self.sums is not None:
            sides[0].add_(self.sums[1], alpha=self.every[0])
            sides[1].add_(self.sums[0], alpha=self.every[0])
        return sides
