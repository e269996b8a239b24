"""The default critic: the Gaussian closed form, and a network beside it."""

import math

import numpy as np
import pytest
import torch

from pointdep.core.critics import build_critic, replica_generators
from pointdep.core.critics.auto import ResidualCritic
from pointdep.core.linear import gaussian_log_ratio
from pointdep.core.transforms import CanonicalMap
from pointdep.errors import InputError

from .kinds import X_DIM, Y_DIM, build, draw, x_dim, y_dim

R = 3


def sides(rows=6, others=6):
    return draw(R, rows, x_dim("auto"), seed=1), draw(R, others, y_dim("auto"), seed=2)


def silenced():
    critic = build("auto", R)
    critic.silence()
    return critic


def test_silenced_it_is_the_gaussian_log_ratio():
    critic, (x, y) = silenced(), sides(6, 6)
    k = min(X_DIM, Y_DIM)
    matrix, pairs = critic.matrix(x, y), critic.pairs(x, y)
    for r in range(R):
        for i in range(6):
            for j in range(6):
                wanted = gaussian_log_ratio(x[r, i, :k], y[r, j, :k], critic.correlations[r])
                torch.testing.assert_close(matrix[r, i, j], wanted)
        torch.testing.assert_close(pairs[r], matrix[r].diagonal())
    torch.testing.assert_close(critic.closed_form(x, y), matrix)


def test_what_the_network_says_is_added():
    loud, quiet, (x, y) = build("auto", R), silenced(), sides(4, 5)
    assert loud.net.matrix(x, y).abs().min() > 0
    torch.testing.assert_close(loud.matrix(x, y) - quiet.matrix(x, y), loud.net.matrix(x, y))
    wanted = loud.net.pairs(x, y[:, :4])
    torch.testing.assert_close(loud.pairs(x, y[:, :4]) - quiet.pairs(x, y[:, :4]), wanted)


def test_without_correlations_and_network_all_pairs_are_independent():
    critic, (x, y) = silenced(), sides()
    critic.correlations = torch.zeros_like(critic.correlations)
    assert torch.equal(critic.matrix(x, y), torch.zeros(R, 6, 6, dtype=torch.float64))


def test_it_starts_from_the_closed_form():
    critic = ResidualCritic(2, X_DIM, Y_DIM, hidden=(8, 6)).double()
    critic.correlations += 0.5
    critic.reset(replica_generators(5, 2))
    x, y = sides()
    torch.testing.assert_close(critic.matrix(x[:2], y[:2]), critic.closed_form(x[:2], y[:2]))
    first, other = critic.net.x_half.first.weight
    assert first.any()
    assert not torch.equal(first, other)
    alone = ResidualCritic(1, X_DIM, Y_DIM, hidden=(8, 6)).double()
    alone.reset(replica_generators(5, 2)[1:])
    torch.testing.assert_close(alone.net.x_half.first.weight[0], other)
    assert critic.informed


def test_only_the_network_is_trained():
    critic, (x, y) = build("auto", R), sides()
    assert all(name.startswith("net.") for name, _ in critic.named_parameters())
    x.requires_grad_()
    critic.matrix(x, y).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in critic.parameters())
    assert critic.correlations.grad is None
    assert not critic.correlations.requires_grad


def test_a_silent_network_learns_at_its_last_layer_first():
    """Or it would never start."""
    critic, (x, y) = silenced(), sides()
    critic.matrix(x, y).square().sum().backward()
    last = critic.net.rest.layers[-1]
    assert last.weight.grad.any()
    assert not critic.net.x_half.first.weight.grad.any()


def test_selected_replicas_keep_their_correlations():
    critic = build("auto", R)
    chosen = critic.select([2, 0])
    torch.testing.assert_close(chosen.correlations, critic.correlations[[2, 0]])
    chosen.silence()
    chosen.correlations.zero_()
    assert critic.correlations.all()
    assert critic.net.rest.layers[-1].weight.any()


def test_correlations_are_saved():
    critic, again = build("auto", R), ResidualCritic(R, X_DIM, Y_DIM, hidden=(8, 6)).double()
    again.load_state_dict(critic.state_dict())
    x, y = sides()
    assert torch.equal(again.matrix(x, y), critic.matrix(x, y))


def test_built_by_name():
    critic = build_critic("auto", 2, 4, 3)
    assert isinstance(critic, ResidualCritic)
    assert [layer.weight.shape[1] for layer in critic.net.rest.layers] == [256, 64]
    assert critic.correlations.shape == (2, 3)
    assert [layer.weight.shape[1] for layer in build_critic("concat", 2, 4, 3).rest.layers] == [
        256,
        256,
    ]
    with pytest.raises(InputError, match="hidden='wide' must be 'auto' or layer widths"):
        build_critic("auto", 2, 4, 3, hidden="wide")


class TestCanonicalMap:
    def test_unfitted_it_keeps_the_columns(self):
        x = draw(2, 5, 3)
        out = CanonicalMap(2, 3).double()(x)
        assert out.shape == (2, 5, CanonicalMap.out_dim(3))
        torch.testing.assert_close(out[..., :3], x)
        assert out[..., 3:5].all()
        assert not out[..., 5:].any()

    def test_by_hand(self):
        x, weight, mean = 2 * draw(1, 6, 3), draw(3, 2, seed=3), draw(3, seed=4)
        x[0, 5, 1] = 60.0  # far out: the measures of size stop growing
        made = CanonicalMap(1, 3).double()
        made.set_linear(0, mean, weight)
        features_mean, modulated = draw(8, seed=5), draw(8, 6, seed=6)
        made.set_modulated(0, features_mean, modulated)
        out = made(x)[0]
        for row in range(6):
            u = torch.cat([(x[0, row] - mean) @ weight, torch.zeros(1, dtype=torch.float64)])
            size = (u @ u / 3 - 1) * (3 / 2) ** 0.5
            q = 3 * math.tanh(size / 3)
            t = math.log(np.mean([math.exp(min(float(value) ** 2, 20) / 2) for value in x[0, row]]))
            features = torch.cat([u, torch.tensor([q, t - 1]), q * u])
            wanted = torch.cat([features[:5], (features - features_mean) @ modulated[:, :4]])
            torch.testing.assert_close(out[row], wanted)

    def test_replicas_and_extra_dimensions(self):
        made = CanonicalMap(2, 3).double()
        for replica in range(2):
            made.set_linear(replica, draw(3, seed=replica), draw(3, 3, seed=8 + replica))
            made.set_modulated(replica, draw(8, seed=replica), draw(8, 2, seed=replica))
        x = draw(2, 12, 3)
        whole = made(x)
        torch.testing.assert_close(made(x.view(2, 4, 3, 3)).view(2, 12, -1), whole)
        torch.testing.assert_close(made.select([1])(x[1:])[0], whole[1])
        torch.testing.assert_close(made.select([1, 0])(x.flip(0)), whole.flip(0))
        assert not torch.allclose(*made(x[:1].expand(2, 12, 3)))
