"""Sums over the cells of L matrices of scores, with their derivatives.

The scores are inner products x_i . y_j, or what a link makes of them; or those of any function of
rows. Two ways lead to the same numbers:

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
from functools import partial
from typing import Any

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


@dataclass(frozen=True, eq=False)
class Quadratic:
    """linear * s + square * s^2."""

    linear: float
    square: float

    # Equal ones share a compiled step. Not the dataclass's own hash, which torch.compile may ask
    # for before the fields are there.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quadratic) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __call__(self, scores: Tensor) -> Tensor:
        if not self.square:
            return self.linear * scores
        squares = self.square * scores.square()
        return self.linear * scores + squares if self.linear else squares

    def slope(self, scores: Tensor, _: Tensor) -> Tensor:
        return 2.0 * self.square * scores + self.linear


# The derivative of each function that is summed, from score and value.
_SLOPES: dict[Elementwise | None, Callable[[Tensor, Tensor], Tensor]] = {
    None: lambda scores, _: torch.ones_like(scores),
    torch.exp: lambda _, value: value,
    F.logsigmoid: lambda scores, _: torch.sigmoid(-scores),
    softplus: lambda scores, _: torch.sigmoid(scores),
}
# The score at which each is zero; zero for the others.
_ZEROS: dict[Any, float] = {torch.exp: -math.inf, F.logsigmoid: math.inf, softplus: -math.inf}


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

    def weights_of(self, at: Block) -> Optional:
        return None if self.weights is None else self.weights.block(at)

    @property
    def in_blocks(self) -> bool:
        return self.score is None and not self.plain and own_functions_apply()


def cell_sums(x: Tensor, y: Tensor, job: Job, function: Elementwise | None = None) -> Tensor:
    """The weighted sum of function(s) over the cells of each matrix: (L,).

    x: (L, n, e), y: (L, m, e). In blocks, gradients are found on the way: three products per block
    if one is wanted, and none in the backward pass.
    """
    if not job.in_blocks:
        return _plain_sums(x, y, job, function)
    out: Tensor = _CellSums.apply(*_known(x, y), job, function)  # type: ignore[no-untyped-call]
    return out


def log_sums(x: Tensor, y: Tensor, job: Job, columns: bool = False) -> tuple[Tensor, ...]:
    """log of the weighted sum of exp s over each row, (L, n), and each column, (L, m), if asked.

    About -1e38 for a row without weight. In blocks, scores are computed again in the backward pass.
    """
    if not job.in_blocks:
        return _plain_log_sums(x, y, job, columns)
    out: tuple[Tensor, ...] = _LogSums.apply(*_known(x, y), job, columns)  # type: ignore[no-untyped-call]
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


def against(score: Tensor, negatives: Tensor, count: Tensor, own: Tensor | float = 1.0) -> Tensor:
    """A score minus log of the mean of exp over itself, of weight `own`, and its negatives.

    negatives: the log of the sum of exp over them; count: their total weight.
    """
    # Not logaddexp: its second derivative is NaN where exp of the distance overflows. Zero is added
    # as s - s, which is NaN where a score is infinite: log sigmoid would hide that.
    zero = (score - score).detach()
    if isinstance(own, Tensor):
        lift = own.log()
        return F.logsigmoid(score + lift - negatives) - lift + ((own + count).log() + zero)
    return F.logsigmoid(score - negatives) + (torch.log1p(count) + zero)


def _known(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Detached where gradients are off, of which an autograd function is not told."""
    return (x, y) if torch.is_grad_enabled() else (x.detach(), y.detach())


# --- By plain operations ---


def _plain_sums(x: Tensor, y: Tensor, job: Job, function: Elementwise | None) -> Tensor:
    parts = _by_rows(x, y, job, lambda scores, w: weighted_sum(scores, w, function))
    return torch.stack(parts).sum(0)


def _plain_log_sums(x: Tensor, y: Tensor, job: Job, columns: bool) -> tuple[Tensor, ...]:
    parts = _by_rows(x, y, job, lambda scores, w: _log_sum_step(columns, scores, None, w))
    rows, *down = zip(*parts, strict=True)
    return torch.cat(rows, 1), *(torch.logsumexp(torch.stack(one), 0) for one in down)


def _by_rows(x: Tensor, y: Tensor, job: Job, part: Callable[[Tensor, Optional], Any]) -> list[Any]:
    """part(scores, weights) of some rows at a time; several are computed again in backward."""
    matrices, columns = y.shape[:2]

    def scored(rows: slice, x: Tensor, y: Tensor) -> Any:
        weights = job.weights_of(Block(slice(0, matrices), rows, slice(0, columns)))
        if job.score is not None:
            return part(job.score(x, y), weights)
        scores = _matmul(x, y.mT)
        scores = scores if job.link is None else job.link(scores)
        return part(_shifted(scores, job.shift), weights)

    size = max(1, job.cells // (matrices * columns))
    # `torch.func` cannot compute again.
    if size >= x.shape[1] or transformed() or not torch.is_grad_enabled():
        return [scored(rows, x[:, rows], y) for rows in spans(x.shape[1], size)]
    again = partial(checkpoint, scored, use_reentrant=False, preserve_rng_state=job.draws)
    return [again(rows, x[:, rows], y) for rows in spans(x.shape[1], size)]


def _differentiable(ctx: Any, plain: Callable[..., Any], *slopes: Tensor) -> tuple[Optional, ...]:
    """The gradients of `plain`, computed again so that they can be differentiated themselves."""
    # Views, so that x and y are told apart where they are one tensor.
    views = [side.view_as(side) for side in ctx.saved_tensors[:2]]
    wanted = ctx.needs_input_grad[:2]
    needed = [view for view, one in zip(views, wanted, strict=True) if one]
    values = plain(*views, ctx.job, ctx.option)
    found = iter(torch.autograd.grad(values, needed, slopes, create_graph=True))
    return *(next(found) if one else None for one in wanted), None, None


# --- In blocks ---


class _Walk:
    """The blocks of a job, and the gradients of x and y that are gathered on the way."""

    def __init__(self, x: Tensor, y: Tensor, job: Job, wanted: Sequence[bool] = ()) -> None:
        self.x, self.y, self.job = x.detach(), y.detach(), job
        self.gradients = [
            torch.zeros_like(side) if needed else None
            for side, needed in zip((self.x, self.y), wanted, strict=False)
        ]

    def __iter__(self) -> Iterator[_Scored]:
        with no_autocast(self.x):
            for at in blocks(len(self.x), self.x.shape[1], self.y.shape[1], self.job.cells):
                yield _Scored(self, at)


class _Scored:
    """One block: the rows and columns that meet in it, and their scores."""

    def __init__(self, walk: _Walk, at: Block) -> None:
        self.at, self.walk, self.job = at, walk, walk.job
        self.rows, self.columns = (at.matrices, at.rows), (at.matrices, at.columns)
        self.x, self.y = walk.x[self.rows], walk.y[self.columns]
        self.weights = self.job.weights_of(at)
        self.inner = self.scores = _matmul(self.x, self.y.mT)
        if self.job.link is not None:
            with torch.enable_grad():
                self.scores = self.job.link(self.inner.requires_grad_())

    @property
    def compiled(self) -> bool:
        """Whether steps are compiled: on a GPU, for blocks of which there are many."""
        return self.at.common and self.x.is_cuda

    def run(self, step: Step, option: Any = None, *rest: Optional) -> Any:
        """step(option, scores, shift, weights, *rest), compiled where that pays."""
        if self.compiled:
            step = compiled_step(step, option, self.scores.shape)
        else:
            step = partial(step, option)
        shift = None if self.job.shift is None else self.job.shift[self.at.matrices].to(self.x)
        return step(self.scores.detach(), shift, self.weights, *rest)

    def add(self, slopes: Tensor) -> None:
        """Add what the slopes of the scores, (l, r, c), make of the gradients of x and y."""
        if self.job.link is not None:
            (slopes,) = torch.autograd.grad(self.scores, self.inner, slopes)
            slopes = _weighted(slopes, None if self.weights is None else _has_weight(self.weights))
        of_x, of_y = self.walk.gradients
        if of_x is not None:
            _accumulate(of_x[self.rows], slopes, self.y)
        if of_y is not None:
            _accumulate(of_y[self.columns], slopes.mT, self.x)


class _CellSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, job: Job, function: Elementwise | None) -> Tensor:
        wanted, totals = ctx.needs_input_grad[:2], x.new_zeros(x.shape[:2])
        walk = _Walk(x, y, job, wanted)
        for block in walk:
            values, slopes = block.run(_cell_step, (function, any(wanted)))
            totals[block.rows] += values
            if slopes is not None:
                block.add(slopes)
            del block, slopes  # or they live until the next block is scored
        ctx.save_for_backward(x, y, *walk.gradients)
        ctx.job, ctx.option = job, function
        wide = x.dtype if x.device.type == "mps" else torch.float64  # which Apple's GPUs lack
        return totals.sum(-1, dtype=wide).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Optional, ...]:
        if torch.is_grad_enabled():
            return _differentiable(ctx, _plain_sums, gradient)
        sides, factor = ctx.saved_tensors[2:], gradient.view(-1, 1, 1)
        return *(None if side is None else side * factor for side in sides), None, None


class _LogSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, job: Job, columns: bool) -> tuple[Tensor, ...]:
        found = [x.new_full(side.shape[:2], -math.inf) for side in (x, y)[: 1 + columns]]
        for block in _Walk(x, y, job):
            parts = block.run(_log_sum_step, columns)
            for whole, at, part in zip(found, (block.rows, block.columns), parts, strict=False):
                torch.logaddexp(whole[at], part, out=whole[at])
            del block
        ctx.save_for_backward(x, y, *found)
        ctx.job, ctx.option = job, columns
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Optional, ...]:
        if torch.is_grad_enabled():
            return _differentiable(ctx, _plain_log_sums, *gradients)
        x, y, *found = ctx.saved_tensors
        walk = _Walk(x, y, ctx.job, ctx.needs_input_grad)
        for block in walk:
            places = (block.rows, block.columns)
            sides = zip(places, found, gradients, strict=False)
            known = [part[at] for at, *both in sides for part in both]
            block.add(block.run(_softmax_step, None, *known))
            del block
        return *walk.gradients, None, None


# Steps on one block: pure functions, each one kernel or two on a GPU. scores: (l, r, c); shift:
# (l,), subtracted from them; weights are numbers or a mask; None where there are none.


def _cell_step(
    option: tuple[Elementwise | None, bool], scores: Tensor, shift: Optional, weights: Optional
) -> tuple[Tensor, Optional]:
    """The weighted sums of a function over each row, (l, r), and its weighted slopes if wanted."""
    function, wanted = option
    scores = _shifted(scores, shift)
    value = function(scores) if function else scores
    sums = _weighted(value, weights).sum(-1)
    if not wanted:
        return sums, None
    slope = function.slope if isinstance(function, Quadratic) else _SLOPES[function]
    return sums, _weighted(slope(scores, value), weights)


def _log_sum_step(
    columns: bool, scores: Tensor, shift: Optional, weights: Optional
) -> tuple[Tensor, ...]:
    """log of the weighted sum of exp over each row, (l, r), and each column, (l, c), if asked."""
    scores = _shifted(scores, shift)
    if weights is not None:
        if weights.dtype != torch.bool:
            scores = scores + torch.where(weights > 0, weights, 1.0).log().to(scores.dtype)
        scores = torch.where(_has_weight(weights), scores, _FAR)
    return tuple(torch.logsumexp(scores, dim) for dim in ((-1, -2) if columns else (-1,)))


def _softmax_step(
    _: None, scores: Tensor, shift: Optional, weights: Optional, *known: Tensor
) -> Tensor:
    """The slopes of log sums, from those of whole rows and their gradients, (l, r) each, and the
    same of columns, (l, c), if there are any."""
    scores = _shifted(scores, shift)
    slopes = (scores - known[0].unsqueeze(-1)).exp() * known[1].unsqueeze(-1)
    if len(known) > 2:
        slopes = slopes + (scores - known[2].unsqueeze(-2)).exp() * known[3].unsqueeze(-2)
    return _weighted(slopes, weights)


def _shifted(scores: Tensor, shift: Optional) -> Tensor:
    return scores if shift is None else scores - shift[:, None, None]


def _weighted(values: Tensor, weights: Optional) -> Tensor:
    """Times the weights; whatever a cell of weight zero holds is forgotten."""
    if weights is None:
        return values
    if weights.dtype != torch.bool:
        values = values * weights.to(values.dtype)
    return torch.where(_has_weight(weights), values, 0.0)


def _has_weight(weights: Tensor) -> Tensor:
    return weights if weights.dtype == torch.bool else weights > 0


def _matmul(left: Tensor, right: Tensor) -> Tensor:
    """(..., r, e), (..., e, c) -> (..., r, c)."""
    if left.ndim == 3 and len(left) == 1:  # the plain product has the better kernels
        return (left[0] @ right[0]).unsqueeze(0)
    return left @ right


def _accumulate(place: Tensor, left: Tensor, right: Tensor) -> None:
    if len(place) == 1:
        place[0].addmm_(left[0], right[0])
    else:
        place.baddbmm_(left, right)


# --- Without cells ---


def quadratic_sums(
    x: Tensor,
    y: Tensor,
    function: Quadratic,
    rows: Optional = None,
    joined: Elementwise | None = None,
) -> Tensor:
    """The sum over ALL cells (i, j) of rows_i rows_j function(x_i . y_j), in O(n e^2): (...,).

    The sum of s is (sum_i x_i) . (sum_j y_j), and that of s^2 is <X'X, Y'Y>. No TF32 in value and
    first derivative: the sum stands on these few numbers, and three digits would be all it has.

    x: (..., n, e), y: (..., m, e), rows: (..., n) if n = m; joined: adds up what several processes
    have (differentiable), for the cells of all their rows.
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
        gradient = (joined(gradient) if joined else gradient)[..., None, None]
        linear, square = function.linear * gradient, 2.0 * function.square * gradient
        sides = []
        with full_float32():
            moments = [found[:2], found[2:]]
            if torch.is_grad_enabled():  # a second derivative is wanted: the gradient as a function
                moments = [_moments(side, *ctx.options) for side in (x, y)]
            for side, (gram, total) in ((x, moments[1]), (y, moments[0])):
                terms = [] if gram is None else [_matmul(side, square * gram)]
                terms += [] if total is None else [linear * total]
                slopes = terms[0].expand_as(side) if len(terms) == 1 else terms[0] + terms[1]
                sides.append(slopes if rows is None else slopes * rows.unsqueeze(-1))
        return *sides, None, None, None


Moments = Sequence[Optional]  # X'X, (..., e, e), and the sum of rows, (..., 1, e), if needed


def _moments(
    side: Tensor, function: Quadratic, rows: Optional, joined: Elementwise | None
) -> Moments:
    weighted = side if rows is None else side * rows.unsqueeze(-1)
    gram = _matmul(weighted.mT, side) if function.square else None
    total = weighted.sum(-2, keepdim=True) if function.linear else None
    return [part if part is None or joined is None else joined(part) for part in (gram, total)]


def _moment_product(function: Quadratic, of_x: Moments, of_y: Moments) -> Tensor:
    factors = (function.square, function.linear)
    terms = [
        factor * (a * b).sum((-2, -1))
        for factor, a, b in zip(factors, of_x, of_y, strict=True)
        if a is not None and b is not None
    ]
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


def quadratic_means(x: Tensor, y: Tensor, of_pairs: Quadratic, of_others: Quadratic) -> Tensor:
    """The mean of `of_pairs` over the cells (i, i), plus that of `of_others` over all others: ().

    As `quadratic_sums`, with as few operations as can be: a batch of some thousand rows takes no
    longer than they take to start. x: (n, e), y: (n, e).
    """
    n = len(x)
    every = [part / (n * (n - 1)) for part in (of_others.linear, of_others.square)]
    own = [of_pairs.linear / n - every[0], of_pairs.square / n - every[1]]
    if own_functions_apply():
        out: Tensor = _QuadraticMeans.apply(x, y, every, own)  # type: ignore[no-untyped-call]
        return out
    return _QuadraticMeans.parts(x, y, every, own)[0]


class _QuadraticMeans(torch.autograd.Function):
    @staticmethod
    def parts(
        x: Tensor, y: Tensor, every: Sequence[float], own: Sequence[float]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Value and gradients from the factors of s and s^2 in all cells and in the pairs."""
        scores, grams = (x * y).sum(1), (x.T @ x, y.T @ y)
        value = every[1] * torch.dot(grams[0].view(-1), grams[1].view(-1))
        value = torch.add(value, scores.sum(), alpha=own[0])
        value = torch.add(value, torch.dot(scores, scores), alpha=own[1])
        slopes = (2.0 * own[1] * scores + own[0]).unsqueeze(1)
        sides = [
            torch.addmm(slopes * other, side, gram, alpha=2.0 * every[1])
            for side, other, gram in ((x, y, grams[1]), (y, x, grams[0]))
        ]
        if every[0]:
            totals = x.sum(0), y.sum(0)
            value = torch.add(value, torch.dot(*totals), alpha=every[0])
            sides = [torch.add(sides[k], totals[1 - k], alpha=every[0]) for k in (0, 1)]
        return value, sides[0], sides[1]

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, *factors: Any) -> Tensor:
        ctx.factors = factors
        with full_float32():
            value, *sides = _QuadraticMeans.parts(x, y, *factors)
        ctx.save_for_backward(x, y, *sides)
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Optional, ...]:
        x, y, *sides = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted: the gradient as a function
            with full_float32():
                sides = _QuadraticMeans.parts(x, y, *ctx.factors)[1:]
        return sides[0] * gradient, sides[1] * gradient, None, None
