"""Weights of cells that are never written down as a matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from pointdep.core.blocked.blocks import Block
from pointdep.errors import InputError


@dataclass(frozen=True)
class Pairs:
    """Row i and column i are a pair, of weight `rows[..., i]` (1 where it is left out)."""

    rows: Tensor | None = None

    def __getitem__(self, index: Any) -> Pairs:
        return Pairs(_at(self.rows, index))


@dataclass(frozen=True)
class Others:
    """Cell (i, j) is a sample of the product where i and j differ, and so do their ids.

    Its weight is `rows[..., i] * rows[..., j]`, 1 where they are left out. Both: (..., n).
    """

    rows: Tensor | None = None
    ids: Tensor | None = None

    def __getitem__(self, index: Any) -> Others:
        return Others(_at(self.rows, index), _at(self.ids, index))

    def exist(self) -> Tensor:
        """Whether any cell has weight, (...,); for what has rows or ids."""
        rows, ids = self.rows, self.ids
        if ids is None:
            assert rows is not None
            ids = torch.arange(rows.shape[-1], device=rows.device).expand_as(rows)
        kept = torch.ones_like(ids, dtype=torch.bool) if rows is None else rows > 0
        ends = torch.iinfo(torch.long)
        lowest = torch.where(kept, ids.long(), ends.max).amin(-1)
        return lowest < torch.where(kept, ids.long(), ends.min).amax(-1)


def _at(tensor: Tensor | None, index: Any) -> Tensor | None:
    return None if tensor is None else tensor[index]


class CellWeights(Protocol):
    """Weights of the cells of L matrices of n rows."""

    def block(self, at: Block) -> Tensor | None:
        """Weights or a mask that broadcast against the block; None where all are one."""

    def row_sums(self) -> Tensor:
        """(L, n), float64."""


class OffDiagonal:
    """`Others` of L matrices of n rows and columns. rows, ids: (L, n) or None."""

    def __init__(
        self, matrices: int, n: int, device: torch.device, rows: Tensor | None, ids: Tensor | None
    ) -> None:
        self.shape, self.device, self.rows, self.ids = (matrices, n), device, rows, ids

    def block(self, at: Block) -> Tensor | None:
        mask = self._mask(at)
        if self.rows is None:
            return mask
        rows, columns = self.rows[at.matrices, at.rows], self.rows[at.matrices, at.columns]
        weights = rows.unsqueeze(-1) * columns.unsqueeze(-2)
        return weights if mask is None else weights * mask

    def _mask(self, at: Block) -> Tensor | None:
        if self.ids is not None:
            rows, columns = self.ids[at.matrices, at.rows], self.ids[at.matrices, at.columns]
            return rows.unsqueeze(-1) != columns.unsqueeze(-2)
        if at.rows.stop <= at.columns.start or at.columns.stop <= at.rows.start:
            return None
        numbers = torch.arange(self.shape[1], device=self.device)
        return (numbers[at.rows, None] != numbers[at.columns]).unsqueeze(0)

    def row_sums(self) -> Tensor:
        rows = self.rows
        if rows is None:
            rows = torch.ones(self.shape, device=self.device)
        rows = rows.double()
        return rows * (rows.sum(-1, keepdim=True) - self._alike(rows))

    def _alike(self, rows: Tensor) -> Tensor:
        """The weight of all rows of the same id, itself included, (L, n)."""
        if self.ids is None:
            return rows
        codes = torch.unique(self.ids, return_inverse=True)[1]
        count = int(codes.max()) + 1
        codes = codes + count * torch.arange(len(codes), device=codes.device).unsqueeze(1)
        # Numbered again: few of the ids are in any one matrix.
        codes = torch.unique(codes, return_inverse=True)[1]
        sums = rows.new_zeros(codes.numel()).index_add_(0, codes.flatten(), rows.flatten())
        return sums[codes]


class Dense:
    """Weights that the caller holds. weights: (R or 1, G or 1, n or 1, m or 1) of L = R G."""

    def __init__(self, weights: Tensor, replicas: int, parts: int, n: int, m: int) -> None:
        self.weights, self.size = weights, (replicas, parts, n, m)

    def block(self, at: Block) -> Tensor:
        part = self.weights
        if part.shape[2] > 1:
            part = part[:, :, at.rows]
        if part.shape[3] > 1:
            part = part[..., at.columns]
        if part.shape[0] == part.shape[1] == 1:
            return part[0]
        numbers = torch.arange(at.matrices.start, at.matrices.stop, device=part.device)
        replica = numbers // self.size[1] if part.shape[0] > 1 else torch.zeros_like(numbers)
        within = numbers % self.size[1] if part.shape[1] > 1 else torch.zeros_like(numbers)
        return part[replica, within]

    def row_sums(self) -> Tensor:
        sums = self.weights.sum(-1, dtype=torch.float64)
        if self.weights.shape[3] == 1:
            sums = sums * self.size[3]
        return sums.expand(self.size[:3]).flatten(0, 1)

    def diagonal(self) -> Tensor:
        """Of weights that are on the diagonal alone: (R or 1, G or 1, n)."""
        full = self.weights.expand(*self.weights.shape[:2], *self.size[2:])
        found = full.diagonal(dim1=-2, dim2=-1)
        if int(full.count_nonzero()) != int(found.count_nonzero()):
            raise InputError(
                "cpc without a matrix of scores takes joint weights on the diagonal alone"
            )
        return found


def dense_weights(weights: Tensor, shape: tuple[int, ...], parts: int) -> Dense:
    """Weights that broadcast against scores of this shape, (..., parts n, m)."""
    try:
        weights.expand(shape)
    except RuntimeError:
        raise InputError(
            f"weights of shape {tuple(weights.shape)} do not fit scores of shape {shape}"
        ) from None
    weights = weights.view(*[1] * (len(shape) - weights.ndim), *weights.shape)
    *lead, rows, columns = weights.shape
    if len(lead) > 1 and math.prod(lead) > 1:
        weights = weights.expand(*shape[:-2], rows, columns)
    within = (parts, rows // parts) if rows > 1 else (1, 1)
    weights = weights.reshape(-1, *within, columns)
    return Dense(weights, math.prod(shape[:-2]), parts, shape[-2] // parts, shape[-1])
