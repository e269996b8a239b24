"""AMDIM: the released layer list counted, its layers rebuilt from patches."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from pointdep.contrastive.encoders.amdim import AMDIMEncoder, ResidualNxN
from pointdep.contrastive.pretraining.deep import GlobalToLocal
from pointdep.errors import InputError

SMALL = {"ndf": 4, "n_rkhs": 24, "depth": 2}


def released_count(ndf: int, n_rkhs: int, depth: int, norms: bool) -> tuple[int, int]:
    """(trunk, heads): the parameters of the released layer list, with or without inner norms."""
    extra = 2 if norms else 0

    def residual(n_in: int, n_out: int, width: int) -> int:
        return n_in * n_out * width**2 + n_out**2 + extra * n_out

    def block(n_in: int, n_out: int, width: int) -> int:
        return residual(n_in, n_out, width) + (depth - 1) * residual(n_out, n_out, 1)

    trunk = 3 * ndf * 9 + ndf + residual(ndf, ndf, 1) + block(ndf, 2 * ndf, 4)
    trunk += block(2 * ndf, 4 * ndf, 2) + extra * 4 * ndf + 2 * block(4 * ndf, 4 * ndf, 3)
    trunk += residual(4 * ndf, n_rkhs, 3) + 2 * n_rkhs
    head = 2 * (4 * ndf * n_rkhs) + n_rkhs + n_rkhs**2 + extra * n_rkhs + 2 * n_rkhs
    return trunk, 2 * head


@pytest.mark.parametrize(
    ("batch_norm", "trunk", "whole"),
    [(True, 54_836_352, 64_288_896), (False, 54_788_352, 64_234_752)],
)
def test_parameter_count(batch_norm: bool, trunk: int, whole: int) -> None:
    with torch.device("meta"):
        encoder = AMDIMEncoder(batch_norm=batch_norm)
    counts = {name: p.numel() for name, p in encoder.named_parameters()}
    heads = sum(count for name, count in counts.items() if name.startswith("head"))
    assert (sum(counts.values()) - heads, sum(counts.values())) == (trunk, whole)
    assert released_count(192, 1536, 8, batch_norm) == (trunk, whole - trunk)


def test_feature_maps_at_full_size() -> None:
    encoder = AMDIMEncoder()
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        maps = encoder(x)
        alone = encoder.features(x)
    assert [tuple(m.shape) for m in maps] == [(2, 1536), (2, 1536, 5, 5), (2, 1536, 7, 7)]
    torch.testing.assert_close(alone, maps.one)
    assert encoder.feature_dim == 1536


def livened(**options: bool) -> AMDIMEncoder:
    """A small float64 encoder whose weights and running statistics are all at work."""
    encoder = AMDIMEncoder(**SMALL, **options).double().eval()
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, 0.2, 0.3)
    for name, buffer in encoder.named_buffers():
        if "running" in name:
            nn.init.uniform_(buffer, 0.5, 1.5)
    return encoder


def patches(x: Tensor, width: int, stride: int) -> Tensor:
    """(n, c, h, w) -> (n, c, width * width, h', w')."""
    return x.unfold(2, width, stride).unfold(3, width, stride).flatten(4).movedim(4, 2)


def convolved(x: Tensor, conv: nn.Conv2d) -> Tensor:
    x = patches(x, conv.kernel_size[0], conv.stride[0])
    out = torch.einsum("ncphw,ocp->nohw", x, conv.weight.flatten(2))
    return out if conv.bias is None else out + conv.bias[:, None, None]


def normed(x: Tensor, norm: nn.Module) -> Tensor:
    if isinstance(norm, nn.Identity):
        return x
    scale = norm.weight / (norm.running_var + 1e-5).sqrt()
    return (x - norm.running_mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]


def residual(x: Tensor, layer: ResidualNxN) -> Tensor:
    out = convolved(normed(convolved(x, layer.conv1), layer.bn).clamp(min=0), layer.conv2)
    pooled = patches(x, layer.conv1.kernel_size[0], layer.conv1.stride[0]).mean(2)
    out[:, : pooled.shape[1]] += pooled
    return out


@pytest.mark.parametrize("batch_norm", [False, True])
def test_forward_against_patches(batch_norm: bool) -> None:
    encoder = livened(batch_norm=batch_norm)
    x = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        maps = encoder(x)
        seven = convolved(x, encoder.stem).clamp(min=0)
        lone, wide4, wide2, norm = encoder.to_seven
        for layer in (lone, *wide4, *wide2):
            seven = residual(seven, layer)
        seven = five = normed(seven, norm)
        for layer in encoder.to_five:
            five = residual(five, layer)
        one, (block, last, norm) = five, encoder.to_one
        for layer in (*block, last):
            one = residual(one, layer)
        torch.testing.assert_close(maps.one, normed(one, norm).flatten(1))
        for got, trunk, head in (
            (maps.five, five, encoder.head_five),
            (maps.seven, seven, encoder.head_seven),
        ):
            branch = normed(convolved(trunk, head.conv1), head.bn_hidden).clamp(min=0)
            out = convolved(branch, head.conv2) + convolved(trunk, head.shortcut)
            torch.testing.assert_close(got, normed(out, head.bn))


def test_initial_weights() -> None:
    encoder = AMDIMEncoder(ndf=16, n_rkhs=80, depth=2)
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        stem = convolved(x, encoder.stem).clamp(min=0)
        pooled = patches(patches(stem, 4, 2).mean(2), 2, 2).mean(2)
        seven = encoder.to_seven(encoder.stem(x).relu())
    torch.testing.assert_close(seven[:, :16], pooled)  # every residual branch starts at zero
    assert seven[:, 16:].abs().max() == 0
    first = encoder.to_five[0].conv1.weight
    bound = 1 / math.sqrt(64 * 9)  # kaiming uniform with a = sqrt(5)
    assert 0.99 * bound < first.abs().max().item() <= bound
    shortcut = encoder.head_five.shortcut.weight[:, :, 0, 0]
    assert (shortcut[:64].diagonal() == 1).all()
    shortcut[:64].detach().fill_diagonal_(0)
    assert 0.0099 < shortcut.abs().max().item() <= 0.01


@pytest.mark.parametrize("batch_norm", [False, True])
def test_channels_last_and_every_parameter_gets_a_gradient(batch_norm: bool) -> None:
    encoder = AMDIMEncoder(**SMALL, batch_norm=batch_norm)
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, 0.1, 0.1)
    x = torch.rand(2, 4, 3, 32, 32)
    plain = encoder(x[0])
    encoder = encoder.to(memory_format=torch.channels_last)
    maps1, maps2 = (encoder(v.contiguous(memory_format=torch.channels_last)) for v in x)
    for one, other in zip(plain, maps1, strict=True):
        torch.testing.assert_close(other, one, atol=1e-4, rtol=1e-4)
    assert maps1.five.is_contiguous(memory_format=torch.channels_last)
    GlobalToLocal("cpc")(maps1, maps2).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match=r"n_rkhs=24 must be at least 4 \* ndf, 32"):
        AMDIMEncoder(ndf=8, n_rkhs=24)
    with pytest.raises(InputError, match="32 x 32"):
        AMDIMEncoder(**SMALL)(torch.zeros(2, 3, 28, 28))
