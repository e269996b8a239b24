"""ResNet with the CIFAR stem: torchvision's layers and names, counted and rebuilt by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pointdep.contrastive.encoders.resnet import ProjectionHead, ResNet
from refusals import refused

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


def expected_shapes(depth, channels=3, width=64):
    """The parameters torchvision's model has, but for its stem and classifier."""
    shapes: dict[str, tuple[int, ...]] = {}

    def convolution(conv, norm, n_in, n_out, kernel):
        shapes[f"{conv}.weight"] = (n_out, n_in, kernel, kernel)
        shapes[f"{norm}.weight"] = shapes[f"{norm}.bias"] = (n_out,)

    convolution("conv1", "bn1", channels, width, 3)
    inputs = width
    for level, count in enumerate(BLOCKS[depth]):
        planes = width * 2**level
        outputs = planes * (1 if depth == 18 else 4)
        for k in range(count):
            at = f"layer{level + 1}.{k}"
            kernels = (3, 3) if depth == 18 else (1, 3, 1)
            widths = [inputs, *[planes] * (len(kernels) - 1), outputs]
            for c, kernel in enumerate(kernels):
                names = f"{at}.conv{c + 1}", f"{at}.bn{c + 1}"
                convolution(*names, widths[c], widths[c + 1], kernel)
            if inputs != outputs:
                convolution(f"{at}.downsample.0", f"{at}.downsample.1", inputs, outputs, 1)
            inputs = outputs
    return shapes


@pytest.mark.parametrize(("depth", "count"), [(18, 11_168_832), (50, 23_500_352)])
def test_parameters_names_and_count(depth, count):
    with torch.device("meta"):
        model = ResNet(depth)
    assert {name: tuple(p.shape) for name, p in model.named_parameters()} == expected_shapes(depth)
    assert sum(p.numel() for p in model.parameters()) == count
    assert model.feature_dim == (512 if depth == 18 else 2048)


def by_hand(state, depth, x):
    """The network as a list of functional calls on a state dict of torchvision's names."""

    def step(x, conv, norm, stride=1):
        weight = state[f"{conv}.weight"]
        x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        mean = state[f"{norm}.running_mean"][:, None, None]
        scale = (state[f"{norm}.running_var"] + 1e-5).sqrt()[:, None, None]
        gain, bias = (state[f"{norm}.{part}"][:, None, None] for part in ("weight", "bias"))
        return (x - mean) / scale * gain + bias

    x = step(x, "conv1", "bn1").clamp(min=0)
    for level, count in enumerate(BLOCKS[depth]):
        for k in range(count):
            at, stride = f"layer{level + 1}.{k}", 2 if level and k == 0 else 1
            strides = (stride, 1) if depth == 18 else (1, stride, 1)
            out = x
            for c, s in enumerate(strides):
                out = step(out if c == 0 else out.relu(), f"{at}.conv{c + 1}", f"{at}.bn{c + 1}", s)
            if f"{at}.downsample.0.weight" in state:
                x = step(x, f"{at}.downsample.0", f"{at}.downsample.1", stride)
            x = (out + x).clamp(min=0)
    return x.flatten(2).sum(-1) / (x.shape[-1] * x.shape[-2])


@pytest.mark.parametrize("depth", [18, 50])
def test_forward_against_functional_calls(depth):
    model = ResNet(depth, channels=2, width=4).double().eval()
    for name, buffer in model.named_buffers():
        if "running" in name:
            nn.init.uniform_(buffer, 0.5, 1.5)
    x = torch.randn(2, 2, 16, 16, dtype=torch.float64)
    features = model(x)
    assert features.shape == (2, model.feature_dim)
    torch.testing.assert_close(features, by_hand(model.state_dict(), depth, x))


def test_initial_weights_and_head():
    refused("depth=34 must be 18 or 50", ResNet, 34)
    model = ResNet(18)
    weight = model.layer3[0].conv1.weight
    assert weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.02)
    assert model.bn1.weight.min() == model.bn1.weight.max() == 1
    head = ProjectionHead(6, out=3).double()
    assert sum(p.numel() for p in head.parameters()) == 36 + 12 + 18 + 3
    x = torch.randn(5, 6, dtype=torch.float64)
    hidden = x @ head.linear1.weight.T
    hidden = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt()
    expected = hidden.clamp(min=0) @ head.linear2.weight.T + head.linear2.bias
    torch.testing.assert_close(head(x), expected)
    assert ProjectionHead(6, 4, 3)(torch.randn(2, 6)).shape == (2, 3)


@pytest.mark.parametrize("depth", [18, 50])
def test_weights_load_into_torchvision(depth):
    theirs = getattr(pytest.importorskip("torchvision.models"), f"resnet{depth}")()
    theirs.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    theirs.maxpool = theirs.fc = nn.Identity()
    ours = ResNet(depth).eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(theirs.eval()(x), ours(x), atol=1e-5, rtol=1e-4)
