"""Critics that are inner products, against the sums they stand for."""

import pytest
import torch

from pointdep.core.critics import BilinearCritic, InnerProductCritic, SeparableCritic

from .kinds import build, draw, y_dim


def test_bilinear_by_hand():
    critic = build("bilinear", 2)
    x, y = draw(2, 4, 3, seed=1), draw(2, 6, 5, seed=2)
    weight, bias = critic.product.weight, critic.bias
    by_hand = torch.einsum("rnd,rde,rme->rnm", x, weight, y) + bias[:, :, None]
    torch.testing.assert_close(critic.matrix(x, y), by_hand)


def test_inner_product_by_hand():
    critic = build("inner", 2)
    x, y = draw(2, 4, 3, seed=3), draw(2, 6, 3, seed=4)
    for r in range(2):
        for i in range(4):
            for j in range(6):
                dot = sum(x[r, i, k].item() * y[r, j, k].item() for k in range(3))
                expected = critic.scale[r, 0].item() * dot + critic.bias[r, 0].item()
                assert critic.matrix(x, y)[r, i, j].item() == pytest.approx(expected)


def test_inner_product_starts_at_one_over_root_dim():
    critic = InnerProductCritic(2, 16)
    x, y = draw(2, 4, 16, seed=5).float(), draw(2, 6, 16, seed=6).float()
    torch.testing.assert_close(critic.matrix(x, y), x @ y.mT / 4.0)


@pytest.mark.parametrize("kind", ["separable", "bilinear", "inner"])
def test_score_is_the_product_of_the_embeddings(kind):
    critic = build(kind, 2)
    x, y = draw(2, 4, 3, seed=7), draw(2, 6, y_dim(kind), seed=8)
    g, h = critic.embed_x(x), critic.embed_y(y)
    by_hand = (g[:, :, None] * h[:, None]).sum(-1) + critic.bias[:, :, None]
    torch.testing.assert_close(critic.matrix(x, y), by_hand)


def test_separable_shapes():
    critic = SeparableCritic(2, 3, 5, hidden=(8,), embedding_dim=7)
    assert critic.embed_x(torch.zeros(2, 4, 3)).shape == (2, 4, 7)
    assert critic.embed_y(torch.zeros(2, 6, 5)).shape == (2, 6, 7)


def test_separable_bias_starts_at_zero_and_learns():
    critic = SeparableCritic(2, 3, 5, hidden=(8,), embedding_dim=7)
    critic.reset([torch.Generator().manual_seed(seed) for seed in (0, 1)])
    assert not critic.bias.any()
    critic.matrix(torch.ones(2, 4, 3), torch.ones(2, 6, 5)).sum().backward()
    assert critic.bias.grad[:, 0].tolist() == [24.0, 24.0]


def test_bilinear_starts_with_scores_of_order_one():
    """Fan-in counts both sides: x' W y is a sum over x_dim * y_dim products."""
    critic = BilinearCritic(1, 50, 80)
    critic.reset([torch.Generator().manual_seed(0)])
    scores = critic.matrix(draw(1, 40, 50).float(), draw(1, 40, 80, seed=1).float())
    assert 0.3 < scores.std() < 1.0


@pytest.mark.parametrize("kind", ["separable", "bilinear", "inner"])
def test_scores_rise_by_exactly_the_amounts(kind):
    critic = build(kind, 3)
    x, y = draw(3, 4, 3, seed=7), draw(3, 6, y_dim(kind), seed=8)
    amounts = torch.tensor([0.0, 2.5, -1.0], dtype=torch.float64)
    before = critic.matrix(x, y), critic.pairs(x, y[:, :4])
    critic.raise_scores(amounts)
    after = critic.matrix(x, y), critic.pairs(x, y[:, :4])
    torch.testing.assert_close(after[0] - before[0], amounts[:, None, None].expand(3, 4, 6))
    torch.testing.assert_close(after[1] - before[1], amounts[:, None].expand(3, 4))
    assert critic.bias.requires_grad
