"""From representations to scores: unit length, critic, temperature or scale, clip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pointdep.contrastive.losses.precision import raised
from pointdep.contrastive.losses.unit import unit_rows
from pointdep.core.critics import Critic, EncoderCritic, ModuleCritic, build_critic
from pointdep.errors import InputError, require_whole, unknown_name

_BLOCK = 1 << 24  # numbers alive at a time in `cells_in_blocks`

NAMED = ("inner", "bilinear", "separable", "concat")
"""The critics a loss builds by name."""


class Scores(nn.Module):
    """s(anchor, candidate) = clip(multiplier * critic(anchor, candidate)).

    A critic that is an inner product of two embeddings embeds each row once: `anchors` and
    `candidates` are then the embeddings, the multiplier and the critic's constants among them.
    A critic runs in the type of its weights, and what it gives is raised to float32.
    """

    def __init__(
        self,
        critic: Critic | None,
        *,
        normalize: bool,
        multiplier: float,
        learn: bool,
        clip: float | None,
    ) -> None:
        super().__init__()
        self.critic, self.normalize, self.clip = critic, normalize, clip
        self._multiplier = multiplier
        self.log_multiplier = nn.Parameter(torch.tensor(math.log(multiplier))) if learn else None

    @property
    def multiplier(self) -> Tensor | float:
        """What similarities are multiplied by."""
        if self.log_multiplier is None:
            return self._multiplier
        return raised(self.log_multiplier)[0].exp()

    @property
    def strength(self) -> float:
        """The multiplier as a number; waits for the device where it is learned."""
        if self.log_multiplier is None:
            return self._multiplier
        return math.exp(self.log_multiplier.detach().item())

    @property
    def inner(self) -> bool:
        """Whether the critic's score is an inner product of two embeddings, and nothing besides."""
        return self.critic is None or (self.critic.has_inner and self.critic.inner_is_all)

    @property
    def cell_width(self) -> int:
        """How many numbers one cell keeps alive."""
        return 1 if self.critic is None or self.inner else self.critic.cell_width()

    @property
    def draws(self) -> bool:
        """Whether the critic may use random numbers, as a module with dropout does."""
        return self.critic is not None and self.critic.draws

    def rows(self, z1: Tensor, z2: Tensor) -> list[Tensor]:
        """Representations as the critic sees them, of unit length or untouched, (n, d) each."""
        return unit_rows(z1, z2) if self.normalize else [z1, z2]

    def anchors(self, z: Tensor) -> Tensor:
        """What is kept of `rows` in the place of x. z: (n, d) -> (n, e)."""
        if not self.inner:
            return z
        if self.critic is None:
            return z * self.multiplier
        z = z.to(critic_dtype(self.critic, z))
        vectors, own = self.critic.inner_x(z.unsqueeze(0))
        parts = torch.cat([vectors[0], own[0].unsqueeze(-1), torch.ones_like(z[:, :1])], -1)
        return raised(parts)[0] * self.multiplier

    def candidates(self, z: Tensor) -> Tensor:
        """What is kept of `rows` in the place of y. z: (m, d) -> (m, e)."""
        if not self.inner or self.critic is None:
            return z
        z = z.to(critic_dtype(self.critic, z))
        vectors, own = self.critic.inner_y(z.unsqueeze(0))
        last = torch.zeros_like(z[:, :1]) if own is None else own[0].unsqueeze(-1)
        return raised(torch.cat([vectors[0], torch.ones_like(last), last], -1))[0]

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
        return self._clipped(self._asked("pairs", anchors, candidates) * self.multiplier)

    def cells(self, anchors: Tensor, candidates: Tensor) -> Tensor:
        """Scores of all pairs, (n, e) and (m, e) -> (n, m)."""
        if self.inner:
            return self._clipped(anchors @ candidates.T)
        return self._clipped(self._asked("matrix", anchors, candidates) * self.multiplier)

    def cells_in_blocks(self, anchors: Tensor, candidates: Tensor) -> Tensor:
        """`cells` with a bounded number of numbers alive at a time, besides the scores."""
        most = max(1, _BLOCK // self.cell_width)
        columns = max(1, min(len(candidates), most))
        rows = max(1, most // columns)
        return torch.cat(
            [
                torch.cat([self.cells(a, c) for c in torch.split(candidates, columns)], 1)
                for a in torch.split(anchors, rows)
            ]
        )

    def _asked(self, what: Literal["pairs", "matrix"], x: Tensor, y: Tensor) -> Tensor:
        """What a critic that is no inner product gives of rows, (n, d1) and (m, d2)."""
        assert self.critic is not None
        dtype = critic_dtype(self.critic, x)
        ask = self.critic.pairs if what == "pairs" else self.critic.matrix
        return raised(ask(x.to(dtype).unsqueeze(0), y.to(dtype).unsqueeze(0))[0])[0]

    def _clipped(self, scores: Tensor) -> Tensor:
        return scores if self.clip is None else self.clip * torch.tanh(scores / self.clip)


def loss_critic(critic: Any, dims: int | tuple[int, int] | None) -> Critic | None:
    """The critic of a loss: None is the plain inner product, without weights.

    A module is used itself, not a copy, so that an optimiser made beforehand trains it.
    """
    own: ModuleCritic | EncoderCritic
    if isinstance(critic, nn.Module):
        own = ModuleCritic(1, nn.Identity())
        own.copies, own.prepared = nn.ModuleList([critic]), ""
        return own
    if isinstance(critic, tuple | list):
        if len(critic) != 2 or not all(isinstance(part, nn.Module) for part in critic):
            raise InputError("critic=(encoder_x, encoder_y) takes exactly two torch modules")
        own = EncoderCritic(1, nn.Identity(), nn.Identity())
        own.copies = nn.ModuleList([nn.ModuleDict({"x": critic[0], "y": critic[1]})])
        own.prepared = ""
        return own
    if not isinstance(critic, str) or critic not in NAMED:
        raise unknown_name("critic", critic, NAMED)
    if critic == "inner":
        return None
    made = build_critic(critic, 1, *dimensions(critic, dims))
    # As torch's own layers do: the initial weights follow torch.manual_seed.
    seed = int(torch.randint(2**31, ()))
    made.reset([torch.Generator().manual_seed(seed)])
    return made


def critic_dtype(critic: Critic, rows: Tensor) -> torch.dtype:
    """The type of its weights; that of the rows where it has none."""
    weights = (weight.dtype for weight in critic.parameters() if weight.is_floating_point())
    return next(weights, rows.dtype)


def dimensions(critic: str, dims: int | Sequence[int] | None) -> tuple[int, int]:
    """dims as (d1, d2)."""
    if dims is None:
        raise InputError(
            f"critic={critic!r} has weights, so it needs dims=(d1, d2), the columns of z1 and z2"
        )
    pair = (dims, dims) if isinstance(dims, int) else tuple(dims)
    if len(pair) != 2:
        raise InputError(f"dims={dims!r} must be one number, or two: the columns of z1 and z2")
    for dim in pair:
        require_whole("dims", dim)
    return pair[0], pair[1]
