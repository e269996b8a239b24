"""The default critic of two columns of many categories: a table of r, low rank plus cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pointdep.core.critics.base import Critic

_NO_CELL = torch.iinfo(torch.int64).max  # sorts after all cells


@dataclass(frozen=True, eq=False)
class Table:
    """r(x, y) = x_factors[x] . y_factors[y] + the value of the cell (x, y), where it has one.

    x_factors: (lx, k), y_factors: (ly, k); cells: (c,) x * ly + y, sorted; values: (c,).
    """

    x_factors: Tensor
    y_factors: Tensor
    cells: Tensor
    values: Tensor


class TableCritic(Critic):
    """log r of pairs of categories, x: (R, n, 1) and y: (R, n, 1) being their numbers.

    Until `set_tables` is called, all categories are independent.
    """

    is_table = True
    models_log_ratio = True

    def __init__(self, replicas: int, x_dim: int, y_dim: int) -> None:
        super().__init__(replicas)
        self.x_factors: Tensor = nn.Buffer(torch.ones(replicas, x_dim, 1))
        self.y_factors: Tensor = nn.Buffer(torch.ones(replicas, y_dim, 1))
        self.cells: Tensor = nn.Buffer(torch.full((replicas, 1), _NO_CELL))
        self.values: Tensor = nn.Buffer(torch.zeros(replicas, 1))
        # Weights of the parts of the mixture that the tables are made of.
        self.shares: Tensor = nn.Buffer(torch.ones(replicas, 1))

    def set_tables(self, tables: Sequence[Table]) -> None:
        """One table per replica, of factors with the same number of columns."""
        like = self.values
        self.x_factors = torch.stack([table.x_factors for table in tables]).to(like)
        self.y_factors = torch.stack([table.y_factors for table in tables]).to(like)
        longest = max(1, *(len(table.cells) for table in tables))
        self.cells = torch.full((len(tables), longest), _NO_CELL, device=like.device)
        self.values = like.new_zeros(len(tables), longest)
        for replica, table in enumerate(tables):
            self.cells[replica, : len(table.cells)] = table.cells.to(like.device)
            self.values[replica, : len(table.cells)] = table.values.to(like)

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        a, b = x.squeeze(-1).long(), y.squeeze(-1).long()
        inner = (_rows(self.x_factors, a) * _rows(self.y_factors, b)).sum(-1)
        return (inner + self._cells(a, b)).log()

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        a, b = x.squeeze(-1).long(), y.squeeze(-1).long()
        inner = _rows(self.x_factors, a) @ _rows(self.y_factors, b).transpose(-1, -2)
        return (inner + self._cells(a.unsqueeze(-1), b.unsqueeze(-2))).log()

    def cell_width(self) -> int:
        return max(8, self.x_factors.shape[-1] // 4)

    def _cells(self, x: Tensor, y: Tensor) -> Tensor:
        """Values of the cells where x and y, broadcast against each other, meet."""
        wanted = x * self.y_factors.shape[1] + y
        flat = wanted.reshape(len(wanted), -1)
        at = torch.searchsorted(self.cells, flat).clamp(max=self.cells.shape[1] - 1)
        found = self.values.gather(1, at) * (self.cells.gather(1, at) == flat)
        return found.view(wanted.shape)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        for name, buffer in list(self.named_buffers()):  # the rows decide about their shapes
            saved = state_dict.get(prefix + name, buffer)
            if saved.ndim == buffer.ndim and saved.shape[:-1] == buffer.shape[:-1]:
                setattr(self, name, torch.zeros_like(saved, device=buffer.device))
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _rows(factors: Tensor, codes: Tensor) -> Tensor:
    """factors: (R, l, k), codes: (R, ..., n) -> (R, ..., n, k)."""
    each = torch.arange(len(factors), device=codes.device).view(-1, *[1] * (codes.ndim - 1))
    return factors[each, codes]
