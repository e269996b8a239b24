"""Constant representations are noticed, by name, and useful ones are not accused."""

import math

import pytest
import torch

from pointdep.contrastive import losses
from pointdep.contrastive.losses.contrastive_loss import spread
from pointdep.errors import MEANINGS

from .losses_by_hand import LOSSES, made


def names(loss: losses.ContrastiveLoss) -> list[str]:
    return [flag.name for flag in loss.flags]


@pytest.mark.parametrize("name", LOSSES)
def test_constant_representations(name):
    loss = made(name).float()
    assert math.isnan(loss.spread)
    assert loss.flags == ()
    good, constant = torch.randn(32, 8), torch.randn(1, 8).expand(32, 8)
    loss(good, good + 0.1 * torch.randn(32, 8))
    assert loss.spread > 0.5
    assert loss.flags == ()
    half = constant.to(torch.bfloat16)
    for z1, z2 in ((constant, constant), (good, constant), (constant, good), (half, half)):
        loss(z1, z2)
        assert loss.spread < 1e-10
        assert names(loss) == ["collapsed"]
        assert MEANINGS["collapsed"] in str(loss.flags[0])
    loss(good, good)
    assert loss.flags == ()


def test_one_direction_is_collapse_only_under_unit_length():
    rows = torch.linspace(1, 3, 32).unsqueeze(1) * torch.randn(1, 8)
    loss = losses.CPCLoss()
    loss(rows, rows)
    assert names(loss) == ["collapsed"]
    loss = losses.CPCLoss(critic="bilinear", dims=8)
    loss(rows, rows)
    assert loss.flags == ()


def test_scale_and_large_means():
    rows = torch.randn(64, 8)
    for factor in (1e-12, 1.0, 1e12):
        loss = losses.PCCLoss(normalize=False, temperature=1e30)
        loss(factor * rows, factor * rows)
        assert loss.flags == ()
    far = rows + 1000.0  # a critic with weights can still tell them apart
    loss = losses.PCCLoss(critic="concat", dims=8)
    loss(far, far)
    assert loss.flags == ()
    rounded = torch.full((64, 8), 0.1) * (1 + 1e-7 * torch.randn(64, 8))
    loss(rounded, rounded)
    assert names(loss) == ["collapsed"]


@pytest.mark.parametrize("name", LOSSES)
def test_zero_vectors_give_numbers(name):
    z1 = torch.zeros(6, 3, requires_grad=True)
    loss = made(name).float()
    value = loss(z1, torch.randn(6, 3))
    value.backward()
    assert value.isfinite()
    assert z1.grad.isfinite().all()
    assert names(loss) == ["collapsed"]


def test_divergence_is_named():
    rows = torch.randn(8, 3)
    loss = losses.DM1Loss(normalize=False)
    loss(rows, rows)
    assert loss.flags == ()
    loss(1e3 * rows, 1e3 * rows)
    assert names(loss) == ["diverged"]


def test_spread_is_relative_variance():
    rows = torch.tensor([[1.0, 2.0], [3.0, 2.0]])
    assert spread(rows).item() == pytest.approx(2 / 18)
    centred = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    assert spread(centred).item() == pytest.approx(1.0)
