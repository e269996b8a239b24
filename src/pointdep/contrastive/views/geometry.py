"""Operations that move pixels: resized crop, flip, translation with a reflected border."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pointdep.contrastive.views.operation import (
    Operation,
    between,
    require_between,
    require_interval,
    uniforms,
    where_applied,
)
from pointdep.errors import InputError, require_whole

_TRIES = 10

# Of s + 1 places, the floor of just under (s + 1) / 2 is s // 2: the central crop's.
_CENTRE = 0.5 - 2.0**-25


@dataclass(frozen=True)
class ResizedCrop(Operation):
    """A random box of the image, enlarged to the image's own size (torchvision's, SimCLR's).

    scale: share of the area, uniform; ratio: width over height, log-uniform. Of ten boxes the
    first that fits is taken, else the largest central one of an allowed ratio. Boxes lie on whole
    pixels and are resampled as by ``F.interpolate(box, mode="bilinear")``: no pixel outside the
    box is seen. Drawn: (n, 4), top, left, height and width.
    """

    scale: tuple[float, float] = (0.2, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        require_interval("scale", self.scale, 1.0)
        require_interval("ratio", self.ratio)

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Tensor:
        """Ten boxes an image at once, then the first that fits."""
        uniform = uniforms(n, 2 * _TRIES + 2, generator)
        area, ratio, place = torch.split(uniform, [_TRIES, _TRIES, 2], 1)
        root_area = between(area, *(height * width * end for end in self.scale)).sqrt()
        root_ratio = between(ratio, *(math.log(end) / 2 for end in self.ratio)).exp()
        rows, columns = (root_area / root_ratio).round(), (root_area * root_ratio).round()
        fits = (rows.clamp(1, height) == rows) & (columns.clamp(1, width) == columns)
        first = fits.to(torch.uint8).argmax(1, keepdim=True)
        found = fits.gather(1, first)
        central_rows, central_columns = self._central(height, width)
        rows = torch.where(found, rows.gather(1, first), central_rows)
        columns = torch.where(found, columns.gather(1, first), central_columns)
        place = torch.where(found, place, _CENTRE)
        top = (place[:, :1] * (height + 1 - rows)).floor()
        left = (place[:, 1:] * (width + 1 - columns)).floor()
        return torch.cat((top, left, rows, columns), 1)

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Rows first, then columns, each by two gathers and a blend.

        Products with interpolation matrices would be as few launches, but lose digits under
        TF32 and autocast, and do not fuse with their neighbours when compiled.
        """
        top, left, rows, columns = torch.split(drawn, 1, 1)
        return _resample(_resample(images, top, rows, 2), left, columns, 3)

    def _central(self, height: int, width: int) -> tuple[float, float]:
        if width < height * self.ratio[0]:
            return float(round(width / self.ratio[0])), float(width)
        if width > height * self.ratio[1]:
            return float(height), float(round(height * self.ratio[1]))
        return float(height), float(width)


@dataclass(frozen=True)
class Flip(Operation):
    """The mirror image, left to right, with probability p. Drawn: (n, 1), 1 where flipped."""

    p: float = 0.5

    def __post_init__(self) -> None:
        require_between("p", self.p, 0, 1)

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """One coin an image."""
        return (uniforms(n, 1, generator) < self.p).float()

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """The mirror image where drawn is 1."""
        return where_applied(drawn[:, 0], images.flip(-1), images)


@dataclass(frozen=True)
class ReflectTranslate(Operation):
    """A shift by whole pixels, each axis uniform in [-pixels, pixels], with probability p.

    What comes in at the border is reflected about the outermost pixel (numpy's "reflect").
    Drawn: (n, 2), pixels down and to the right, both 0 where the image stays.
    """

    pixels: int = 4
    p: float = 0.8

    def __post_init__(self) -> None:
        require_whole("pixels", self.pixels, 0)
        require_between("p", self.p, 0, 1)

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Tensor:
        """Whole shifts, as floats."""
        if self.pixels >= min(height, width):
            raise InputError(
                f"pixels={self.pixels} must be smaller than the images' side {min(height, width)}"
            )
        uniform = uniforms(n, 3, generator)
        shifts = (uniform[:, 1:] * (2 * self.pixels + 1)).floor() - self.pixels
        return shifts * (uniform[:, :1] < self.p)

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Rows first, then columns, each by one gather."""
        down, right = torch.split(drawn.long(), 1, 1)
        return _gather(
            _gather(images, _reflected(down, images.shape[2]), 2),
            _reflected(right, images.shape[3]),
            3,
        )


def _reflected(shift: Tensor, side: int) -> Tensor:
    """Where each pixel comes from when the axis is shifted: (n, 1) -> (n, side)."""
    source = (torch.arange(side, device=shift.device) - shift).abs()
    return (side - 1) - ((side - 1) - source).abs()


def _resample(images: Tensor, start: Tensor, length: Tensor, axis: int) -> Tensor:
    """One axis from `start`, `length` pixels long, to its whole side. start, length: (n, 1)."""
    side = images.shape[axis]
    centres = torch.arange(0.5, side, device=images.device)
    source = torch.minimum((centres * (length / side) - 0.5).clamp_min(0), length - 1)
    low = source.floor()
    index = (start + low).long()
    # At the box's last pixel the weight of the next one is zero: it need only exist.
    above = (index + 1).clamp_max(side - 1)
    weight = source - low
    weight = weight[:, None, :, None] if axis == 2 else weight[:, None, None, :]
    return torch.lerp(_gather(images, index, axis), _gather(images, above, axis), weight)


def _gather(images: Tensor, index: Tensor, axis: int) -> Tensor:
    """Whole rows (axis 2) or columns (axis 3) of each image, index: (n, side)."""
    index = index[:, None, :, None] if axis == 2 else index[:, None, None, :]
    return images.gather(axis, index.expand(images.shape))
