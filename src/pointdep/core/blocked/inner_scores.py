"""Scores that are inner products, in the place of a matrix of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pointdep.core.blocked import walk
from pointdep.core.blocked.sums import (
    Elementwise,
    Job,
    Quadratic,
    against,
    cell_sums,
    log_sums,
    quadratic_sums,
)
from pointdep.core.precision import no_autocast
from pointdep.errors import InputError

Joint = Tensor | walk.Pairs | None
Product = Tensor | walk.Others | None

# Sums of exponentials between these lost nothing to the range of float32.
_SMALLEST_SUM, _LARGEST_SUM = 1e-20, 1e30


@dataclass(frozen=True, eq=False)
class InnerScores:
    """s_ij = x_i . y_j + own_x_i + own_y_j, to be given to an objective instead of a matrix.

    No more than a block of scores is held at a time, forward or backward. Second derivatives are
    supported (`create_graph=True`). Weights are tensors as an objective takes them, or `Pairs` and
    `Others`, which are not of the size of the matrix.

    Parameters
    ----------
    x, y : Tensor
        (..., n, e) and (..., m, e).
    own_x, own_y : Tensor, optional
        (..., n) and (..., m).
    parts : bool
        The last leading dimension counts parts of one batch. Their cells are taken together, as if
        the matrices, (..., G, n, m), lay below each other as (..., G n, m).
    cells : int, optional
        How many are scored at a time; chosen by the free memory if omitted.
    link : callable, optional
        An elementwise function that makes scores of the inner products.
    shift : Tensor, optional
        (..., 1, 1), subtracted from the scores.

    Examples
    --------
    >>> import torch
    >>> from pointdep import objectives
    >>> x, y = torch.eye(3), 2 * torch.eye(3)
    >>> torch.allclose(objectives.js(objectives.InnerScores(x, y)), objectives.js(x @ y.T))
    True
    """

    x: Tensor
    y: Tensor
    own_x: Tensor | None = None
    own_y: Tensor | None = None
    parts: bool = False
    cells: int | None = None
    link: Elementwise | None = None
    shift: Tensor | None = None

    def __post_init__(self) -> None:
        x, y = self.x, self.y
        if x.ndim < 2 or x.shape[:-2] != y.shape[:-2] or x.shape[-1] != y.shape[-1]:
            raise InputError(
                f"x of shape {tuple(x.shape)} and y of shape {tuple(y.shape)} have no inner "
                "products: they must be (..., n, e) and (..., m, e)"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the matrix that is not there."""
        return (*self._lead, self._parts * self.x.shape[-2], self.y.shape[-2])

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    def to(self, dtype: torch.dtype) -> InnerScores:
        return self._of_each(lambda tensor: tensor.to(dtype))

    def __getitem__(self, replicas: Any) -> InnerScores:
        return self._of_each(lambda tensor: tensor[replicas])

    def __sub__(self, shift: Tensor) -> InnerScores:
        if shift.requires_grad and torch.is_grad_enabled():
            raise InputError(
                "what is taken off InnerScores, and the weights of an objective on them, get no "
                "gradient: detach them, or take it off own_x or own_y"
            )
        return replace(self, shift=shift if self.shift is None else self.shift + shift)

    def clamp(self, low: float, high: float) -> InnerScores:
        return self.linked(lambda scores: scores.clamp(low, high))

    def linked(self, link: Elementwise) -> InnerScores:
        """link(s) as the scores."""
        if self.shift is not None:
            raise InputError("a link goes before what is taken off the scores")
        before = self.link
        return replace(self, link=link if before is None else lambda inner: link(before(inner)))

    def require_pairs(self) -> None:
        """Refuse what has no diagonal of pairs, or nothing beside it."""
        walk.require_pairs((self.x.shape[-2], self.y.shape[-2]))

    def joint_mean(self, joint: Joint, function: Elementwise | None = None) -> Tensor:
        """E_J[function(s)], (...,)."""
        if isinstance(joint, Tensor):
            return self._mean(self._dense(joint), function)
        rows = self._pair_rows(joint)
        scores = torch.where(rows > 0, self._pairs(), 0.0)
        return self._pair_mean(function(scores) if function else scores, rows)

    def product_mean(self, product: Product, function: Elementwise | None = None) -> Tensor:
        """E_M[function(s)], (...,)."""
        weights = self._cell_weights(product)
        if isinstance(function, Quadratic) and isinstance(weights, walk.OtherCells):
            plain = self.link is None and self.shift is None and weights.ids is None
            # Gram matrices of e x e numbers are less work than the cells if e is below n.
            if plain and self.x.shape[-1] < self.x.shape[-2]:
                return self._moment(weights.rows, function) / self._total(weights)
        return self._mean(weights, function)

    def quadratic_means(
        self, joint: Joint, product: Product, of_joint: Quadratic, of_product: Quadratic
    ) -> Tensor:
        """E_J[of_joint(s)] + E_M[of_product(s)], (...,)."""
        return self.joint_mean(joint, of_joint) + self.product_mean(product, of_product)

    def product_log_mean_exp(self, product: Product) -> Tensor:
        """log E_M[exp s], (...,)."""
        weights = self._cell_weights(product)
        # Any reference will do that is not too far from the highest score. That of the pairs is
        # known; if it was too far, the cells are asked.
        highest = self._highest_pair()
        total = self._exp_sums(weights, highest)
        kept = (total > _SMALLEST_SUM) & (total < _LARGEST_SUM)
        if not bool(kept.all()):
            with torch.no_grad():
                # Log sums of rows are above the highest score by no more than log m.
                (rows,) = log_sums(*self._sides(), self._job(weights))
            top = rows.view(math.prod(self._lead), -1).amax(1).view(self._lead)
            highest = torch.where(kept, highest, top)
            total = self._exp_sums(weights, highest)
        return total.log() + highest - self._total(weights).log()

    def against_rows(self, joint: Joint, product: Product) -> Tensor:
        """E_J of s_ij - log mean exp over the pair itself and the product cells of its row."""
        rows, weights = self._pair_rows(joint), self._cell_weights(product)
        (negatives,) = log_sums(*self._sides(), self._job(weights))
        own = torch.where(rows > 0, rows, 1.0)
        scores = torch.where(rows > 0, self._pairs(), 0.0)
        count = weights.row_sums().view(rows.shape).to(own.dtype)
        return self._pair_mean(against(scores, negatives.view(rows.shape), count, own), rows)

    def total_weight(self, weights: Joint | Product, default: int) -> Tensor:
        """The sum of joint or product weights, (...,); `default` for each part without them."""
        if isinstance(weights, walk.Pairs):
            return self._together(self._pair_rows(weights).sum(-1))
        if weights is None:
            return self.x.new_full(self._lead, float(default * self._parts))
        return self._total(self._cell_weights(weights))

    def _of_each(self, change: Callable[[Tensor], Tensor]) -> InnerScores:
        parts = {name: getattr(self, name) for name in ("x", "y", "own_x", "own_y", "shift")}
        changed: dict[str, Any] = {n: change(part) for n, part in parts.items() if part is not None}
        return replace(self, **changed)

    @property
    def _lead(self) -> torch.Size:
        """Replicas: all leading dimensions but that of parts."""
        return self.x.shape[: -3 if self.parts else -2]

    @property
    def _parts(self) -> int:
        return self.x.shape[-3] if self.parts else 1

    def _sides(self) -> tuple[Tensor, Tensor]:
        """[x, own_x, 1] and [y, 1, own_y], of the terms that are there, as (L, n, e)."""
        x, y = self.x, self.y
        for own, with_x in ((self.own_x, True), (self.own_y, False)):
            if own is not None:
                one = own.new_ones(()).expand((y if with_x else x).shape[:-1])
                of_x, of_y = (own, one) if with_x else (one, own)
                x = torch.cat([x, of_x.unsqueeze(-1)], -1)
                y = torch.cat([y, of_y.unsqueeze(-1)], -1)
        return x.reshape(-1, *x.shape[-2:]), y.reshape(-1, *y.shape[-2:])

    def _each_part(self, values: Tensor) -> Tensor:
        """One value per replica, (...,) in any shape, for each of its parts, (L,)."""
        every = values.detach().reshape(-1, 1).expand(-1, self._parts)
        return every.expand(math.prod(self._lead), -1).reshape(-1)

    def _together(self, values: Tensor) -> Tensor:
        """Sum over the parts: (L,) or (R, G) -> (...,)."""
        return values.reshape(-1, self._parts).sum(1).view(self._lead)

    def _pairs(self) -> Tensor:
        """The scores of the pairs, (R, G, n)."""
        self.require_pairs()
        x, y = self._sides()
        scores = (x * y).sum(-1)
        if self.link is not None:
            scores = self.link(scores)
        if self.shift is not None:
            scores = scores - self._each_part(self.shift).unsqueeze(-1)
        return scores.view(-1, self._parts, scores.shape[-1])

    def _pair_rows(self, joint: Joint) -> Tensor:
        """The weights of the pairs, (R, G, n)."""
        self.require_pairs()
        full = self.x.shape[:-1]
        flat = (math.prod(self._lead), self._parts, full[-1])
        if isinstance(joint, Tensor):
            return self._dense(joint).diagonal().to(self.dtype).expand(flat)
        if joint is None or joint.rows is None:
            return self.x.new_ones(()).expand(flat)
        return joint.rows.to(self.dtype).expand(full).reshape(flat)

    def _cell_weights(self, weights: Product | walk.Pairs) -> walk.OtherCells | walk.Dense:
        if isinstance(weights, Tensor):
            return self._dense(weights)
        self.require_pairs()
        shape = self.x.shape[:-1]
        given = weights if isinstance(weights, walk.Others) else walk.Others()
        rows, ids = (
            None if part is None else part.expand(shape).reshape(-1, shape[-1])
            for part in (given.rows, given.ids)
        )
        x = self.x.reshape(-1, *self.x.shape[-2:])
        return walk.OtherCells(x, rows, None if ids is None else (ids, ids))

    def _dense(self, weights: Tensor) -> walk.Dense:
        return walk.Dense(weights, self.shape, self._parts)

    def _job(self, weights: walk.CellWeights) -> Job:
        cells = self.cells or walk.cells_at_hand(self.x.device, self.x.element_size())
        shift = None if self.shift is None else self._each_part(self.shift)
        return Job(weights, cells, self.link, shift)

    def _pair_mean(self, values: Tensor, rows: Tensor) -> Tensor:
        """The mean of values under weights, both (R, G, n), of each replica."""
        return ((rows * values).flatten(1).sum(1) / rows.flatten(1).sum(1)).view(self._lead)

    def _total(self, weights: walk.CellWeights) -> Tensor:
        return self._together(weights.row_sums().sum(-1)).to(self.dtype)

    def _mean(self, weights: walk.CellWeights, function: Elementwise | None) -> Tensor:
        found = cell_sums(*self._sides(), self._job(weights), function)
        return self._together(found) / self._total(weights)

    def _moment(self, rows: Tensor | None, function: Quadratic) -> Tensor:
        """The weighted sum of function(s) over all cells but the diagonal, (...,)."""
        x, y = self._sides()
        pairs = self._pairs().flatten(0, 1)
        if rows is not None:
            rows = rows.to(self.dtype)
            x, y = (torch.where(rows.unsqueeze(-1) > 0, side, 0.0) for side in (x, y))
            pairs = torch.where(rows > 0, pairs, 0.0)
        with no_autocast(x):
            total = quadratic_sums(x, y, function, rows)
        own = function(pairs)
        return self._together(total - (own if rows is None else own * rows.square()).sum(-1))

    def _exp_sums(self, weights: walk.CellWeights, highest: Tensor) -> Tensor:
        lowered = self - highest.view(*self._lead, 1, 1)
        return self._together(cell_sums(*lowered._sides(), lowered._job(weights), torch.exp))

    @torch.no_grad()
    def _highest_pair(self) -> Tensor:
        if self.x.shape[-2] != self.y.shape[-2]:
            return self.x.new_zeros(self._lead)
        found = self._pairs().flatten(1).amax(1)
        return torch.where(found.isfinite(), found, 0.0).view(self._lead)
