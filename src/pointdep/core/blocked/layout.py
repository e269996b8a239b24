"""How inner-product scores lie: replicas, parts, rows and columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pointdep.core.blocked.cells import Elementwise
from pointdep.core.blocked.weights import Dense, OffDiagonal, Others, Pairs, dense_weights
from pointdep.errors import InputError

JointWeights = Tensor | Pairs | None
ProductWeights = Tensor | Others | None


@dataclass(frozen=True, eq=False)
class Layout:
    """The two sides of scores, and weights as they lie on them; see `InnerScores`.

    Within, R replicas (all leading dimensions but that of parts) of G parts are L = R G matrices.
    """

    x: Tensor
    y: Tensor
    own_x: Tensor | None = None
    own_y: Tensor | None = None
    parts: bool = False
    cells: int | None = None
    link: Elementwise | None = None
    shift: Tensor | None = None

    def __post_init__(self) -> None:
        x, y = self.x, self.y
        if x.ndim < 2 or x.shape[:-2] != y.shape[:-2] or x.shape[-1] != y.shape[-1]:
            raise InputError(
                f"x of shape {tuple(x.shape)} and y of shape {tuple(y.shape)} have no inner "
                "products: they must be (..., n, e) and (..., m, e)"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the matrix that is not there."""
        *lead, n, _ = self.x.shape
        if self.parts:
            n *= lead.pop()
        return (*lead, n, self.y.shape[-2])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    def require_pairs(self) -> None:
        """Refuse what has no diagonal of pairs, or nothing beside it."""
        n, m = self.x.shape[-2], self.y.shape[-2]
        if n != m:
            raise InputError(
                f"{n} rows of x and {m} of y are not pairs: give `joint` and `product` weights "
                "that say which cells are samples of which distribution"
            )
        if n < 2:
            raise InputError(
                "a batch of one pair has no product samples: at least two rows are needed"
            )

    @property
    def _lead(self) -> torch.Size:
        return self.x.shape[: -3 if self.parts else -2]

    @property
    def _parts(self) -> int:
        return self.x.shape[-3] if self.parts else 1

    def _flat(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """x, y, own_x and own_y with one leading dimension, L = replicas times parts."""
        x, y = (side.reshape(-1, *side.shape[-2:]) for side in (self.x, self.y))
        own_x, own_y = (
            None if own is None else own.reshape(-1, own.shape[-1])
            for own in (self.own_x, self.own_y)
        )
        return x, y, own_x, own_y

    def _each_part(self, values: Tensor) -> Tensor:
        """One value a replica, (...,) in any shape, for each of its parts, (L,)."""
        every = values.detach().reshape(-1, 1).expand(-1, self._parts)
        return every.expand(math.prod(self._lead), -1).reshape(-1)

    def _together(self, values: Tensor) -> Tensor:
        """Sum over the parts: (L,) or (R, G) -> (...,)."""
        return values.reshape(-1, self._parts).sum(1).view(self._lead)

    def _pairs(self) -> Tensor:
        """The scores of the pairs, (R, G, n)."""
        self.require_pairs()
        x, y, own_x, own_y = self._flat()
        scores = (x * y).sum(-1)
        for own in (own_x, own_y):
            scores = scores if own is None else scores + own
        if self.link is not None:
            scores = self.link(scores)
        if self.shift is not None:
            scores = scores - self._each_part(self.shift).unsqueeze(-1)
        return scores.view(-1, self._parts, scores.shape[-1])

    def _pair_rows(self, joint: JointWeights) -> Tensor:
        """The weights of the pairs, (R, G, n)."""
        self.require_pairs()
        full = self.x.shape[:-1]
        flat = (math.prod(self._lead), self._parts, full[-1])
        if isinstance(joint, Tensor):
            return self._dense(joint).diagonal().to(self.dtype).expand(flat)
        if joint is None or joint.rows is None:
            return self.x.new_ones(()).expand(flat)
        return joint.rows.to(self.dtype).expand(full).reshape(flat)

    def _cell_weights(self, weights: Tensor | Others | None) -> OffDiagonal | Dense:
        if isinstance(weights, Tensor):
            return self._dense(weights)
        self.require_pairs()
        shape = self.x.shape[:-1]
        rows, ids = (
            None if part is None else part.expand(shape).reshape(-1, shape[-1])
            for part in ((None, None) if weights is None else (weights.rows, weights.ids))
        )
        return OffDiagonal(math.prod(shape[:-1]), shape[-1], self.x.device, rows, ids)

    def _dense(self, weights: Tensor) -> Dense:
        return dense_weights(weights, self.shape, self._parts)
