"""Critics of every kind alike, and layers with a leading replica dimension."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn

from pointdep.core import objectives
from pointdep.core.critics import CRITICS, Critic, ReplicaLinear, ReplicaMLP

from .kinds import KINDS, X_DIM, build, draw, x_dim, y_dim

R = 3
every_kind = pytest.mark.parametrize("kind", KINDS)


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


@every_kind
def test_matrix_is_the_loop_over_single_pairs(kind):
    critic = build(kind, R)
    x, y = draw(R, 4, x_dim(kind), seed=3), draw(R, 7, y_dim(kind), seed=4)
    matrix = critic.matrix(x, y)
    assert matrix.shape == (R, 4, 7)
    for i, j in itertools.product(range(4), range(7)):
        one = critic.pairs(x[:, i : i + 1], y[:, j : j + 1])
        torch.testing.assert_close(matrix[:, i, j], one[:, 0])
    # Blocks give the same matrix.
    x, y = draw(R, 7, x_dim(kind), seed=5), draw(R, 11, y_dim(kind), seed=6)
    for budget in (1, 5, 37, 500, 1 << 24):
        blocks = critic.matrix_in_blocks(x, y, budget * critic.cell_width())
        torch.testing.assert_close(blocks, critic.matrix(x, y))


def test_blocks_keep_to_their_budget():
    critic, sizes = build("concat", R), []
    whole = critic.matrix

    def counted(x, y):
        out = whole(x, y)
        sizes.append(out.numel() * critic.cell_width())
        return out

    critic.matrix = counted
    budget = 10 * R * critic.cell_width()
    critic.matrix_in_blocks(draw(R, 9, X_DIM), draw(R, 4, 5), budget)
    assert max(sizes) <= budget
    assert len(sizes) == 4


@every_kind
def test_select_reorders_and_copies(kind):
    critic = build(kind, R)
    before = copy.deepcopy(critic.state_dict())
    x, y = draw(R, 5, x_dim(kind), seed=9), draw(R, 5, y_dim(kind), seed=10)
    chosen = critic.select([2, 0])
    assert (chosen.replicas, critic.replicas) == (2, R)
    expected = critic.matrix(x, y)[[2, 0]]
    torch.testing.assert_close(chosen.matrix(x[[2, 0]], y[[2, 0]]), expected)
    for parameter in chosen.parameters():
        assert parameter.requires_grad
        assert parameter.grad is None
        parameter.data.zero_()
    for name, tensor in critic.state_dict().items():
        assert torch.equal(tensor, before[name])


@every_kind
def test_four_dimensional_input(kind):
    """x: (R, G, n, dx), y: (R, G, m, dy) -> (R, G, n, m)."""
    critic = build(kind, R)
    x, y = draw(R, 2, 4, x_dim(kind), seed=11), draw(R, 2, 6, y_dim(kind), seed=12)
    grouped = critic.matrix(x, y)
    assert grouped.shape == (R, 2, 4, 6)
    for g in range(2):
        torch.testing.assert_close(grouped[:, g], critic.matrix(x[:, g], y[:, g]))
    # Nor need inputs be contiguous.
    x = draw(x_dim(kind), 5, R, seed=13).permute(2, 1, 0)
    y = draw(y_dim(kind), 5, R, seed=14).permute(2, 1, 0)
    assert not x.is_contiguous()
    expected = critic.matrix(x.contiguous(), y.contiguous())
    torch.testing.assert_close(critic.matrix(x, y), expected)
    torch.testing.assert_close(critic.pairs(x, y), expected.diagonal(dim1=-2, dim2=-1))


def gradients(critic, x, y):
    """(name, replica) -> gradient of the summed objectives of all replicas."""
    critic.zero_grad()
    objectives.js(critic.matrix(x, y)).sum().backward()
    named = {}
    for name, parameter in critic.named_parameters():
        if critic.stacked:
            named.update({(name, r): parameter.grad[r] for r in range(critic.replicas)})
        else:
            _, replica, rest = name.split(".", 2)
            named[rest, int(replica)] = parameter.grad
    return named


@every_kind
def test_gradient_of_one_replica_ignores_the_others(kind):
    critic = build(kind, R)
    x, y = draw(R, 5, x_dim(kind), seed=15), draw(R, 5, y_dim(kind), seed=16)
    together = {key: g.clone() for key, g in gradients(critic, x, y).items()}
    for r in range(R):
        alone = gradients(critic.select([r]), x[r : r + 1], y[r : r + 1])
        for (name, _), expected in alone.items():
            torch.testing.assert_close(together[name, r], expected)
    poisoned = x.clone()
    poisoned[0] = torch.nan
    after = gradients(critic, poisoned, y)
    for (name, replica), gradient in after.items():
        if replica:
            torch.testing.assert_close(gradient, together[name, replica])
    assert any(not torch.isfinite(g).all() for (_, replica), g in after.items() if replica == 0)


@pytest.mark.parametrize("kind", ["concat", "concat, one hidden layer", "separable", "bilinear"])
def test_reset_draws_each_replica_from_its_own_generator(kind):
    def drawn(*seeds):
        critic = KINDS[kind](len(seeds))
        critic.reset(generators(*seeds))
        return critic.state_dict()

    first, second, single = drawn(1, 2, 3), drawn(9, 2, 7), drawn(2)
    random = [name for name, tensor in first.items() if tensor.any()]
    assert set(first) - set(random) <= {"bias"}
    for name in first:
        assert torch.equal(first[name][1], second[name][1])
        assert torch.equal(first[name][1], single[name][0])
    for name in random:
        assert not torch.equal(first[name][0], second[name][0])
        assert not torch.equal(first[name][0], first[name][1])


@pytest.mark.parametrize("kind", ["concat", "separable", "bilinear", "inner"])
def test_scores_rise_by_exactly_the_amounts(kind):
    critic, amounts = build(kind, R), draw(R)
    x, y = draw(R, 4, x_dim(kind), seed=7), draw(R, 6, y_dim(kind), seed=8)
    before = critic.matrix(x, y)
    critic.raise_scores(amounts)
    torch.testing.assert_close(critic.matrix(x, y), before + amounts[:, None, None])
    pairs = critic.matrix(x, y[:, :4]).diagonal(0, 1, 2)
    torch.testing.assert_close(critic.pairs(x, y[:, :4]), pairs)


def test_names_offered_to_the_user_and_mistakes():
    assert tuple(CRITICS) == ("auto", "concat", "separable", "bilinear", "inner")
    with pytest.raises(ValueError, match="zip"):
        KINDS["concat"](3).reset([torch.Generator()])
    for call in (Critic(2).pairs, Critic(2).matrix):
        with pytest.raises(NotImplementedError):
            call(draw(2, 3, 3), draw(2, 3, 3))


# Layers with one set of weights per replica.


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(), (4,), (4, 2)])
def test_linear_is_a_linear_layer_per_replica(bias, lead):
    layer, x = ReplicaLinear(3, 5, 2, bias=bias).double(), draw(3, *lead, 5)
    layer.reset(generators(0, 1, 2))
    out = layer(x)
    assert out.shape == (3, *lead, 2)
    for r in range(3):
        expected = x[r] @ layer.weight[r] + (layer.bias[r, 0] if bias else 0.0)
        torch.testing.assert_close(out[r], expected)


def test_initial_weights_follow_those_of_torch_and_the_last_layer():
    """Uniform within +-1/sqrt(fan_in), as nn.Linear draws them."""
    layer, plain, bound = ReplicaLinear(2, 64, 500), nn.Linear(64, 500), 1 / 8
    layer.reset(generators(0, 1))
    for parameter in (layer.weight, layer.bias):
        assert parameter.abs().max() <= bound
        assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    assert layer.weight.std().item() == pytest.approx(plain.weight.std().item(), rel=0.05)
    assert abs(layer.weight.mean().item()) < 1e-3
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
