"""Constant representations are noticed, by name, and useful ones are not accused."""

import math

import pytest
import torch

from pointdep.contrastive import losses
from pointdep.contrastive.losses.contrastive_loss import spread
from pointdep.errors import MEANINGS

from .losses_by_hand import LOSSES, made


def names(loss: losses.ContrastiveLoss, *rows: torch.Tensor) -> list[str]:
    """The flags of the loss after these rows."""
    loss(*rows)
    return [flag.name for flag in loss.flags]


@pytest.mark.parametrize("name", LOSSES)
def test_constant_representations(name):
    loss = made(name).float()
    assert math.isnan(loss.spread)
    assert loss.flags == ()
    good, constant = torch.randn(32, 8), torch.randn(1, 8).expand(32, 8)
    assert names(loss, good, good + 0.1 * torch.randn(32, 8)) == []
    assert loss.spread > 0.5
    half = constant.to(torch.bfloat16)
    for z1, z2 in ((constant, constant), (good, constant), (constant, good), (half, half)):
        assert names(loss, z1, z2) == ["collapsed"]
        assert loss.spread < 1e-10
        assert MEANINGS["collapsed"] in str(loss.flags[0])
    assert names(loss, good, good) == []
    zeros = torch.zeros(6, 3, requires_grad=True)
    value = loss(zeros, torch.randn(6, 3))
    value.backward()
    assert value.isfinite()
    assert zeros.grad.isfinite().all()
    assert names(loss, zeros, torch.randn(6, 3)) == ["collapsed"]


def test_direction_scale_divergence_and_spread():
    rows = torch.linspace(1, 3, 32).unsqueeze(1) * torch.randn(1, 8)
    assert names(losses.CPCLoss(), rows, rows) == ["collapsed"]
    assert names(losses.CPCLoss(critic="bilinear", dims=8), rows, rows) == []
    rows, loss = torch.randn(64, 8), losses.PCCLoss(normalize=False, temperature=1e30)
    for factor in (1e-12, 1.0, 1e12):
        assert names(loss, factor * rows, factor * rows) == []
    loss = losses.PCCLoss(critic="concat", dims=8)
    far = rows + 1000.0  # a critic with weights can still tell them apart
    assert names(loss, far, far) == []
    rounded = torch.full((64, 8), 0.1) * (1 + 1e-7 * torch.randn(64, 8))
    assert names(loss, rounded, rounded) == ["collapsed"]
    rows, loss = torch.randn(8, 3), losses.DM1Loss(normalize=False)
    assert names(loss, rows, rows) == []
    assert names(loss, 1e3 * rows, 1e3 * rows) == ["diverged"]
    assert spread(torch.tensor([[1.0, 2.0], [3.0, 2.0]])).item() == pytest.approx(2 / 18)
    assert spread(torch.tensor([[1.0, -1.0], [-1.0, 1.0]])).item() == pytest.approx(1.0)  # centred
