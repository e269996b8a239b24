"""On a GPU: no loss makes the host wait, and TF32 does not touch the sums over all cells."""

import pytest
import torch
import torch.nn.functional as F

from pointdep.contrastive import losses
from pointdep.core import objectives

from .losses_by_hand import LOSSES, made, pairs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def on_gpu(n: int, d: int) -> list[torch.Tensor]:
    return [z.detach().float().cuda().requires_grad_() for z in pairs(n, d)]


@pytest.mark.parametrize("negatives", ["cross", "all"])
@pytest.mark.parametrize("name", LOSSES)
def test_host_does_not_wait(name, negatives):
    z1, z2 = on_gpu(64, 8)
    groups = None if name in ("drfc", "rpc") else torch.arange(64, device="cuda") // 2
    for options in ({}, {"block_size": 20, "clip": 5.0}, {"critic": "bilinear", "dims": 8}):
        loss = made(name, negatives=negatives, learn_scale=True, **options).float().cuda()
        loss(z1, z2, groups).backward()
        torch.cuda.set_sync_debug_mode("error")
        try:
            loss(z1, z2, groups).backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert loss.flags == ()


@pytest.mark.parametrize("name", LOSSES)
def test_same_as_on_the_cpu(name):
    z1, z2 = on_gpu(200, 16)
    groups = torch.arange(200) // 3
    for options in ({}, {"block_size": 64, "negatives": "all"}):
        loss = made(name, **options).float()
        value = loss.cuda()(z1, z2, groups.cuda())
        found = torch.autograd.grad(value, (z1, z2))
        rows = [z.detach().cpu().requires_grad_() for z in (z1, z2)]
        expected = loss.cpu()(*rows, groups)
        torch.testing.assert_close(value.cpu(), expected, atol=1e-5, rtol=1e-5)
        for a, b in zip(found, torch.autograd.grad(expected, rows), strict=True):
            torch.testing.assert_close(a.cpu(), b, atol=1e-5 * float(b.abs().max()), rtol=1e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_second_derivative(name):
    rows = [z.detach().cuda().requires_grad_() for z in pairs(5, 2)]
    for negatives in ("cross", "all"):
        assert torch.autograd.gradgradcheck(made(name, negatives=negatives), rows)


@pytest.mark.parametrize("name", LOSSES)
def test_one_group_is_a_nan(name):
    loss = made(name)
    assert loss(*on_gpu(6, 2), torch.zeros(6, dtype=torch.int64, device="cuda")).isnan()
    assert [flag.name for flag in loss.flags] == ["diverged"]


def test_sums_are_full_float32_under_tf32():
    z1, z2 = on_gpu(4096, 64)
    wide = [z.detach().double().requires_grad_() for z in (z1, z2)]
    exact = -objectives.drf(10 * F.normalize(wide[0], dim=1) @ F.normalize(wide[1], dim=1).T)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        value = losses.DRFCLoss()(z1, z2)
        found = torch.autograd.grad(value, (z1, z2))
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    assert value.item() == pytest.approx(exact.item(), rel=2e-6)
    for a, b in zip(found, torch.autograd.grad(exact, wide), strict=True):
        torch.testing.assert_close(a.double(), b, atol=1e-5 * float(b.abs().max()), rtol=0)


def test_large_batch_never_holds_its_matrix():
    z1, z2 = on_gpu(16_384, 64)
    matrix = 4 * 16_384**2
    for loss in (losses.DRFCLoss(), losses.CPCLoss(), losses.PCCLoss()):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        loss(z1, z2).backward()
        assert torch.cuda.max_memory_allocated() - before < matrix
