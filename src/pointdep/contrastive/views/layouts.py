"""Images laid out for an encoder: halves as flat vectors, grey images as 32 x 32 colour ones."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pointdep.contrastive.views.compose import as_floats
from pointdep.errors import InputError, require_whole


def halves(images: Tensor) -> tuple[Tensor, Tensor]:
    """The top and the bottom half of each image, v1 and v2 of the shallow model.

    images: (n, c, h, w) uint8 or floats in [0, 1] -> two of (n, h / 2 * w * c) float32 in [0, 1].
    An image is flattened row by row, a pixel's channels side by side, i.e. as (h, w, c): its
    first half is then its top, whatever c is.
    """
    flat = as_floats(images).permute(0, 2, 3, 1).flatten(1)
    if images.shape[2] % 2:
        raise InputError(f"images of {images.shape[2]} rows have no halves: crop or pad a row")
    top, bottom = flat.chunk(2, 1)
    return top.contiguous(), bottom.contiguous()


def as_rgb(images: Tensor, size: int = 32) -> Tensor:
    """Images of any side up to `size` as (n, 3, size, size), of the same dtype.

    images: (n, h, w) or (n, 1, h, w), made three equal channels, or (n, 3, h, w). A small image is
    enlarged by the whole factor that fits, each pixel a square, and set in the middle of zeros:
    8 x 8 digits are enlarged 4 times, MNIST's 28 x 28 get a border of 2.
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
    return (
        F.pad(enlarged, border)
        .expand(-1, 3, -1, -1)
        .contiguous(memory_format=torch.contiguous_format)
    )
