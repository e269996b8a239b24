"""What every model offers to the loop, and how one is made from the settings."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pointdep.contrastive.pretraining.protocols import Settings
from pointdep.data.images import ImageSet
from pointdep.errors import Flag, InputError, unknown_name


class Recipe(nn.Module, ABC):
    """Networks, losses, views and optimiser of one run, or of R replicas that train at once.

    A recipe is made as ``Recipe(settings, shape, classes)``, with shape the (channels, height,
    width) of an image. The forward pass takes what `batch` made and returns the loss of each
    replica, (R,).
    """

    replicas = 1
    scaling, regularisation = "standard", 0.1  # of the linear evaluation; the latter is C

    def __init__(self, settings: Settings, shape: tuple[int, int, int], classes: int) -> None:  # noqa: ARG002
        super().__init__()

    @classmethod
    def loss_options(cls, objective: str) -> list[str] | None:  # noqa: ARG003
        """Names of the options that this objective takes; None if the constructor checks them."""
        return None

    def prepare_images(self, images: Tensor) -> Tensor:
        """uint8 images (n, c, h, w) as this model takes them."""
        return images

    @abstractmethod
    def batch(self, images: ImageSet, rows: Tensor, generator: torch.Generator) -> Any:
        """The views of these rows, (seeds, n), with draws from the generator; no gradients."""

    @abstractmethod
    def optimizer(self, learning_rate: float | Tensor) -> torch.optim.Optimizer:
        """Over all parameters, where they are now; with a tensor, one that can be recorded."""

    def rate(self, done: float, step: int) -> float:  # noqa: ARG002
        """Factor of the learning rate when a share `done` of the run is behind it."""
        return 1.0

    def clips_gradient(self, step: int) -> bool:  # noqa: ARG002
        """Whether the gradient's entries are cut at +-1 at this step."""
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

    @property
    def flags(self) -> tuple[Flag, ...]:
        """Problems noticed in the last batch."""
        return ()

    def fused(self) -> bool | None:
        """Whether the optimiser of these weights can update them in one kernel."""
        return next(self.parameters()).device.type in {"cpu", "cuda"} or None


def make_recipe(settings: Settings, shape: tuple[int, int, int], classes: int) -> Recipe:
    """An untrained recipe, its weights drawn from the seed; shape: (channels, height, width)."""
    check_loss_options(settings)
    # Of torch's generators only the CPU's is used, and put back.
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(mix("weights", settings.seeds[0]))
    try:
        return _kind(settings.model)(settings, shape, classes)
    finally:
        torch.set_rng_state(before)


def check_loss_options(settings: Settings) -> None:
    """Refuse options that the loss of an objective does not take, before anything is trained."""
    for objective in settings.objectives:
        known = _kind(settings.model).loss_options(objective)
        for name in settings.loss if known is not None else ():
            if not known:
                raise InputError(f"{objective} has no options with {settings.model}, got {name!r}")
            if name not in known:
                raise unknown_name(f"option of the loss {objective}", name, known)


def _kind(model: str) -> type[Recipe]:
    if model == "shallow":
        from pointdep.contrastive.pretraining.shallow import Shallow

        return Shallow
    from pointdep.contrastive.pretraining.deep import AMDIM, SimCLR

    return AMDIM if model == "amdim" else SimCLR


def mix(purpose: str, *numbers: int) -> int:
    """A seed for a generator, unlike those of other purposes and numbers."""
    # The count is among them because a seed sequence is filled up with zeros.
    entropy = [zlib.crc32(purpose.encode()), len(numbers), *numbers]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)
