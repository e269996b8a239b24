"""What every critic offers: paired scores, all-pairs scores, and the handling of its replicas."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Critic(nn.Module):
    """R critics in one: x and y carry a leading replica dimension, and so does every parameter.

    A subclass gives `pairs` and `matrix`. Its parameters either all have the replica dimension
    first (``stacked = True``) or lie in ``self.copies``, one module per replica.
    """

    stacked = True
    informed = False  # whether the weights it starts from are an estimate already

    def __init__(self, replicas: int) -> None:
        super().__init__()
        self.replicas = replicas

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Scores of the pairs. x: (R, n, dx), y: (R, n, dy) -> (R, n)."""
        raise NotImplementedError

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        """Scores of all pairs. x: (R, ..., n, dx), y: (R, ..., m, dy) -> (R, ..., n, m)."""
        raise NotImplementedError

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """Draw initial weights, replica r from ``generators[r]`` alone."""

    def raise_scores(self, amounts: Tensor) -> None:
        """Add a constant to all scores of each replica, amounts: (R,), by the weights."""
        raise NotImplementedError

    def cell_width(self) -> int:
        """How many numbers one cell of `matrix` keeps alive: what block sizes are chosen by."""
        return 1

    def matrix_in_blocks(self, x: Tensor, y: Tensor, budget: int = 1 << 24) -> Tensor:
        """`matrix` of x: (R, n, dx), y: (R, m, dy), with about `budget` numbers alive at a time."""
        cells = max(1, budget // (self.replicas * self.cell_width()))
        columns = max(1, min(y.shape[1], cells))
        rows = max(1, cells // columns)
        return torch.cat(
            [
                torch.cat([self.matrix(a, b) for b in torch.split(y, columns, 1)], -1)
                for a in torch.split(x, rows, 1)
            ],
            -2,
        )

    def select(self, replicas: Sequence[int]) -> Critic:
        """A copy that holds only these replicas."""
        chosen = copy.deepcopy(self)
        chosen.replicas = len(replicas)
        index = torch.as_tensor(list(replicas), dtype=torch.long)
        for parameter in chosen.parameters():
            parameter.data = parameter.data[index.to(parameter.device)].clone()
            parameter.grad = None
        return chosen
