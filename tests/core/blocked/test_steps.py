"""The steps on a block as they are compiled for a GPU, here traced and run on the CPU."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from pointdep.core.blocked import steps
from pointdep.core.blocked.walk import Scored

from ..reference import CASES
from .drawn import draw
from .test_scores import assert_same

COMPILE = torch.compile


@pytest.fixture
def compiled(monkeypatch):
    """Blocks of a common size go through torch.compile; the steps that did."""
    asked = []

    def traced(function, **options):
        asked.append(function)
        return COMPILE(function, backend="aot_eager", fullgraph=True, **options)

    monkeypatch.setattr(steps.torch, "compile", traced)
    monkeypatch.setattr(Scored, "compiled", property(lambda block: block.at.common))
    steps._compiled.cache_clear()
    yield asked
    steps._compiled.cache_clear()
    torch._dynamo.reset()


def test_objectives_of_compiled_blocks(compiled):
    for name in ("pc", "cpc", "dv", "drf"):
        for weights in ("none", "rows and ids"):
            assert_same(CASES[name], draw((2,), 19, 3, cells=64, weights=weights, own=1), 1e-10)
    # Of sums alone, of sums and slopes, each for three cells; log sums and their slopes.
    assert len(compiled) == 3 * 2 + 2
    assert "sums_and_slopes__softplus_1_8_8" in {function.__name__ for function in compiled}


@pytest.mark.usefixtures("compiled")
def test_many_sizes_of_blocks():
    """More than torch compiles of one function before it gives up."""
    sizes = range(3, 13)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in sizes:
            assert_same(CASES["js"], draw((8,), n, 3, cells=2 * n * n), 1e-10)
    assert steps._compiled.cache_info().currsize == 2 * len(sizes)  # of two cells each


@pytest.mark.usefixtures("compiled")
def test_compiled_first_in_another_thread():
    """As on a GPU, where the backward pass runs in a thread of its own."""
    scores, rows = torch.randn(1, 8, 8), torch.randn(1, 8)
    inputs = (scores, rows, None, None, rows, rows)
    with ThreadPoolExecutor(1) as pool, warnings.catch_warnings():
        warnings.simplefilter("error")
        found = pool.submit(
            steps._compiled(steps.softmax_slopes, None, (1, 8, 8)), *inputs
        ).result()
    torch.testing.assert_close(found, steps.softmax_slopes(*inputs))


def test_a_machine_that_cannot_compile(monkeypatch):
    def fails(function, **options):
        def broken(*args):
            raise RuntimeError("no C compiler\nand more lines")

        return broken

    monkeypatch.setattr(steps.torch, "compile", fails)
    monkeypatch.setattr(Scored, "compiled", property(lambda block: block.at.common))
    steps._compiled.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"torch.compile failed \(no C compiler\)"):
        assert_same(CASES["js"], draw(n=19, cells=16), 1e-10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(CASES["js"], draw(n=19, cells=16), 1e-10)
    steps._compiled.cache_clear()
