"""The default critic of wide data: the Gaussian closed form, and an inner product of two towers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pointdep.core.critics.closed_form import ClosedFormCritic
from pointdep.core.critics.inner import SeparableCritic
from pointdep.core.linear import Canonical, gaussian_terms

_DROPPED = 0.2  # share of the inputs that a training step does not see


class TowersCritic(ClosedFormCritic):
    """log r(x, y) = a Gaussian closed form + b g(x) . h(y) + c.

    The towers g and h are trained alone, on inputs of which each step drops some; how much of each
    part is right, (a, b, c), is decided afterwards by `set_mixture`. With many columns a network
    finds more from scratch than as an addition to the closed form, whose errors it would first have
    to undo. All of it is an inner product with terms of x and of y alone.
    """

    separable = True
    # Of a batch that several processes share: its rows, and which of them are given here.
    part: tuple[int, slice] | None = None
    x_mean: Tensor
    y_mean: Tensor
    x_weight: Tensor
    y_weight: Tensor
    mixture: Tensor

    def __init__(
        self,
        replicas: int,
        x_dim: int,
        y_dim: int,
        *,
        hidden: Sequence[int] = (256, 256),
        embedding_dim: int = 64,
        activation: str = "relu",
    ) -> None:
        super().__init__(replicas, x_dim, y_dim)
        self.towers = SeparableCritic(
            replicas,
            x_dim,
            y_dim,
            hidden=hidden,
            embedding_dim=embedding_dim,
            activation=activation,
        )
        kept = min(x_dim, y_dim)
        for side, dim in (("x", x_dim), ("y", y_dim)):
            self.register_buffer(f"{side}_mean", torch.zeros(replicas, dim))
            self.register_buffer(f"{side}_weight", torch.zeros(replicas, dim, kept))
        self.register_buffer("mixture", torch.tensor([0.0, 1.0, 0.0]).repeat(replicas, 1))

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        self.towers.reset(generators)
        self.set_mixture(0.0, 1.0, 0.0)

    def set_canonical(self, replica: int, found: Canonical) -> None:
        """The coordinates and correlations of a replica's closed form."""
        kept = min(len(found.correlations), self.correlations.shape[1])
        for place, values in (
            (self.x_weight, found.x_weight),
            (self.y_weight, found.y_weight),
            (self.correlations, found.correlations),
        ):
            place[replica] = 0.0
            place[replica, ..., :kept] = values[..., :kept].to(place)
        self.x_mean[replica] = found.x_mean.to(self.x_mean)
        self.y_mean[replica] = found.y_mean.to(self.y_mean)

    def set_mixture(self, closed_form: float, towers: float, shift: float) -> None:
        """(a, b, c) of all replicas."""
        self.mixture[:] = self.mixture.new_tensor([closed_form, towers, shift])

    def silence(self) -> None:
        self.set_mixture(1.0, 0.0, 0.0)

    @property
    def silent(self) -> bool:
        return not bool(self.mixture[:, 1].any())

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        if self.training:
            return self.towers.pairs(*self._dropped(x, y))
        vector_x, own_x = self.inner_x(x)
        vector_y, own_y = self.inner_y(y)
        together = (vector_x * vector_y).sum(-1) + own_x
        return together if own_y is None else together + own_y

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        if self.training:
            return self.towers.matrix(*self._dropped(x, y))
        vector_x, own_x = self.inner_x(x)
        vector_y, own_y = self.inner_y(y)
        together = vector_x @ vector_y.transpose(-1, -2) + own_x.unsqueeze(-1)
        return together if own_y is None else together + own_y.unsqueeze(-2)

    def factors(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        if self.training:
            return self.towers.factors(*self._dropped(x, y))
        return super().factors(x, y)

    def closed_form(self, x: Tensor, y: Tensor) -> Tensor:
        u, v = self._coordinates(x, "x"), self._coordinates(y, "y")
        own_x, own_y, cross = gaussian_terms(u, v, self.correlations)
        return own_x.unsqueeze(-1) + own_y.unsqueeze(-2) + cross @ v.transpose(-1, -2)

    def inner_x(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b, c = self._mixture(x.ndim)
        vector, own = self.towers.embed_x(x) * b.unsqueeze(-1), c + b * self._bias(x.ndim)
        own = own.expand(x.shape[:-1])
        if not bool(self.mixture[:, 0].any()):
            return vector, own
        u = self._coordinates(x, "x")
        own_x, _, cross = gaussian_terms(u, u, self.correlations)
        return torch.cat([vector, a.unsqueeze(-1) * cross], -1), own + a * own_x

    def inner_y(self, y: Tensor) -> tuple[Tensor, Tensor | None]:
        vector = self.towers.embed_y(y)
        if not bool(self.mixture[:, 0].any()):
            return vector, None
        v = self._coordinates(y, "y")
        own_y = gaussian_terms(v, v, self.correlations)[1]
        return torch.cat([vector, v], -1), self._mixture(y.ndim)[0] * own_y

    def select(self, replicas: Sequence[int]) -> TowersCritic:
        chosen = super().select(replicas)
        assert isinstance(chosen, TowersCritic)
        chosen.towers.replicas = len(replicas)
        return chosen

    def _mixture(self, ndim: int) -> tuple[Tensor, Tensor, Tensor]:
        """a, b and c, each (R, 1, ...), for rows of x with `ndim` dimensions."""
        a, b, c = self.mixture.view(-1, 3, *[1] * (ndim - 2)).unbind(1)
        return a, b, c

    def _bias(self, ndim: int) -> Tensor:
        return self.towers.bias.view(-1, *[1] * (ndim - 2))

    def _coordinates(self, rows: Tensor, side: str) -> Tensor:
        """Canonical coordinates of x or y: (R, ..., n, d) -> (R, ..., n, k)."""
        mean, weight = getattr(self, f"{side}_mean"), getattr(self, f"{side}_weight")
        flat = rows.reshape(rows.shape[0], -1, rows.shape[-1]) - mean.unsqueeze(1)
        return torch.bmm(flat, weight).view(*rows.shape[:-1], -1)

    def _dropped(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The same inputs for all replicas, so that none depends on which others still train."""

        def drop(rows: Tensor) -> Tensor:
            kept = self._draw(rows) >= _DROPPED
            return rows * (kept / (1.0 - _DROPPED))

        return drop(x), drop(y)

    def _draw(self, rows: Tensor) -> Tensor:
        """Uniform numbers for rows: (R, ..., n, d); a part has those it would have in the whole."""
        if self.part is None:
            return torch.rand(rows.shape[1:], device=rows.device)
        count, own = self.part
        return torch.rand((count, rows.shape[-1]), device=rows.device)[own]
