"""What is around the kernels for Hopper GPUs: when they are used, and how; with stand-ins here.

The kernels themselves are in tests/test_cuda_kernels.py, which needs such a GPU.
"""

from __future__ import annotations

import pytest
import torch

from pointdep.core.critics import hopper
from pointdep.errors import PointdepWarning

from . import emulated
from .test_pair_layers import off, plain, with_gradients

CPU = torch.device("cpu")


@pytest.fixture
def emulation(monkeypatch):
    """The kernels in plain torch, and nothing compiled."""
    monkeypatch.setattr(hopper, "compiled", lambda function: function)
    monkeypatch.setattr(hopper, "_forward", emulated.forward)
    monkeypatch.setattr(hopper, "_backward", emulated.backward)


@pytest.fixture(autouse=True)
def _forget():
    """What was found out about a device is another's in the next test."""
    hopper.on_hopper.cache_clear()
    hopper.works.cache_clear()
    yield
    hopper.on_hopper.cache_clear()
    hopper.works.cache_clear()


def by_kernels(*tensors):
    return hopper.ByKernels.apply(torch.bfloat16, *tensors)


def layers(draw):
    """hx, hy, the four weights and a gradient of the scores, each as draw(*shape) gives it."""
    shapes = (8, 6), (8, 6), (6, 256), (1, 256), (256, 1), (1, 1), (8, 8)
    tensors = [torch.stack([draw(*shape) for _ in range(3)]) for shape in shapes]
    return [tensor.requires_grad_() for tensor in tensors[:-1]], tensors[-1]


@pytest.mark.usefixtures("emulation")
class TestByKernels:
    def test_whole_numbers_are_exact(self):
        generator = torch.Generator().manual_seed(0)

        def draw(*shape):
            return torch.randint(-2, 3, shape, generator=generator).float()

        tensors, grad = layers(draw)
        with torch.no_grad():
            tensors[3] += 0.5  # so that no unit is at zero
        scores, grads = with_gradients(by_kernels, tensors, grad)
        wanted_scores, wanted_grads = with_gradients(plain, tensors, grad)
        assert torch.equal(scores, wanted_scores)
        for found, wanted in zip(grads, wanted_grads, strict=True):
            assert wanted.any()
            assert torch.equal(found, wanted)

    def test_near_autograd(self):
        generator = torch.Generator().manual_seed(0)
        tensors, grad = layers(lambda *shape: torch.randn(shape, generator=generator))
        scores, grads = with_gradients(by_kernels, tensors, grad)
        wanted_scores, wanted_grads = with_gradients(plain, tensors, grad)
        assert scores.dtype == torch.float32
        assert 0 < off(scores, wanted_scores) < 1e-2
        for found, wanted in zip(grads, wanted_grads, strict=True):
            assert (found.dtype, found.shape) == (torch.float32, wanted.shape)
            assert off(found, wanted) < 0.1


def test_words_hold_all_units():
    gate = torch.rand(2, 3, 3, 256, generator=torch.Generator().manual_seed(0)) > 0.5
    words = emulated.packed(gate)
    assert (words.shape, words.dtype) == ((2, 3, 3, 2, 4), torch.int32)
    assert torch.equal(emulated.unpacked(words), gate.float())


class TestWorks:
    """They are tried on a small problem first."""

    @pytest.mark.usefixtures("emulation")
    @pytest.mark.parametrize(("hidden", "outputs"), [(256, 256), (256, 512)])
    def test_right_results(self, hidden, outputs):
        assert hopper.works(CPU, hidden, outputs)

    @pytest.mark.usefixtures("emulation")
    @pytest.mark.parametrize("wrong", range(5), ids=["scores", "hx", "hy", "weight", "bias"])
    @pytest.mark.parametrize("factor", [1.05, torch.inf, torch.nan])
    def test_wrong_results(self, wrong, factor, monkeypatch):
        monkeypatch.setattr(hopper, "_ROWS", 16)
        assert hopper.works(CPU, 256, 256)
        hopper.works.cache_clear()

        def forward(*tensors):
            part, gate = emulated.forward(*tensors)
            return part * factor if wrong == 0 else part, gate

        def backward(*tensors):
            parts = emulated.backward(*tensors)
            return [p * factor if wrong == number else p for number, p in enumerate(parts, 1)]

        monkeypatch.setattr(hopper, "_forward", forward)
        monkeypatch.setattr(hopper, "_backward", backward)
        with pytest.warns(PointdepWarning, match="not used .they give wrong results here"):
            assert not hopper.works(CPU, 256, 256)

    def test_what_fails(self, monkeypatch):
        monkeypatch.setattr(hopper, "_ROWS", 16)

        def forward(*tensors):
            raise ValueError("no such layout\nand a long story")

        monkeypatch.setattr(hopper, "_forward", forward)
        with pytest.warns(
            PointdepWarning, match=r"not used \(ValueError: no such layout\): training"
        ):
            assert not hopper.works(CPU, 256, 256)
        assert not hopper.works(CPU, 256, 256)  # without a second warning, which would be an error


class TestOnHopper:
    @pytest.fixture
    def gpu(self, monkeypatch):
        """A GPU of the capability that is asked for, with Triton."""
        monkeypatch.setattr(hopper, "find_spec", lambda name: name)

        def have(capability):
            monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
            return torch.device("cuda:0")

        return have

    @pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)], ids=str)
    def test_by_capability(self, capability, gpu):
        assert hopper.on_hopper(gpu(capability)) == (capability == (9, 0))

    @pytest.mark.parametrize("missing", ["triton", "triton.experimental.gluon"])
    def test_only_with_triton(self, missing, gpu, monkeypatch):
        monkeypatch.setattr(hopper, "find_spec", lambda name: None if name == missing else name)
        assert not hopper.on_hopper(gpu((9, 0)))

    def test_not_a_cpu(self, gpu):
        gpu((9, 0))
        assert not hopper.on_hopper(CPU)


def empty(replicas=2, rows=128, columns=128, hidden=256, outputs=512):
    """hx, hy and the weights of these shapes, without memory behind them."""
    return (
        torch.empty(replicas, rows, hidden, device="meta"),
        torch.empty(replicas, columns, hidden, device="meta"),
        torch.empty(replicas, hidden, outputs, device="meta"),
    )


class TestFits:
    @pytest.fixture
    def hopper_gpu(self, monkeypatch):
        """Every device is one."""
        monkeypatch.setattr(hopper, "on_hopper", lambda device: True)
        monkeypatch.setattr(hopper, "works", lambda *problem: True)

    def test_not_on_this_device(self):
        tensors = [torch.zeros_like(tensor, device="cpu") for tensor in empty()]
        assert not hopper.fits(torch.bfloat16, *tensors)

    def test_not_where_they_do_not_work(self, hopper_gpu, monkeypatch):
        tried = []
        monkeypatch.setattr(hopper, "works", lambda *problem: tried.append(problem))
        assert not hopper.fits(torch.bfloat16, *empty())
        assert tried == [(torch.device("meta"), 256, 512)]
        assert not hopper.fits(torch.bfloat16, *empty(rows=64))
        assert len(tried) == 1  # nothing is tried that would not be used

    @pytest.mark.usefixtures("hopper_gpu")
    @pytest.mark.parametrize(
        "sizes",
        [
            {},
            {"replicas": 1},
            {"replicas": 80, "hidden": 512},
            {"hidden": 512},
            {"outputs": 256},
            {"rows": 256, "columns": 256},
            {"rows": 512, "columns": 512},
        ],
        ids=str,
    )
    def test_these_shapes(self, sizes):
        assert hopper.fits(torch.bfloat16, *empty(**sizes))

    @pytest.mark.usefixtures("hopper_gpu")
    @pytest.mark.parametrize(
        "sizes",
        [
            {"rows": 256},
            {"columns": 256},
            {"rows": 64, "columns": 64},
            {"rows": 192, "columns": 192},
            {"rows": 640, "columns": 640},
            {"hidden": 128},
            {"hidden": 384},
            {"outputs": 128},
            {"outputs": 1024},
            {"replicas": 5000},
        ],
        ids=str,
    )
    def test_but_not_those(self, sizes):
        assert not hopper.fits(torch.bfloat16, *empty(**sizes))

    @pytest.mark.usefixtures("hopper_gpu")
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
    def test_nor_another_type(self, dtype):
        assert not hopper.fits(dtype, *empty())
