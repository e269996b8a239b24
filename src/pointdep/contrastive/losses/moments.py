"""E_M[s] and E_M[s^2] of inner-product scores in O(B d^2): the sums over all cells at once.

With s_ij = a_i . c_j, the sum of s over all cells is (sum_i a_i) . (sum_j c_j), and that of s^2 is
<A'A, C'C>. The cells that are no samples of the product are taken off one by one. Between processes
only d x d matrices travel, unless there are groups.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pointdep.contrastive.losses.cells import Cells, same_ids
from pointdep.contrastive.losses.inner_sums import Quadratic, inner_quadratic
from pointdep.contrastive.losses.precision import gram, own_functions_apply, transformed

_CHUNK = 1 << 24  # numbers of the rows gathered for the cells that are taken off
_SHARE = 8  # beyond a share of 1/8 of the cells, walking them all is cheaper than taking them off


def quadratic_objective(cells: Cells, weights: Quadratic) -> Tensor:
    """The weighted sum of E_J[s], E_J[s^2], E_M[s] and E_M[s^2], ()."""
    simple = not cells.grouped and cells.views == 1 and not cells.shared
    if simple and own_functions_apply() and identity_applies(cells):
        return inner_quadratic(cells.anchors, cells.candidates, weights)
    first, second = product_moments(cells)
    own = cells.positives
    joint = cells.joint_mean(weights.joint[0] * own + weights.joint[1] * own.square())
    return joint + weights.product[0] * first + weights.product[1] * second


def product_moments(cells: Cells) -> tuple[Tensor, Tensor]:
    """(E_M[s], E_M[s^2]), by the identity where it applies and pays, else over all cells."""
    if not identity_applies(cells):
        first, second = cells.product_means(_same, torch.square)
        return first, second
    anchors, candidates = (_sums(cells, rows) for rows in (cells.anchors, cells.candidates))
    products = (anchors * candidates).sum(1)
    every = torch.stack([products[-1], products[:-1].sum()])
    first, second = (every - cells.summed(_excluded(cells))) / cells.products
    return first, second


def identity_applies(cells: Cells) -> bool:
    """Whether scores are inner products of few numbers, and few cells have to be taken off."""
    scores = cells.scores
    if not scores.inner or scores.clip is not None or cells.anchors.shape[1] >= cells.pairs:
        return False
    if not cells.grouped:
        return True
    # Of the joined batch, so that all processes decide alike.
    same = int(same_ids(cells.candidate_ids, cells.candidate_ids).sum())
    return same * _SHARE <= len(cells.candidate_ids) ** 2


def _sums(cells: Cells, rows: Tensor) -> Tensor:
    """rows' rows over all processes and, as its last row, the sum of rows: (e + 1, e)."""
    return cells.summed(torch.cat([gram(rows), rows.sum(0, keepdim=True)]))


def _excluded(cells: Cells) -> Tensor:
    """The sums of s and s^2 over this process's cells that are no samples of the product, (2,)."""
    if cells.grouped:
        return _same_group(cells)
    own = cells.positives
    if cells.views == 2:
        itself = (cells.anchors * cells.candidates[: len(cells.anchors)]).sum(1)
        own = torch.cat([own, itself])
    return torch.stack([own.sum(), own.square().sum()])


def _same_group(cells: Cells) -> Tensor:
    """`_excluded` where groups are given: their number shapes the tensors."""
    rows, columns = _same_cells(cells.anchor_ids, cells.candidate_ids)
    candidates = cells.all_candidates

    def part(i: Tensor, j: Tensor) -> Tensor:
        scores = (cells.anchors[i] * candidates[j]).sum(1)
        return torch.stack([scores.sum(), scores.square().sum()])

    size = max(1, _CHUNK // cells.anchors.shape[1])
    chunks = list(zip(torch.split(rows, size), torch.split(columns, size), strict=True))
    if len(chunks) == 1 or transformed():
        return sum((part(*chunk) for chunk in chunks[1:]), part(*chunks[0]))
    totals = [checkpoint(part, *chunk, use_reentrant=False) for chunk in chunks]
    return torch.stack(totals).sum(0)


def _same_cells(ids: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of all cells of one id: (a,), (m,) -> (k,), (k,)."""
    ordered, order = among.sort()
    start, counts = torch.searchsorted(ordered, ids), same_ids(ids, among)
    rows = torch.repeat_interleave(counts)
    before = counts.cumsum(0) - counts
    within = torch.arange(len(rows), device=ids.device) - before[rows]
    return rows, order[start[rows] + within]


def _same(scores: Tensor) -> Tensor:
    return scores
