"""The default critics: a Gaussian closed form, and a network or two towers beside it."""

import itertools

import pytest
import torch

from pointdep.core.critics import build_critic, replica_generators
from pointdep.core.critics.auto import ResidualCritic, TowersCritic
from pointdep.core.linear import canonical_correlations, gaussian_log_ratio
from refusals import refused

from .kinds import KINDS, X_DIM, Y_DIM, build, draw, x_dim, y_dim

R = 3


def sides(rows=6, others=6, kind="auto, wide"):
    return draw(R, rows, x_dim(kind), seed=1), draw(R, others, y_dim(kind), seed=2)


def silenced():
    critic = build("auto", R)
    critic.silence()
    return critic


class TestResidual:
    """The closed form, and a perceptron beside it."""

    def test_the_gaussian_log_ratio_and_what_the_network_adds(self):
        critic, (x, y) = silenced(), sides(kind="auto")
        k = min(X_DIM, Y_DIM)
        matrix, pairs = critic.matrix(x, y), critic.pairs(x, y)
        for r, i, j in itertools.product(range(R), range(6), range(6)):
            wanted = gaussian_log_ratio(x[r, i, :k], y[r, j, :k], critic.correlations[r])
            torch.testing.assert_close(matrix[r, i, j], wanted)
        torch.testing.assert_close(pairs, matrix.diagonal(dim1=-2, dim2=-1))
        torch.testing.assert_close(critic.closed_form(x, y), matrix)
        loud, quiet, (x, y) = build("auto", R), silenced(), sides(4, 5, "auto")
        assert loud.net.matrix(x, y).abs().min() > 0
        torch.testing.assert_close(loud.matrix(x, y) - quiet.matrix(x, y), loud.net.matrix(x, y))
        wanted = loud.net.pairs(x, y[:, :4])
        torch.testing.assert_close(loud.pairs(x, y[:, :4]) - quiet.pairs(x, y[:, :4]), wanted)

    def test_a_share_of_unrelated_pairs_mixes_their_ratio_of_one_with_the_others(self):
        critic, (x, y) = silenced(), sides(kind="auto")
        related = critic.matrix(x, y).exp()
        assert critic.inner_is_all
        critic.unrelated += 0.3
        wanted = (0.3 + 0.7 * related).log()
        torch.testing.assert_close(critic.matrix(x, y), wanted)
        torch.testing.assert_close(critic.closed_form(x, y), wanted)
        torch.testing.assert_close(critic.pairs(x, y), wanted.diagonal(dim1=-2, dim2=-1))
        assert not critic.inner_is_all
        loud = build("auto", R)
        loud.unrelated += 0.3
        torch.testing.assert_close(loud.matrix(x, y), wanted + loud.net.matrix(x, y))

    def test_weights_without_a_share_of_unrelated_pairs_load(self):
        critic = build("auto", R)
        early = {name: t for name, t in critic.state_dict().items() if name != "unrelated"}
        critic.unrelated += 0.3
        critic.load_state_dict(early)
        assert not critic.unrelated.any()

    def test_it_starts_from_the_closed_form(self):
        critic = ResidualCritic(2, X_DIM, Y_DIM, hidden=(8, 6)).double()
        critic.correlations += 0.5
        critic.reset(replica_generators(5, 2))
        x, y = sides(kind="auto")
        torch.testing.assert_close(critic.matrix(x[:2], y[:2]), critic.closed_form(x[:2], y[:2]))
        first, other = critic.net.x_half.first.weight
        assert first.any()
        assert not torch.equal(first, other)
        alone = ResidualCritic(1, X_DIM, Y_DIM, hidden=(8, 6)).double()
        alone.reset(replica_generators(5, 2)[1:])
        torch.testing.assert_close(alone.net.x_half.first.weight[0], other)
        assert critic.informed

    def test_only_the_network_is_trained(self):
        critic, (x, y) = build("auto", R), sides(kind="auto")
        assert all(name.startswith("net.") for name, _ in critic.named_parameters())
        x.requires_grad_()
        critic.matrix(x, y).square().sum().backward()
        assert all(p.grad is not None and p.grad.any() for p in critic.parameters())
        assert critic.correlations.grad is None
        assert not critic.correlations.requires_grad
        # A silent one learns at its last layer first, or it would never start.
        critic = silenced()
        critic.matrix(x, y).square().sum().backward()
        assert critic.net.rest.layers[-1].weight.grad.any()
        assert not critic.net.x_half.first.weight.grad.any()


@pytest.mark.parametrize("side", ["x", "y"])
@pytest.mark.parametrize("part", ["matrix", "closed_form"])
class TestLabel:
    """One side is a label: log r is normalised over its levels."""

    def sides(self, side):
        """A critic without and with a label, rows of the other side and levels of the label."""
        plain, (x, y) = build("auto", R), sides(7, 6, "auto")
        label, rows = (x, y) if side == "x" else (y, x)
        dim = X_DIM if side == "x" else Y_DIM
        critic = ResidualCritic(R, X_DIM, Y_DIM, hidden=(8, 6), label=side).double()
        levels, shares = (
            label[:, :dim],
            torch.arange(1.0, dim + 1).repeat(R, 1) / sum(range(dim + 1)),
        )
        critic.set_levels(levels, shares)
        critic.load_state_dict(plain.state_dict(), strict=False)
        return plain, critic, rows, levels, shares.double()

    def test_the_mean_of_r_is_one_the_score_and_searched(self, side, part):
        _, critic, rows, levels, shares = self.sides(side)
        pair = (levels, rows) if side == "x" else (rows, levels)
        ratio = getattr(critic, part)(*pair).exp()
        means = torch.einsum("rlm,rl->rm" if side == "x" else "rml,rl->rm", ratio, shares)
        torch.testing.assert_close(means, torch.ones_like(means))
        plain, critic, rows, levels, shares = self.sides(side)
        for r, i, j in itertools.product(range(R), range(rows.shape[1]), range(levels.shape[1])):

            def scores(model, one, r=r, i=i):
                row, level = rows[r, i].expand(R, 1, -1), levels[r, one].expand(R, 1, -1)
                pair = (level, row) if side == "x" else (row, level)
                return getattr(model, part)(*pair)[r, 0, 0]

            every = torch.stack([scores(plain, one) for one in range(levels.shape[1])])
            wanted = every[j] - (shares[r] * every.exp()).sum().log()
            torch.testing.assert_close(scores(critic, j), wanted)
        _, critic, rows, levels, _ = self.sides(side)
        critic.silence()
        x, y = (levels, rows) if side == "x" else (rows, levels)
        vector_x, own_x = critic.inner_x(x)
        vector_y, own_y = critic.inner_y(y)
        together = vector_x @ vector_y.mT + own_x[:, :, None] + own_y[:, None, :]
        assert critic.inner_is_all
        torch.testing.assert_close(together, getattr(critic, part)(x, y))


def gaussian_matrix(critic, x, y):
    """By canonical coordinates, a replica at a time."""
    u = torch.stack([(x[r] - critic.x_mean[r]) @ critic.x_weight[r] for r in range(R)])
    v = torch.stack([(y[r] - critic.y_mean[r]) @ critic.y_weight[r] for r in range(R)])
    pairs = [gaussian_log_ratio(u[r][:, None], v[r], critic.correlations[r]) for r in range(R)]
    return torch.stack(pairs)


class TestMixture:
    @pytest.mark.parametrize(
        "mixture", [(0.7, 1.2, -0.3), (0.0, 0.9, 0.1), (1.0, 0.0, 0.0), (0.4, 0.0, 2.0)]
    )
    def test_parts_by_themselves(self, mixture):
        critic, (x, y) = build("auto, wide", R), sides(4, 5)
        critic.set_mixture(*mixture)
        a, b, c = mixture
        wanted = a * gaussian_matrix(critic, x, y) + b * critic.towers.matrix(x, y) + c
        torch.testing.assert_close(critic.matrix(x, y), wanted)
        wanted_pairs = wanted.diagonal(dim1=-2, dim2=-1)
        torch.testing.assert_close(critic.pairs(x, y[:, :4]), wanted_pairs)
        assert critic.silent == (mixture[1] == 0)
        critic.silence()
        assert critic.silent
        torch.testing.assert_close(critic.matrix(x, y), gaussian_matrix(critic, x, y))
        torch.testing.assert_close(critic.matrix(x, y), critic.closed_form(x, y))

    def test_it_starts_as_towers_alone(self):
        critic = TowersCritic(R, X_DIM, Y_DIM, hidden=(8, 6), embedding_dim=4).double().eval()
        critic.correlations += 0.5
        critic.set_mixture(1.0, 0.0, 0.0)
        critic.reset(replica_generators(5, R))
        x, y = sides()
        torch.testing.assert_close(critic.matrix(x, y), critic.towers.matrix(x, y))
        assert not critic.informed

    @pytest.mark.parametrize("mixture", [(0.0, 1.0, 0.0), (0.0, 0.8, -0.4), (0.6, 1.1, 0.2)])
    def test_vectors_and_own_terms_give_the_matrix(self, mixture):
        critic, (x, y) = build("auto, wide", R), sides(4, 5)
        critic.set_mixture(*mixture)
        vector_x, own_x = critic.inner_x(x)
        vector_y, own_y = critic.inner_y(y)
        assert (own_y is None) == (mixture[0] == 0)
        together = torch.einsum("rne,rme->rnm", vector_x, vector_y) + own_x[:, :, None]
        if own_y is not None:
            together = together + own_y[:, None, :]
        torch.testing.assert_close(together, critic.matrix(x, y))
        assert vector_x.shape[-1] == (4 if mixture[0] == 0 else 4 + min(X_DIM, Y_DIM))


class TestReplicas:
    @pytest.mark.parametrize(("x_dim", "y_dim"), [(3, 5), (5, 3), (4, 4)])
    def test_canonical_coordinates_as_they_are_found(self, x_dim, y_dim):
        """log r of the rows themselves, by the covariance of canonical coordinates."""
        x, y = draw(400, x_dim, seed=3), draw(400, y_dim, seed=4)
        y[:, :2] += 2 * x[:, :2]
        found = canonical_correlations(x, y)
        critic = TowersCritic(2, x_dim, y_dim, hidden=(4,), embedding_dim=2).double().eval()
        critic.set_canonical(1, found)
        critic.silence()
        k = len(found.correlations)
        u = ((x - found.x_mean) @ found.x_weight)[:, :k]
        v = ((y - found.y_mean) @ found.y_weight)[:, :k]
        both = critic.pairs(x.expand(2, -1, -1), y.expand(2, -1, -1))
        torch.testing.assert_close(both[1], gaussian_log_ratio(u, v, found.correlations))
        assert not both[0].any()

    def test_fewer_coordinates_than_columns(self):
        """Of eight rows two directions are kept; the others are zero, whatever was there before."""
        x, y = draw(8, 5, seed=3), draw(8, 4, seed=4)
        critic = TowersCritic(1, 5, 4, hidden=(4,), embedding_dim=2).double().eval()
        critic.x_weight += 1.0
        critic.correlations += 0.5
        found = canonical_correlations(x, y)
        assert len(found.correlations) == 2
        critic.set_canonical(0, found)
        assert not critic.x_weight[0, :, 2:].any()
        assert not critic.correlations[0, 2:].any()
        torch.testing.assert_close(critic.correlations[0, :2], found.correlations)


class TestTraining:
    def test_only_the_towers_are_trained_and_inputs_dropped_in_training_alone(self):
        critic, (x, y) = build("auto, wide", R), sides()
        torch.testing.assert_close(critic.matrix(x, y), critic.matrix(x, y))
        critic.train()
        assert all(name.startswith("towers.") for name, _ in critic.named_parameters())
        critic.matrix(x, y).square().sum().backward()
        assert all(p.grad is not None and p.grad.any() for p in critic.parameters())
        assert not torch.allclose(critic.matrix(x, y), critic.matrix(x, y))
        assert not torch.allclose(critic.pairs(x, y), critic.pairs(x, y))

    @pytest.mark.parametrize("call", ["factors", "matrix"])
    def test_what_a_step_sees(self, call):
        """Zeros in a fifth of the places, the others larger, the mean as it was."""
        critic, seen = build("auto, wide", R).train(), []
        setattr(critic.towers, call, lambda x, y: seen.append((x, y)) or torch.zeros(1))
        torch.manual_seed(0)
        getattr(critic, call)(torch.ones(R, 4000, X_DIM), torch.ones(R, 4000, Y_DIM))
        for side in seen[0]:
            assert sorted(side.unique().tolist()) == pytest.approx([0.0, 1.25])
            assert float((side[0] == 0).float().mean()) == pytest.approx(0.2, abs=0.015)
            assert torch.equal(side[:1].expand(R, -1, -1), side)
            assert not torch.equal(side[0, :2000], side[0, 2000:])

    def test_a_replica_trains_alike_whoever_trains_beside_it(self):
        critic, (x, y) = build("auto, wide", R).train(), sides()
        torch.manual_seed(3)
        together = critic.matrix(x, y)
        for some in ([1], [2, 1]):
            torch.manual_seed(3)
            found = critic.select(some).matrix(x[some], y[some])
            torch.testing.assert_close(found[-1], together[1])


def test_built_by_name():
    critic = build_critic("auto", 2, 4, 3)
    assert isinstance(critic, ResidualCritic)
    assert [layer.weight.shape[1] for layer in critic.net.rest.layers] == [256, 64]
    assert critic.correlations.shape == (2, 3)
    wide = build_critic("auto", 2, 30, 40, hidden=(16, 8), embedding_dim=5, wide=True)
    assert isinstance(wide, TowersCritic)
    assert wide.towers.embed_x(torch.zeros(2, 3, 30)).shape == (2, 3, 5)
    assert (wide.x_weight.shape, wide.y_weight.shape) == ((2, 30, 30), (2, 40, 30))
    refused("hidden='wide'", build_critic, "auto", 2, 4, 3, hidden="wide")


@pytest.mark.parametrize("kind", ["auto", "auto, label", "auto, wide"])
def test_all_of_it_is_saved(kind):
    critic, again = build(kind, R), KINDS[kind](R).double()
    for buffer in again.buffers():
        buffer.zero_()
    again.load_state_dict(critic.state_dict())
    x, y = sides(kind=kind)
    assert torch.equal(again.matrix(x, y), critic.matrix(x, y))
