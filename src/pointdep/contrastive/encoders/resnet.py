"""ResNet-18 and ResNet-50 for 32 x 32 images, and SimCLR's projection head."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from pointdep.errors import InputError, require_whole


class ResNet(nn.Module):
    """x: (n, channels, h, w) -> features (n, feature_dim), 512 for depth 18 and 2048 for depth 50.

    The CIFAR stem: a 3x3 convolution of stride 1 and no max-pool; the classifier is left out. All
    else, the names of the weights included, is as in torchvision, so that exported weights load
    into its ``resnet18`` or ``resnet50`` once that model's ``conv1`` is replaced by a 3x3
    convolution of stride 1, padding 1 and no bias, and its ``maxpool`` and ``fc`` by the identity.
    """

    def __init__(self, depth: int = 18, *, channels: int = 3, width: int = 64) -> None:
        super().__init__()
        if depth not in _LAYOUTS:
            raise InputError(f"depth={depth!r} must be 18 or 50")
        require_whole("channels", channels)
        require_whole("width", width)
        block, counts = _LAYOUTS[depth]
        self.conv1 = _conv(channels, width, 3)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        layers = []
        for level, count in enumerate(counts):
            planes = width << level
            layers.append(_layer(block, inputs, planes, count, stride=1 if level == 0 else 2))
            inputs = planes * block.expansion
        self.layer1, self.layer2, self.layer3, self.layer4 = layers
        self.feature_dim = inputs
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean((2, 3))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, planes, 3, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = _conv(planes, planes, 3)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = _downsample(inputs, planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        return F.relu(out + _shortcut(self.downsample, x), inplace=True)


class Bottleneck(nn.Module):
    """1x1, 3x3 (which carries the stride) and 1x1 convolutions beside a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        outputs = planes * self.expansion
        self.conv1 = _conv(inputs, planes, 1)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = _conv(planes, planes, 3, stride)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = _conv(planes, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = _downsample(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = F.relu(self.bn2(self.conv2(out)), inplace=True)
        out = self.bn3(self.conv3(out))
        return F.relu(out + _shortcut(self.downsample, x), inplace=True)


class ProjectionHead(nn.Module):
    """SimCLR's head, linear - batch norm - ReLU - linear: (n, features) -> (n, out).

    hidden: the width between, that of the features unless given.
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


Block = type[BasicBlock] | type[Bottleneck]
_LAYOUTS: dict[int, tuple[Block, tuple[int, ...]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    50: (Bottleneck, (3, 4, 6, 3)),
}


def _layer(block: Block, inputs: int, planes: int, count: int, stride: int) -> nn.Sequential:
    first = block(inputs, planes, stride)
    rest = [block(planes * block.expansion, planes, 1) for _ in range(count - 1)]
    return nn.Sequential(first, *rest)


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


def _downsample(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


def _shortcut(downsample: nn.Sequential | None, x: Tensor) -> Tensor:
    return x if downsample is None else downsample(x)
