"""Operations on colours: jitter, grey, normalisation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pointdep.contrastive.views.operation import (
    Operation,
    between,
    grey_of,
    per_image,
    require_between,
    uniforms,
    where_applied,
)
from pointdep.errors import InputError


@dataclass(frozen=True)
class ColourJitter(Operation):
    """Brightness, contrast, saturation and hue changed together, with probability p.

    The first three are factors, uniform in [max(0, 1 - option), 1 + option]; hue is a shift,
    uniform in [-hue, hue] of the whole circle. Each step is torchvision's on float tensors and
    ends in [0, 1]. torchvision also draws the order of the steps; here it is fixed, as named
    above, because a batch in which each image has its own order would compute all of them.
    Drawn: (n, 5), whether applied (1 or 0), then the four in that order.
    """

    brightness: float
    contrast: float
    saturation: float
    hue: float
    p: float = 0.8

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            require_between(name, getattr(self, name), 0)
        require_between("hue", self.hue, 0, 0.5)
        require_between("p", self.p, 0, 1)

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """One coin, three factors and one shift an image."""
        coin, *levels = torch.split(uniforms(n, 5, generator), 1, 1)
        options = (self.brightness, self.contrast, self.saturation)
        factors = [
            between(level, max(0.0, 1 - option), 1 + option)
            for level, option in zip(levels[:3], options, strict=True)
        ]
        shift = between(levels[3], -self.hue, self.hue)
        return torch.cat(((coin < self.p).float(), *factors, shift), 1)

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """The four steps, without those whose option is zero."""
        applied, brightness, contrast, saturation, hue = drawn.unbind(1)
        changed = images
        if self.brightness:
            changed = (changed * per_image(brightness)).clamp(0, 1)
        if self.contrast:
            mean = grey_of(changed).mean((2, 3), keepdim=True)
            changed = torch.lerp(mean, changed, per_image(contrast)).clamp(0, 1)
        if self.saturation:
            changed = torch.lerp(grey_of(changed), changed, per_image(saturation)).clamp(0, 1)
        if self.hue:
            changed = shift_hue(changed, hue)
        return where_applied(applied, changed, images)


@dataclass(frozen=True)
class Grey(Operation):
    """Three equal channels, the luma, with probability p. Drawn: (n, 1), 1 where grey."""

    p: float = 0.2

    def __post_init__(self) -> None:
        require_between("p", self.p, 0, 1)

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """One coin an image."""
        return (uniforms(n, 1, generator) < self.p).float()

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """The luma in all channels where drawn is 1."""
        return where_applied(drawn[:, 0], grey_of(images), images)


@dataclass(frozen=True)
class Normalise(Operation):
    """Each channel less its mean, over its standard deviation. Nothing is drawn: (n, 0)."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.mean, tuple) or not isinstance(self.std, tuple):
            raise InputError("mean and std must be tuples, one number a channel")
        if not self.mean or len(self.mean) != len(self.std):
            raise InputError("mean and std must have one number a channel each")
        for value in self.mean:
            require_between("mean", value, -float("inf"))
        for value in self.std:
            require_between("std", value, 0)
            if not value:
                raise InputError("std must be greater than zero in every channel")

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Nothing: a tensor of no columns."""
        return torch.empty((n, 0), device=generator.device)

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:  # noqa: ARG002
        """Plane by plane: tensors of the constants would be copied from the host at each call."""
        if images.shape[1] != len(self.mean):
            raise InputError(
                f"mean and std have {len(self.mean)} channels, the images {images.shape[1]}"
            )
        planes = zip(images.unbind(1), self.mean, self.std, strict=True)
        return torch.stack([(plane - mean) / std for plane, mean, std in planes], 1)


NORMALISE_CIFAR10 = Normalise((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
"""The channels' mean and standard deviation over CIFAR-10's training images."""

NORMALISE_MNIST = Normalise((0.1307,) * 3, (0.3081,) * 3)
"""MNIST's, for images with three equal channels (`as_rgb`)."""


def shift_hue(images: Tensor, shift: Tensor) -> Tensor:
    """The hue moved by a part of the circle. images: (n, 3, h, w) in [0, 1], shift: (n,).

    In HSV the greatest and the least of a pixel's three values stay, and only the place of each
    channel between them moves, so the way through HSV and back is cut short.
    """
    red, green, blue = images.unbind(1)
    least, greatest = torch.aminmax(images, dim=1)
    spread = greatest - least
    sixths = torch.where(
        red == greatest,
        green - blue,
        torch.where(
            green == greatest,
            (blue - red).add(spread, alpha=2),
            (red - green).add(spread, alpha=4),
        ),
    )
    # A grey pixel has no hue: its 0 / tiny is 0, and its spread of 0 below hides the hue.
    hue = (sixths / spread.clamp_min(1e-20)).add(shift[:, None, None], alpha=6)
    # 5, 3, 1: how far round the circle, in sixths, red, green and blue are.
    corners = torch.arange(5, 0, -2, device=images.device, dtype=images.dtype)
    along = (hue[:, None] + corners[:, None, None]).remainder(6)
    share = torch.minimum(along, 4 - along).clamp(0, 1)
    return torch.addcmul(greatest[:, None], spread[:, None], share, value=-1)
