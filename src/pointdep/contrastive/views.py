"""Views of images: augmentations in a row, two views of each image, layouts for encoders."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from pointdep.contrastive.augmentations import (
    Blur,
    ColourJitter,
    Flip,
    Grey,
    Normalise,
    Operation,
    ReflectTranslate,
    ResizedCrop,
    require_between,
)
from pointdep.errors import InputError, require_whole

__all__ = ["NORMALISE_CIFAR10", "NORMALISE_MNIST", "Blur", "ColourJitter", "Flip", "Grey"]
__all__ += ["Normalise", "Operation", "ReflectTranslate", "ResizedCrop", "TwoViews", "Views"]
__all__ += ["amdim_views", "as_rgb", "evaluation_view", "halves", "simclr_views"]

NORMALISE_CIFAR10 = Normalise((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
"""The channels' mean and standard deviation over CIFAR-10's training images."""

NORMALISE_MNIST = Normalise((0.1307,) * 3, (0.3081,) * 3)
"""MNIST's, for images with three equal channels (`as_rgb`)."""

Drawn = tuple[Tensor, ...]
"""What one draw of `Views` holds: one tensor (n, k) per operation."""


class _Drawing:
    """A fresh draw, applied at once."""

    draw: Callable[..., Any]
    apply: Callable[..., Tensor]

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """A fresh draw, applied. images: (n, c, h, w), on the generator's device."""
        _require_images(images)
        if images.device.type != generator.device.type:
            raise InputError(f"the images are on {images.device}, the generator is not")
        n, _, height, width = images.shape
        return self.apply(images, self.draw(n, height, width, generator))


@dataclass(frozen=True, init=False)
class Views(_Drawing):
    """Operations one after the other; without any, a conversion to float32.

    Images are (n, c, h, w), uint8, or floats in [0, 1]; views are float32. `apply` is deterministic
    and can be compiled as a whole; `draw` takes all its numbers from the generator, on its device.

    Parameters
    ----------
    *operations : Operation
        Such as ``Flip()``, in order.

    Examples
    --------
    >>> import torch
    >>> from pointdep.contrastive.views import Flip, Views
    >>> images = torch.arange(3, dtype=torch.uint8).mul(85).view(1, 1, 1, 3)
    >>> (3 * Views(Flip(p=1.0))(images, torch.Generator())).round().flatten().tolist()
    [2.0, 1.0, 0.0]
    """

    operations: tuple[Operation, ...]

    def __init__(self, *operations: Operation) -> None:
        for operation in operations:
            if not isinstance(operation, Operation):
                raise InputError(f"{operation!r} is not an operation on images, such as Flip()")
        object.__setattr__(self, "operations", operations)

    def draw(self, n: int, height: int, width: int, generator: Generator) -> Drawn:
        """The random part of n views, one tensor per operation."""
        return tuple(each.draw(n, height, width, generator) for each in self.operations)

    def apply(self, images: Tensor, drawn: Drawn) -> Tensor:
        """The views of these images as drawn: (n, c, h, w) float32."""
        views = _as_floats(images)
        for operation, its_draw in zip(self.operations, drawn, strict=True):
            views = operation.apply(views, its_draw)
        return views


@dataclass(frozen=True)
class TwoViews(_Drawing):
    """Two views of each image: first what both share, then what each has of its own.

    Both are computed as one batch of 2n.

    Parameters
    ----------
    shared : Views
        Drawn once per image.
    each : Views
        Drawn for each of the two views.
    """

    shared: Views
    each: Views

    def __post_init__(self) -> None:
        for name in ("shared", "each"):
            if not isinstance(getattr(self, name), Views):
                raise InputError(f"{name} must be Views(...), got {getattr(self, name)!r}")

    def draw(self, n: int, height: int, width: int, generator: Generator) -> tuple[Drawn, Drawn]:
        """The draw of the shared part, n rows, and of the two views, n rows each, in turn."""
        shared = self.shared.draw(n, height, width, generator)
        return shared, self.each.draw(2 * n, height, width, generator)

    def apply(self, images: Tensor, drawn: tuple[Drawn, Drawn]) -> Tensor:
        """The views of these images as drawn: (2, n, c, h, w) float32, view first."""
        both = self.each.apply(self.shared.apply(images, drawn[0]).repeat(2, 1, 1, 1), drawn[1])
        return both.view(2, images.shape[0], *both.shape[1:])


def simclr_views(
    blur: bool = False,
    strength: float = 0.5,
    min_scale: float = 0.2,
    *,
    normalise: Normalise | None = NORMALISE_CIFAR10,
) -> TwoViews:
    """SimCLR's two views: resized crop, flip, colour jitter, grey.

    Parameters
    ----------
    blur : bool, default=False
        Blur too, as for large images.
    strength : float, default=0.5
        Of the jitter: 0.5 for CIFAR-10 and 1 for ImageNet, at most 2.5.
    min_scale : float, default=0.2
        The least share of the area that a crop keeps.
    normalise : Normalise or None, default=NORMALISE_CIFAR10
        The last operation.

    Returns
    -------
    TwoViews
        ``views(images, generator)`` is (2, n, c, h, w).
    """
    require_between("strength", strength, 0, 2.5)
    jitter = 0.8 * strength
    crop = ResizedCrop((min_scale, 1.0))
    colour = ColourJitter(jitter, jitter, jitter, 0.2 * strength)
    blurs = (Blur(),) if blur else ()
    each = Views(crop, Flip(), colour, Grey(0.2), *blurs, *_last(normalise))
    return TwoViews(shared=Views(), each=each)


def amdim_views(*, normalise: Normalise | None = NORMALISE_CIFAR10) -> TwoViews:
    """AMDIM's two views of CIFAR-10: one flip for both, then shift, colour jitter and grey.

    Parameters
    ----------
    normalise : Normalise or None, default=NORMALISE_CIFAR10
        The last operation.

    Returns
    -------
    TwoViews
        ``views(images, generator)`` is (2, n, c, h, w).
    """
    colour = ColourJitter(0.4, 0.4, 0.4, 0.2, p=0.8)
    each = Views(ReflectTranslate(4, p=0.8), colour, Grey(p=0.25), *_last(normalise))
    return TwoViews(shared=Views(Flip()), each=each)


def evaluation_view(*, normalise: Normalise | None = NORMALISE_CIFAR10) -> Views:
    """The image itself: converted, and normalised as in training.

    Parameters
    ----------
    normalise : Normalise or None, default=NORMALISE_CIFAR10
        The only operation.

    Returns
    -------
    Views
        ``view(images, generator)`` is (n, c, h, w).
    """
    return Views(*_last(normalise))


def _last(normalise: Normalise | None) -> tuple[Operation, ...]:
    return () if normalise is None else (normalise,)


def halves(images: Tensor) -> tuple[Tensor, Tensor]:
    """The top and the bottom half of each image, v1 and v2 of the shallow model.

    An image is flattened row by row, a pixel's channels side by side, i.e. as (h, w, c): its first
    half is then its top, whatever c is.

    Parameters
    ----------
    images : Tensor of shape (n, c, h, w)
        uint8, or floats in [0, 1].

    Returns
    -------
    tuple of Tensor
        Two of (n, h / 2 * w * c) float32 in [0, 1].
    """
    flat = _as_floats(images).permute(0, 2, 3, 1).flatten(1)
    if images.shape[2] % 2:
        raise InputError(f"images of {images.shape[2]} rows have no halves: crop or pad a row")
    top, bottom = flat.chunk(2, 1)
    return top.contiguous(), bottom.contiguous()


def as_rgb(images: Tensor, size: int = 32) -> Tensor:
    """Images of any side up to `size` as (n, 3, size, size), of the same dtype.

    A small image is enlarged by the whole factor that fits, each pixel a square, and set in the
    middle of zeros: 8 x 8 digits are enlarged 4 times, MNIST's 28 x 28 get a border of 2.

    Parameters
    ----------
    images : Tensor of shape (n, h, w), (n, 1, h, w) or (n, 3, h, w)
        Grey images get three equal channels.
    size : int, default=32
        Side of the result.

    Returns
    -------
    Tensor
        (n, 3, size, size).
    """
    require_whole("size", size)
    shape = tuple(images.shape)
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or images.shape[1] not in {1, 3}:
        raise InputError(f"images must be (n, h, w) or (n, 1 or 3, h, w), got {shape}")
    height, width = images.shape[2:]
    if not 0 < min(height, width) <= max(height, width) <= size:
        raise InputError(f"images of {height} x {width} do not fit in size={size}: resize them")
    factor = size // max(height, width)
    enlarged = images.repeat_interleave(factor, 2).repeat_interleave(factor, 3)
    rows, columns = size - factor * height, size - factor * width
    border = (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
    framed = F.pad(enlarged, border).expand(-1, 3, -1, -1)
    return framed.contiguous(memory_format=torch.contiguous_format)


def _as_floats(images: Tensor) -> Tensor:
    """Images as float32 in [0, 1]: uint8 is divided by 255, floats are taken to be there."""
    _require_images(images)
    if images.dtype == torch.uint8:
        return images / 255
    if not images.is_floating_point():
        raise InputError(f"images must be uint8, or floats in [0, 1], got {images.dtype}")
    return images.float()


def _require_images(images: Tensor) -> None:
    if images.ndim != 4:
        raise InputError(f"images must be (n, channels, height, width), got {tuple(images.shape)}")
