"""RealNVP: invertible, volume-keeping, and R encoders that do not see one another."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pointdep.contrastive.encoders.realnvp import RealNVP
from pointdep.core.critics.build import replica_generators
from pointdep.errors import InputError


def livened(replicas: int, dim: int, couplings: int = 3, seed: int = 0) -> RealNVP:
    """A small float64 encoder with weights large enough to bend its input."""
    encoder = RealNVP(replicas, dim, couplings=couplings, hidden=(7, 5)).double()
    encoder.reset(replica_generators(seed, replicas))
    generator = torch.Generator().manual_seed(seed)
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, 0.0, 0.5, generator)
    return encoder


def by_hand(encoder: RealNVP, replica: int, x: Tensor) -> Tensor:
    """One replica's code of one row, coordinate by coordinate."""
    row = x.tolist()
    for coupling, order in enumerate(encoder.permutations[:, replica].tolist()):
        half = len(row) // 2
        hidden = row[:half]
        layers = encoder.shifts[coupling].layers
        for depth, layer in enumerate(layers):
            weight, bias = layer.weight[replica].tolist(), layer.bias[replica, 0].tolist()
            hidden = [
                bias[k] + sum(hidden[j] * weight[j][k] for j in range(len(hidden)))
                for k in range(len(bias))
            ]
            if depth < len(layers) - 1:
                hidden = [max(value, 0.0) for value in hidden]
        row = row[:half] + [a + b for a, b in zip(row[half:], hidden, strict=True)]
        row = [row[k] for k in order]
    return torch.tensor(row, dtype=torch.float64)


@pytest.mark.parametrize("dim", [2, 5, 8])
def test_against_a_loop_over_coordinates(dim: int) -> None:
    encoder = livened(3, dim)
    x = torch.randn(3, 4, dim, dtype=torch.float64)
    codes = encoder(x)
    assert codes.shape == (3, 4, dim)
    for replica in range(3):
        for row in range(4):
            expected = by_hand(encoder, replica, x[replica, row])
            torch.testing.assert_close(codes[replica, row], expected)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(2, 9), st.integers(1, 6), st.integers(0, 1000))
def test_inverse_undoes_forward(replicas: int, dim: int, couplings: int, seed: int) -> None:
    encoder = livened(replicas, dim, couplings, seed)
    x = torch.randn(replicas, 3, dim, dtype=torch.float64)
    torch.testing.assert_close(encoder.inverse(encoder(x)), x, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(encoder(encoder.inverse(x)), x, atol=1e-9, rtol=1e-9)


def test_volume_is_kept() -> None:
    encoder = livened(1, 7)
    point = torch.randn(7, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: encoder(x[None])[0, 0], point)
    assert (jacobian != 0).sum() > 7  # more than a permutation
    torch.testing.assert_close(
        torch.linalg.slogdet(jacobian).logabsdet.item(), 0.0, atol=1e-9, rtol=0
    )


def test_a_shared_input_is_that_of_every_replica() -> None:
    encoder = livened(3, 6)
    x = torch.randn(5, 6, dtype=torch.float64)
    torch.testing.assert_close(encoder(x), encoder(torch.stack([x, x, x])), atol=0, rtol=0)
    torch.testing.assert_close(encoder.inverse(x), encoder.inverse(torch.stack([x, x, x])))


def test_a_replica_depends_on_its_own_generator_alone() -> None:
    three, two = (RealNVP(r, 6, couplings=2, hidden=(4,)) for r in (3, 2))
    generators = replica_generators(7, 3)
    three.reset(generators)
    two.reset([torch.Generator().manual_seed(generators[k].initial_seed()) for k in (2, 0)])
    for one, other in zip(three.state_dict().values(), two.state_dict().values(), strict=True):
        replica_first = 0 if one.is_floating_point() else 1
        torch.testing.assert_close(one.index_select(replica_first, torch.tensor([2, 0])), other)
    assert not torch.equal(three.permutations[:, 0], three.permutations[:, 1])


def test_a_replica_gets_no_gradient_from_another() -> None:
    encoder = livened(3, 6)
    encoder(torch.randn(4, 6, dtype=torch.float64))[1].square().sum().backward()
    for parameter in encoder.parameters():
        assert parameter.grad is not None
        assert parameter.grad[[0, 2]].abs().max() == 0
        assert parameter.grad[1].abs().max() > 0


@pytest.mark.parametrize("drawn_again", [False, True])
def test_initial_weights(drawn_again: bool) -> None:
    encoder = RealNVP(2, 60, couplings=4, hidden=(128, 128))
    if drawn_again:
        encoder.reset(replica_generators(0, 2))
    kernels = torch.cat([p.flatten() for n, p in encoder.named_parameters() if "weight" in n])
    # A standard normal cut at two standard deviations has a standard deviation of 0.8796.
    assert kernels.std().item() == pytest.approx(0.8796e-4, rel=0.01)
    assert abs(kernels.mean().item()) < 1e-6
    assert 1.99e-4 < kernels.abs().max().item() <= 2e-4
    assert all(p.abs().max() == 0 for n, p in encoder.named_parameters() if "bias" in n)
    for permutation in encoder.permutations.flatten(0, 1):
        assert sorted(permutation.tolist()) == list(range(60))
    x = torch.rand(3, 60)
    torch.testing.assert_close(encoder(x).sort(-1).values[0], x.sort(-1).values, atol=1e-5, rtol=0)


def test_under_autocast_only_the_shift_is_rounded() -> None:
    encoder = RealNVP(2, 10, couplings=3, hidden=(16, 16))
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, 0.0, 0.1)
    x = torch.randn(4, 10)
    with torch.autocast("cpu", torch.bfloat16):
        codes = encoder(x)
    assert codes.dtype == torch.float32
    assert not torch.equal(codes, encoder(x))
    torch.testing.assert_close(codes, encoder(x), atol=2e-2, rtol=0)
    # The first coupling passes its first half on untouched: some numbers are those of x exactly.
    single = RealNVP(1, 10, couplings=1, hidden=(16,))
    with torch.autocast("cpu", torch.bfloat16):
        kept = single(x)[0][:, single.permutations[0, 0] < 5]
    torch.testing.assert_close(kept.sort(-1).values, x[:, :5].sort(-1).values, atol=0, rtol=0)


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match="dim=1 must be at least 2"):
        RealNVP(2, 1)
    encoder = RealNVP(2, 4, couplings=1, hidden=(3,))
    with pytest.raises(InputError, match=r"\(n, 4\) or \(2, n, 4\), got \(3, 5, 4\)"):
        encoder(torch.zeros(3, 5, 4))
    with pytest.raises(InputError, match="as many generators"):
        encoder.reset(replica_generators(0, 3))
