"""Objectives without the matrix of scores, against the same objectives of the matrix."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from pointdep.core import objectives, readouts
from pointdep.core.blocked import InnerScores, Others, Pairs
from refusals import refused

from ..reference import CASES
from .drawn import WEIGHTS, draw

# The diagonal's plain mean needs no walk over cells.
NAMES = [name for name in CASES if name != "squared_loss_mi"]


def compared(case, drawn, upstream_seed=5):
    """(ours, theirs) of the values, with and without gradients wanted, and of each gradient."""
    ours, theirs = case(drawn.inner, **drawn.inner_weights), case(drawn.matrix, **drawn.weights)
    with torch.no_grad():
        value_alone = case(drawn.inner, **drawn.inner_weights)
    generator = torch.Generator().manual_seed(upstream_seed)
    upstream = torch.rand(theirs.shape, generator=generator).to(theirs) + 0.5
    pairs = [(ours.detach(), theirs.detach()), (value_alone, theirs.detach())]
    gradients = [torch.autograd.grad(value, drawn.inputs, upstream) for value in (ours, theirs)]
    return pairs + list(zip(*gradients, strict=True))


def assert_same(case, drawn, tolerance):
    pairs = compared(case, drawn)
    # A gradient may be zero but for rounding, as that of own_x is under cpc.
    largest = max(float(theirs.abs().max()) for _, theirs in pairs)
    for ours, theirs in pairs:
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        bound = tolerance * max(float(theirs.abs().max()), 1e-2 * largest)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=bound)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_weights(name, weights):
    for lead in ((), (3,)):
        assert_same(CASES[name], draw(lead, 11, 3, weights=weights, own=2), 1e-10)
    if weights == "none":
        drawn = draw((2,), 301, 16, cells=9000, dtype=torch.float32, scale=0.5, own=1)
        assert_same(CASES[name], drawn, 1e-5)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([(), (1,), (3,), (2, 2)]), st.integers(2, 40), st.integers(1, 6),
    st.integers(1, 4000), st.sampled_from(WEIGHTS), st.integers(0, 2), st.integers(0, 10),
    st.sampled_from(NAMES),
)  # fmt: skip
def test_any_size_block_and_replicas(lead, n, e, cells, weights, own, seed, name):
    drawn = draw(lead, n, e, cells=cells, weights=weights, own=own, seed=seed)
    assert_same(CASES[name], drawn, 1e-10)


@settings(deadline=None, max_examples=60)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 4)), st.integers(2, 9), st.integers(1, 500),
    st.sampled_from(WEIGHTS), st.sampled_from(NAMES),
)  # fmt: skip
def test_parts_are_one_batch(lead, n, cells, weights, name):
    """As the engine lays blocks of rows below each other."""
    drawn = draw(lead, n, 3, cells=cells, weights=weights, own=1, parts=True)
    assert drawn.inner.shape == drawn.matrix.shape
    assert_same(CASES[name], drawn, 1e-10)


@pytest.mark.parametrize(
    "link", [readouts.drf_inverse, lambda t: torch.asinh(0.5 * t) + 1.0, lambda t: t]
)
@pytest.mark.parametrize("name", ["pc", "cpc", "dv", "drf_alpha"])
def test_links(name, link):
    for weights in ("none", "rows and ids"):
        drawn = draw((2,), 8, 3, weights=weights, own=2, scale=0.7)
        linked = drawn._replace(inner=drawn.inner.linked(link), matrix=link(drawn.matrix))
        assert_same(CASES[name], linked, 1e-10)


@pytest.mark.parametrize("shift", [-300.0, -60.0, 60.0, 300.0])
@pytest.mark.parametrize("name", ["dv", "dm2", "cpc", "smile_bound"])
def test_pairs_far_from_the_other_cells(name, shift):
    """The highest score of a pair is no guide to the others here; float32 holds no exp(90)."""
    n, e = 12, 3
    drawn = draw(n=n, e=e, dtype=torch.float32)
    x, y = (torch.cat([side.detach(), torch.eye(n)], 1) for side in drawn.inputs)
    x, y = x.requires_grad_(), (y * torch.tensor([1.0] * e + [shift] * n)).requires_grad_()
    far = drawn._replace(inner=InnerScores(x, y, cells=30), matrix=x @ y.T, inputs=[x, y])
    assert_same(CASES[name], far, 1e-5)


def test_neighbours_and_cells_of_weight_zero_may_hold_anything():
    x, y = torch.randn(2, 2, 9, 4, generator=torch.Generator().manual_seed(0))
    alone = objectives.dv(InnerScores(x[:1], y[:1]))
    for value in (100.0, math.inf, math.nan):
        x[1, 0] = value
        assert torch.equal(objectives.dv(InnerScores(x, y))[:1], alone)
    drawn = draw(n=7, weights="rows")
    away = int(torch.nonzero(drawn.inner_weights["product"].rows == 0)[0])
    own_x = torch.zeros(7, dtype=torch.float64)
    for name, strange in itertools.product(NAMES, (math.inf, math.nan)):
        clean = CASES[name](drawn.inner, **drawn.inner_weights)
        expected = torch.autograd.grad(clean, drawn.inputs)
        own_x[away] = strange
        value = CASES[name](InnerScores(*drawn.inputs, own_x, cells=5), **drawn.inner_weights)
        torch.testing.assert_close(value, clean)
        torch.testing.assert_close(torch.autograd.grad(value, drawn.inputs), expected)


def test_moving_average_and_rectangular_scores():
    drawn = draw((3,), 10, 4, cells=17)
    before = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    ours = objectives.dv_moving_average(drawn.inner, before)
    theirs = objectives.dv_moving_average(drawn.matrix, before)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=0)
    both = (torch.autograd.grad(value.sum(), drawn.inputs) for value, _ in (ours, theirs))
    torch.testing.assert_close(*both, rtol=1e-10, atol=1e-12)
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(k, 3, generator=generator, dtype=torch.float64) for k in (5, 8))
    joint, product = torch.rand(2, 5, 8, generator=generator, dtype=torch.float64)
    for name in NAMES:
        if name != "cpc":
            ours = CASES[name](InnerScores(x, y, cells=7), joint, product)
            torch.testing.assert_close(ours, CASES[name](x @ y.T, joint, product))


class Largest(TorchDispatchMode):
    """The size of the largest tensor that any operation makes."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for part in out if isinstance(out, tuple | list) else [out]:
            if isinstance(part, torch.Tensor):
                self.numbers = max(self.numbers, part.numel())
        return out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weights", ["none", "rows and ids"])
def test_nothing_of_the_size_of_the_matrix(name, weights):
    drawn = draw(n=400, e=3, cells=900, weights=weights)
    with Largest() as seen:
        torch.autograd.grad(CASES[name](drawn.inner, **drawn.inner_weights), drawn.inputs)
    assert 400 * 3 <= seen.numbers <= 400 * 5


@pytest.mark.parametrize("name", ["drf", "drf_alpha", "rpc"])
def test_quadratic_objectives_walk_over_no_cells(name, monkeypatch):
    drawn = draw((2,), 30, 4, own=2)
    expected = CASES[name](drawn.matrix)
    monkeypatch.delattr("pointdep.core.blocked.inner_scores.cell_sums")
    torch.testing.assert_close(CASES[name](drawn.inner), expected)


def test_half_precision_and_autocast():
    half = draw(n=40, e=8, dtype=torch.float32, scale=0.5, cells=100).inner.to(torch.bfloat16)
    for objective in (objectives.pc, objectives.cpc, objectives.drf):
        whole = objective(half.to(torch.float32))
        torch.testing.assert_close(objective(half), whole)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(objective(half.to(torch.float32)), whole)


@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives(name):
    """Also of one tensor on both sides, and by torch.func."""
    drawn = draw(n=5, e=2, cells=6, weights="rows and ids", own=1)

    def value(*inputs):
        return CASES[name](InnerScores(*inputs, cells=6), **drawn.inner_weights)

    assert torch.autograd.gradgradcheck(value, drawn.inputs)
    x = drawn.inputs[0]
    assert torch.autograd.gradgradcheck(lambda z: CASES[name](InnerScores(z, z, cells=6)), (x,))
    if name in ("js", "pc", "cpc", "drf"):  # the others look at their reference
        expected = torch.autograd.grad(value(*drawn.inputs), x)[0]
        found = torch.func.grad(value)(*(part.detach() for part in drawn.inputs))
        torch.testing.assert_close(found, expected)


def test_bad_input():
    x = torch.zeros(4, 3)
    inner = InnerScores(x, x)
    for y in (torch.zeros(4, 2), torch.zeros(2, 4, 3)):
        refused("no inner products", InnerScores, x, y)
    refused("square", objectives.js, InnerScores(x, torch.zeros(5, 3)))
    refused("one pair", objectives.pc, InnerScores(x[:1], x[:1]))
    refused("weights", objectives.pc, inner, product=torch.ones(4, 3))
    refused("joint.*diagonal", objectives.cpc, inner, joint=torch.ones(4, 4))
    refused("no gradient", lambda: inner - torch.ones((), requires_grad=True))
    refused("link", (inner - torch.ones(())).linked, torch.exp)
    refused("InnerScores", objectives.pc, x @ x.T, joint=Pairs(), product=Others())


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@needs_gpu
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weights", ["none", "dense"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_on_a_gpu(name, weights, dtype):
    drawn = draw((2,), 333, 16, cells=1 << 14, weights=weights, own=1, dtype=dtype, scale=0.5)
    inputs = [tensor.detach().cuda().requires_grad_() for tensor in drawn.inputs]
    lean, full = (
        {k: w.cuda() if isinstance(w, torch.Tensor) else w for k, w in given.items()}
        for given in (drawn.inner_weights, drawn.weights)
    )
    matrix = inputs[0] @ inputs[1].mT + inputs[2].unsqueeze(-1)
    there = drawn._replace(
        inner=InnerScores(*inputs, cells=drawn.inner.cells),
        inner_weights=lean,
        matrix=matrix,
        weights=full,
        inputs=inputs,
    )
    assert_same(CASES[name], there, 1e-5 if dtype == torch.float32 else 1e-10)


@needs_gpu
def test_blocks_by_the_memory_of_the_gpu():
    x, y = (torch.randn(9000, 32, device="cuda") / 3 for _ in range(2))
    x.requires_grad_()
    groups = torch.arange(9000, device="cuda") // 3
    differ = (groups[:, None] != groups).float()
    for objective in (objectives.pc, objectives.cpc, objectives.dv):
        ours = objective(InnerScores(x, y), product=Others(ids=groups))
        theirs = objective(x @ y.T, joint=torch.eye(9000, device="cuda"), product=differ)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
        gradients = [torch.autograd.grad(value, x)[0] for value in (ours, theirs)]
        bound = 1e-5 * float(gradients[1].abs().max())
        torch.testing.assert_close(*gradients, rtol=0, atol=bound)
