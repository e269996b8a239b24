"""The concat critic g([x, y]) of the paper."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pointdep.core.critics.base import Critic
from pointdep.core.critics.layers import ACTIVATIONS, ReplicaLinear, ReplicaMLP, SideLayer
from pointdep.core.critics.pair_layers import pair_scores


class ConcatCritic(Critic):
    """A perceptron on [x, y].

    Its first layer is linear in [x, y], so W[x; y] = Wx x + Wy y: the halves are computed once per
    row and added once per cell, and the cost per cell starts at the second layer.
    """

    def __init__(
        self,
        replicas: int,
        x_dim: int,
        y_dim: int,
        *,
        hidden: Sequence[int] = (256, 256),
        activation: str = "silu",
    ) -> None:
        super().__init__(replicas)
        fan_in = x_dim + y_dim
        self.activation = ACTIVATIONS[activation]
        self.x_half: SideLayer = ReplicaLinear(replicas, x_dim, hidden[0], fan_in=fan_in)
        self.y_half: SideLayer = ReplicaLinear(
            replicas, y_dim, hidden[0], bias=False, fan_in=fan_in
        )
        self.rest = ReplicaMLP(replicas, [*hidden, 1], activation)
        # With two hidden layers of ReLU the pass over cells, and its gradient, can be fused; the
        # matrix products are then done in this type.
        self.pair_dtype: torch.dtype | None = None
        self.fusable = len(hidden) == 2 and activation == "relu"
        self._width = sum(hidden)

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        self.x_half.reset(generators)
        self.y_half.reset(generators)
        self.rest.reset(generators)

    @torch.no_grad()
    def raise_scores(self, amounts: Tensor) -> None:
        bias = self.rest.layers[-1].bias
        assert isinstance(bias, Tensor)
        bias.add_(amounts.view(-1, 1, 1))

    def cell_width(self) -> int:
        return self._width

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        first = self.x_half(x) + self.y_half(y)
        return self._finish(first)

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        hx, hy = self.x_half(x), self.y_half(y)
        if self.fusable and self.pair_dtype is not None and x.ndim == 3:
            # Their order is that of the layers: weight, bias, weight, bias.
            return pair_scores(self.pair_dtype, hx, hy, *self.rest.parameters())
        # (R, ..., n, 1, h) + (R, ..., 1, m, h) -> (R, ..., n, m, h)
        return self._finish(hx.unsqueeze(-2) + hy.unsqueeze(-3))

    def _finish(self, first: Tensor) -> Tensor:
        """From the first layer's sums, (..., h), to scores, (...,)."""
        scores: Tensor = self.rest(self.activation(first))
        return scores.squeeze(-1)
