"""Scores that are inner products, in the place of a matrix of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pointdep.core.blocked.blocks import cells_at_hand
from pointdep.core.blocked.cells import Elementwise
from pointdep.core.blocked.layout import JointWeights, Layout, ProductWeights
from pointdep.core.blocked.moments import moment_sums
from pointdep.core.blocked.sums import cell_sums, highest_scores, row_log_sums
from pointdep.core.blocked.walk import Job
from pointdep.core.blocked.weights import CellWeights, OffDiagonal, Others, Pairs
from pointdep.errors import InputError

# Sums of exponentials between these lost nothing to the range of float32.
_SMALLEST_SUM, _LARGEST_SUM = 1e-20, 1e30


@dataclass(frozen=True, eq=False)
class InnerScores(Layout):
    """s_ij = x_i . y_j + own_x_i + own_y_j, to be given to an objective instead of a matrix.

        >>> import torch
        >>> from pointdep import objectives
        >>> x, y = torch.eye(3), 2 * torch.eye(3)
        >>> torch.allclose(objectives.js(objectives.InnerScores(x, y)), objectives.js(x @ y.T))
        True

    No more than a block of scores is held at a time, forward or backward; second derivatives are
    not to be had. Weights are tensors as an objective takes them, or `Pairs` and `Others`, which
    are not of the size of the matrix.

    Attributes
    ----------
    x, y: (..., n, e) and (..., m, e).
    own_x, own_y: (..., n) and (..., m), or None.
    parts: the last leading dimension counts parts of one batch. Their cells are taken together, as
        if the matrices, (..., G, n, m), lay below each other as (..., G n, m).
    cells: how many are scored at a time; chosen from the memory at hand where it is left out.
    link: an elementwise function that makes scores of the inner products.
    shift: (..., 1, 1), taken off the scores.
    """

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

    def _of_each(self, change: Callable[[Tensor], Tensor]) -> InnerScores:
        own_x, own_y, shift = (
            None if part is None else change(part) for part in (self.own_x, self.own_y, self.shift)
        )
        x, y = change(self.x), change(self.y)
        return replace(self, x=x, y=y, own_x=own_x, own_y=own_y, shift=shift)

    def joint_mean(self, joint: JointWeights, function: Elementwise | None = None) -> Tensor:
        """E_J[function(s)], (...,)."""
        if isinstance(joint, Tensor):
            return self._mean(self._dense(joint), function)
        rows = self._pair_rows(joint)
        scores = torch.where(rows > 0, self._pairs(), 0.0)
        return self._pair_mean(function(scores) if function else scores, rows)

    def product_mean(self, product: ProductWeights, function: Elementwise | None = None) -> Tensor:
        """E_M[function(s)], (...,)."""
        weights = self._cell_weights(product)
        has_moments = self._has_moments and function in (None, torch.square)
        if has_moments and isinstance(weights, OffDiagonal) and weights.ids is None:
            return self._moment(weights, squared=function is torch.square)
        return self._mean(weights, function)

    def product_log_mean_exp(self, product: ProductWeights) -> Tensor:
        """log E_M[exp s], (...,)."""
        weights = self._cell_weights(product)
        # Any reference will do that is not too far from the highest score. That of the pairs is at
        # hand; where it was too far, the cells are asked.
        highest = self._highest_pair()
        total = self._exp_sums(weights, highest)
        kept = (total > _SMALLEST_SUM) & (total < _LARGEST_SUM)
        if not bool(kept.all()):
            highest = torch.where(kept, highest, self._highest_cell(weights))
            total = self._exp_sums(weights, highest)
        return total.log() + highest - self._total(weights).log()

    def against_rows(self, joint: JointWeights, product: ProductWeights) -> Tensor:
        """E_J of s_ij - log mean exp over the pair itself and the product cells of its row."""
        rows, weights = self._pair_rows(joint), self._cell_weights(product)
        inputs = self._flat()
        negative = row_log_sums(*inputs, self._job(weights)).view(rows.shape)
        own = torch.where(rows > 0, rows, 1.0)
        scores = torch.where(rows > 0, self._pairs(), 0.0)
        count = own + weights.row_sums().view(rows.shape).to(own.dtype)
        values = scores - torch.logaddexp(scores + own.log(), negative) + count.log()
        return self._pair_mean(values, rows)

    def total_weight(self, weights: Tensor | Pairs | Others | None, default: int) -> Tensor:
        """The sum of joint or product weights, (...,); `default` for each part without them."""
        if isinstance(weights, Pairs):
            return self._together(self._pair_rows(weights).sum(-1))
        if weights is None:
            return self.x.new_full(self._lead, float(default * self._parts))
        return self._total(self._cell_weights(weights))

    def _job(self, weights: CellWeights, function: Elementwise | None = None) -> Job:
        cells = self.cells or cells_at_hand(self.x.device, self.x.element_size())
        shift = None if self.shift is None else self._each_part(self.shift)
        return Job(weights, cells, self.link, function, shift)

    def _pair_mean(self, values: Tensor, rows: Tensor) -> Tensor:
        """The mean of values under weights, both (R, G, n), of each replica."""
        means = (rows * values).flatten(1).sum(1) / rows.flatten(1).sum(1)
        return means.view(self._lead)

    def _total(self, weights: CellWeights) -> Tensor:
        return self._together(weights.row_sums().sum(-1)).to(self.dtype)

    def _mean(self, weights: CellWeights, function: Elementwise | None) -> Tensor:
        sums = cell_sums(*self._flat(), self._job(weights, function))
        return self._together(sums) / self._total(weights)

    @property
    def _has_moments(self) -> bool:
        """Whether sums of s and s^2 stand on a few d x d numbers, and that is less work."""
        plain = self.link is None and self.shift is None
        return plain and self.x.shape[-1] < self.x.shape[-2]

    def _moment(self, weights: OffDiagonal, *, squared: bool) -> Tensor:
        """E_M of s, or of s^2."""
        rows = None if weights.rows is None else weights.rows.to(self.dtype)
        total = moment_sums(*self._flat(), rows, squared=squared)
        diagonal = self._pairs().flatten(0, 1)
        if rows is not None:
            diagonal = torch.where(rows > 0, diagonal, 0.0) * (rows if squared else rows.square())
        diagonal = diagonal.square() if squared else diagonal
        return self._together(total - diagonal.sum(-1)) / self._total(weights)

    def _exp_sums(self, weights: CellWeights, highest: Tensor) -> Tensor:
        lowered = self - highest.view(*self._lead, 1, 1)
        sums = cell_sums(*lowered._flat(), lowered._job(weights, torch.exp))
        return self._together(sums)

    @torch.no_grad()
    def _highest_pair(self) -> Tensor:
        if self.x.shape[-2] != self.y.shape[-2]:
            return self.x.new_zeros(self._lead)
        found = self._pairs().flatten(1).amax(1)
        return torch.where(found.isfinite(), found, 0.0).view(self._lead)

    @torch.no_grad()
    def _highest_cell(self, weights: CellWeights) -> Tensor:
        found = highest_scores(*self._flat(), self._job(weights))
        return found.view(-1, self._parts).amax(1).view(self._lead)
