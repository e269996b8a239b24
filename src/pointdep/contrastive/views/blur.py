"""The Gaussian blur, with each image's own width."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from pointdep.contrastive.views.operation import (
    Operation,
    between,
    require_between,
    require_interval,
    uniforms,
    where_applied,
)
from pointdep.errors import InputError, require_whole


@dataclass(frozen=True)
class Blur(Operation):
    """A Gaussian blur with probability p, sigma uniform between two ends, border reflected.

    kernel: odd number of pixels a side; None takes SimCLR's, a tenth of the image's shorter side
    (3 at 32, 23 at 224). Drawn: (n, 2), whether applied (1 or 0) and sigma in pixels.
    """

    p: float = 0.5
    sigma: tuple[float, float] = (0.1, 2.0)
    kernel: int | None = None

    def __post_init__(self) -> None:
        require_between("p", self.p, 0, 1)
        require_interval("sigma", self.sigma)
        if self.kernel is not None:
            require_whole("kernel", self.kernel, 3)
            if self.kernel % 2 == 0:
                raise InputError(f"kernel={self.kernel} must be odd")

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """One coin and one sigma an image."""
        coin, level = torch.split(uniforms(n, 2, generator), 1, 1)
        return torch.cat(((coin < self.p).float(), between(level, *self.sigma)), 1)

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Rows, then columns, tap by tap: a convolution would lose digits under autocast."""
        applied, sigma = drawn.unbind(1)
        radius = self._radius(images.shape[2], images.shape[3])
        steps = torch.arange(-radius, radius + 1, device=images.device)
        weights = (-0.5 * (steps / sigma[:, None]).square()).softmax(1)
        blurred = F.pad(images, (radius, radius, radius, radius), mode="reflect")
        for axis in (2, 3):
            blurred = _filter(blurred, weights, axis)
        return where_applied(applied, blurred, images)

    def _radius(self, height: int, width: int) -> int:
        side = min(height, width)
        radius = max(1, side // 20) if self.kernel is None else self.kernel // 2
        if radius >= side:
            raise InputError(f"a blur of {2 * radius + 1} pixels needs images larger than {side}")
        return radius


def _filter(images: Tensor, weights: Tensor, axis: int) -> Tensor:
    """The inner part of one axis, each pixel a weighted sum of its neighbours. weights: (n, k)."""
    taps = weights.shape[1]
    side = images.shape[axis] - taps + 1
    first, *others = weights[:, None, None, None].unbind(-1)
    total = first * images.narrow(axis, 0, side)
    for tap, weight in enumerate(others, 1):
        total = torch.addcmul(total, weight, images.narrow(axis, tap, side))
    return total
