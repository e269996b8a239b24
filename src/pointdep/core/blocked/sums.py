"""Sums over the cells of inner-product scores, block by block, with their gradients.

Scores are x_i . y_j + own_x_i + own_y_j, and what a link makes of them. Of a block only sums are
kept, and the two products with the slopes of its cells that make up the gradients of x and y.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pointdep.core.blocked.cells import identity, sloped
from pointdep.core.blocked.steps import fused, log_sums, softmax_slopes, sum_rows, sums_and_slopes
from pointdep.core.blocked.walk import Factors, Gradients, Job, Scored
from pointdep.errors import InputError


def cell_sums(x: Tensor, y: Tensor, own_x: Tensor | None, own_y: Tensor | None, job: Job) -> Tensor:
    """Of each matrix, the weighted sum of job.function over its cells: (L,).

    x: (L, n, e), y: (L, m, e), own_x: (L, n), own_y: (L, m). The gradients are found on the way:
    where one is wanted, three products a block, and none in the backward pass.
    """
    if not torch.is_grad_enabled():  # of which the function itself is not told
        x, y, own_x, own_y = x.detach(), y.detach(), _detached(own_x), _detached(own_y)
    out: Tensor = _CellSums.apply(x, y, own_x, own_y, job)  # type: ignore[no-untyped-call]
    return out


def row_log_sums(
    x: Tensor, y: Tensor, own_x: Tensor | None, own_y: Tensor | None, job: Job
) -> Tensor:
    """log of the weighted sum of exp s over each row: (L, n), -inf where a row has no weight.

    The scores are computed again in the backward pass.
    """
    out: Tensor = _RowLogSums.apply(x, y, own_x, own_y, job)  # type: ignore[no-untyped-call]
    return out


class _CellSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, own_x: Tensor | None, own_y: Tensor | None, job: Job
    ) -> Tensor:
        factors = Factors(x, y, own_x, own_y, job)
        totals = x.new_zeros(x.shape[:2])
        if not any(ctx.needs_input_grad):
            for block in factors.walk():
                step = fused(sum_rows, job.function or identity, block)
                scores = block.linked().detach()
                _add(totals, block, step(scores, *block.sides()))
            return _summed(totals)
        cell = sloped(job.function)
        found = Gradients(factors, ctx.needs_input_grad)
        for block in factors.walk():
            scores = block.linked()
            step = fused(sums_and_slopes, cell, block)
            values, rows, slopes = step(scores.detach(), *block.sides())
            _add(totals, block, values)
            found.add(block, scores, slopes, rows)
        ctx.save_for_backward(*found.tensors)
        return _summed(totals)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_second()
        sides = [
            None if side is None else side * gradient.view(-1, *[1] * (side.ndim - 1))
            for side in ctx.saved_tensors
        ]
        return (*sides, None)


class _RowLogSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, own_x: Tensor | None, own_y: Tensor | None, job: Job
    ) -> Tensor:
        found = x.new_full(x.shape[:2], -math.inf)
        for block in Factors(x, y, own_x, own_y, job).walk():
            part = fused(log_sums, None, block)(block.linked().detach(), *block.sides())
            place = found[block.at.matrices, block.at.rows]
            torch.logaddexp(place, part, out=place)
        ctx.save_for_backward(x, y, own_x, own_y, found)
        ctx.job = job
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_second()
        x, y, own_x, own_y, found = ctx.saved_tensors
        factors = Factors(x, y, own_x, own_y, ctx.job)
        slopes_found = Gradients(factors, ctx.needs_input_grad)
        for block in factors.walk():
            scores = block.linked()
            rows = _rows(found, block), _rows(gradient, block)
            step = fused(softmax_slopes, None, block)
            slopes = step(scores.detach(), *block.sides(), *rows)
            slopes_found.add(block, scores, slopes, None)
        return (*slopes_found.tensors, None)


def highest_scores(
    x: Tensor, y: Tensor, own_x: Tensor | None, own_y: Tensor | None, job: Job
) -> Tensor:
    """The highest score of each matrix among its cells of weight: (L,), without gradient."""
    found = x.new_full(x.shape[:1], -math.inf)
    with torch.no_grad():
        for block in Factors(x, y, own_x, own_y, job).walk():
            part = log_sums(block.linked(), *block.sides())
            place = found[block.at.matrices]
            # Of rows, log sums are above the highest by no more than log m: near enough.
            torch.maximum(place, part.amax(-1), out=place)
    return found


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()


def _refuse_second() -> None:
    # Not `once_differentiable`: where the gradient's own gradient is constant, it lets it pass.
    if torch.is_grad_enabled():
        raise InputError(
            "InnerScores have no second derivatives (create_graph=True): give x @ y.mT instead"
        )


def _rows(rows: Tensor, block: Scored) -> Tensor:
    """The rows of a block, of (L, n)."""
    return rows[block.at.matrices, block.at.rows]


def _add(totals: Tensor, block: Scored, values: Tensor) -> None:
    """Add values, (l, r), to the rows of a block."""
    totals[block.at.matrices, block.at.rows] += values


def _summed(rows: Tensor) -> Tensor:
    return rows.sum(-1, dtype=torch.float64).to(rows.dtype)
