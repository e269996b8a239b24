"""Critics whose score is an inner product of an embedding of x and one of y, plus a constant."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pointdep.core.critics.base import Critic, ReplicaLinear, ReplicaMLP, reset_layers
from pointdep.errors import InputError


class _InnerProduct(Critic):
    """s(x, y) = embed_x(x) . embed_y(y) + bias."""

    has_inner = True
    separable = True

    def __init__(self, replicas: int) -> None:
        super().__init__(replicas)
        self.bias = nn.Parameter(torch.zeros(replicas, 1))

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        nn.init.zeros_(self.bias)
        reset_layers(self, generators)

    @torch.no_grad()
    def raise_scores(self, amounts: Tensor) -> None:
        self.bias.add_(amounts.view(-1, 1))

    def embed_x(self, x: Tensor) -> Tensor:
        """x: (R, ..., n, dx) -> (R, ..., n, e)."""
        raise NotImplementedError

    def embed_y(self, y: Tensor) -> Tensor:
        """y: (R, ..., m, dy) -> (R, ..., m, e)."""
        raise NotImplementedError

    def inner_x(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.embed_x(x), self.bias.view(-1, *[1] * (x.ndim - 2)).expand(x.shape[:-1])

    def inner_y(self, y: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.embed_y(y), None

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        scores = self.embed_x(x) @ self.embed_y(y).transpose(-1, -2)
        return scores + self.bias.view(-1, *[1] * (scores.ndim - 1))


class SeparableCritic(_InnerProduct):
    """g(x) . h(y), each a perceptron."""

    def __init__(
        self,
        replicas: int,
        x_dim: int,
        y_dim: int,
        *,
        hidden: Sequence[int] = (256, 256),
        embedding_dim: int = 64,
        activation: str = "silu",
    ) -> None:
        super().__init__(replicas)
        self.x_tower = ReplicaMLP(replicas, [x_dim, *hidden, embedding_dim], activation)
        self.y_tower = ReplicaMLP(replicas, [y_dim, *hidden, embedding_dim], activation)

    def embed_x(self, x: Tensor) -> Tensor:
        out: Tensor = self.x_tower(x)
        return out

    def embed_y(self, y: Tensor) -> Tensor:
        out: Tensor = self.y_tower(y)
        return out


class BilinearCritic(_InnerProduct):
    """x' W y."""

    def __init__(self, replicas: int, x_dim: int, y_dim: int) -> None:
        super().__init__(replicas)
        self.product = ReplicaLinear(replicas, x_dim, y_dim, bias=False, fan_in=x_dim * y_dim)

    def embed_x(self, x: Tensor) -> Tensor:
        out: Tensor = self.product(x)
        return out

    def embed_y(self, y: Tensor) -> Tensor:
        return y


class InnerProductCritic(_InnerProduct):
    """scale * x . y, for x and y that already live in one space."""

    def __init__(self, replicas: int, x_dim: int, y_dim: int | None = None) -> None:
        super().__init__(replicas)
        if y_dim not in (None, x_dim):
            fault = f"critic='inner' needs x and y of one dimension, got {x_dim} and {y_dim}"
            raise InputError(f"{fault}: use 'bilinear' or 'separable'")
        self.dim = x_dim
        self.scale = nn.Parameter(torch.full((replicas, 1), x_dim**-0.5))

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        super().reset(generators)
        nn.init.constant_(self.scale, self.dim**-0.5)

    def embed_x(self, x: Tensor) -> Tensor:
        return x * self.scale.view(-1, *[1] * (x.ndim - 1))

    def embed_y(self, y: Tensor) -> Tensor:
        return y
