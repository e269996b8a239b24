"""RealNVP: volume-keeping, and R encoders that do not see one another."""

import functools
import threading

import numpy as np
import pytest
import torch
from torch import nn

from pointdep.contrastive.encoders import realnvp
from pointdep.contrastive.encoders.realnvp import RealNVP
from pointdep.core.critics.build import replica_generators
from refusals import refused

from .compiler import needs_compiler


def made(replicas, dim, couplings=3, hidden=(7, 5), seed=0):
    generators = replica_generators(seed, replicas)
    return RealNVP(replicas, dim, couplings=couplings, hidden=hidden, generators=generators)


def livened(replicas, dim, couplings=3, seed=0):
    """A small float64 encoder with weights large enough to bend its input."""
    encoder = made(replicas, dim, couplings, seed=seed).double()
    generator = torch.Generator().manual_seed(seed)
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, 0.0, 0.5, generator)
    return encoder


def by_hand(encoder, replica, x):
    """One replica's code of one row, coordinate by coordinate."""
    row = x.tolist()
    for coupling, order in enumerate(encoder.permutations[:, replica].tolist()):
        half = len(row) // 2
        hidden = row[:half]
        for depth, layer in enumerate(encoder.shifts[coupling].layers):
            hidden = [max(value, 0.0) for value in hidden] if depth else hidden
            weight, bias = layer.weight[replica].tolist(), layer.bias[replica, 0].tolist()
            hidden = [
                bias[k] + sum(hidden[j] * weight[j][k] for j in range(len(hidden)))
                for k in range(len(bias))
            ]
        row = row[:half] + [a + b for a, b in zip(row[half:], hidden, strict=True)]
        row = [row[k] for k in order]
    return torch.tensor(row, dtype=torch.float64)


@pytest.mark.parametrize("dim", [2, 5, 8])
def test_against_a_loop_over_coordinates(dim):
    encoder, x = livened(3, dim), torch.randn(3, 4, dim, dtype=torch.float64)
    codes = encoder(x)
    assert codes.shape == (3, 4, dim)
    for replica, row in np.ndindex(3, 4):
        torch.testing.assert_close(codes[replica, row], by_hand(encoder, replica, x[replica, row]))
    shared = encoder(torch.stack([x[0]] * 3))  # an input of every replica
    torch.testing.assert_close(encoder(x[0]), shared, atol=0, rtol=0)


def test_volume_is_kept_and_replicas_apart():
    encoder, x = livened(1, 7), torch.randn(7, dtype=torch.float64)
    slopes = torch.autograd.functional.jacobian(lambda x: encoder(x[None])[0, 0], x)
    assert (slopes != 0).sum() > 7  # more than a permutation
    assert torch.linalg.slogdet(slopes).logabsdet.item() == pytest.approx(0.0, abs=1e-9)
    encoder = livened(3, 6)
    encoder(torch.randn(4, 6, dtype=torch.float64))[1].square().sum().backward()
    for parameter in encoder.parameters():
        assert parameter.grad[[0, 2]].abs().max() == 0
        assert parameter.grad[1].abs().max() > 0


@pytest.mark.parametrize("cores", [1, 3, 8])
def test_replicas_are_drawn_in_threads_as_they_would_be_alone(cores, monkeypatch):
    monkeypatch.setattr(realnvp.os, "cpu_count", lambda: cores)
    drawing, waited, threads = RealNVP._draw, threading.Barrier(cores, timeout=20), set()

    def draw(encoder, replica, generator):
        if replica < cores:
            waited.wait()  # that as many are at work as there may be
        threads.add(threading.get_ident())
        drawing(encoder, replica, generator)

    monkeypatch.setattr(RealNVP, "_draw", draw)
    sizes = {"couplings": 2, "hidden": (40, 3)}
    encoder = RealNVP(8, 6, **sizes, generators=replica_generators(4, 8))
    monkeypatch.undo()
    assert len(threads) == cores
    alone = [RealNVP(1, 6, **sizes, generators=[g]) for g in replica_generators(4, 8)]
    for name, value in encoder.state_dict().items():
        parts = [one.state_dict()[name] for one in alone]
        assert torch.equal(value, torch.cat(parts, int(name == "permutations"))), name
    assert not torch.equal(encoder.permutations[:, 0], encoder.permutations[:, 1])


SLICES = [slice(2), slice(2, 4), slice(1, 2), slice(None, None, 2), slice(-1, None), slice(4)]


@pytest.mark.parametrize("chosen", SLICES, ids=str)
def test_a_slice_is_those_replicas_of_the_whole(chosen):
    encoder, exact = livened(4, 7), {"atol": 1e-12, "rtol": 1e-12}
    x = torch.randn(4, 5, 7, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 5, 7, dtype=torch.float64)[chosen]
    known = [x, *encoder.parameters()]
    part, whole = encoder(x[chosen], chosen), encoder(x)[chosen]
    torch.testing.assert_close(part, whole, **exact)
    found, expected = (torch.autograd.grad((c * weight).sum(), known) for c in (part, whole))
    torch.testing.assert_close(found, expected, **exact)
    torch.testing.assert_close(encoder(x[0], chosen), encoder(x[0])[chosen], **exact)


def codes_and_gradients(encoder, x, chosen):
    x = x.clone().requires_grad_()
    codes = encoder(x, chosen)
    return [codes, *torch.autograd.grad(codes.sin().sum(), [x, *encoder.parameters()])]


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
def test_a_compiled_coupling_is_the_plain_one(shared):
    needs_compiler()
    encoder = livened(4, 7)
    x, some = torch.randn(*([] if shared else [4]), 5, 7, dtype=torch.float64), slice(1, 3)
    cases = [(x, slice(None)), (x if shared else x[some], some)]
    plain = [codes_and_gradients(encoder, *case) for case in cases]
    encoder.compile_coupling()
    compiled = [codes_and_gradients(encoder, *case) for case in cases]
    torch.testing.assert_close(compiled, plain, atol=1e-12, rtol=1e-12)


def test_only_training_is_compiled_and_depth_costs_no_compilation(monkeypatch):
    """Evaluation comes with other numbers of images, each of which would be compiled anew."""
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=counter))
    encoder = livened(2, 6, couplings=6)
    encoder.compile_coupling()
    for rows in (3, 4, 5):
        encoder.eval()(torch.randn(rows, 6))
    assert counter.frame_count == 0
    for _ in range(2):
        encoder.train()(torch.randn(3, 6)).sum().backward()
    # The first coupling's input has no gradient, that of the others has.
    assert 1 <= counter.frame_count <= 2


def test_derivatives_and_initial_weights():
    encoder = livened(2, 5, couplings=2)
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    names, weights = zip(*encoder.named_parameters(), strict=True)

    def curved(x, *weights):
        own = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(encoder, own, (x,)).sin()

    assert torch.autograd.gradcheck(curved, (x, *weights), fast_mode=True)
    assert torch.autograd.gradgradcheck(curved, (x, *weights), fast_mode=True)
    encoder = made(2, 60, 4, (128, 128))
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


def test_under_autocast_only_the_shift_is_rounded_and_mistakes():
    encoder = made(2, 10, 3, (16, 16))
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, 0.0, 0.1)
    x, single = torch.randn(4, 10), made(1, 10, 1, (16,))
    with torch.autocast("cpu", torch.bfloat16):
        codes, kept = encoder(x), single(x)[0][:, single.permutations[0, 0] < 5]
    assert codes.dtype == torch.float32
    assert not torch.equal(codes, encoder(x))
    torch.testing.assert_close(codes, encoder(x), atol=2e-2, rtol=0)
    # The first coupling passes its first half on untouched: some numbers are those of x exactly.
    torch.testing.assert_close(kept.sort(-1).values, x[:, :5].sort(-1).values, atol=0, rtol=0)
    refused("dim=1", made, 2, 1)
    encoder = made(4, 6, 1, (3,))
    for replicas, shape in ((slice(2), (4, 5, 6)), (slice(None), (3, 5, 6))):
        refused(r"takes \(\.\.\., n, 6\), got", encoder, torch.zeros(shape), replicas)
