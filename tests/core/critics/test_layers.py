"""Layers with a leading replica dimension."""

import math

import pytest
import torch
from torch import nn

from pointdep.core.critics import ReplicaLinear, ReplicaMLP

from .kinds import draw


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(), (4,), (4, 2)])
def test_linear_is_a_linear_layer_per_replica(bias, lead):
    layer = ReplicaLinear(3, 5, 2, bias=bias).double()
    layer.reset(generators(0, 1, 2))
    x = draw(3, *lead, 5)
    out = layer(x)
    assert out.shape == (3, *lead, 2)
    for r in range(3):
        expected = x[r] @ layer.weight[r] + (layer.bias[r, 0] if bias else 0.0)
        torch.testing.assert_close(out[r], expected)


def test_initial_weights_follow_those_of_torch():
    """Uniform within +-1/sqrt(fan_in), as nn.Linear draws them."""
    layer, bound = ReplicaLinear(2, 64, 500), 1 / 8
    layer.reset(generators(0, 1))
    plain = nn.Linear(64, 500)
    for parameter in (layer.weight, layer.bias):
        assert parameter.abs().max() <= bound
        assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    assert layer.weight.std().item() == pytest.approx(plain.weight.std().item(), rel=0.05)
    assert abs(layer.weight.mean().item()) < 1e-3


def test_perceptron_has_no_activation_after_its_last_layer():
    mlp = ReplicaMLP(1, [3, 8, 8, 4], "relu").double()
    mlp.reset(generators(7))
    x = draw(1, 20, 3)
    hidden = x[0]
    for position, layer in enumerate(mlp.layers):
        hidden = hidden @ layer.weight[0] + layer.bias[0]
        if position < 2:
            hidden = hidden.clamp(min=0)
    torch.testing.assert_close(mlp(x)[0], hidden)
    assert (mlp(x) < 0).any()
