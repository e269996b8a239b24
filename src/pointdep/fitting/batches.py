"""Where batches come from: the rows of a data set, cut into blocks."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.blocked import Others, Pairs
from pointdep.errors import InputError, require_whole
from pointdep.fitting.splits import Rows, Split

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
    halving: epochs after which the learning rate is a half, after twice as many a third, and so on
        (a hyperbola); 0 for one that stays.
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
    halving: float = 0.0

    def __post_init__(self) -> None:
        if self.block < 2 or self.batch_size < self.block:
            raise InputError(
                f"batch_size={self.batch_size} with {self.block - 1} negatives: each row needs at "
                "least one other row beside it, and no more negatives than batch_size - 1"
            )
        for name, start, end in (
            ("learning_rate", "(", math.inf),
            ("clip", "(", math.inf),
            ("weight_decay", "[", math.inf),
            ("halving", "[", math.inf),
            ("average", "[", 1.0),
        ):
            value: Any = getattr(self, name)
            inside = isinstance(value, numbers.Real) and 0.0 <= float(value) < end  # not NaN
            if not inside or (value == 0.0 and start == "("):
                raise InputError(f"{name}={value!r} must be a number in {start}0, {end})")
        for name in ("max_epochs", "patience", "min_steps"):
            require_whole(name, getattr(self, name))

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, the first being 0."""
        return self.learning_rate / (1.0 + epoch / self.halving if self.halving else 1.0)


@dataclass(frozen=True)
class SplitRows:
    """Pairs on a device, x: (n, dx) and y: (n, dy), and which of them each replica has for what.

    codes: (n,) group of each row, or None. seed: of all that is drawn from the rows.
    """

    x: Tensor
    y: Tensor
    splits: Sequence[Split]
    codes: NDArray[np.int64] | None = None
    seed: int = 0

    @property
    def groups(self) -> Tensor | None:
        return None if self.codes is None else torch.from_numpy(self.codes).to(self.x.device)

    def training(self, replica: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """x, y and the groups of a replica's training rows."""
        train = torch.from_numpy(self.splits[replica].train).to(self.x.device)
        groups = self.groups
        return self.x[train], self.y[train], None if groups is None else groups[train]

    def held_out(
        self, rows: Sequence[Rows], block: int, *, lean: bool = False
    ) -> tuple[Cells, NDArray[np.int64]]:
        """`held_out_cells` of these rows of every replica."""
        how: dict[str, Any] = {"seed": self.seed, "groups": self.groups, "lean": lean}
        return held_out_cells(self.x, self.y, rows, block=block, **how)


@dataclass(frozen=True)
class Cells:
    """Pairs in blocks, with the weights of the cells.

    x: (A, G, b, dx) and y: (A, G, b, dy) for A replicas, G blocks of b rows. The scores of the
    blocks, (A, G, b, b), are laid out as (A, G*b, b), on which the tensors `joint` and `product`
    are weights; or, for cells too many to be laid out, these are `Pairs` and `Others`, with weights
    of rows, (A, G, b).

    whole: (G, b), where x: (A, c, dx) and y: (A, c, dy) are the rows that one of several processes
    has of the blocks.
    """

    x: Tensor
    y: Tensor
    joint: Any
    product: Any
    whole: tuple[int, int] | None = None

    @property
    def lean(self) -> bool:
        """Whether the cells are not to be laid out."""
        return isinstance(self.product, Others)

    def select(self, replicas: Sequence[int]) -> Cells:
        """Those of some replicas, where each has weights of its own."""
        rows = list(replicas)
        return Cells(self.x[rows], self.y[rows], self.joint[rows], self.product[rows])

    def has_product(self) -> Tensor:
        """Whether a replica has any sample of the product, (A,)."""
        found: Tensor = self.product.exist() if self.lean else (self.product > 0).flatten(1)
        return found.any(-1)


class Batches:
    """Where the training steps get their pairs from, and the weights that all batches share."""

    def __init__(self, options: TrainingOptions, device: torch.device, *, lean: bool) -> None:
        """lean: do not lay out the cells of a batch."""
        self.block, self.seed, self.lean = options.block, options.seed, lean
        self.batch_size = options.batch_size - options.batch_size % options.block
        self.blocks = self.batch_size // self.block
        self._weights: tuple[Any, Any] = Pairs(), Others()
        if not lean:
            eye = torch.eye(self.block, device=device).repeat(self.blocks, 1)
            self._weights = eye, 1.0 - eye

    def steps(self, minimum: int) -> int:
        """Steps in an epoch, at least `minimum` if they are free to choose."""
        raise NotImplementedError

    def draw(self, epoch: int, first: int, steps: int, replicas: Sequence[int]) -> Iterator[Cells]:
        """The batches of steps first, first + 1, ..., which are in this epoch."""
        raise NotImplementedError

    def weighted(self, x: Tensor, y: Tensor, groups: Tensor | None) -> Cells:
        """The pairs with the weights of their cells; groups: (A, G, b)."""
        cells = Cells(x, y, *self._weights)
        if groups is None:
            return cells
        if self.lean:
            return replace(cells, product=Others(ids=groups))
        return replace(cells, product=cells.product * different_groups(groups).flatten(1, 2))


class RowBatches(Batches):
    """Batches of rows without replacement, a function of (seed, replica, step) and nothing else.

    Having no state, they need no checkpoint, and a replica draws the same rows whichever other
    replicas train beside it.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        rows: Sequence[Rows],
        options: TrainingOptions,
        *,
        groups: Tensor | None = None,
        lean: bool = False,
    ) -> None:
        """x, y: (n, dx) and (n, dy), or with a leading (R,) as each replica's maps give them."""
        require_batch(options.batch_size, min(len(part) for part in rows))
        super().__init__(options, x.device, lean=lean)
        self.x, self.y, self.rows, self.groups = x, y, rows, groups
        self._orders: dict[int, tuple[int, Rows]] = {}

    def steps(self, minimum: int) -> int:
        """A pass over the rows of the replica that has most, and at least `minimum`."""
        return max(minimum, round(max(len(r) for r in self.rows) / self.batch_size))

    def indices(self, first: int, steps: int, replicas: Sequence[int]) -> Tensor:
        """Row numbers (steps, A, batch_size) of steps first, first + 1, ..."""
        every = range(first, first + steps)
        drawn = [np.stack([self._batch(replica, step) for step in every]) for replica in replicas]
        return torch.from_numpy(np.stack(drawn, 1)).to(self.x.device)

    def draw(self, epoch: int, first: int, steps: int, replicas: Sequence[int]) -> Iterator[Cells]:
        del epoch
        for index in self.indices(first, steps, replicas):
            yield self.cells(index, replicas)

    def cells(self, index: Tensor, replicas: Sequence[int] = ()) -> Cells:
        """The pairs of row numbers (A, batch_size); replicas: (A,), where each has own rows."""
        at = in_blocks(index, self.block)
        groups = None if self.groups is None else self.groups[at]
        if self.x.ndim == 2:
            return self.weighted(self.x[at], self.y[at], groups)
        own = torch.as_tensor(list(replicas), device=at.device).view(-1, 1, 1)
        return self.weighted(self.x[own, at], self.y[own, at], groups)

    def _batch(self, replica: int, step: int) -> Rows:
        in_pass, position = divmod(step, len(self.rows[replica]) // self.batch_size)
        kept = self._orders.get(replica)
        if kept is None or kept[0] != in_pass:
            generator = np.random.default_rng([self.seed, replica, in_pass, 2])
            kept = in_pass, generator.permutation(self.rows[replica])
            self._orders[replica] = kept
        return kept[1][position * self.batch_size : (position + 1) * self.batch_size]


def require_batch(batch_size: int, smallest: int) -> None:
    """Refuse batches of more rows than the smallest split has to train on."""
    if smallest < batch_size:
        raise InputError(
            f"batch_size={batch_size} but a split has only {smallest} training rows: choose at "
            f"most {smallest}, leave it at 'auto', or give more rows or groups"
        )


def held_out_cells(
    x: Tensor,
    y: Tensor,
    rows: Sequence[Rows],
    *,
    block: int,
    seed: int,
    groups: Tensor | None = None,
    lean: bool = False,
) -> tuple[Cells, NDArray[np.int64]]:
    """All the given rows of every replica in blocks, in random order, padded with weight zero.

    Returns the cells and the row numbers (A, G*b), -1 where padded.
    """
    longest = max(len(part) for part in rows)
    block = min(block, longest)
    index = np.full((len(rows), -(-longest // block), block), -1, dtype=np.int64)
    for number, part in enumerate(rows):
        order = np.random.default_rng([seed, number, 3]).permutation(part)
        # Spread a replica's rows evenly over its blocks, so that no block is left with a lone row.
        for position, chunk in enumerate(np.array_split(order, -(-len(order) // block))):
            index[number, position, : len(chunk)] = chunk
    flat = torch.from_numpy(index).to(x.device)
    valid, safe = flat >= 0, flat.clamp(min=0)
    ids = None if groups is None else groups[safe]
    joint: Any
    product: Any
    if lean:
        joint, product = Pairs(valid.to(x.dtype)), Others(valid.to(x.dtype), ids)
    else:
        eye = torch.eye(block, dtype=torch.bool, device=x.device)
        both = valid.unsqueeze(-1) & valid.unsqueeze(-2)
        apart = ~eye if ids is None else ~eye & different_groups(ids)
        joint, product = ((both & part).to(x.dtype).flatten(1, 2) for part in (eye, apart))
    return Cells(x[safe], y[safe], joint, product), index.reshape(len(rows), -1)


def in_blocks(rows: Tensor, block: int) -> Tensor:
    """(A, G*b, ...) -> (A, G, b, ...)."""
    return rows.reshape(len(rows), -1, block, *rows.shape[2:])


def different_groups(groups: Tensor) -> Tensor:
    """groups: (..., b) -> boolean (..., b, b), true where two rows are of different groups."""
    return groups.unsqueeze(-1) != groups.unsqueeze(-2)
