"""The concat critic against a plain perceptron on [x, y]."""

import pytest
import torch
from torch import nn

from pointdep.core.critics import ACTIVATIONS, ConcatCritic

from .kinds import draw

MODULES = {"silu": nn.SiLU, "relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "elu": nn.ELU}


def perceptron(critic, replica, activation):
    """The replica as an nn.Sequential with the same weights."""
    first = torch.cat([critic.x_half.weight[replica], critic.y_half.weight[replica]], 0)
    weights = [(first, critic.x_half.bias[replica])]
    weights += [(layer.weight[replica], layer.bias[replica]) for layer in critic.rest.layers]
    layers = []
    for weight, bias in weights:
        linear = nn.Linear(*weight.shape, dtype=torch.float64)
        linear.weight.data, linear.bias.data = weight.detach().T, bias.detach()[0]
        layers += [linear, MODULES[activation]()]
    return nn.Sequential(*layers[:-1])


def test_every_activation_is_covered():
    assert set(MODULES) == set(ACTIVATIONS)


@pytest.mark.parametrize("activation", MODULES)
@pytest.mark.parametrize("hidden", [(7,), (9, 6), (5, 8, 4)])
def test_equals_a_perceptron_on_the_concatenation(activation, hidden):
    critic = ConcatCritic(2, 3, 5, hidden=hidden, activation=activation).double()
    critic.reset([torch.Generator().manual_seed(seed) for seed in (0, 1)])
    x, y = draw(2, 6, 3, seed=2), draw(2, 4, 5, seed=3)
    matrix, pairs = critic.matrix(x, y), critic.pairs(x[:, :4], y)
    for r in range(2):
        plain = perceptron(critic, r, activation)
        assert len(plain) == 2 * len(hidden) + 1
        both = torch.cat([x[r, :4], y[r]], -1)
        torch.testing.assert_close(pairs[r], plain(both)[:, 0])
        rows = torch.cat([x[r].repeat_interleave(4, 0), y[r].repeat(6, 1)], -1)
        torch.testing.assert_close(matrix[r], plain(rows).view(6, 4))


def test_gradient_equals_that_of_a_perceptron():
    critic = ConcatCritic(1, 3, 5, hidden=(6,)).double()
    critic.reset([torch.Generator().manual_seed(4)])
    x, y = draw(1, 6, 3, seed=5), draw(1, 4, 5, seed=6)
    critic.matrix(x, y).square().mean().backward()
    plain = perceptron(critic, 0, "silu")
    rows = torch.cat([x[0].repeat_interleave(4, 0), y[0].repeat(6, 1)], -1)
    plain(rows).square().mean().backward()
    halves = torch.cat([critic.x_half.weight.grad[0], critic.y_half.weight.grad[0]], 0)
    torch.testing.assert_close(halves.T, plain[0].weight.grad)
    torch.testing.assert_close(critic.x_half.bias.grad[0, 0], plain[0].bias.grad)
    torch.testing.assert_close(critic.rest.layers[0].weight.grad[0].T, plain[2].weight.grad)


def test_first_layer_is_scaled_by_both_inputs():
    """Each half alone would start wider than the layer on [x, y] that it is part of."""
    critic = ConcatCritic(1, 40, 60, hidden=(200,))
    critic.reset([torch.Generator().manual_seed(7)])
    for half in (critic.x_half, critic.y_half):
        assert 0.099 < half.weight.abs().max() <= 0.1
    assert critic.y_half.bias is None


def test_cell_width_counts_what_a_cell_keeps_alive():
    assert ConcatCritic(1, 3, 5, hidden=(9, 6)).cell_width() == 15


@pytest.mark.parametrize("pair_dtype", [None, torch.float64])
@pytest.mark.parametrize("hidden", [(7,), (9, 6), (5, 8, 4)])
def test_scores_rise_by_exactly_the_amounts(hidden, pair_dtype):
    critic = ConcatCritic(3, 3, 5, hidden=hidden, activation="relu").double()
    critic.reset([torch.Generator().manual_seed(seed) for seed in range(3)])
    critic.pair_dtype = pair_dtype
    x, y = draw(3, 6, 3, seed=2), draw(3, 4, 5, seed=3)
    amounts = torch.tensor([0.0, 2.5, -1.0], dtype=torch.float64)
    before = critic.matrix(x, y), critic.pairs(x[:, :4], y)
    critic.raise_scores(amounts)
    after = critic.matrix(x, y), critic.pairs(x[:, :4], y)
    torch.testing.assert_close(after[0] - before[0], amounts[:, None, None].expand(3, 6, 4))
    torch.testing.assert_close(after[1] - before[1], amounts[:, None].expand(3, 4))
    assert all(parameter.requires_grad for parameter in critic.parameters())
