"""What every critic offers: paired scores, all-pairs scores, and the handling of its replicas."""

from __future__ import annotations

import copy
import math
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
    has_inner = False  # whether `inner_x` and `inner_y` are there
    separable = False  # whether `factors` are there, in training too

    def __init__(self, replicas: int) -> None:
        super().__init__()
        self.replicas = replicas

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Scores of the pairs. x: (R, n, dx), y: (R, n, dy) -> (R, n)."""
        raise NotImplementedError

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        """Scores of all pairs. x: (R, ..., n, dx), y: (R, ..., m, dy) -> (R, ..., n, m)."""
        raise NotImplementedError

    @property
    def inner_is_all(self) -> bool:
        """Whether the score is what `inner_x` and `inner_y` give, and nothing besides."""
        return self.has_inner

    def inner_x(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What of x meets y in an inner product, (R, n, e), and the term of x alone, (R, n).

        The score, or the part of it that can be searched, is ``vector_x . vector_y + own_x +
        own_y``. x: (R, n, dx).
        """
        raise NotImplementedError

    def inner_y(self, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """The same of y: (R, m, dy) -> (R, m, e), and (R, m) or None where there is no own term."""
        raise NotImplementedError

    def factors(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """What `matrix` is made of: vectors of x and of y, and the terms of each alone.

        x: (R, ..., n, dx), y: (R, ..., m, dy) -> (R, ..., n, e), (R, ..., m, e), (R, ..., n) and
        (R, ..., m), None for a term that is zero.
        """
        vector_x, own_x = self.inner_x(x)
        vector_y, own_y = self.inner_y(y)
        return vector_x, vector_y, own_x, own_y

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
        # Nearly square and of one width: each row of x and of y is then embedded few times.
        widest = max(1, math.isqrt(cells), cells // max(1, x.shape[1]))
        columns = max(1, math.ceil(y.shape[1] / math.ceil(max(1, y.shape[1]) / widest)))
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
