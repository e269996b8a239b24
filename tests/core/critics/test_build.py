"""The user's own modules as critics."""

import copy

import pytest
import torch
from torch import nn

from pointdep.core.critics import (
    BilinearCritic,
    EncoderCritic,
    InnerProductCritic,
    ModuleCritic,
    SeparableCritic,
)
from refusals import refused

from .kinds import MatrixNet, PairNet, build, draw, encoders, y_dim


def test_module_scores_are_those_of_the_module():
    module = PairNet().double()
    critic = ModuleCritic(2, module)
    x, y = draw(2, 4, 3, seed=1), draw(2, 6, 5, seed=2)
    pairs, matrix = critic.pairs(x, y[:, :4]), critic.matrix(x, y)
    for r in range(2):
        torch.testing.assert_close(pairs[r], module(x[r], y[r, :4]))
        for i in range(4):
            torch.testing.assert_close(matrix[r, i], module(x[r, i].expand(6, 3), y[r]))


def test_copies_start_equal_and_part_from_the_original():
    module = PairNet().double()
    before, critic = copy.deepcopy(module.state_dict()), ModuleCritic(3, module)
    critic.reset([torch.Generator().manual_seed(seed) for seed in range(3)])  # keeps the weights
    x, y = draw(1, 4, 3).expand(3, 4, 3), draw(1, 4, 5).expand(3, 4, 5)
    scores = critic.pairs(x, y)
    assert torch.equal(scores, module(x[0], y[0]).expand(3, 4))
    for parameter in critic.copies[1].parameters():
        parameter.data.add_(1.0)
    moved = critic.pairs(x, y)
    assert torch.equal(moved[0], scores[0])
    assert not torch.allclose(moved[1], scores[1])
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())


def test_own_matrix_is_used():
    calls = []

    class Counting(MatrixNet):
        def matrix(self, x, y):
            calls.append((len(x), len(y)))
            return super().matrix(x, y)

    counting, plain = Counting().double(), PairNet().double()
    counting.load_state_dict(plain.state_dict())
    x, y = draw(2, 4, 3, seed=3), draw(2, 6, 5, seed=4)
    got = ModuleCritic(2, counting).matrix(x, y)
    assert calls == [(4, 6), (4, 6)]
    torch.testing.assert_close(got, ModuleCritic(2, plain).matrix(x, y))


@pytest.mark.parametrize("make", [lambda x: torch.cat([x, x], -1), lambda x: x.sum()])
def test_scores_of_a_wrong_shape_are_refused(make):
    class Wrong(nn.Module):
        def forward(self, x, y):
            return make(x)

    critic = ModuleCritic(2, Wrong())
    for scores in (critic.pairs, critic.matrix):
        refused("one score per pair", scores, draw(2, 4, 3), draw(2, 4, 5))


def test_encoder_scores_are_inner_products():
    encode_x, encode_y = (e.double() for e in encoders())
    critic = EncoderCritic(2, encode_x, encode_y)
    x, y = draw(2, 4, 3, seed=7), draw(2, 6, 5, seed=8)
    matrix = critic.matrix(x, y)
    for r in range(2):
        expected = torch.einsum("ne,me->nm", encode_x(x[r]), encode_y(y[r]))
        torch.testing.assert_close(matrix[r], expected)
    assert critic.embed_x(x).shape == (2, 4, 4)
    assert critic.embed_y(draw(2, 3, 6, 5)).shape == (2, 3, 6, 4)


@pytest.mark.parametrize("side", ["x", "y"])
def test_encoder_that_gives_no_vectors_is_named(side):
    class Flat(nn.Module):
        def forward(self, rows):
            return rows.sum(-1)

    good = {"x": nn.Linear(3, 4), "y": nn.Linear(5, 4)}
    good[side] = Flat()
    critic = EncoderCritic(1, good["x"], good["y"])
    for scores in (critic.pairs, critic.matrix):
        refused(f"{side} encoder gave shape", scores, torch.zeros(1, 4, 3), torch.zeros(1, 4, 5))


@pytest.mark.parametrize("kind", ["module", "encoders"])
def test_buffers_and_modes_travel_with_the_copies(kind):
    critic = build(kind, 2)
    critic.eval()
    assert not critic.select([1]).copies[0].training
    for module in critic.copies:
        module.register_buffer("seen", torch.zeros(1))
    critic.copies[1].seen.add_(5)
    assert critic.select([1]).copies[0].seen.item() == 5
    assert "copies.1.seen" in critic.state_dict()


@pytest.mark.parametrize("kind", ["separable", "bilinear", "inner"])
def test_score_is_the_product_of_the_embeddings(kind):
    critic = build(kind, 2)
    x, y = draw(2, 4, 3, seed=7), draw(2, 6, y_dim(kind), seed=8)
    g, h = critic.embed_x(x), critic.embed_y(y)
    by_hand = (g[:, :, None] * h[:, None]).sum(-1) + critic.bias[:, :, None]
    torch.testing.assert_close(critic.matrix(x, y), by_hand)
    if kind == "bilinear":
        products = torch.einsum("rnd,rde,rme->rnm", x, critic.product.weight, y)
        torch.testing.assert_close(critic.matrix(x, y), products + critic.bias[:, :, None])


def test_where_they_start():
    """Fan-in of a bilinear one counts both sides: x' W y is a sum over x_dim * y_dim products."""
    x, y = draw(2, 4, 16, seed=5).float(), draw(2, 6, 16, seed=6).float()
    torch.testing.assert_close(InnerProductCritic(2, 16).matrix(x, y), x @ y.mT / 4.0)
    critic = SeparableCritic(2, 3, 5, hidden=(8,), embedding_dim=7)
    critic.reset([torch.Generator().manual_seed(seed) for seed in (0, 1)])
    assert not critic.bias.any()
    critic.matrix(torch.ones(2, 4, 3), torch.ones(2, 6, 5)).sum().backward()
    assert critic.bias.grad[:, 0].tolist() == [24.0, 24.0]
    critic = BilinearCritic(1, 50, 80)
    critic.reset([torch.Generator().manual_seed(0)])
    assert 0.3 < critic.matrix(draw(1, 40, 50).float(), draw(1, 40, 80, seed=1).float()).std() < 1.0
