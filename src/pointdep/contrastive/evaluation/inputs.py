"""Features and labels as the evaluations take them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from pointdep.errors import InputError

Rows = Tensor | ArrayLike


@dataclass(frozen=True)
class Split:
    """features: (R, n, d) floating point, all finite; labels: (n,) int64 beside them.

    low, high: (R, d), the range of each column.
    """

    features: Tensor
    labels: Tensor
    low: Tensor
    high: Tensor


def split(features: Rows, labels: Rows, name: str, device: torch.device | None = None) -> Split:
    """One split, checked; `device` None for where `as_features` has the features."""
    found = as_features(features, name)
    found = found.to(device or found.device)
    low, high = torch.aminmax(found, dim=1)
    finite = (torch.isfinite(low) & torch.isfinite(high)).all(1)
    if not bool(finite.all()):
        replica = int((~finite).nonzero()[0])
        raise InputError(f"{name} features of replica {replica} are not finite: check the encoder")
    return Split(found, as_labels(labels, found.shape[1], name).to(found.device), low, high)


def as_features(features: Rows, name: str) -> Tensor:
    """(n, d) or (R, n, d) -> (R, n, d) in float32, or float64 where it was given.

    Where it was given, but for Apple's devices: sums are in float64, which those have not.
    """
    found = features if isinstance(features, Tensor) else torch.as_tensor(np.asarray(features))
    if found.device.type == "mps":
        found = found.cpu()
    if found.ndim not in (2, 3) or 0 in found.shape:
        raise InputError(
            f"{name} features have shape {tuple(found.shape)}: give (rows, columns), or "
            "(replicas, rows, columns), none of them 0"
        )
    found = found.detach() if found.ndim == 3 else found.detach()[None]
    return found if found.dtype == torch.float64 else found.float()


def as_labels(labels: Rows, rows: int, name: str) -> Tensor:
    """(rows,) whole numbers from 0, as int64."""
    if not isinstance(labels, Tensor) and np.asarray(labels).dtype.kind not in "buif":
        kind = np.asarray(labels).dtype
        raise InputError(f"{name} labels are {kind}: give whole numbers from 0, one a class")
    found = labels if isinstance(labels, Tensor) else torch.as_tensor(np.asarray(labels))
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        raise InputError(f"{name} labels are {found.dtype}: give whole numbers from 0")
    if found.shape != (rows,):
        raise InputError(
            f"{name} labels have shape {tuple(found.shape)}, but there are {rows} rows"
        )
    if int(found.min()) < 0:
        raise InputError(f"{name} labels go down to {int(found.min())}: count classes from 0")
    return found.to(torch.int64)


def require_alike(train: Split, test: Split) -> None:
    """Refuse splits of different replicas or columns."""
    ours, theirs = train.features.shape, test.features.shape
    if (ours[0], ours[2]) != (theirs[0], theirs[2]):
        raise InputError(
            f"train features are {ours[0]} replicas of {ours[2]} columns, test features "
            f"{theirs[0]} of {theirs[2]}: encode both with the same encoders"
        )
