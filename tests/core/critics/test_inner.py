"""Critics that are inner products, against the sums they stand for."""

import pytest
import torch

from pointdep.core.critics import BilinearCritic, InnerProductCritic, SeparableCritic

from .kinds import build, draw, y_dim


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
    scores = critic.matrix(draw(1, 40, 50).float(), draw(1, 40, 80, seed=1).float())
    assert 0.3 < scores.std() < 1.0
