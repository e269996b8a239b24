"""Where batches come from: the rows of a data set, cut into blocks."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.blocked import Others, Pairs
from pointdep.errors import InputError, require_whole
from pointdep.fitting.splits import Rows

# How to train, checked when it is written down.


@dataclass(frozen=True)
class TrainingOptions:
    """The engine's settings.

    Attributes
    ----------
    batch_size: rows per step and replica.
    block: rows that are set against each other; a batch is cut into blocks of this size, and each
        row has block - 1 product samples.
    learning_rate, weight_decay: of Adam.
    max_epochs: limit on the number of epochs.
    min_steps: an epoch is one pass over the training rows, but at least this many steps.
    patience: epochs without a better held-out objective after which a replica stops.
    average: decay of the running average of the weights, which is what is evaluated and kept;
        0 keeps the last weights themselves.
    clip: limit on the norm of each replica's gradient.
    seed: of the batches; the initial weights come with the model.
    """

    batch_size: int
    block: int
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    max_epochs: int = 200
    min_steps: int = 20
    patience: int = 8
    average: float = 0.99
    clip: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.block < 2 or self.batch_size < self.block:
            raise InputError(
                f"batch_size={self.batch_size} with {self.block - 1} negatives: each row needs at "
                "least one other row beside it, and no more negatives than batch_size - 1"
            )
        for name in ("learning_rate", "clip", "weight_decay", "average"):
            if not isinstance(getattr(self, name), numbers.Real):
                raise InputError(f"{name}={getattr(self, name)!r} must be a number")
        for name in ("learning_rate", "clip"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name}={value!r} must be a positive number")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise InputError(f"weight_decay={self.weight_decay!r} must not be negative")
        for name in ("max_epochs", "patience", "min_steps"):
            require_whole(name, getattr(self, name))
        if not 0.0 <= self.average < 1.0:
            raise InputError(f"average={self.average!r} must lie in [0, 1)")


@dataclass(frozen=True)
class Cells:
    """Pairs in blocks, with the weights of the cells.

    x: (A, G, b, dx) and y: (A, G, b, dy) for A replicas, G blocks of b rows. The scores of the
    blocks, (A, G, b, b), are laid out as (A, G*b, b), on which `joint` and `product` are weights.
    """

    x: Tensor
    y: Tensor
    joint: Tensor
    product: Tensor

    def select(self, replicas: Sequence[int]) -> Cells:
        """Those of some replicas, where each has weights of its own."""
        rows = list(replicas)
        return Cells(self.x[rows], self.y[rows], self.joint[rows], self.product[rows])

    def has_product(self) -> Tensor:
        """Whether a replica has any sample of the product, (A,)."""
        return (self.product > 0).flatten(1).any(1)


@dataclass(frozen=True)
class LeanCells:
    """The same pairs with weights of rows, (A, G, b): for cells too many to be laid out."""

    x: Tensor
    y: Tensor
    joint: Pairs
    product: Others

    def select(self, replicas: Sequence[int]) -> LeanCells:
        """Those of some replicas."""
        rows = list(replicas)
        return LeanCells(self.x[rows], self.y[rows], self.joint[rows], self.product[rows])

    def has_product(self) -> Tensor:
        """Whether a replica has any sample of the product, (A,)."""
        return self.product.exist().any(-1)


class Batches(Protocol):
    """Where the training steps get their pairs from: `Cells`, or a process's share of them."""

    def steps(self, minimum: int) -> int: ...

    def draw(
        self, epoch: int, first: int, steps: int, replicas: Sequence[int]
    ) -> Iterator[Any]: ...


class RowBatches:
    """Batches of rows without replacement, a function of (seed, replica, step) and nothing else.

    Having no state, they need no checkpoint, and a replica draws the same rows whichever other
    replicas train beside it.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        rows: Sequence[Rows],
        *,
        batch_size: int,
        block: int,
        seed: int,
        groups: Tensor | None = None,
        lean: bool = False,
    ) -> None:
        """lean: do not lay out the cells of a batch."""
        self.x, self.y, self.groups = x, y, groups
        self.rows, self.block, self.seed = rows, block, seed
        self.batch_size = batch_size - batch_size % block
        self.steps_per_pass = [len(r) // self.batch_size for r in rows]
        self._orders: dict[int, tuple[int, Rows]] = {}
        self.lean = lean
        if not lean:
            eye = torch.eye(block, device=x.device).repeat(self.batch_size // block, 1)
            self._joint, self._product = eye, 1.0 - eye

    def steps(self, minimum: int) -> int:
        """Steps in an epoch: a pass over the average replica's rows, and at least `minimum`."""
        passes = [len(r) / self.batch_size for r in self.rows]
        return max(minimum, round(sum(passes) / len(passes)))

    def indices(self, first: int, steps: int, replicas: Sequence[int]) -> Tensor:
        """Row numbers (steps, A, batch_size) of steps first, first + 1, ..."""
        drawn = [
            np.stack([self._batch(replica, step) for step in range(first, first + steps)])
            for replica in replicas
        ]
        return torch.from_numpy(np.stack(drawn, 1)).to(self.x.device)

    def draw(
        self, epoch: int, first: int, steps: int, replicas: Sequence[int]
    ) -> Iterator[Cells | LeanCells]:
        """The batches of steps first, first + 1, ..., whichever epoch they are in."""
        del epoch
        for index in self.indices(first, steps, replicas):
            yield self.cells(index)

    def cells(self, index: Tensor) -> Cells | LeanCells:
        """The pairs of row numbers (A, batch_size)."""
        shape = (index.shape[0], -1, self.block)
        x, y = (
            self.x[index].view(*shape, self.x.shape[1]),
            self.y[index].view(*shape, self.y.shape[1]),
        )
        groups = None if self.groups is None else self.groups[index].view(shape)
        if self.lean:
            return LeanCells(x, y, Pairs(), Others(ids=groups))
        product = self._product
        if groups is not None:
            product = product * different_groups(groups).flatten(1, 2)
        return Cells(x, y, self._joint, product)

    def _batch(self, replica: int, step: int) -> Rows:
        in_pass, position = divmod(step, self.steps_per_pass[replica])
        kept = self._orders.get(replica)
        if kept is None or kept[0] != in_pass:
            generator = np.random.default_rng([self.seed, replica, in_pass, 2])
            kept = in_pass, generator.permutation(self.rows[replica])
            self._orders[replica] = kept
        return kept[1][position * self.batch_size : (position + 1) * self.batch_size]


def held_out_cells(
    x: Tensor,
    y: Tensor,
    rows: Sequence[Rows],
    *,
    block: int,
    seed: int,
    groups: Tensor | None = None,
) -> tuple[Cells, NDArray[np.int64]]:
    """All the given rows of every replica in blocks, ragged ends padded with weight zero.

    Returns the cells and the row numbers (A, G*b), -1 where padded.
    """
    index = _held_out_rows(rows, block, seed)
    flat = torch.from_numpy(index).to(x.device)
    valid = flat >= 0
    safe = flat.clamp(min=0)
    eye = torch.eye(index.shape[-1], dtype=torch.bool, device=x.device)
    both = valid.unsqueeze(-1) & valid.unsqueeze(-2)
    product = both & ~eye
    if groups is not None:
        product = product & different_groups(groups[safe])
    cells = Cells(
        x[safe], y[safe], (both & eye).to(x.dtype).flatten(1, 2), product.to(x.dtype).flatten(1, 2)
    )
    return cells, index.reshape(len(rows), -1)


def lean_held_out_cells(
    x: Tensor,
    y: Tensor,
    rows: Sequence[Rows],
    *,
    block: int,
    seed: int,
    groups: Tensor | None = None,
) -> LeanCells:
    """The cells of `held_out_cells`, not laid out."""
    flat = torch.from_numpy(_held_out_rows(rows, block, seed)).to(x.device)
    valid, safe = (flat >= 0).to(x.dtype), flat.clamp(min=0)
    others = Others(valid, None if groups is None else groups[safe])
    return LeanCells(x[safe], y[safe], Pairs(valid), others)


def _held_out_rows(rows: Sequence[Rows], block: int, seed: int) -> NDArray[np.int64]:
    """The rows of each replica in blocks, in random order: (A, G, b), -1 where padded."""
    longest = max(len(r) for r in rows)
    block = min(block, longest)
    blocks = -(-longest // block)
    index = np.full((len(rows), blocks * block), -1, dtype=np.int64)
    for number, part in enumerate(rows):
        order = np.random.default_rng([seed, number, 3]).permutation(part)
        # Spread a replica's rows evenly over its blocks, so that no block is left with a lone row.
        used = -(-len(order) // block)
        for position, chunk in enumerate(np.array_split(order, used)):
            index[number, position * block : position * block + len(chunk)] = chunk
    return index.reshape(len(rows), blocks, block)


def in_blocks(rows: Tensor, block: int) -> Tensor:
    """(A, G*b, ...) -> (A, G, b, ...)."""
    return rows.reshape(len(rows), -1, block, *rows.shape[2:])


def different_groups(groups: Tensor) -> Tensor:
    """groups: (..., b) -> boolean (..., b, b), true where two rows are of different groups."""
    return groups.unsqueeze(-1) != groups.unsqueeze(-2)
