"""Invertible maps of x alone or of y alone: they leave r(x,y) as it is."""

from __future__ import annotations

import math

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
        past = z - near
        return near + past.sign() * past.abs().log1p()

    def beyond(self, rows: Tensor) -> Tensor:
        """(n, dim) -> (n,) boolean: 10 standard deviations out for every replica."""
        z = self(rows.unsqueeze(0).expand(len(self.mean), *rows.shape)).abs()
        found: Tensor = (z > self.far.unsqueeze(1)).any(-1).all(0)
        return found


class CanonicalMap(nn.Module):
    """Per replica: canonical coordinates u of one side, its size, and u modulated by its size.

    (R, ..., dim) -> (R, ..., dim + 2 + extra): u = (x - mean) weight, (R, dim, dim), unused
    directions being columns of zeros; two measures of size, q, the centred mean square of u, and t,
    the log-mean of exp(x^2/2), which grows like the logarithm of the norm of heavy-tailed rows that
    were brought to normal scores x; and canonical coordinates of the features [u, q, t, q u], by
    `modulated`, (R, 2 dim + 2, extra).
    """

    mean: Tensor
    weight: Tensor
    feature_mean: Tensor
    modulated: Tensor

    def __init__(self, replicas: int, dim: int, extra: int = 4) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(replicas, dim))
        self.register_buffer("weight", torch.eye(dim).repeat(replicas, 1, 1))
        self.register_buffer("feature_mean", torch.zeros(replicas, 2 * dim + 2))
        self.register_buffer("modulated", torch.zeros(replicas, 2 * dim + 2, extra))

    @staticmethod
    def out_dim(dim: int, extra: int = 4) -> int:
        """Columns that `dim` columns become."""
        return dim + 2 + extra

    def set_linear(self, replica: int, mean: Tensor, weight: Tensor) -> None:
        """mean: (dim,), weight: (dim, at most dim)."""
        _fill(self.mean[replica], mean)
        _fill(self.weight[replica], weight)

    def set_modulated(self, replica: int, mean: Tensor, weight: Tensor) -> None:
        """mean: (2 dim + 2,), weight: (2 dim + 2, any): the leading columns are kept."""
        _fill(self.feature_mean[replica], mean)
        _fill(self.modulated[replica], weight[:, : self.modulated.shape[2]])

    def select(self, replicas: list[int]) -> CanonicalMap:
        """A copy that holds only these replicas."""
        chosen = CanonicalMap(len(replicas), self.mean.shape[1], self.modulated.shape[2])
        for name, buffer in self.named_buffers():
            setattr(chosen, name, buffer[replicas])
        return chosen

    def features(self, x: Tensor) -> Tensor:
        """[u, q, t, q u] of x: (R, n, dim) -> (R, n, 2 dim + 2)."""
        u = torch.bmm(x - self.mean.unsqueeze(1), self.weight)
        size = (u.square().mean(-1, keepdim=True) - 1.0) * (u.shape[-1] / 2.0) ** 0.5
        size = 3.0 * torch.tanh(size / 3.0)
        tail = torch.logsumexp(0.5 * x.square().clamp(max=2 * _FAR), -1, keepdim=True)
        tail = tail - math.log(x.shape[-1]) - 1.0
        return torch.cat([u, size, tail, size * u], -1)

    def forward(self, x: Tensor) -> Tensor:
        features = self.features(x.reshape(x.shape[0], -1, x.shape[-1]))
        extra = torch.bmm(features - self.feature_mean.unsqueeze(1), self.modulated)
        found = torch.cat([features[..., : x.shape[-1] + 2], extra], -1)
        return found.view(*x.shape[:-1], -1)


def _fill(place: Tensor, values: Tensor) -> None:
    """Write values into the leading columns, and zeros after them."""
    place.zero_()
    place[..., : values.shape[-1]] = values.to(place)
