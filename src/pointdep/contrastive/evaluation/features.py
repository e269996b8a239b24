"""Run a frozen encoder over a data set."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pointdep.errors import InputError, require_whole


@torch.no_grad()
def features(encode: Callable[[Tensor], Tensor], images: Tensor, batch_size: int = 1000) -> Tensor:
    """What `encode` makes of the images, in batches: (n, d) or (R, n, d) float32.

    images: (n, ...), as `encode` takes them; the last batch may be smaller. The encoder should be
    in evaluation mode.
    """
    require_whole("batch_size", batch_size)
    if len(images) == 0:
        raise InputError("images is empty: give at least one")
    out: Tensor | None = None
    for first in range(0, len(images), batch_size):
        rows = slice(first, min(first + batch_size, len(images)))
        found = encode(images[rows])
        if found.ndim not in (2, 3) or found.shape[-2] != rows.stop - rows.start:
            raise InputError(
                f"encode gave shape {tuple(found.shape)} for {rows.stop - rows.start} images: "
                "it should give (images, d) or (replicas, images, d)"
            )
        if out is None:
            shape = (*found.shape[:-2], len(images), found.shape[-1])
            out = torch.empty(shape, dtype=torch.float32, device=found.device)
        out[..., rows, :] = found
    assert out is not None
    return out
