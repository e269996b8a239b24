"""From representations to scores: unit length, critic, temperature or scale, clip."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pointdep.core.blocked.sums import Job
from pointdep.core.blocked.walk import CellWeights, best_cells
from pointdep.core.critics.base import Critic
from pointdep.core.critics.build import EncoderCritic, ModuleCritic, build_critic
from pointdep.core.precision import own_functions_apply, raised
from pointdep.errors import InputError, require_whole, unknown_name

_WHOLE = 1 << 26  # numbers of a matrix that is not cut into blocks
_ROWS = 1 << 24  # numbers alive in some rows of a critic's matrix
_LEAST = 1e-12  # the length of rows of zeros, as in `F.normalize`

NAMED = ("inner", "bilinear", "separable", "concat")
"""The critics a loss builds by name."""


class Similarity(nn.Module):
    """s(anchor, candidate) = clip(multiplier * critic(anchor, candidate)).

    A critic that is an inner product of two embeddings embeds each row once: `anchors` and
    `candidates` are then the embeddings, the multiplier and the critic's constants among them.
    A critic runs in the type of its weights, and what it gives is raised to float32.
    """

    def __init__(
        self, critic: Critic | None, normalize: bool, factor: float, learn: bool, clip: float | None
    ) -> None:
        super().__init__()
        self.critic, self.normalize, self.clip = critic, normalize, clip
        self._multiplier = factor
        self.log_multiplier = nn.Parameter(torch.tensor(math.log(factor))) if learn else None

    @property
    def multiplier(self) -> Tensor | float:
        """What similarities are multiplied by."""
        if self.log_multiplier is None:
            return self._multiplier
        return raised(self.log_multiplier)[0].exp()

    @property
    def strength(self) -> float:
        """The multiplier as a number; waits for the device where it is learned."""
        with torch.no_grad():
            return float(self.multiplier)

    @property
    def inner(self) -> bool:
        """Whether the critic's score is an inner product of two embeddings, and nothing besides."""
        return self.critic is None or (self.critic.has_inner and self.critic.inner_is_all)

    def rows(self, *sides: Tensor) -> list[Tensor]:
        """Representations as the critic sees them: in one type, of unit length if asked."""
        sides = tuple(raised(*sides))
        if not self.normalize:
            return list(sides)
        if not own_functions_apply():
            return [F.normalize(rows, dim=-1, eps=_LEAST) for rows in sides]
        return list(_UnitRows.apply(*sides))  # type: ignore[no-untyped-call]

    def anchors(self, z: Tensor) -> Tensor:
        """What is kept of `rows` in the place of x. z: (n, d) -> (n, e)."""
        if not self.inner:
            return z
        if self.critic is None:
            return z * self.multiplier
        vectors, own = self.critic.inner_x(self._as_weights(z[None]))
        return raised(_with_own(vectors[0], own[0], torch.ones_like(own[0])))[0] * self.multiplier

    def candidates(self, z: Tensor) -> Tensor:
        """What is kept of `rows` in the place of y. z: (m, d) -> (m, e)."""
        if not self.inner or self.critic is None:
            return z
        vectors, own = self.critic.inner_y(self._as_weights(z[None]))
        last = torch.zeros_like(vectors[0, :, 0]) if own is None else own[0]
        return raised(_with_own(vectors[0], torch.ones_like(last), last))[0]

    def sides(self, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
        """`anchors` of z1, (n, d1), and `candidates` of z2, (m, d2)."""
        anchors, candidates = self.anchors(z1), self.candidates(z2)
        widths = anchors.shape[1], candidates.shape[1]
        if self.inner and widths[0] != widths[1]:
            raise InputError(
                f"critic=(encoder_x, encoder_y): they give vectors of {widths[0] - 2} and "
                f"{widths[1] - 2} numbers; an inner product needs equally many"
            )
        return anchors, candidates

    def pairs(self, anchors: Tensor, candidates: Tensor) -> Tensor:
        """Scores of the pairs, (n, e) and (n, e) -> (n,)."""
        if self.inner:
            return self._clipped((anchors * candidates).sum(-1))
        return self._asked("pairs", anchors.unsqueeze(0), candidates.unsqueeze(0))[0]

    def matrix(self, anchors: Tensor, candidates: Tensor) -> Tensor:
        """Scores of all pairs, (n, e) and (m, e) -> (n, m)."""
        if self.inner:
            return self._clipped(anchors @ candidates.T)
        return self._asked("matrix_in_blocks", anchors.unsqueeze(0), candidates.unsqueeze(0))[0]

    def job(
        self, weights: CellWeights | None, x: Tensor, y: Tensor, block_size: int | None = None
    ) -> Job:
        """How `core.blocked` walks the scores of anchors and candidates: as a whole if few."""
        cells = len(x) * len(y)
        critic = self.critic
        width = 1 if critic is None or self.inner else critic.cell_width()
        if block_size is not None:
            some = block_size * len(y)
        elif cells * width <= _WHOLE:
            some = cells
        else:
            some = best_cells(x.device) if self.inner else _ROWS // width
        return Job(
            weights,
            some,
            link=None if self.clip is None else self._clipped,
            score=None if self.inner else partial(self._asked, "matrix"),
            # Dropout in a user's module must be drawn alike when rows are computed again.
            draws=isinstance(critic, ModuleCritic),
            plain=some >= cells,
        )

    def _asked(self, what: str, x: Tensor, y: Tensor) -> Tensor:
        """Scores by a critic that is no inner product, of (1, n, d1) and (1, m, d2)."""
        scores = getattr(self.critic, what)(self._as_weights(x), self._as_weights(y))
        return self._clipped(raised(scores)[0] * self.multiplier)

    def _as_weights(self, rows: Tensor) -> Tensor:
        """In the type of the critic's weights, if it has any."""
        weights = self.critic.parameters() if self.critic is not None else ()
        types = (weight.dtype for weight in weights if weight.is_floating_point())
        return rows.to(next(types, rows.dtype))

    def _clipped(self, scores: Tensor) -> Tensor:
        return scores if self.clip is None else self.clip * torch.tanh(scores / self.clip)


def _with_own(vectors: Tensor, *own: Tensor) -> Tensor:
    """[v, own, 1], so that its product with [w, 1, own] adds the terms of each side alone."""
    return torch.cat([vectors, torch.stack(own, -1)], -1)


class _UnitRows(torch.autograd.Function):
    """`F.normalize` of rows, (n, d) each, with fewer operations in the backward pass."""

    @staticmethod
    def forward(ctx: Any, *sides: Tensor) -> tuple[Tensor, ...]:
        found = [_unit(rows) for rows in sides]
        ctx.save_for_backward(*sides, *(part for unit in found for part in unit))
        return tuple(unit for unit, _ in found)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        saved, count = ctx.saved_tensors, len(gradients)
        found = list(zip(saved[count::2], saved[count + 1 :: 2], strict=True))
        if torch.is_grad_enabled():  # a second derivative is wanted: as functions of the rows
            found = [_unit(rows) for rows in saved[:count]]
        return tuple(
            torch.addcmul(slope, unit, (slope * unit).sum(-1, keepdim=True), value=-1.0) / length
            for slope, (unit, length) in zip(gradients, found, strict=True)
        )


def _unit(rows: Tensor) -> tuple[Tensor, Tensor]:
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp(min=_LEAST)
    return rows / length, length


def loss_critic(critic: Any, dims: int | tuple[int, int] | None) -> Critic | None:
    """The critic of a loss: None is the plain inner product, without weights.

    A module is used itself, not a copy, so that an optimiser made beforehand trains it.
    """
    own: ModuleCritic | EncoderCritic
    if isinstance(critic, nn.Module):
        own, copy = ModuleCritic(1, nn.Identity()), critic
    elif isinstance(critic, tuple | list):
        if len(critic) != 2 or not all(isinstance(part, nn.Module) for part in critic):
            raise InputError("critic=(encoder_x, encoder_y) takes exactly two torch modules")
        own = EncoderCritic(1, nn.Identity(), nn.Identity())
        copy = nn.ModuleDict({"x": critic[0], "y": critic[1]})
    elif not isinstance(critic, str) or critic not in NAMED:
        raise unknown_name("critic", critic, NAMED)
    elif critic == "inner":
        return None
    else:
        made = build_critic(critic, 1, *dimensions(critic, dims))
        # As torch's own layers do: the initial weights follow torch.manual_seed.
        made.reset([torch.Generator().manual_seed(int(torch.randint(2**31, ())))])
        return made
    own.copies, own.prepared = nn.ModuleList([copy]), ""
    return own


def dimensions(critic: str, dims: int | Sequence[int] | None) -> tuple[int, int]:
    """dims as (d1, d2)."""
    if dims is None:
        raise InputError(f"critic={critic!r} needs dims=(d1, d2), the columns of z1 and z2")
    pair = (dims, dims) if isinstance(dims, int) else tuple(dims)
    if len(pair) != 2:
        raise InputError(f"dims={dims!r} must be one number, or two: the columns of z1 and z2")
    for dim in pair:
        require_whole("dims", dim)
    return pair[0], pair[1]
