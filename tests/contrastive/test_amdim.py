"""AMDIM: the released layers counted and rebuilt from patches, the costs as loops over cells."""

import itertools
import math

import pytest
import torch
from torch import nn

from core import reference
from pointdep.contrastive.encoders.amdim import AMDIMEncoder, FeatureMaps
from pointdep.contrastive.pretraining.deep import GlobalToLocal
from pointdep.contrastive.pretraining.protocols import METHOD_OF
from refusals import refused

SMALL = {"ndf": 4, "n_rkhs": 24, "depth": 2}


def released_count(ndf, n_rkhs, depth, norms):
    """(trunk, heads): the parameters of the released layer list, with or without inner norms."""
    extra = 2 if norms else 0

    def residual(n_in, n_out, width):
        return n_in * n_out * width**2 + n_out**2 + extra * n_out

    def block(n_in, n_out, width):
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
def test_parameter_count(batch_norm, trunk, whole):
    with torch.device("meta"):
        encoder = AMDIMEncoder(batch_norm=batch_norm)
    counts = {name: p.numel() for name, p in encoder.named_parameters()}
    heads = sum(count for name, count in counts.items() if name.startswith("head"))
    assert (sum(counts.values()) - heads, sum(counts.values())) == (trunk, whole)
    assert released_count(192, 1536, 8, batch_norm) == (trunk, whole - trunk)
    maps = encoder(torch.empty(2, 3, 32, 32, device="meta"))
    assert [tuple(m.shape) for m in maps] == [(2, 1536), (2, 1536, 5, 5), (2, 1536, 7, 7)]
    assert encoder.feature_dim == 1536


def livened(**options):
    """A small float64 encoder whose weights and running statistics are all at work."""
    encoder = AMDIMEncoder(**SMALL, **options).double().eval()
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, 0.2, 0.3)
    for name, buffer in encoder.named_buffers():
        if "running" in name:
            nn.init.uniform_(buffer, 0.5, 1.5)
    return encoder


def patches(x, width, stride):
    """(n, c, h, w) -> (n, c, width * width, h', w')."""
    return x.unfold(2, width, stride).unfold(3, width, stride).flatten(4).movedim(4, 2)


def convolved(x, conv):
    x = patches(x, conv.kernel_size[0], conv.stride[0])
    out = torch.einsum("ncphw,ocp->nohw", x, conv.weight.flatten(2))
    return out if conv.bias is None else out + conv.bias[:, None, None]


def normed(x, norm):
    if isinstance(norm, nn.Identity):
        return x
    scale = norm.weight / (norm.running_var + 1e-5).sqrt()
    return (x - norm.running_mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]


def residual(x, layer):
    out = convolved(normed(convolved(x, layer.conv1), layer.bn).clamp(min=0), layer.conv2)
    pooled = patches(x, layer.conv1.kernel_size[0], layer.conv1.stride[0]).mean(2)
    out[:, : pooled.shape[1]] += pooled
    return out


@pytest.mark.parametrize("batch_norm", [False, True])
def test_forward_against_patches(batch_norm):
    encoder, x = livened(batch_norm=batch_norm), torch.rand(2, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        maps, seven = encoder(x), convolved(x, encoder.stem).clamp(min=0)
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
        torch.testing.assert_close(encoder.features(x), maps.one)
        parts = (maps.five, five, encoder.head_five), (maps.seven, seven, encoder.head_seven)
        for got, trunk, head in parts:
            branch = normed(convolved(trunk, head.conv1), head.bn_hidden).clamp(min=0)
            out = convolved(branch, head.conv2) + convolved(trunk, head.shortcut)
            torch.testing.assert_close(got, normed(out, head.bn))


def test_initial_weights():
    encoder, x = AMDIMEncoder(ndf=16, n_rkhs=80, depth=2), torch.rand(2, 3, 32, 32)
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
def test_channels_last_and_every_parameter_gets_a_gradient(batch_norm):
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
    costs, regulariser = GlobalToLocal("cpc")(maps1, maps2, torch.zeros(2, 4, dtype=torch.long))
    (costs.sum() + regulariser).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


BY_HAND = {
    "cpc": reference.cpc,
    "pcc": reference.js,
    "drfc": lambda s, j, p: reference.drf(s, j, p, alpha=0.01),
    "variational": reference.js,
    "dm1": reference.dm1,
    "dm2": reference.dm2,
    "rpc": reference.rpc,
}


def drawn_maps(seed, n=3, width=6):
    generator = torch.Generator().manual_seed(seed)
    shapes = (n, width), (n, width, 5, 5), (n, width, 7, 7)
    return FeatureMaps(*(torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes))


def loop_cost(name, source, target):
    """(cost, regulariser) of one direction. source: (n, d), target: (n, d, h, w)."""
    n, width, h, w = target.shape
    scores, squares = [[] for _ in range(n)], 0.0
    for i, j, row, column in itertools.product(range(n), range(n), range(h), range(w)):
        own = (source[i, k].item() * target[j, k, row, column].item() for k in range(width))
        score = sum(own) / math.sqrt(width)
        squares += score**2 / (n * n * h * w)
        scores[i].append(score if name in {"drfc", "rpc"} else 20 * math.tanh(score / 20))
    joint = [[float(i == j) for j in range(n) for _ in range(h * w)] for i in range(n)]
    cost = -BY_HAND[name](scores, joint, [[1 - weight for weight in row] for row in joint])
    return cost, 0.0 if name in {"drfc", "rpc"} else 0.05 * squares


@pytest.mark.parametrize("name", METHOD_OF)
def test_costs_against_loops_over_images_and_cells(name):
    """And of maps in half precision, scored in full."""
    maps1, maps2 = drawn_maps(0), drawn_maps(1)
    cells, cost = torch.tensor([[0, 7, 24], [13, 7, 4]]), GlobalToLocal(name)
    costs, found = cost(maps1, maps2, cells)
    sources = [
        torch.stack([maps.five[i, :, c // 5, c % 5] for i, c in enumerate(chosen.tolist())])
        for maps, chosen in ((maps1, cells[0]), (maps2, cells[1]))
    ]
    expected, regulariser = [], 0.0
    for (source1, source2), (target1, target2) in (
        ((maps1.one, maps2.one), (maps1.five, maps2.five)),
        ((maps1.one, maps2.one), (maps1.seven, maps2.seven)),
        (sources, (maps1.five, maps2.five)),
    ):
        there, back = loop_cost(name, source1, target2), loop_cost(name, source2, target1)
        expected.append((there[0] + back[0]) / 2)
        regulariser += (there[1] + back[1]) / 2
    assert [*costs.tolist(), found.item()] == pytest.approx([*expected, regulariser], rel=1e-9)
    maps1, maps2 = (FeatureMaps(*(m.bfloat16() for m in maps)) for maps in (maps1, maps2))
    half = cost(maps1, maps2, cells)
    full = cost(*(FeatureMaps(*(m.double() for m in maps)) for maps in (maps1, maps2)), cells)
    for ours, exact in zip(half, full, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), exact, atol=2e-2, rtol=2e-2)


def test_cpc_is_the_released_cross_entropy_up_to_a_constant():
    maps1, maps2 = drawn_maps(0), drawn_maps(1)
    (_, got, _), _ = GlobalToLocal("cpc")(maps1, maps2, torch.zeros(2, 3, dtype=torch.long))
    losses = []
    for source, target in ((maps1.one, maps2.seven), (maps2.one, maps1.seven)):
        for i in range(3):
            scores = 20 * torch.tanh(torch.einsum("d,jdhw->jhw", source[i], target) / 6**0.5 / 20)
            others = torch.cat([scores[:i], scores[i + 1 :]]).flatten()
            for positive in scores[i].flatten():
                logits = torch.cat([positive[None], others])
                losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(0)))
    torch.testing.assert_close(got, torch.stack(losses).mean() - math.log(1 + 2 * 49))


def test_mistakes_are_named():
    for message, make, options in (
        (r"n_rkhs=24 .* 32", AMDIMEncoder, {"ndf": 8, "n_rkhs": 24}),
        ("did you mean 'drfc'", GlobalToLocal, {"objective": "drf"}),
        (r"alpha=1\.0", GlobalToLocal, {"objective": "drfc", "alpha": 1.0}),
        (r"clip=0\.0", GlobalToLocal, {"objective": "cpc", "clip": 0.0}),
        ("clip='wide' .* number", GlobalToLocal, {"objective": "cpc", "clip": "wide"}),
    ):
        refused(message, make, **options)
    refused("32 x 32", AMDIMEncoder(**SMALL), torch.zeros(2, 3, 28, 28))
    maps = drawn_maps(0, n=1)
    refused("one im", GlobalToLocal("cpc"), maps, maps, torch.zeros(2, 1).long())


SPLITS = {"even": (2, 2), "uneven": (1, 3)}


def costs_and_gradients(name, rows):
    drawn = (drawn_maps(seed, n=4, width=5) for seed in (0, 1))
    leaves = [[m[rows].clone().requires_grad_() for m in maps] for maps in drawn]
    cells = torch.tensor([[0, 7, 24, 3], [13, 7, 4, 20]])[:, rows]
    got = torch.hstack(GlobalToLocal(name)(*(FeatureMaps(*maps) for maps in leaves), cells))
    got.sum().backward()
    return got.detach(), [leaf.grad for maps in leaves for leaf in maps]


def costs_of(rank):
    """What one of two processes finds, by objective and split."""
    found = {}
    for name, (split, sizes) in itertools.product(METHOD_OF, SPLITS.items()):
        rows = slice(0, sizes[0]) if rank == 0 else slice(sizes[0], 4)
        found[name, split] = costs_and_gradients(name, rows)
    return found
