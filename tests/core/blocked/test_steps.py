"""The steps on a block as they are compiled for a GPU, here traced and run on the CPU."""

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
    """Whole blocks go through torch.compile; the steps that did."""
    asked = []

    def traced(function, **options):
        asked.append(function)
        return COMPILE(function, backend="aot_eager", fullgraph=True, **options)

    monkeypatch.setattr(steps.torch, "compile", traced)
    monkeypatch.setattr(steps, "_usable", lambda: True)
    monkeypatch.setattr(Scored, "compiled", property(lambda block: block.at.whole))
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
    assert "sums_and_slopes__softplus" in {function.__name__ for function in compiled}


def test_a_machine_that_cannot_compile(monkeypatch):
    def fails(function, **options):
        raise RuntimeError("no C compiler\nand more lines")

    monkeypatch.setattr(steps.torch, "compile", fails)
    steps._usable.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"torch.compile failed \(no C compiler\)"):
        assert not steps._usable()
    steps._usable.cache_clear()
