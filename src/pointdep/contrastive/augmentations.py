"""Augmentations of a batch of images on its device, each image with its own draw.

Every operation keeps its random part, `draw`, apart from its deterministic one, `apply`.
"""

import math
import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from pointdep.errors import InputError, require_whole

_TRIES = 10

# Of s + 1 places, the floor of just under (s + 1) / 2 is s // 2: the central crop's.
_CENTRE = 0.5 - 2.0**-25


class Operation(ABC):
    """A change of images; a subclass is a frozen dataclass of options.

    `apply` neither waits for the device nor looks at a value: it is safe to compile and to
    capture.
    """

    @abstractmethod
    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Tensor:
        """The random part for n images of one size: (n, k), one row per image, on its device."""

    @abstractmethod
    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """The images changed as drawn. images: (n, c, h, w) float32 in [0, 1], drawn: (n, k)."""


class _Sometimes(Operation):
    """An operation with probability p. Drawn: (n, 1 + k), 1 if applied, then its k levels."""

    p: float

    def __post_init__(self) -> None:
        require_between("p", self.p, 0, 1)

    def ranges(self) -> list[tuple[float, float]]:
        """Of each level, which is uniform between the two ends."""
        return []

    @abstractmethod
    def change(self, images: Tensor, *levels: Tensor) -> Tensor:
        """All images changed. levels: (n,) each."""

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """One coin and the levels of each image."""
        ranges = self.ranges()
        coin, *uniform = torch.split(_uniforms(n, 1 + len(ranges), generator), 1, 1)
        levels = [_between(one, *ends) for one, ends in zip(uniform, ranges, strict=True)]
        return torch.cat(((coin < self.p).float(), *levels), 1)

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """The changed image if drawn[:, 0] is 1, the image itself if it is 0."""
        applied, *levels = drawn.unbind(1)
        return torch.where(_per_image(applied).bool(), self.change(images, *levels), images)


@dataclass(frozen=True)
class Flip(_Sometimes):
    """The mirror image, left to right, with probability p. Drawn: (n, 1), 1 if flipped.

    Parameters
    ----------
    p : float, default=0.5
        Probability.
    """

    p: float = 0.5

    def change(self, images: Tensor, *_: Tensor) -> Tensor:
        """The mirror images."""
        return images.flip(-1)


@dataclass(frozen=True)
class Grey(_Sometimes):
    """Three equal channels, the luma, with probability p. Drawn: (n, 1), 1 if grey.

    Parameters
    ----------
    p : float, default=0.2
        Probability.
    """

    p: float = 0.2

    def change(self, images: Tensor, *_: Tensor) -> Tensor:
        """The luma in all channels."""
        return _grey_of(images).expand_as(images)


@dataclass(frozen=True)
class ResizedCrop(Operation):
    """A random box of the image, enlarged to the image's own size (torchvision's, SimCLR's).

    The first of ten boxes that fits is taken, or else the largest central one of an allowed ratio.
    Boxes lie on whole pixels and are resampled as by ``F.interpolate(box, mode="bilinear")``: no
    pixel outside the box is seen. Drawn: (n, 4), top, left, height and width.

    Parameters
    ----------
    scale : tuple of float, default=(0.2, 1.0)
        Share of the area, uniform between the two.
    ratio : tuple of float, default=(3 / 4, 4 / 3)
        Width over height, log-uniform between the two.
    """

    scale: tuple[float, float] = (0.2, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        _require_interval("scale", self.scale, 1.0)
        _require_interval("ratio", self.ratio)

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Tensor:
        """Ten boxes per image at once, then the first that fits."""
        uniform = _uniforms(n, 2 * _TRIES + 2, generator)
        area, ratio, place = torch.split(uniform, [_TRIES, _TRIES, 2], 1)
        root_area = _between(area, *(height * width * end for end in self.scale)).sqrt()
        root_ratio = _between(ratio, *(math.log(end) / 2 for end in self.ratio)).exp()
        rows, columns = (root_area / root_ratio).round(), (root_area * root_ratio).round()
        fits = (rows.clamp(1, height) == rows) & (columns.clamp(1, width) == columns)
        first = fits.to(torch.uint8).argmax(1, keepdim=True)
        found = fits.gather(1, first)
        central_rows, central_columns = float(height), float(width)
        if width < height * self.ratio[0]:
            central_rows = float(round(width / self.ratio[0]))
        elif width > height * self.ratio[1]:
            central_columns = float(round(height * self.ratio[1]))
        rows = torch.where(found, rows.gather(1, first), central_rows)
        columns = torch.where(found, columns.gather(1, first), central_columns)
        place = torch.where(found, place, _CENTRE)
        top = (place[:, :1] * (height + 1 - rows)).floor()
        return torch.cat((top, (place[:, 1:] * (width + 1 - columns)).floor(), rows, columns), 1)

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Rows first, then columns, each by two gathers and a blend.

        Products with interpolation matrices would be as few launches, but lose digits under
        TF32 and autocast, and do not fuse with their neighbours when compiled.
        """
        top, left, rows, columns = torch.split(drawn, 1, 1)
        return _resample(_resample(images, top, rows, 2), left, columns, 3)


@dataclass(frozen=True)
class ReflectTranslate(Operation):
    """A shift by whole pixels, with probability p, each axis uniform in [-pixels, pixels].

    What comes in at the border is reflected about the outermost pixel (numpy's "reflect").
    Drawn: (n, 2), pixels down and to the right, both 0 if the image stays.

    Parameters
    ----------
    pixels : int, default=4
        The largest shift.
    p : float, default=0.8
        Probability.
    """

    pixels: int = 4
    p: float = 0.8

    def __post_init__(self) -> None:
        require_whole("pixels", self.pixels, 0)
        require_between("p", self.p, 0, 1)

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Tensor:
        """Whole shifts, as floats."""
        side = min(height, width)
        if self.pixels >= side:
            raise InputError(f"pixels={self.pixels} must be smaller than the images' side {side}")
        uniform = _uniforms(n, 3, generator)
        shifts = (uniform[:, 1:] * (2 * self.pixels + 1)).floor() - self.pixels
        return shifts * (uniform[:, :1] < self.p)

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Rows first, then columns, each by one gather."""
        for axis, shift in ((2, drawn[:, :1].long()), (3, drawn[:, 1:].long())):
            last = images.shape[axis] - 1
            source = (torch.arange(last + 1, device=shift.device) - shift).abs()
            images = _gather(images, last - (last - source).abs(), axis)
        return images


@dataclass(frozen=True)
class ColourJitter(_Sometimes):
    """Brightness, contrast, saturation and hue changed together, with probability p.

    Each step is torchvision's on float tensors and ends in [0, 1]. torchvision also draws the
    order of the steps; here it is fixed, as named above, because a batch in which each image has
    its own order would compute all of them. Drawn: (n, 5), whether applied (1 or 0), then the four
    in that order.

    Parameters
    ----------
    brightness, contrast, saturation : float
        The factors are uniform in [max(0, 1 - option), 1 + option].
    hue : float
        The shift is uniform in [-hue, hue] of the whole circle.
    p : float, default=0.8
        Probability.
    """

    brightness: float
    contrast: float
    saturation: float
    hue: float
    p: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("brightness", "contrast", "saturation"):
            require_between(name, getattr(self, name), 0)
        require_between("hue", self.hue, 0, 0.5)

    def ranges(self) -> list[tuple[float, float]]:
        """Of three factors and of the shift of hue."""
        factors = (self.brightness, self.contrast, self.saturation)
        return [(max(0.0, 1 - one), 1 + one) for one in factors] + [(-self.hue, self.hue)]

    def change(self, images: Tensor, *levels: Tensor) -> Tensor:
        """The four steps, without those whose option is zero."""
        brightness, contrast, saturation = map(_per_image, levels[:3])
        if self.brightness:
            images = (images * brightness).clamp(0, 1)
        if self.contrast:
            mean = _grey_of(images).mean((2, 3), keepdim=True)
            images = torch.lerp(mean, images, contrast).clamp(0, 1)
        if self.saturation:
            images = torch.lerp(_grey_of(images), images, saturation).clamp(0, 1)
        return shift_hue(images, levels[3]) if self.hue else images


@dataclass(frozen=True)
class Blur(_Sometimes):
    """A Gaussian blur with probability p, the border reflected.

    Drawn: (n, 2), whether applied (1 or 0) and sigma in pixels.

    Parameters
    ----------
    p : float, default=0.5
        Probability.
    sigma : tuple of float, default=(0.1, 2.0)
        Standard deviation in pixels, uniform between the two.
    kernel : int, optional
        Odd number of pixels per side; by default SimCLR's, a tenth of the image's shorter side (3
        at 32, 23 at 224).
    """

    p: float = 0.5
    sigma: tuple[float, float] = (0.1, 2.0)
    kernel: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_interval("sigma", self.sigma)
        if self.kernel is not None:
            require_whole("kernel", self.kernel, 3)
            if self.kernel % 2 == 0:
                raise InputError(f"kernel={self.kernel} must be odd")

    def ranges(self) -> list[tuple[float, float]]:
        """Of sigma."""
        return [self.sigma]

    def change(self, images: Tensor, *levels: Tensor) -> Tensor:
        """Rows, then columns, tap by tap: a convolution would lose digits under autocast."""
        side = min(images.shape[2:])
        radius = max(1, side // 20) if self.kernel is None else self.kernel // 2
        if radius >= side:
            raise InputError(f"a blur of {2 * radius + 1} pixels needs images larger than {side}")
        steps = torch.arange(-radius, radius + 1, device=images.device)
        weights = (-0.5 * (steps / levels[0][:, None]).square()).softmax(1)
        first, *others = weights[:, None, None, None].unbind(-1)
        blurred = F.pad(images, (radius, radius, radius, radius), mode="reflect")
        for axis in (2, 3):
            inner = images.shape[axis]
            total = first * blurred.narrow(axis, 0, inner)
            for tap, weight in enumerate(others, 1):
                total = torch.addcmul(total, weight, blurred.narrow(axis, tap, inner))
            blurred = total
        return blurred


@dataclass(frozen=True)
class Normalise(Operation):
    """Each channel less its mean, over its standard deviation. Nothing is drawn: (n, 0).

    Parameters
    ----------
    mean, std : tuple of float
        One number per channel each.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        tuples = isinstance(self.mean, tuple) and isinstance(self.std, tuple)
        if not tuples or not self.mean or len(self.mean) != len(self.std):
            raise InputError("mean and std must be tuples with one number per channel each")
        for number in (*self.mean, *self.std):
            require_between("mean or std", number, -math.inf)
        if min(self.std) <= 0:
            raise InputError("std must be greater than zero in every channel")

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Nothing: a tensor of no columns."""
        return torch.empty((n, 0), device=generator.device)

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:  # noqa: ARG002
        """Plane by plane: tensors of the constants would be copied from the host at each call."""
        if images.shape[1] != len(self.mean):
            raise InputError(f"the images have {images.shape[1]} channels, not {len(self.mean)}")
        planes = zip(images.unbind(1), self.mean, self.std, strict=True)
        return torch.stack([(plane - mean) / std for plane, mean, std in planes], 1)


def shift_hue(images: Tensor, shift: Tensor) -> Tensor:
    """The hue moved by a part of the circle. images: (n, 3, h, w) in [0, 1], shift: (n,).

    In HSV the greatest and the least of a pixel's three values stay, and only the place of each
    channel between them moves, so the way through HSV and back is cut short.
    """
    red, green, blue = images.unbind(1)
    least, greatest = torch.aminmax(images, dim=1)
    spread = greatest - least
    from_green, from_blue = (blue - red).add(spread, alpha=2), (red - green).add(spread, alpha=4)
    others = torch.where(green == greatest, from_green, from_blue)
    sixths = torch.where(red == greatest, green - blue, others)
    # A grey pixel has no hue: its 0 / tiny is 0, and its spread of 0 below hides the hue.
    hue = (sixths / spread.clamp_min(1e-20)).add(shift[:, None, None], alpha=6)
    # 5, 3, 1: how far round the circle, in sixths, red, green and blue are.
    corners = torch.arange(5, 0, -2, device=images.device, dtype=images.dtype)
    along = (hue[:, None] + corners[:, None, None]).remainder(6)
    share = torch.minimum(along, 4 - along).clamp(0, 1)
    return torch.addcmul(greatest[:, None], spread[:, None], share, value=-1)


def _resample(images: Tensor, start: Tensor, length: Tensor, axis: int) -> Tensor:
    """One axis from `start`, `length` pixels long, to its whole side. start, length: (n, 1)."""
    side = images.shape[axis]
    centres = torch.arange(0.5, side, device=images.device)
    source = torch.minimum((centres * (length / side) - 0.5).clamp_min(0), length - 1)
    low = source.floor()
    index = (start + low).long()
    # At the box's last pixel the weight of the next one is zero: it need only exist.
    above = (index + 1).clamp_max(side - 1)
    weight = _along(source - low, axis)
    return torch.lerp(_gather(images, index, axis), _gather(images, above, axis), weight)


def _gather(images: Tensor, index: Tensor, axis: int) -> Tensor:
    """Whole rows (axis 2) or columns (axis 3) of each image, index: (n, side)."""
    return images.gather(axis, _along(index, axis).expand(images.shape))


def _along(values: Tensor, axis: int) -> Tensor:
    """(n, side) shaped to meet an axis of the images."""
    return values[:, None, :, None] if axis == 2 else values[:, None, None, :]


def _uniforms(n: int, count: int, generator: torch.Generator) -> Tensor:
    """Uniform numbers in [0, 1), (n, count), on the generator's device."""
    return torch.rand((n, count), generator=generator, device=generator.device)


def _between(uniform: Tensor, low: float, high: float) -> Tensor:
    """Uniform numbers in [0, 1) stretched to [low, high)."""
    return uniform * (high - low) + low


def _per_image(values: Tensor) -> Tensor:
    """One number per image, (n,), shaped to meet the images: (n, 1, 1, 1)."""
    return values[:, None, None, None]


def _grey_of(images: Tensor) -> Tensor:
    """The luma of colour images: (n, 3, h, w) -> (n, 1, h, w)."""
    if images.shape[1] != 3:
        raise InputError(f"colours need images of 3 channels, got {images.shape[1]}: see as_rgb")
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


def _require_interval(name: str, value: object, high: float = math.inf) -> None:
    """Refuse an option that is not a pair (low, high) with 0 < low <= high."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise InputError(f"{name}={value!r} must be a pair (low, high)")
    for end in value:
        require_between(name, end, 0, high)
    if not 0 < value[0] <= value[1]:
        raise InputError(f"{name}={value!r} must satisfy 0 < low <= high")
