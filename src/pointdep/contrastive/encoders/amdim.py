"""AMDIM's encoder (Bachman et al. 2019) for 32 x 32 images, with feature maps of three sizes."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pointdep.errors import InputError


class FeatureMaps(NamedTuple):
    """What `AMDIMEncoder` makes of n images: one vector, 5x5 vectors and 7x7 vectors for each."""

    one: Tensor  # (n, n_rkhs)
    five: Tensor  # (n, n_rkhs, 5, 5)
    seven: Tensor  # (n, n_rkhs, 7, 7)


class AMDIMEncoder(nn.Module):
    """x: (n, 3, 32, 32) -> `FeatureMaps`; a cell of a map sees only a part of its image.

    No convolution is padded, so that the parts differ. The 1x1 map is the last layer of the trunk;
    the 5x5 and 7x7 maps leave it earlier, each through a head of its own.

    batch_norm: normalise inside the residual branches and the heads and after the 7x7 map too, and
    not only the three outputs. At the paper's size (ndf 192, n_rkhs 1536, depth 8) the trunk has
    54,836,352 parameters and the whole 64,288,896 with it; without it 54,788,352 and 64,234,752.
    The released code holds the same layers but keeps those of the unused batch norms as well, so
    that it counts the former either way; here every parameter gets a gradient.
    """

    def __init__(
        self, *, ndf: int = 192, n_rkhs: int = 1536, depth: int = 8, batch_norm: bool = False
    ) -> None:
        super().__init__()
        wide = 4 * ndf
        if n_rkhs < wide:
            raise InputError(f"n_rkhs={n_rkhs} must be at least 4 * ndf, {wide}")
        self.feature_dim = n_rkhs
        self.stem = nn.Conv2d(3, ndf, 3)
        self.to_seven = nn.Sequential(
            ResidualNxN(ndf, ndf, 1, 1, batch_norm),
            residual_block(ndf, 2 * ndf, 4, 2, depth, batch_norm),
            residual_block(2 * ndf, wide, 2, 2, depth, batch_norm),
            _maybe_batch_norm(wide, batch_norm),
        )
        self.to_five = residual_block(wide, wide, 3, 1, depth, batch_norm)
        self.to_one = nn.Sequential(
            residual_block(wide, wide, 3, 1, depth, batch_norm),
            ResidualNxN(wide, n_rkhs, 3, 1, batch_norm),
            nn.BatchNorm2d(n_rkhs),
        )
        self.head_seven = MapHead(wide, n_rkhs, batch_norm)
        self.head_five = MapHead(wide, n_rkhs, batch_norm)

    def forward(self, x: Tensor) -> FeatureMaps:
        seven = self._seven(x)
        five = self.to_five(seven)
        one = self.to_one(five).flatten(1)
        return FeatureMaps(one, self.head_five(five), self.head_seven(seven))

    def features(self, x: Tensor) -> Tensor:
        """The 1x1 map alone, what evaluation uses: (n, 3, 32, 32) -> (n, n_rkhs)."""
        one: Tensor = self.to_one(self.to_five(self._seven(x)))
        return one.flatten(1)

    def _seven(self, x: Tensor) -> Tensor:
        if x.shape[-2:] != (32, 32):
            raise InputError(f"AMDIMEncoder takes images of 32 x 32, got {tuple(x.shape)}")
        seven: Tensor = self.to_seven(F.relu(self.stem(x), inplace=True))
        return seven


class ResidualNxN(nn.Module):
    """A convolution of `width` and a 1x1 convolution beside an average pool of the same reach.

    The pool is filled up with zero channels. There is no activation after the sum, and the second
    convolution starts at zero: the layer starts as the pool.
    """

    def __init__(self, n_in: int, n_out: int, width: int, stride: int, batch_norm: bool) -> None:
        super().__init__()
        self.width, self.stride, self.new_channels = width, stride, n_out - n_in
        self.conv1 = nn.Conv2d(n_in, n_out, width, stride, bias=False)
        self.bn = _maybe_batch_norm(n_out, batch_norm)
        self.conv2 = nn.Conv2d(n_out, n_out, 1, bias=False)
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x: Tensor) -> Tensor:
        branch: Tensor = self.conv2(F.relu(self.bn(self.conv1(x)), inplace=True))
        if self.width > 1:
            x = F.avg_pool2d(x, self.width, self.stride)
        if self.new_channels:
            x = F.pad(x, (0, 0, 0, 0, 0, self.new_channels))
        return branch + x


def residual_block(
    n_in: int, n_out: int, width: int, stride: int, depth: int, batch_norm: bool
) -> nn.Sequential:
    """One `ResidualNxN` of this width and stride, then depth - 1 of width 1."""
    first = ResidualNxN(n_in, n_out, width, stride, batch_norm)
    rest = [ResidualNxN(n_out, n_out, 1, 1, batch_norm) for _ in range(depth - 1)]
    return nn.Sequential(first, *rest)


class MapHead(nn.Module):
    """From a map of the trunk to the space the scores are taken in: (n, n_in, h, w) -> n_out.

    Two 1x1 convolutions beside a linear shortcut, then a batch norm. It starts as the shortcut,
    which starts near the identity.
    """

    def __init__(self, n_in: int, n_out: int, batch_norm: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 1, bias=False)
        self.bn_hidden = _maybe_batch_norm(n_out, batch_norm)
        self.conv2 = nn.Conv2d(n_out, n_out, 1, bias=False)
        self.shortcut = nn.Conv2d(n_in, n_out, 1)
        self.bn = nn.BatchNorm2d(n_out)
        nn.init.zeros_(self.conv2.weight)
        nn.init.uniform_(self.shortcut.weight, -0.01, 0.01)
        with torch.no_grad():
            self.shortcut.weight[:n_in, :, 0, 0].fill_diagonal_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        branch = self.conv2(F.relu(self.bn_hidden(self.conv1(x)), inplace=True))
        out: Tensor = self.bn(branch + self.shortcut(x))
        return out


def _maybe_batch_norm(channels: int, batch_norm: bool) -> nn.Module:
    return nn.BatchNorm2d(channels) if batch_norm else nn.Identity()
