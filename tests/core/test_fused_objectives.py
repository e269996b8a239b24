"""The objectives in one kernel, against the methods one by one and autograd."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import product
from types import SimpleNamespace

import pytest
import torch

from pointdep.core import fused_objectives
from pointdep.core.fused_objectives import FusedObjectives, fits, knows
from pointdep.core.methods import METHODS, PAPER_METHODS, get_method

from . import interpreted

CASES = list(enumerate(interpreted.OPTIONS))


class TestNumbers:
    """What the kernel is told of each method."""

    @pytest.mark.parametrize(
        ("key", "options", "option", "shift"),
        [
            ("smile", {}, 5.0, 0.0),
            ("smile", {"tau": 1.5}, 1.5, 0.0),
            ("dm1", {}, 1.0, 0.0),
            ("dm1", {"lam": 2.5}, 2.5, math.log(2.5)),
            ("dm2", {}, 1.0, -0.5),
            ("dm2", {"eta": 0.25}, 0.25, -2.0),
            ("dm2", {"eta": 0.25, "corrected": False}, 0.25, 0.0),
            ("drf", {}, 1e-4, 0.0),
            ("drf", {"floor": 0.1}, 0.1, 0.0),
            ("cpc", {}, 0.0, 0.0),
            ("nwj", {}, 0.0, 0.0),
            ("pc", {}, 0.0, 0.0),
        ],
    )
    def test_option_and_shift(self, key, options, option, shift):
        method = get_method(key, options)
        assert fused_objectives._option(method) == pytest.approx(option)
        assert fused_objectives._shift(method) == pytest.approx(shift)

    def test_one_row_a_replica(self):
        keys = ("pc", "dm2", "pc", "smile")
        fused = FusedObjectives([get_method(key) for key in keys], torch.device("cpu"))
        assert [PAPER_METHODS[kind] for kind in fused.kinds] == list(keys)
        assert fused.options.tolist() == [0.0, 1.0, 0.0, 5.0]
        assert fused.shifts.tolist() == [0.0, -0.5, 0.0, 0.0]


class TestFits:
    @pytest.fixture
    def here(self, monkeypatch):
        """Triton is here."""
        monkeypatch.setattr(fused_objectives, "find_spec", lambda name: name)

    def scores(self, size=128, dtype=torch.float32, device="cuda"):
        """What is asked of a tensor, also of one on a device that is not here."""
        return SimpleNamespace(device=torch.device(device), dtype=dtype, shape=(2, size, size))

    @pytest.mark.parametrize("size", [16, 32, 64, 128])
    def test_these(self, size, here):
        assert fits(self.scores(size))

    @pytest.mark.parametrize("size", [2, 8, 20, 100, 129, 256])
    def test_no_other_sizes(self, size, here):
        assert not fits(self.scores(size))

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
    def test_no_other_types(self, dtype, here):
        assert not fits(self.scores(dtype=dtype))

    def test_no_other_devices(self, here):
        assert not fits(torch.zeros(2, 128, 128))
        assert not fits(self.scores(device="mps"))

    def test_not_without_triton(self, monkeypatch):
        monkeypatch.setattr(fused_objectives, "find_spec", lambda name: None)
        assert not fits(self.scores())

    def test_methods(self):
        assert knows([get_method(key) for key in PAPER_METHODS])
        assert knows([get_method("drf", {"alpha": 0.0}), get_method("dm2", {"eta": 2.0})])
        assert not knows([get_method("pc"), get_method("drf", {"alpha": 0.01})])
        for key in METHODS.keys() - set(PAPER_METHODS):
            assert not knows([get_method("pc"), get_method(key)])


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Values and gradients of every case, as the interpreter computes them."""
    path = tmp_path_factory.mktemp("interpreted") / "found.pt"
    subprocess.run(
        [sys.executable, interpreted.__file__, str(path)],
        check=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    return torch.load(path)


def by_autograd(method, scores):
    """Value and gradient of scores (n, n) in float64, as float32 holds them."""
    scores = scores.double().requires_grad_()
    (grad,) = torch.autograd.grad(method.objective(scores), scores)
    return method.inference(scores.detach()).float(), grad.float()


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
class TestKernel:
    @pytest.mark.parametrize(
        ("replica", "case"), CASES, ids=[f"{key} {options}" for _, (key, options) in CASES]
    )
    def test_value_and_gradient(self, found, replica, case):
        for kind, size in product(interpreted.SCORES, interpreted.SIZES):
            value, grad = by_autograd(get_method(*case), interpreted.scores_of(size, kind)[replica])
            values, grads = found[f"{kind} {size}"]
            torch.testing.assert_close(values[replica], value, rtol=5e-5, atol=2e-5)
            # Rounding of a score is a relative error of its exponential.
            largest = grad[grad.isfinite()].abs().max().item()
            torch.testing.assert_close(grads[replica], grad, rtol=1e-4, atol=1e-6 * largest)
