"""What every operation on a batch of images offers, and the few lines they share."""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from pointdep.errors import InputError


class Operation(ABC):
    """A change of images with its random part, `draw`, kept apart from its deterministic one.

    `apply` neither waits for the device nor looks at a value: it is safe to compile and to
    capture. A subclass is a frozen dataclass of options.
    """

    @abstractmethod
    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Tensor:
        """The random part for n images of one size: (n, k), a row an image, on its device."""

    @abstractmethod
    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """The images changed as drawn. images: (n, c, h, w) float32 in [0, 1], drawn: (n, k)."""


def uniforms(n: int, count: int, generator: torch.Generator) -> Tensor:
    """Uniform numbers in [0, 1), (n, count), on the generator's device."""
    return torch.rand((n, count), generator=generator, device=generator.device)


def between(uniform: Tensor, low: float, high: float) -> Tensor:
    """Uniform numbers in [0, 1) stretched to [low, high)."""
    return uniform * (high - low) + low


def where_applied(applied: Tensor, changed: Tensor, images: Tensor) -> Tensor:
    """`changed` where applied: (n,) is 1, `images` where it is 0. Both (n, c, h, w)."""
    return torch.where(per_image(applied).bool(), changed, images)


def per_image(values: Tensor) -> Tensor:
    """One number an image, (n,), shaped to meet the images: (n, 1, 1, 1)."""
    return values[:, None, None, None]


def grey_of(images: Tensor) -> Tensor:
    """The luma of colour images: (n, 3, h, w) -> (n, 1, h, w)."""
    if images.shape[1] != 3:
        raise InputError(
            f"colours are changed in images of 3 channels, got {images.shape[1]}: see as_rgb"
        )
    # Plane by plane: a tensor of the three weights would be copied from the host at each call.
    red, green, blue = torch.split(images, 1, 1)
    return (0.2989 * red).add(green, alpha=0.587).add(blue, alpha=0.114)


def require_between(name: str, value: object, low: float, high: float = math.inf) -> None:
    """Refuse an option that is not a finite number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise InputError(f"{name}={value!r} must be a finite number")
    if not low <= float(value) <= high:
        wanted = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise InputError(f"{name}={value!r} must be {wanted}")


def require_interval(name: str, value: object, high: float = math.inf) -> None:
    """Refuse an option that is not a pair (low, high) with 0 < low <= high."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise InputError(f"{name}={value!r} must be a pair (low, high)")
    for end in value:
        require_between(name, end, 0, high)
    if not 0 < value[0] <= value[1]:
        raise InputError(f"{name}={value!r} must satisfy 0 < low <= high")
