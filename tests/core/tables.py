"""Finite joint distributions, of which every quantity is known exactly."""

import math
from collections.abc import Callable
from itertools import product as tuples
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Table(NamedTuple):
    """p(x,y) as a matrix, and what follows from it by the definitions."""

    joint: Tensor
    product: Tensor
    log_ratio: Tensor
    mi: float
    squared_loss_mi: float

    @property
    def p_y(self) -> Tensor:
        return self.joint.sum(0)


def table_of(cells: np.ndarray) -> Table:
    """The table with these cells, up to their sum; cells: (x, y)."""
    p = cells / cells.sum()
    product, log_ratio = np.zeros_like(p), np.full_like(p, -math.inf)
    mi = smi = 0.0
    for i, j in np.ndindex(p.shape):
        product[i, j] = p[i, :].sum() * p[:, j].sum()
        if p[i, j] > 0:
            log_ratio[i, j] = math.log(p[i, j] / product[i, j])
            mi += p[i, j] * log_ratio[i, j]
        smi += product[i, j] * (p[i, j] / product[i, j] - 1) ** 2 / 2
    return Table(*map(torch.from_numpy, (p, product, log_ratio)), mi, smi)


def random_table(rows: int, columns: int, seed: int, spread: float = 1.0) -> Table:
    """Log-normal cells, all positive."""
    return table_of(np.exp(spread * np.random.default_rng(seed).standard_normal((rows, columns))))


POSITIVE = random_table(5, 7, seed=0)
SMALL = random_table(3, 4, seed=1)

_cells = np.exp(np.random.default_rng(2).standard_normal((5, 7)))
_cells[2, 3] = 0.0
ZERO_CELL = table_of(_cells)
ZERO = (2, 3)


def maximise(value: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """The argument that makes a smooth concave value largest, by L-BFGS from `start`."""
    scores = start.detach().clone().requires_grad_()
    limits = {"max_iter": 300, "max_eval": 600, "tolerance_grad": 1e-9, "tolerance_change": 0.0}
    search = {"history_size": 40, "line_search_fn": "strong_wolfe"}
    optimiser = torch.optim.LBFGS([scores], **limits, **search)

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = -value(scores)
        loss.backward()
        return loss

    optimiser.step(closure)
    return scores.detach()


class Batches(NamedTuple):
    """All batches of B pairs drawn i.i.d. from a table, with their probabilities."""

    x: Tensor
    y: Tensor
    probability: Tensor

    def expected(self, objective: Callable[[Tensor], Tensor], scores: Tensor) -> Tensor:
        """The mean of objective(s(x_i, y_j)) over the batches; scores: (x, y) of the table."""
        return (self.probability * objective(scores[self.x[:, :, None], self.y[:, None, :]])).sum()


def all_batches(table: Table, size: int) -> Batches:
    """Batch b holds the pairs (x[b, i], y[b, i]), i < size."""
    x, y = torch.tensor(list(tuples(list(np.ndindex(*table.joint.shape)), repeat=size))).unbind(-1)
    return Batches(x, y, table.joint[x, y].prod(-1))
