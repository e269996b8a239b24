"""What every model offers to the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from pointdep.errors import Flag


class Recipe(nn.Module, ABC):
    """Networks, losses, views and optimiser of one run, or of R replicas that train at once.

    The forward pass takes what `batch` made and returns the loss of each replica, (R,).
    """

    replicas = 1
    scaling, regularisation = "standard", 0.1  # of the linear evaluation; the latter is C

    def prepare_images(self, images: Tensor) -> Tensor:
        """uint8 images (n, c, h, w) as this model takes them."""
        return images

    @abstractmethod
    def batch(
        self, images: Tensor, labels: Tensor, rows: Tensor, generator: torch.Generator
    ) -> Any:
        """The views of these rows, (seeds, n), with draws from the generator; no gradients."""

    @abstractmethod
    def optimizer(self, learning_rate: float | Tensor) -> torch.optim.Optimizer:
        """Over all parameters, where they are now; with a tensor, one that can be recorded."""

    def rate(self, done: float, step: int) -> float:
        """Factor of the learning rate when a share `done` of the run is behind it."""
        del done, step
        return 1.0

    def clips_gradient(self, step: int) -> bool:
        """Whether the gradient's entries are cut at +-1 at this step."""
        del step
        return False

    def compile_parts(self) -> None:
        """Have the views and the networks compiled at their first use."""

    @abstractmethod
    def encode(self, images: Tensor) -> Tensor:
        """uint8 images (n, c, h, w) -> frozen features (n, d), or (R, n, d)."""

    def sound(self) -> Tensor:
        """Whether the weights of each replica are finite, (R,)."""
        return torch.stack([weight.isfinite().all() for weight in self.parameters()]).all()[None]

    def remember(self, images: Tensor, generator: torch.Generator) -> None:
        """Keep what the PMI read-out needs of the training images."""
        del images, generator

    @property
    def flags(self) -> tuple[Flag, ...]:
        """Problems noticed in the last batch."""
        return ()
