"""How a calibration moves with the weight of each of its rows: the infinitesimal jackknife.

A row counts as a pair, as the x and as the y of mismatched pairs, and with a one-sided softmax as a
candidate, which enters the levels of all queries. What a calibration says of a mean of log r is
then as sure as the sum of the squares of these influences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pointdep.adapters.cells import Cells, LogitMatrix
from pointdep.adapters.levels import BY_LEVEL, COUNT, pulls
from pointdep.adapters.logistic import RIDGE, Scaled


@dataclass(frozen=True, eq=False)
class FoldFit:
    """The calibration that leaves one fold out.

    rows: (n,) boolean, those it was fitted to. level: (n, COUNT), over their candidates. cells,
    design, odds, weights: of the regression and its outcome.
    """

    rows: Tensor
    level: Tensor
    cells: Cells
    design: Tensor
    odds: float
    weights: Tensor

    def of_pairs(self, matrix: LogitMatrix) -> Tensor:
        """The columns of all pairs, (n, k); those of its own rows leave the query's group out."""
        return matrix.design(matrix.pairs(), self.level)


@dataclass(frozen=True, eq=False)
class Influence:
    """Derivatives by the weight of each row, (n,), around weights of one.

    weights: (R, n, k), of the weights of each calibration. reported: (n,), of the mean log r that
    the calibrations report of the rows that each left out, with the pairs themselves held fixed.
    """

    weights: Tensor
    reported: Tensor


def influence(matrix: LogitMatrix, fits: list[FoldFit], temperature: float) -> Influence:
    """Of the calibrations of one matrix of logits."""
    of_rows, of_levels = zip(*(_of_fit(fit, len(matrix.values)) for fit in fits), strict=True)
    moved = torch.stack(of_rows)
    shares = torch.stack([(~fit.rows).double().mean() for fit in fits])
    means = torch.stack([fit.of_pairs(matrix)[~fit.rows].mean(0) for fit in fits])
    reported = torch.einsum("f,fnk,fk->n", shares, moved, means)
    if matrix.levelled:
        # What the levels do to the weights, and in the last place to the reported pairs themselves.
        direct = [_of_reported(fit) for fit in fits]
        asked = torch.stack([torch.cat(both, -1) for both in zip(of_levels, direct, strict=True)])
        used = torch.stack([fit.rows for fit in fits])
        level = torch.stack([fit.level for fit in fits])
        pulled = pulls(matrix.values, matrix.others, used, level, asked, temperature).double()
        moved = moved + pulled[..., :-1]
        reported = reported + torch.einsum("f,fnk,fk->n", shares, pulled[..., :-1], means)
        reported = reported + shares @ pulled[..., -1]
    return Influence(moved, reported)


def _of_fit(fit: FoldFit, rows: int) -> tuple[Tensor, Tensor]:
    """Of the weights of one calibration, by its rows, (n, k), and by its levels, (n, COUNT, k)."""
    cells, scaled = fit.cells, Scaled.of(fit.design)
    z, weights = scaled.values, scaled.inward(fit.weights)
    product = cells.product * (math.exp(fit.odds) * cells.joint.sum() / cells.product.sum())
    belongs = torch.sigmoid(z @ weights - fit.odds)
    spread = (cells.joint + product) * belongs * (1 - belongs)
    hessian = z.T @ (z * spread.unsqueeze(1))
    ridge = RIDGE * hessian.trace() * torch.eye(len(hessian), dtype=z.dtype)
    # Weights of the user's columns, by the gradient of the fit in its own.
    outward = torch.linalg.inv(hessian + ridge) @ scaled.outward.T
    of_joint = _centred((1 - belongs).unsqueeze(1) * z, cells.joint)
    of_product = _centred(belongs.unsqueeze(1) * z, product)
    gradient = z.new_zeros(rows, z.shape[1])
    gradient.index_add_(0, cells.row, of_joint - of_product)
    gradient.index_add_(0, cells.column, -of_product)
    if z.shape[1] == 2:
        return gradient @ outward, z.new_zeros(rows, COUNT, 2)
    by_level = BY_LEVEL.to(z) / scaled.scale
    bent = z.new_zeros(rows, z.shape[1]).index_add_(0, cells.row, spread.unsqueeze(1) * z)
    left = z.new_zeros(rows).index_add_(
        0, cells.row, cells.joint - (cells.joint + product) * belongs
    )
    of_levels = left.view(-1, 1, 1) * by_level - (by_level @ weights).view(-1, 1) * bent.unsqueeze(
        1
    )
    return gradient @ outward, of_levels @ outward


def _centred(values: Tensor, weight: Tensor) -> Tensor:
    """weight * (values - their mean), values: (N, k), weight: (N,)."""
    weight = weight.unsqueeze(1)
    return weight * (values - (weight * values).sum(0) / weight.sum())


def _of_reported(fit: FoldFit) -> Tensor:
    """Of the mean log r of the rows left out, by their levels: (n, COUNT, 1)."""
    left_out = (~fit.rows).double()
    return (left_out / left_out.sum()).view(-1, 1, 1) * (BY_LEVEL @ fit.weights).view(-1, 1)
