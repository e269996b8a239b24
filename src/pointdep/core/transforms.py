"""Invertible maps of x alone or of y alone: they leave r(x,y) as it is."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_FAR = 10.0  # standard deviations beyond which values are drawn in


class Standardizer(nn.Module):
    """Per replica: subtract the mean and divide by the standard deviation of each column.

    Beyond 10 standard deviations of the training rows, values grow like their logarithm: still an
    invertible map, and a lone outlier among new rows does not send the critic far off.
    """

    mean: Tensor
    scale: Tensor
    far: Tensor

    def __init__(self, replicas: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(replicas, dim))
        self.register_buffer("scale", torch.ones(replicas, dim))
        self.register_buffer("far", torch.full((replicas, dim), torch.inf))

    def fit_replica(self, replica: int, rows: Tensor, numeric: Tensor) -> None:
        """Fit replica r on rows: (n, dim); columns where `numeric` is false stay as they are."""
        rows64 = rows.double()
        spread = rows64.std(0, correction=0)
        usable = numeric.to(rows.device) & (spread > 1e-12)
        self.mean[replica] = torch.where(usable, rows64.mean(0), 0.0).to(self.mean.dtype)
        self.far[replica] = torch.where(usable, _FAR, torch.inf).to(self.far.dtype)
        self.scale[replica] = torch.where(usable, spread, 1.0).to(self.scale.dtype)

    def select(self, replicas: list[int]) -> Standardizer:
        """A copy that holds only these replicas."""
        chosen = Standardizer(len(replicas), self.mean.shape[1])
        chosen.mean, chosen.scale = self.mean[replicas], self.scale[replicas]
        chosen.far = self.far[replicas]
        return chosen

    def forward(self, x: Tensor) -> Tensor:
        """x: (R, ..., dim) -> the same shape."""
        shape = (self.mean.shape[0], *[1] * (x.ndim - 2), self.mean.shape[1])
        z = (x - self.mean.view(shape)) / self.scale.view(shape)
        far = self.far.view(shape)
        near = z.clamp(-far, far)
        beyond = z - near
        return near + beyond.sign() * beyond.abs().log1p()
