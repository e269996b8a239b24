"""ResNet-18 and ResNet-50 for 32 x 32 images, and SimCLR's projection head."""

import torch.nn.functional as F
from torch import Tensor, nn

from pointdep.errors import InputError, require_whole

# Blocks in each of the four layers, and whether they are bottlenecks.
_LAYOUTS = {18: ((2, 2, 2, 2), False), 50: ((3, 4, 6, 3), True)}


class ResNet(nn.Module):
    """x: (n, channels, h, w) -> features (n, feature_dim), 512 for depth 18 and 2048 for depth 50.

    The CIFAR stem: a 3x3 convolution of stride 1 and no max-pool; the classifier is left out. All
    else, the names of the weights included, is as in torchvision, so that exported weights load
    into its ``resnet18`` or ``resnet50`` once that model's ``conv1`` is replaced by a 3x3
    convolution of stride 1, padding 1 and no bias, and its ``maxpool`` and ``fc`` by the identity.

    Parameters
    ----------
    depth : int, default=18
        18 or 50.
    channels : int, default=3
        Of the images.
    width : int, default=64
        Channels of the first layer; each of the three after it has twice as many.

    Examples
    --------
    >>> import torch
    >>> from pointdep.contrastive.encoders.resnet import ResNet
    >>> tuple(ResNet(18, width=4)(torch.zeros(2, 3, 32, 32)).shape)
    (2, 32)
    """

    def __init__(self, depth: int = 18, *, channels: int = 3, width: int = 64) -> None:
        super().__init__()
        if depth not in _LAYOUTS:
            raise InputError(f"depth={depth!r} must be 18 or 50")
        require_whole("channels", channels)
        require_whole("width", width)
        counts, bottleneck = _LAYOUTS[depth]
        self.conv1 = _conv(channels, width, 3)
        self.bn1 = nn.BatchNorm2d(width)
        inputs, layers = width, []
        for level, count in enumerate(counts):
            blocks = []
            for place in range(count):
                stride = 2 if level and not place else 1
                blocks.append(Block(inputs, width << level, stride, bottleneck))
                inputs = blocks[-1].outputs
            layers.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = layers
        self.feature_dim = inputs
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean((2, 3))


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut; a bottleneck has 1x1, 3x3 and 1x1 convolutions.

    The first 3x3 convolution carries the stride.
    """

    def __init__(self, inputs: int, planes: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        self.outputs = 4 * planes if bottleneck else planes
        self.conv1 = _conv(inputs, planes, 1) if bottleneck else _conv(inputs, planes, 3, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = _conv(planes, planes, 3, stride if bottleneck else 1)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = _conv(planes, self.outputs, 1) if bottleneck else None
        self.bn3 = nn.BatchNorm2d(self.outputs) if bottleneck else None
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != self.outputs:
            across = _conv(inputs, self.outputs, 1, stride)
            self.downsample = nn.Sequential(across, nn.BatchNorm2d(self.outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        if self.conv3 is not None and self.bn3 is not None:
            out = self.bn3(self.conv3(F.relu(out, inplace=True)))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)), inplace=True)


class ProjectionHead(nn.Module):
    """SimCLR's head, linear - batch norm - ReLU - linear: (n, features) -> (n, out).

    Parameters
    ----------
    features : int
        Columns of the features.
    hidden : int, optional
        Width of the layer between; by default that of the features.
    out : int, default=128
        Columns of the result.
    """

    def __init__(self, features: int, hidden: int | None = None, out: int = 128) -> None:
        super().__init__()
        hidden = features if hidden is None else hidden
        # The batch norm takes a bias away again.
        self.linear1 = nn.Linear(features, hidden, bias=False)
        self.bn = nn.BatchNorm1d(hidden)
        self.linear2 = nn.Linear(hidden, out)

    def forward(self, features: Tensor) -> Tensor:
        out: Tensor = self.linear2(F.relu(self.bn(self.linear1(features)), inplace=True))
        return out


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
