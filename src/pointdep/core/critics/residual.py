"""The default critic: the Gaussian closed form of log r, and a network for what it misses."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pointdep.core.critics.closed_form import ClosedFormCritic
from pointdep.core.critics.concat import ConcatCritic
from pointdep.core.critics.layers import ReplicaLinear, SideNet
from pointdep.core.linear import gaussian_terms
from pointdep.core.transforms import CanonicalMap


class ResidualCritic(ClosedFormCritic):
    """log r(x, y) = Gaussian closed form of canonical coordinates + a perceptron from zero.

    Both sides come as `CanonicalMap` gives them. The closed form is that of Gaussian pairs with the
    canonical correlations (R, k), which are given and not trained.
    """

    informed = True

    def __init__(
        self,
        replicas: int,
        x_dim: int,
        y_dim: int,
        *,
        hidden: Sequence[int] = (256, 64),
        activation: str = "silu",
    ) -> None:
        super().__init__(replicas, x_dim, y_dim)
        widths = [CanonicalMap.out_dim(dim) for dim in (x_dim, y_dim)]
        self.net = ConcatCritic(replicas, *widths, hidden=hidden, activation=activation)
        self.net.x_half, self.net.y_half = (
            SideNet(replicas, width, hidden[0], sum(widths), activation) for width in widths
        )

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        self.net.reset(generators)
        self.silence()

    def silence(self) -> None:
        last = self.net.rest.layers[-1]
        assert isinstance(last, ReplicaLinear)
        for parameter in last.parameters():
            parameter.data.zero_()

    @property
    def silent(self) -> bool:
        last = self.net.rest.layers[-1]
        return all(not bool(parameter.any()) for parameter in last.parameters())

    @property
    def inner_is_all(self) -> bool:
        return self.silent

    def inner_x(self, x: Tensor) -> tuple[Tensor, Tensor]:
        own, _, cross = self._terms(x, x)
        return cross, own

    def inner_y(self, y: Tensor) -> tuple[Tensor, Tensor | None]:
        own = self._terms(y, y)[1]
        return y[..., : self.correlations.shape[1]], own

    def cell_width(self) -> int:
        return self.net.cell_width()

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        own_x, own_y, cross = self._terms(x, y)
        together = (cross * y[..., : cross.shape[-1]]).sum(-1)
        return self.net.pairs(x, y) + (own_x + own_y + together)

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        return self.net.matrix(x, y) + self.closed_form(x, y)

    def closed_form(self, x: Tensor, y: Tensor) -> Tensor:
        own_x, own_y, cross = self._terms(x, y)
        together = cross @ y[..., : cross.shape[-1]].transpose(-1, -2)
        return own_x.unsqueeze(-1) + own_y.unsqueeze(-2) + together

    def _terms(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        k = self.correlations.shape[1]
        return gaussian_terms(x[..., :k], y[..., :k], self.correlations)

    def select(self, replicas: Sequence[int]) -> ResidualCritic:
        chosen = super().select(replicas)
        assert isinstance(chosen, ResidualCritic)
        chosen.net.replicas = len(replicas)
        return chosen
