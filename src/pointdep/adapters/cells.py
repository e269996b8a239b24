"""Pairs and mismatched pairs of one matrix of logits, and what log r is linear in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pointdep.adapters.levels import COUNT, columns, combine, parts_of

_KEPT = 1 << 17  # of the mismatched pairs: those of highest logit, and as many of the others


@dataclass(frozen=True, eq=False)
class Cells:
    """Pairs and mismatched pairs, as places in the matrix of logits, with their weights."""

    row: Tensor
    column: Tensor
    joint: Tensor
    product: Tensor

    def within(self, rows: Tensor) -> Cells:
        """Those of which both rows are among these; rows: (m,) boolean."""
        kept = rows[self.row] & rows[self.column]
        return Cells(self.row[kept], self.column[kept], self.joint[kept], self.product[kept])


@dataclass(frozen=True, eq=False)
class LogitMatrix:
    """values: (n, n), queries in rows, pairs on the diagonal; others: (n, n), the mismatched pairs.

    levelled: whether each query has levels of its own, else one constant stands for all.
    """

    values: Tensor
    others: Tensor
    levelled: bool

    def first(self, rows: int) -> LogitMatrix:
        """Of the first rows alone."""
        return LogitMatrix(self.values[:rows, :rows], self.others[:rows, :rows], self.levelled)

    def parts(self, columns: Tensor, temperature: float) -> Tensor:
        """What of some candidates enters the levels (`parts_of`)."""
        return parts_of(self.values[:, columns], self.others[:, columns], temperature)

    def level(self, parts: list[Tensor], temperature: float) -> Tensor:
        """(n, COUNT), zero without parts."""
        if not parts:
            return self.values.new_zeros(len(self.values), COUNT)
        return combine(parts, temperature)

    def design(self, cells: Cells, level: Tensor) -> Tensor:
        """The columns of the regression, (N, k): slope, shift, and what mixes the levels."""
        values = self.values[cells.row, cells.column].double()
        one = torch.ones_like(values).unsqueeze(1)
        if not self.levelled:
            return torch.cat([values.unsqueeze(1), one], 1)
        parts = columns(values, level[cells.row].double())
        return torch.cat([parts[:, :1], one, parts[:, 1:]], 1)

    def pairs(self) -> Cells:
        """The diagonal."""
        own = torch.arange(len(self.values))
        one = torch.ones(len(own), dtype=torch.float64)
        return Cells(own, own, one, 0 * one)

    def thinned(self, level: Tensor, seed: int) -> Cells:
        """All pairs, the mismatched pairs that look most like them, and some of the others.

        Of mismatched pairs with low logits each says little: fewer, of more weight, will do.
        """
        row, column = self.others.nonzero(as_tuple=True)
        weight = torch.ones(len(row), dtype=torch.float64)
        if len(row) > 2 * _KEPT:
            high = torch.topk(self.values[row, column] - level[row, 0], _KEPT).indices
            # Not by a bound, at which any number of logits may be tied.
            is_low = torch.ones(len(row), dtype=torch.bool)
            is_low[high] = False
            low = is_low.nonzero().squeeze(1)
            draw = torch.Generator().manual_seed(seed)
            drawn = low[torch.randint(len(low), (_KEPT,), generator=draw)]
            weight = torch.cat([weight[high], weight.new_full((_KEPT,), len(low) / _KEPT)])
            kept = torch.cat([high, drawn])
            row, column = row[kept], column[kept]
        own = self.pairs()
        return Cells(
            torch.cat([own.row, row]),
            torch.cat([own.column, column]),
            torch.cat([own.joint, 0 * weight]),
            torch.cat([own.product, weight]),
        )
