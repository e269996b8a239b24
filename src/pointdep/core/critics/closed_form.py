"""What the default critics share: a Gaussian closed form of log r that can answer alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pointdep.core.critics.base import Critic


class ClosedFormCritic(Critic):
    """A critic of log r that holds the closed form of Gaussian pairs, and a network beside it.

    correlations: (R, k), the canonical correlations of the closed form, given and not trained.
    """

    has_inner = True
    correlations: Tensor

    def __init__(self, replicas: int, x_dim: int, y_dim: int) -> None:
        super().__init__(replicas)
        self.register_buffer("correlations", torch.zeros(replicas, min(x_dim, y_dim)))

    def closed_form(self, x: Tensor, y: Tensor) -> Tensor:
        """The Gaussian part alone. x: (R, ..., n, dx), y: (R, ..., m, dy) -> (R, ..., n, m)."""
        raise NotImplementedError

    def silence(self) -> None:
        """Leave the network out: what answers is the closed form."""
        raise NotImplementedError

    @property
    def silent(self) -> bool:
        """Whether the network adds nothing, in any replica."""
        raise NotImplementedError

    def select(self, replicas: Sequence[int]) -> Critic:
        chosen = super().select(replicas)
        for name, buffer in self.named_buffers(recurse=False):
            setattr(chosen, name, buffer[list(replicas)].clone())
        return chosen
