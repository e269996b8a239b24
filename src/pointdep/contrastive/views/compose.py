"""Operations in a row, and the two views of each image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pointdep.contrastive.views.operation import Operation
from pointdep.errors import InputError

Drawn = tuple[Tensor, ...]
"""What one draw of `Views` holds: a tensor (n, k) an operation."""


@dataclass(frozen=True, init=False)
class Views:
    """Operations one after the other: ``Views(Flip(), Grey())``; without any, a conversion.

    Images: (n, c, h, w), uint8, or floats in [0, 1]; views: float32. `apply` is deterministic and
    can be compiled whole; `draw` takes all its numbers from the generator, on its device.
    """

    operations: tuple[Operation, ...]

    def __init__(self, *operations: Operation) -> None:
        for operation in operations:
            if not isinstance(operation, Operation):
                raise InputError(f"{operation!r} is not an operation on images, such as Flip()")
        object.__setattr__(self, "operations", operations)

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Drawn:
        """The random part of n views, a tensor an operation."""
        return tuple(each.draw(n, height, width, generator) for each in self.operations)

    def apply(self, images: Tensor, drawn: Drawn) -> Tensor:
        """The views of these images as drawn: (n, c, h, w) float32."""
        views = as_floats(images)
        for operation, its_draw in zip(self.operations, drawn, strict=True):
            views = operation.apply(views, its_draw)
        return views

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """A fresh draw, applied. images: (n, c, h, w), on the generator's device."""
        n, height, width = _sizes(images, generator)
        return self.apply(images, self.draw(n, height, width, generator))


@dataclass(frozen=True)
class TwoViews:
    """Two views of each image: first what both share, then what each has of its own.

    Both are computed as one batch of 2n.
    """

    shared: Views
    each: Views

    def __post_init__(self) -> None:
        for name in ("shared", "each"):
            if not isinstance(getattr(self, name), Views):
                raise InputError(f"{name} must be Views(...), got {getattr(self, name)!r}")

    def draw(
        self, n: int, height: int, width: int, generator: torch.Generator
    ) -> tuple[Drawn, Drawn]:
        """The draw of the shared part, n rows, and of the two views, n rows each, in turn."""
        return (
            self.shared.draw(n, height, width, generator),
            self.each.draw(2 * n, height, width, generator),
        )

    def apply(self, images: Tensor, drawn: tuple[Drawn, Drawn]) -> Tensor:
        """The views of these images as drawn: (2, n, c, h, w) float32, view first."""
        shared, each = drawn
        once = self.shared.apply(images, shared)
        both = self.each.apply(once.repeat(2, 1, 1, 1), each)
        return both.view(2, images.shape[0], *both.shape[1:])

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """A fresh draw, applied. images: (n, c, h, w), on the generator's device."""
        n, height, width = _sizes(images, generator)
        return self.apply(images, self.draw(n, height, width, generator))


def as_floats(images: Tensor) -> Tensor:
    """Images as float32 in [0, 1]: uint8 is divided by 255, floats are taken to be there."""
    if images.ndim != 4:
        raise InputError(f"images must be (n, channels, height, width), got {tuple(images.shape)}")
    if images.dtype == torch.uint8:
        return images / 255
    if not images.is_floating_point():
        raise InputError(f"images must be uint8, or floats in [0, 1], got {images.dtype}")
    return images.float()


def _sizes(images: Tensor, generator: torch.Generator) -> tuple[int, int, int]:
    if images.ndim != 4:
        raise InputError(f"images must be (n, channels, height, width), got {tuple(images.shape)}")
    if images.device.type != generator.device.type:
        raise InputError(
            f"the images are on {images.device}, the generator on {generator.device}: "
            f"make it with torch.Generator({images.device.type!r})"
        )
    n, _, height, width = images.shape
    return n, height, width
