"""Whether the representations have become one point, seen without stopping the device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pointdep.errors import MEANINGS, Flag

NORMALISED = 1e-4
"""Below it, rows of unit length differ by angles of 0.01: at any usual temperature all scores are
the same to a thousandth."""

UNTOUCHED = 1e-8
"""Below it, the rows differ in their fourth digit at best. A critic with weights can work with a
mean a thousand times the spread, so that less is asked where lengths are left alone; constant rows
rounded in float32 are at 1e-14."""


@torch.no_grad()
def spread(rows: Tensor) -> Tensor:
    """Total variance over mean squared length, (..., n, d) -> (...): 0 if constant, 1 if centred.

    It does not change with the scale of the rows; rows that are all zero have none.
    """
    centred = rows - rows.mean(-2, keepdim=True)
    tiny = torch.finfo(rows.dtype).tiny
    return centred.square().sum((-2, -1)) / rows.square().sum((-2, -1)).clamp(min=tiny)


def flags(value: float, last_loss: float, limit: float) -> tuple[Flag, ...]:
    """The flags of a batch with this spread and loss."""
    found = []
    if value < limit:
        message = f"{MEANINGS['collapsed']} (spread {value:.1e}, limit {limit:.0e})"
        found.append(Flag("collapsed", (), message))
    if not math.isfinite(last_loss):
        message = "the loss is not finite: look for such rows, or lower rate or scale"
        found.append(Flag("diverged", (), message))
    return tuple(found)
