"""The default critic: the Gaussian closed form of log r, and a network for what it misses."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pointdep.core.critics.base import Critic
from pointdep.core.critics.concat import ConcatCritic
from pointdep.core.critics.layers import ReplicaLinear, SideNet
from pointdep.core.transforms import CanonicalMap


class ResidualCritic(Critic):
    """log r(x, y) = Gaussian closed form of canonical coordinates + a perceptron from zero.

    Both sides come as `CanonicalMap` gives them. The closed form is that of Gaussian pairs with the
    canonical correlations (R, k), which are given and not trained.
    """

    informed = True
    correlations: Tensor

    def __init__(
        self,
        replicas: int,
        x_dim: int,
        y_dim: int,
        *,
        hidden: Sequence[int] = (256, 64),
        activation: str = "silu",
    ) -> None:
        super().__init__(replicas)
        widths = [CanonicalMap.out_dim(dim) for dim in (x_dim, y_dim)]
        self.net = ConcatCritic(replicas, *widths, hidden=hidden, activation=activation)
        self.net.x_half, self.net.y_half = (
            SideNet(replicas, width, hidden[0], sum(widths), activation) for width in widths
        )
        self.register_buffer("correlations", torch.zeros(replicas, min(x_dim, y_dim)))

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        self.net.reset(generators)
        self.silence()

    def silence(self) -> None:
        """Set the network's last layer to zero: what is left is the closed form."""
        last = self.net.rest.layers[-1]
        assert isinstance(last, ReplicaLinear)
        for parameter in last.parameters():
            parameter.data.zero_()

    @property
    def silent(self) -> bool:
        """Whether the network adds nothing, in any replica."""
        last = self.net.rest.layers[-1]
        return all(not bool(parameter.any()) for parameter in last.parameters())

    def cell_width(self) -> int:
        return self.net.cell_width()

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        own_x, own_y, cross = self._terms(x, y)
        together = (cross * y[..., : cross.shape[-1]]).sum(-1)
        return self.net.pairs(x, y) + (own_x + own_y + together)

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        return self.net.matrix(x, y) + self.closed_form(x, y)

    def closed_form(self, x: Tensor, y: Tensor) -> Tensor:
        """The Gaussian part alone. x: (R, ..., n, dx), y: (R, ..., m, dy) -> (R, ..., n, m)."""
        own_x, own_y, cross = self._terms(x, y)
        together = cross @ y[..., : cross.shape[-1]].transpose(-1, -2)
        return own_x.unsqueeze(-1) + own_y.unsqueeze(-2) + together

    def _terms(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The terms of x alone and of y alone, (R, ..., n), and what is to meet y, (R, ..., n, k).

        `pointdep.core.gaussian.gaussian_log_ratio`, taken apart so that all pairs are one product.
        """
        rho = self.correlations
        k, shape = rho.shape[1], (rho.shape[0], *[1] * (x.ndim - 2), rho.shape[1])
        square = rho.square()
        weight = (0.5 * square / (1 - square)).view(shape)
        constant = (-0.5 * torch.log1p(-square).sum(-1)).view(shape[:-1])
        own_x = constant - (x[..., :k].square() * weight).sum(-1)
        own_y = -(y[..., :k].square() * weight).sum(-1)
        return own_x, own_y, x[..., :k] * (rho / (1 - square)).view(shape)

    def select(self, replicas: Sequence[int]) -> ResidualCritic:
        chosen = super().select(replicas)
        assert isinstance(chosen, ResidualCritic)
        chosen.net.replicas = len(replicas)
        chosen.correlations = self.correlations[list(replicas)].clone()
        return chosen
