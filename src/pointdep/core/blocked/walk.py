"""The walk over blocks of inner-product scores, and the gradients that are gathered on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pointdep.core.blocked.blocks import Block, blocks
from pointdep.core.blocked.cells import Elementwise
from pointdep.core.blocked.weights import CellWeights


@dataclass(frozen=True)
class Job:
    """What is summed, over which cells, and how many of them at a time.

    link: what makes scores of inner products, None where they are the scores.
    shift: (L,), taken off the scores.
    """

    weights: CellWeights
    cells: int
    link: Elementwise | None = None
    function: Elementwise | None = None
    shift: Tensor | None = None


class Factors:
    """The rows that make the scores, and the walk over blocks of them."""

    def __init__(
        self, x: Tensor, y: Tensor, own_x: Tensor | None, own_y: Tensor | None, job: Job
    ) -> None:
        self.x, self.y, self.job = x.detach(), y.detach(), job
        self.own_x, self.own_y = (None if own is None else own.detach() for own in (own_x, own_y))
        # What a step has to add to the inner products, or to what the link makes of them.
        self.last_x, self.last_y = (self.own_x, self.own_y) if job.link is None else (None, None)
        if job.shift is not None:
            down = -job.shift.to(x.dtype).unsqueeze(-1).expand(x.shape[:2])
            self.last_x = down if self.last_x is None else self.last_x + down

    def walk(self) -> Iterator[Scored]:
        shape = (len(self.x), self.x.shape[1], self.y.shape[1])
        # Scores in bfloat16 have two or three digits.
        with torch.autocast(self.x.device.type, enabled=False):
            for at in blocks(*shape, self.job.cells):
                yield Scored(self, at)


class Scored:
    """One block: the rows and columns that meet in it, and what becomes of their products."""

    def __init__(self, factors: Factors, at: Block) -> None:
        self.at, self.link, self._factors = at, factors.job.link, factors
        self.x, self.y = self._rows(factors.x), self._columns(factors.y)
        self.weights = factors.job.weights.block(at)
        self.base: Tensor | None = None

    @property
    def compiled(self) -> bool:
        """Whether steps are compiled: on a GPU, for blocks of which there are many."""
        return self.at.common and self.x.is_cuda

    @property
    def shape(self) -> tuple[int, int, int]:
        """Matrices, rows and columns."""
        return len(self.x), self.x.shape[1], self.y.shape[1]

    def linked(self) -> Tensor:
        """The inner products, (l, r, c); where there is a link, what it makes of them."""
        inner = _product(self.x, self.y)
        if self.link is None:
            return inner
        if self._factors.own_x is not None:
            inner += self._rows(self._factors.own_x).unsqueeze(-1)
        if self._factors.own_y is not None:
            inner += self._columns(self._factors.own_y).unsqueeze(-2)
        with torch.enable_grad():
            self.base = inner.requires_grad_()
            return self.link(self.base)

    def sides(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """What a step has still to add to rows and to columns, and the weights."""
        last_x, last_y = self._factors.last_x, self._factors.last_y
        return (
            None if last_x is None else self._rows(last_x),
            None if last_y is None else self._columns(last_y),
            self.weights,
        )

    def back(self, scores: Tensor, slopes: Tensor) -> Tensor:
        """From slopes of the scores to slopes of the inner products."""
        assert self.base is not None
        (slopes,) = torch.autograd.grad(scores, self.base, slopes)
        return slopes if self.weights is None else torch.where(self.weights > 0, slopes, 0.0)

    def _rows(self, tensor: Tensor) -> Tensor:
        return tensor[self.at.matrices, self.at.rows]

    def _columns(self, tensor: Tensor) -> Tensor:
        return tensor[self.at.matrices, self.at.columns]


class Gradients:
    """Gradients of x, y, own_x and own_y, of those that are wanted, in the making."""

    def __init__(self, factors: Factors, wanted: tuple[bool, ...]) -> None:
        inputs = (factors.x, factors.y, factors.own_x, factors.own_y)
        self.tensors = [
            torch.zeros_like(tensor) if tensor is not None and needed else None
            for tensor, needed in zip(inputs, wanted, strict=False)
        ]

    def add(self, block: Scored, scores: Tensor, slopes: Tensor, rows: Tensor | None) -> None:
        """What a block adds. slopes: (l, r, c) of its scores; rows: their sums, if known."""
        if block.base is not None:
            slopes, rows = block.back(scores, slopes), None
        x, y, own_x, own_y = self.tensors
        at = block.at
        if x is not None:
            _accumulate(x[at.matrices, at.rows], slopes, block.y)
        if y is not None:
            _accumulate(y[at.matrices, at.columns], slopes.mT, block.x)
        if own_x is not None:
            own_x[at.matrices, at.rows] += slopes.sum(-1) if rows is None else rows
        if own_y is not None:
            own_y[at.matrices, at.columns] += slopes.sum(-2)


def _product(x: Tensor, y: Tensor) -> Tensor:
    """(l, r, e), (l, c, e) -> (l, r, c)."""
    if len(x) == 1:  # the plain product has the better kernels
        return (x[0] @ y[0].T).unsqueeze(0)
    return x @ y.mT


def _accumulate(place: Tensor, left: Tensor, right: Tensor) -> None:
    if len(place) == 1:
        place[0].addmm_(left[0], right[0])
    else:
        place.baddbmm_(left, right)
