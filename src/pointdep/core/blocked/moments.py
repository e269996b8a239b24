"""Sums of s and s^2 over all cells of inner-product scores, in O(n e^2).

With s_ij = x_i . y_j, the sum of s is (sum_i x_i) . (sum_j y_j), and that of s^2 is <X'X, Y'Y>. Own
terms are two more numbers in each vector.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pointdep.core.precision import gram


def moment_sums(
    x: Tensor,
    y: Tensor,
    own_x: Tensor | None,
    own_y: Tensor | None,
    rows: Tensor | None,
    *,
    squared: bool,
) -> Tensor:
    """The sum over cells (i, j) of rows_i rows_j s_ij, or s_ij^2: (L,), the diagonal included.

    x, y: (L, n, e), own_x, own_y, rows: (L, n); rows, the weights, are 1 where they are left out.
    """
    x, y = _with_own(x, own_x, own_y), _with_own(y, own_y, own_x, last=True)
    if rows is not None:
        weights = (rows.sqrt() if squared else rows).unsqueeze(-1)
        x, y = (torch.where(weights > 0, side, 0.0) * weights for side in (x, y))
    if squared:
        with torch.autocast(x.device.type, enabled=False):
            return (gram(x) * gram(y)).flatten(-2).sum(-1)
    return (x.sum(-2) * y.sum(-2)).sum(-1)


def _with_own(
    vectors: Tensor, own: Tensor | None, other: Tensor | None, *, last: bool = False
) -> Tensor:
    """[v, own, 1], of the terms that there are, so that the other side's [w, 1, own] adds them."""
    ones = vectors.new_ones(vectors.shape[:-1])
    parts = [] if own is None else [own]
    parts += [] if other is None else [ones]
    if not parts:
        return vectors
    if last:
        parts.reverse()
    return torch.cat([vectors, torch.stack(parts, -1)], -1)
