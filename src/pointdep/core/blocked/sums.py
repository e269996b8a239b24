"""Sums over the cells of L matrices of scores, with their derivatives.

The scores are x_i . y_j + own_x_i + own_y_j, or what a link makes of them; or those of any function
of rows. Two ways lead to the same numbers:

- In blocks, for inner products: only sums are kept of a block, and the two products with the slopes
  of its cells that make up the gradients of x and y. Steps on a block are fused on a GPU.
- By plain operations on rows of the matrix, which autograd, torch.func and torch.compile can
  differentiate and trace. Second derivatives of the first way go through here.

Sums of s and s^2 need neither: they follow from Gram matrices (`quadratic_sums`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pointdep.core.blocked.walk import Block, CellWeights, Step, blocks, compiled_step, spans
from pointdep.core.precision import full_float32, no_autocast, own_functions_apply, transformed

Elementwise = Callable[[Tensor], Tensor]
Optional = Tensor | None

_FAR = -1e38  # finite: a logsumexp of nothing but -inf has no second derivative


def softplus(scores: Tensor) -> Tensor:
    """log(1 + exp s), without the shortcut of `F.softplus` that costs float64 its digits."""
    return -F.logsigmoid(-scores)


@dataclass(frozen=True)
class Quadratic:
    """linear * s + square * s^2."""

    linear: float
    square: float

    def __call__(self, scores: Tensor) -> Tensor:
        if not self.square:
            return self.linear * scores
        squares = self.square * scores.square()
        return self.linear * scores + squares if self.linear else squares

    def slope(self, scores: Tensor, _: Tensor) -> Tensor:
        return 2.0 * self.square * scores + self.linear


# The derivative of each function that is summed, from score and value; where the function is zero.
_SLOPES: dict[Elementwise | None, Callable[[Tensor, Tensor], Tensor]] = {
    None: lambda scores, _: torch.ones_like(scores),
    torch.exp: lambda _, value: value,
    F.logsigmoid: lambda scores, _: torch.sigmoid(-scores),
    softplus: lambda scores, _: torch.sigmoid(scores),
}
_ZEROS = {torch.exp: -math.inf, F.logsigmoid: math.inf, softplus: -math.inf}  # others: at zero


class Inputs(NamedTuple):
    """x: (L, n, e), y: (L, m, e), own_x: (L, n), own_y: (L, m)."""

    x: Tensor
    y: Tensor
    own_x: Optional = None
    own_y: Optional = None


@dataclass(frozen=True, eq=False)
class Job:
    """Which cells are summed, how many of them at a time, and what their scores are.

    weights: None if every cell counts once.
    link: makes scores of inner products. shift: (L,), subtracted from the scores.
    score: x (L, r, .), y (L, m, .) -> (L, r, m), for scores that are no inner products.
    draws: `score` may use random numbers.
    plain: by plain operations, even where blocks would do.
    """

    weights: CellWeights | None
    cells: int
    link: Elementwise | None = None
    shift: Optional = None
    score: Callable[[Tensor, Tensor], Tensor] | None = None
    draws: bool = False
    plain: bool = False

    @property
    def in_blocks(self) -> bool:
        return self.score is None and not self.plain and own_functions_apply()


def cell_sums(inputs: Inputs, job: Job, function: Elementwise | None = None) -> Tensor:
    """The weighted sum of function(s) over the cells of each matrix: (L,).

    In blocks, gradients are found on the way: three products per block if one is wanted, and none
    in the backward pass.
    """
    if not job.in_blocks:
        return _plain_sums(inputs, job, function)
    out: Tensor = _CellSums.apply(*_undisturbed(inputs), job, function)  # type: ignore[no-untyped-call]
    return out


def log_sums(inputs: Inputs, job: Job, *, columns: bool = False) -> tuple[Tensor, ...]:
    """log of the weighted sum of exp s over each row, (L, n), and each column, (L, m), if asked.

    -inf for a row without weight. In blocks, scores are computed again in the backward pass.
    """
    if not job.in_blocks:
        return _plain_log_sums(inputs, job, columns)
    out: tuple[Tensor, ...] = _LogSums.apply(*_undisturbed(inputs), job, columns)  # type: ignore[no-untyped-call]
    return out


def weighted_sum(scores: Tensor, weights: Optional, function: Elementwise | None) -> Tensor:
    """The sum of weights * function(s), (..., n, m) -> (...); weight zero hides any score."""
    masked = weights is not None and weights.dtype == torch.bool
    if weights is not None:
        # Under a mask, a score at which the function is zero saves the product with the weights.
        zero = _ZEROS.get(function, 0.0) if masked else 0.0
        scores = torch.where(_has_weight(weights), scores, zero)
    values = function(scores) if function else scores
    return (values if weights is None or masked else weights * values).flatten(-2).sum(-1)


def against(
    positive: Tensor, negatives: Tensor, count: Tensor, own: Tensor | float = 1.0
) -> Tensor:
    """A score minus log of the mean of exp over itself, of weight `own`, and its negatives.

    negatives: the log of the sum of exp over them; count: their total weight.
    """
    # Not logaddexp: its second derivative is NaN where exp of the distance overflows. Zero is added
    # as s - s, which is NaN where a score is infinite: log sigmoid would hide that.
    zero = (positive - positive).detach()
    if isinstance(own, Tensor):
        lift = own.log()
        return F.logsigmoid(positive + lift - negatives) - lift + ((own + count).log() + zero)
    return F.logsigmoid(positive - negatives) + (torch.log1p(count) + zero)


def _undisturbed(inputs: Inputs) -> Inputs:
    """Detached where gradients are off, of which an autograd function is not told."""
    if torch.is_grad_enabled():
        return inputs
    return Inputs(*(None if part is None else part.detach() for part in inputs))  # type: ignore[arg-type]


# --- By plain operations ---------------------------------------------------------------------


def _plain_sums(inputs: Inputs, job: Job, function: Elementwise | None) -> Tensor:
    def part(scores: Tensor, weights: Optional) -> Tensor:
        return weighted_sum(scores, weights, function)

    return torch.stack(_by_rows(inputs, job, part)).sum(0)


def _plain_log_sums(inputs: Inputs, job: Job, columns: bool) -> tuple[Tensor, ...]:
    def part(scores: Tensor, weights: Optional) -> tuple[Tensor, ...]:
        return _log_sum_step(columns, scores, None, None, weights)

    rows, *down = zip(*_by_rows(inputs, job, part), strict=True)
    return torch.cat(rows, 1), *(torch.logsumexp(torch.stack(one), 0) for one in down)


def _by_rows(inputs: Inputs, job: Job, part: Callable[[Tensor, Optional], Any]) -> list[Any]:
    """part(scores, weights) of some rows at a time; several are computed again in backward."""
    x, y, own_x, own_y = inputs
    matrices, columns = y.shape[:2]

    def scored(rows: slice, x: Tensor, y: Tensor, own_x: Optional, own_y: Optional) -> Any:
        at = Block(slice(0, matrices), rows, slice(0, columns))
        weights = None if job.weights is None else job.weights.block(at)
        if job.score is not None:
            return part(job.score(x, y), weights)
        scores = _with_own(_matmul(x, y.mT), own_x, own_y)
        scores = scores if job.link is None else job.link(scores)
        return part(scores if job.shift is None else scores - job.shift[:, None, None], weights)

    parts = spans(x.shape[1], max(1, job.cells // (matrices * columns)))
    # `torch.func` cannot compute again.
    again = len(parts) > 1 and torch.is_grad_enabled() and not transformed()
    found = []
    for rows in parts:
        given = rows, x[:, rows], y, None if own_x is None else own_x[:, rows], own_y
        if again:
            options = {"use_reentrant": False, "preserve_rng_state": job.draws}
            found.append(checkpoint(scored, *given, **options))
        else:
            found.append(scored(*given))
    return found


def _differentiable(
    ctx: Any, inputs: Sequence[Optional], gradients: Sequence[Tensor], sums: Callable[..., Any]
) -> tuple[Optional, ...]:
    """The gradients of `sums`, computed again so that they can be differentiated themselves."""
    # Views, so that x and y are told apart where they are one tensor.
    views = [None if part is None else part.view_as(part) for part in inputs]
    needed = [view for view, wanted in zip(views, ctx.needs_input_grad, strict=False) if wanted]
    values = sums(Inputs(*views), ctx.job, ctx.option)  # type: ignore[arg-type]
    found = iter(torch.autograd.grad(values, needed, gradients, create_graph=True))
    return tuple(next(found) if wanted else None for wanted in ctx.needs_input_grad)


# --- In blocks -------------------------------------------------------------------------------


class _Walk:
    """The blocks of a job, and the gradients of the inputs that are gathered on the way."""

    def __init__(self, inputs: Sequence[Optional], job: Job, wanted: Sequence[bool] = ()) -> None:
        self.inputs = [None if part is None else part.detach() for part in inputs]
        self.job = job
        self.gradients = [
            torch.zeros_like(part) if part is not None and needed else None
            for part, needed in zip(self.inputs, wanted, strict=False)
        ]
        # What a step has to add: own terms, unless they went into a link before, and the shift.
        self.added = self.inputs[2:] if job.link is None else [None, None]
        if job.shift is not None:
            x, own_x = self.inputs[0], self.added[0]
            assert x is not None
            down = -job.shift.to(x.dtype).unsqueeze(-1).expand(x.shape[:2])
            self.added = [down if own_x is None else own_x + down, self.added[1]]

    def __iter__(self) -> Iterator[_Scored]:
        x, y = self.inputs[:2]
        assert x is not None
        assert y is not None
        with no_autocast(x):
            for at in blocks(len(x), x.shape[1], y.shape[1], self.job.cells):
                yield _Scored(self, at)


class _Scored:
    """One block: the rows and columns that meet in it, and their scores."""

    def __init__(self, walk: _Walk, at: Block) -> None:
        self.walk, self.at, job = walk, at, walk.job
        self.rows, self.columns = (at.matrices, at.rows), (at.matrices, at.columns)
        x, y, own_x, own_y = self._parts(walk.inputs)
        assert x is not None
        assert y is not None
        self.x, self.y = x, y
        self.weights = None if job.weights is None else job.weights.block(at)
        self.scores, self.inner = _matmul(x, y.mT), None
        if job.link is not None:
            with torch.enable_grad():
                self.inner = _with_own(self.scores, own_x, own_y).requires_grad_()
                self.scores = job.link(self.inner)

    def _parts(self, tensors: Sequence[Optional]) -> list[Optional]:
        """Of tensors of the rows and of the columns in turn, what belongs to this block."""
        places = (self.rows, self.columns) * 2
        return [
            None if tensor is None else tensor[place]
            for tensor, place in zip(tensors, places, strict=False)
        ]

    @property
    def compiled(self) -> bool:
        """Whether steps are compiled: on a GPU, for blocks of which there are many."""
        return self.at.common and self.x.is_cuda

    def run(self, step: Step, option: Any, *rows_and_columns: Optional) -> Any:
        """step(option, scores, own_x, own_y, weights, ...), compiled where that pays.

        rows_and_columns: tensors of the rows, (L, n), and of the columns, (L, m), in turn.
        """
        if self.compiled:
            step, given = compiled_step(step, (option,), self.scores.shape), ()
        else:
            given = (option,)
        added, rest = self._parts(self.walk.added), self._parts(rows_and_columns)
        return step(*given, self.scores.detach(), *added, self.weights, *rest)

    def add(self, slopes: Tensor) -> None:
        """Add what the slopes of the scores, (l, r, c), make of the gradients of the inputs."""
        if self.inner is not None:
            (slopes,) = torch.autograd.grad(self.scores, self.inner, slopes)
            if self.weights is not None:
                slopes = torch.where(_has_weight(self.weights), slopes, 0.0)
        x, y, own_x, own_y = self._parts(self.walk.gradients)
        if x is not None:
            _accumulate(x, slopes, self.y)
        if y is not None:
            _accumulate(y, slopes.mT, self.x)
        if own_x is not None:
            own_x += slopes.sum(-1)
        if own_y is not None:
            own_y += slopes.sum(-2)


class _CellSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        y: Tensor,
        own_x: Optional,
        own_y: Optional,
        job: Job,
        function: Elementwise | None,
    ) -> Tensor:
        inputs, totals = (x, y, own_x, own_y), x.new_zeros(x.shape[:2])
        walk = _Walk(inputs, job, ctx.needs_input_grad)
        for block in walk:
            if any(ctx.needs_input_grad):
                values, slopes = block.run(_slope_step, function)
                block.add(slopes)
                del slopes  # or two blocks of them live while the next one is scored
            else:
                values = block.run(_sum_step, function)
            totals[block.rows] += values
            del block
        ctx.save_for_backward(*inputs, *walk.gradients)
        ctx.job, ctx.option = job, function
        return totals.sum(-1, dtype=torch.float64).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Optional, ...]:
        saved = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _differentiable(ctx, saved[:4], [gradient], _plain_sums)
        sides = [
            None if side is None else side * gradient.view(-1, *[1] * (side.ndim - 1))
            for side in saved[4:]
        ]
        return *sides, None, None


class _LogSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        y: Tensor,
        own_x: Optional,
        own_y: Optional,
        job: Job,
        columns: bool,
    ) -> tuple[Tensor, ...]:
        inputs = (x, y, own_x, own_y)
        found = [x.new_full(side.shape[:2], -math.inf) for side in (x, y)[: 1 + columns]]
        for block in _Walk(inputs, job):
            for place, part in zip(
                block._parts(found), block.run(_log_sum_step, columns), strict=True
            ):
                torch.logaddexp(place, part, out=place)
        ctx.save_for_backward(*inputs, *found)
        ctx.job, ctx.option = job, columns
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Optional, ...]:
        inputs, found = ctx.saved_tensors[:4], ctx.saved_tensors[4:]
        if torch.is_grad_enabled():
            return _differentiable(ctx, inputs, gradients, _plain_log_sums)
        walk = _Walk(inputs, ctx.job, ctx.needs_input_grad)
        if not ctx.option:
            found, gradients = (*found, None), (*gradients, None)
        for block in walk:
            block.add(block.run(_softmax_step, None, *found, *gradients))
            del block
        return *walk.gradients, None, None


# Steps on one block: pure functions, each one kernel or two on a GPU. scores: (l, r, c); own_x:
# (l, r) and own_y: (l, c) are added to them; weights are numbers or a mask, or None.


def _sum_step(
    function: Elementwise | None,
    scores: Tensor,
    own_x: Optional,
    own_y: Optional,
    weights: Optional,
) -> Tensor:
    """The weighted sums of function over each row, (l, r)."""
    scores = _with_own(scores, own_x, own_y)
    return _weighted(function(scores) if function else scores, weights).sum(-1)


def _slope_step(
    function: Elementwise | None,
    scores: Tensor,
    own_x: Optional,
    own_y: Optional,
    weights: Optional,
) -> tuple[Tensor, Tensor]:
    """The same, and the weighted slopes, (l, r, c)."""
    scores = _with_own(scores, own_x, own_y)
    value = function(scores) if function else scores
    slope = function.slope if isinstance(function, Quadratic) else _SLOPES[function]
    return _weighted(value, weights).sum(-1), _weighted(slope(scores, value), weights)


def _log_sum_step(
    columns: bool, scores: Tensor, own_x: Optional, own_y: Optional, weights: Optional
) -> tuple[Tensor, ...]:
    """log of the weighted sum of exp over each row, (l, r), and each column, (l, c), if asked."""
    scores = _with_own(scores, own_x, own_y)
    if weights is not None:
        if weights.dtype != torch.bool:
            scores = scores + torch.where(weights > 0, weights, 1.0).log().to(scores.dtype)
        # In some rows of the matrix, a column may have no weight at all.
        scores = torch.where(_has_weight(weights), scores, _FAR if columns else -math.inf)
    return tuple(torch.logsumexp(scores, dim) for dim in ((-1, -2) if columns else (-1,)))


def _softmax_step(
    _: None,
    scores: Tensor,
    own_x: Optional,
    own_y: Optional,
    weights: Optional,
    row_sums: Tensor,
    column_sums: Optional,
    row_gradients: Tensor,
    column_gradients: Optional,
) -> Tensor:
    """The slopes of log sums, given those of whole rows and columns, and their gradients."""
    scores = _with_own(scores, own_x, own_y)
    slopes = (scores - row_sums.unsqueeze(-1)).exp() * row_gradients.unsqueeze(-1)
    if column_sums is not None and column_gradients is not None:
        down = (scores - column_sums.unsqueeze(-2)).exp() * column_gradients.unsqueeze(-2)
        slopes = slopes + down
    return _weighted(slopes, weights)


def _with_own(scores: Tensor, own_x: Optional, own_y: Optional) -> Tensor:
    if own_x is not None:
        scores = scores + own_x.unsqueeze(-1)
    return scores if own_y is None else scores + own_y.unsqueeze(-2)


def _weighted(values: Tensor, weights: Optional) -> Tensor:
    """Times the weights; whatever a cell of weight zero holds is forgotten."""
    if weights is None:
        return values
    if weights.dtype == torch.bool:
        return torch.where(weights, values, 0.0)
    return torch.where(weights > 0, values * weights.to(values.dtype), 0.0)


def _has_weight(weights: Tensor) -> Tensor:
    return weights if weights.dtype == torch.bool else weights > 0


def _matmul(left: Tensor, right: Tensor) -> Tensor:
    """(l, r, e), (l, e, c) -> (l, r, c)."""
    if len(left) == 1:  # the plain product has the better kernels
        return (left[0] @ right[0]).unsqueeze(0)
    return left @ right


def _accumulate(place: Tensor, left: Tensor, right: Tensor) -> None:
    if len(place) == 1:
        place[0].addmm_(left[0], right[0])
    else:
        place.baddbmm_(left, right)


# --- Without cells ---------------------------------------------------------------------------


def quadratic_sums(
    x: Tensor,
    y: Tensor,
    function: Quadratic,
    rows: Optional = None,
    joined: Elementwise | None = None,
) -> Tensor:
    """The sum over ALL cells (i, j) of rows_i rows_j function(x_i . y_j), in O(n e^2): (L,).

    The sum of s is (sum_i x_i) . (sum_j y_j), and that of s^2 is <X'X, Y'Y>. No TF32 in value and
    first derivative: the sum stands on these few numbers, and three digits would be all it has.

    x: (L, n, e), y: (L, m, e), rows: (L, n) if n = m; joined: adds up what several processes have
    (differentiable), for the cells of all their rows.
    """
    if own_functions_apply():
        out: Tensor = _QuadraticSums.apply(x, y, function, rows, joined)  # type: ignore[no-untyped-call]
        return out
    return _moment_product(function, *(_moments(side, function, rows, joined) for side in (x, y)))


class _QuadraticSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, *options: Any) -> Tensor:
        ctx.options = options
        with full_float32():
            moments = [_moments(side, *options) for side in (x, y)]
        ctx.save_for_backward(x, y, *moments[0], *moments[1])
        return _moment_product(options[0], *moments)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Optional, ...]:
        x, y, *found = ctx.saved_tensors
        function, rows, joined = ctx.options
        gradient = (joined(gradient) if joined else gradient).view(-1, 1, 1)
        with full_float32():
            moments = found[:2], found[2:]
            if torch.is_grad_enabled():  # a second derivative is wanted: the gradient as a function
                moments = [_moments(side, *ctx.options) for side in (x, y)]
            sides = []
            for side, (gram, total) in ((x, moments[1]), (y, moments[0])):
                slopes = 0.0 if total is None else gradient * function.linear * total
                if gram is not None:
                    slopes = _matmul(side, gradient * (2.0 * function.square) * gram) + slopes
                slopes = slopes.expand_as(side)
                sides.append(slopes if rows is None else slopes * rows.unsqueeze(-1))
        return *sides, None, None, None


Moments = Sequence[Optional]  # X'X, (L, e, e), and the sum of rows, (L, 1, e), if they are needed


def _moments(
    side: Tensor, function: Quadratic, rows: Optional, joined: Elementwise | None
) -> Moments:
    weighted = side if rows is None else side * rows.unsqueeze(-1)
    found = (
        _matmul(weighted.mT, side) if function.square else None,
        weighted.sum(-2, keepdim=True) if function.linear else None,
    )
    return [None if part is None else joined(part) if joined else part for part in found]


def _moment_product(function: Quadratic, of_x: Moments, of_y: Moments) -> Tensor:
    factors = (function.square, function.linear)
    terms = [
        factor * (a * b).flatten(1).sum(1)
        for factor, a, b in zip(factors, of_x, of_y, strict=True)
        if a is not None and b is not None
    ]
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]
