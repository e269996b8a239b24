"""The part of the default critic that is not trained, and whether its network stays."""

import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from pointdep.core.linear import canonical_correlations, gaussian_log_ratio
from pointdep.core.transforms import RankMap
from pointdep.fitting import closed_form as residual
from pointdep.fitting.batches import SplitRows, held_out_cells
from pointdep.fitting.closed_form import closed_form_only, drop_unproven_network

from .helpers import closed_form, gaussians, shout, split_of

SCALES = (1.0, 0.97, 0.9, 0.75, 0.5, 0.25, 0.0)


def test_gaussian_pairs_are_trusted_and_contradicted_correlations_are_not():
    x, y = gaussians(1300)
    model = closed_form(x, y, [split_of(800, 400, 100)])
    found = canonical_correlations(x[:800], y[:800])
    torch.testing.assert_close(model.critic.correlations[0], found.correlations)
    new = gaussians(500, seed=1)
    told = model.log_ratio_pairs(*(side[None] for side in new))[0].detach()
    truth = gaussian_log_ratio(*new, torch.full((2,), 0.8, dtype=torch.float64))
    assert np.corrcoef(told, truth)[0, 1] > 0.99
    assert float(told.mean()) == pytest.approx(float(truth.mean()), abs=0.1)
    # y turns its sign between the training and the stopping rows of the second replica.
    x, y = gaussians(2200)
    y[1500:1900] *= -1
    model = closed_form(x, y, [split_of(700, 300, 100), split_of(400, 400, 300, start=1100)])
    kept = model.critic.correlations
    assert kept[0].min() > 0.7
    assert not kept[1].any()
    assert not model.log_ratio_pairs(x[None].expand(2, -1, -1), y[None].expand(2, -1, -1))[1].any()


def test_pairs_that_are_mixed_up_are_recognised_as_a_share():
    """log r = log(e + (1 - e) r) of Gaussian pairs of which a share e = 0.3 has another row's y."""
    x, y = gaussians(6000, dim=4)
    y[::10], y[1::10], y[2::10] = y[1::10].clone(), y[2::10].clone(), y[::10].clone()
    model = closed_form(x, y, [split_of(3000, 1000, 1000), split_of(3000, 1000, 1000, start=900)])
    critic, wanted = model.critic, torch.full((2, 4), 0.8).double()
    assert ((critic.unrelated > 0.2) & (critic.unrelated < 0.4)).all()
    torch.testing.assert_close(critic.correlations, wanted, atol=0.05, rtol=0)
    new = x[5000:], y[5000:]
    told = model.log_ratio_pairs(*(side.expand(2, -1, -1) for side in new))
    related = gaussian_log_ratio(*new, wanted[0])
    truth = (0.3 + 0.7 * related.exp()).log().mean()
    assert told.mean(1).tolist() == pytest.approx([float(truth)] * 2, abs=0.03)


def test_no_share_of_gaussian_pairs_is_taken_for_unrelated():
    for seed in range(4):
        x, y = gaussians(1300, dim=3, rho=0.6, seed=seed)
        assert not closed_form(x, y, [split_of(800, 400, 100)]).critic.unrelated.any()


def test_replicas_of_a_learning_curve_change_nothing_about_the_others():
    """Not even one whose rows hardly differ, of which no share can be unrelated."""
    (x, y), random = gaussians(900, dim=1, rho=0.95), np.random.default_rng(0)
    mixed = np.flatnonzero(random.random(600) < 0.4)
    y[mixed] = torch.from_numpy(random.standard_normal((len(mixed), 1)))
    y[600:] = x[600:] + 1e-3 * y[600:]
    splits = [split_of(340, 160, 100), split_of(100, 50, 150, start=600)]
    alone = closed_form(x, y, splits[:1]).critic
    both = closed_form(x, y, splits, judged=1).critic
    assert float(both.unrelated[0]) == float(alone.unrelated[0]) > 0.2
    torch.testing.assert_close(both.correlations[0], alone.correlations[0])
    assert both.correlations.max() < 1.0


@pytest.mark.parametrize("label", ["x", "y"])
def test_of_a_label_it_is_linear_discriminant_analysis(label):
    """Three Gaussian classes of unequal size with one covariance."""
    random, means = np.random.default_rng(0), np.array([[1.5, 0.0], [-1.0, 0.5], [0.0, -1.5]])
    codes = random.choice(3, 6000, p=[0.5, 0.3, 0.2])
    rows = (means[codes] + random.standard_normal((6000, 2))) @ np.array([[1.0, 0.4], [0.0, 0.8]])
    train, shares = codes[:4000], np.bincount(codes[:4000]) / 4000
    both = torch.from_numpy(np.eye(3)[codes]), torch.from_numpy(rows)
    x, y = both if label == "x" else both[::-1]
    model = closed_form(x, y, [split_of(4000, 1000, 1000)], label)
    new = (side[None, 5000:] for side in (x, y))
    told = model.log_ratio_pairs(*new)[0].detach().numpy()
    theirs = LinearDiscriminantAnalysis().fit(rows[:4000], train)
    wanted = theirs.predict_log_proba(rows[5000:]) - np.log(shares)
    wanted = wanted[np.arange(1000), codes[5000:]]
    # Correlations are those of rows left out: up to their error, 1/sqrt(4000) each.
    assert np.abs(told - wanted).mean() < 0.03
    assert told.mean() == pytest.approx(wanted.mean(), abs=0.01)
    np.testing.assert_allclose(model.critic.log_shares[0].exp(), shares)


def classifier_value(scores):
    """Of a (n, n) block, its diagonal being pairs: written out."""
    own = [math.log1p(math.exp(-float(scores[i, i]))) for i in range(len(scores))]
    cells = itertools.permutations(range(len(scores)), 2)
    others = [math.log1p(math.exp(float(scores[at]))) for at in cells]
    return -np.mean(own) - np.mean(others)


@pytest.mark.parametrize("turned", [0.0, 0.3, 0.45])
def test_the_scale_is_the_best_of_those_tried(turned):
    """32 stopping rows are one block; a share of them has the sign of y turned."""
    x, y = gaussians(1000, dim=1, rho=0.9)
    y[900 : 900 + round(32 * turned)] *= -1
    model = closed_form(x, y, [split_of(900, 32, 68)])
    found = canonical_correlations(x[:900], y[:900])
    u = (x[900:932] - found.x_mean) @ found.x_weight
    v = (y[900:932] - found.y_mean) @ found.y_weight
    tried = [gaussian_log_ratio(u[:, None], v[None], s * found.correlations) for s in SCALES]
    best = SCALES[int(np.argmax([classifier_value(scores) for scores in tried]))]
    assert float(model.critic.correlations[0, 0] / found.correlations[0]) == pytest.approx(best)
    assert (best == 1.0) == (turned == 0.0)


def test_each_replica_by_its_own_rows():
    x, y = gaussians(900)
    splits = [split_of(300, 100, 50), split_of(300, 100, 50, start=450)]
    both = closed_form(x, y, splits)
    for replica, split in enumerate(splits):
        x_other, y_other = x.clone(), y.clone()
        others = np.setdiff1d(np.arange(900), np.concatenate([split.train, split.stop]))
        x_other[others], y_other[others] = 99.0, -99.0
        # The other replica's rows are spoilt, and this one's split is asked for at both places.
        again = closed_form(x_other, y_other, [split, split])
        torch.testing.assert_close(again.x_map.weight[0], both.x_map.weight[replica])
        torch.testing.assert_close(again.x_map.modulated[0], both.x_map.modulated[replica])
    assert not torch.allclose(both.x_map.weight[0], both.x_map.weight[1])


def test_coordinates_modulated_by_the_size_are_found():
    """y is x turned by an angle that grows with the size of x: q u sees what u does not."""
    random = np.random.default_rng(0)
    x, noise = (torch.from_numpy(random.standard_normal((4000, 3))) for _ in range(2))
    y = torch.tanh(x.square().mean(1, keepdim=True) - 1) * x + 0.3 * noise
    model = closed_form(x, y, [split_of(3000, 800, 200)])
    assert model.x_map.modulated.abs().sum(1).gt(0).any()
    u, v = model.x_map(x[None])[0].numpy(), model.y_map(y[None])[0].numpy()
    plain = np.abs(np.corrcoef(u[:, :3].T, v[:, :3].T)[:3, 3:]).max()
    assert abs(np.corrcoef(u[:, -4], v[:, -4])[0, 1]) > plain + 0.1
    model = closed_form(*gaussians(300, dim=65, rho=0.5), [split_of(200, 80, 20)])
    assert not model.x_map.modulated.any()
    assert model.critic.correlations.any()


# Whether the default critic's network stays.
SPLITS = [split_of(200, 45, 5), split_of(200, 45, 5, start=250)]


def network_output(model, x, y):
    """What the network adds to log r: (R, n)."""
    pairs = [side[None].expand(model.replicas, *side.shape) for side in (x, y)]
    return model.log_ratio_pairs(*pairs) - closed_form_only(model).log_ratio_pairs(*pairs)


@pytest.mark.parametrize("groups", [None, torch.arange(500) // 3])
def test_the_loss_of_a_row_by_hand(groups):
    x, y = gaussians(500)
    model = closed_form(x, y, SPLITS)
    shout(model, 0, 0.5)
    one, rows = model.select([0]), SPLITS[0].stop
    cells, index = held_out_cells(x, y, [rows], block=16, seed=3, groups=groups)
    losses = residual._losses(one, cells).tolist()
    found = dict(zip(index[0][index[0] >= 0].tolist(), losses, strict=True))
    assert sorted(found) == rows.tolist()
    for block in index[0].reshape(-1, 16):
        members = block[block >= 0]
        matrix = one.log_ratio_matrix(x[members][None], y[members][None])[0].detach()
        for i, row in enumerate(members.tolist()):
            apart = members != row if groups is None else (groups[members] != groups[row]).numpy()
            others = np.flatnonzero(apart)
            # The classifier of one pair against so many others.
            odds = math.log(len(others))
            wanted = math.log1p(math.exp(odds - float(matrix[i, i])))
            wanted += sum(math.log1p(math.exp(float(matrix[i, j]) - odds)) for j in others)
            assert found[row] == pytest.approx(wanted, rel=1e-9)


def test_noise_goes_from_all_replicas_and_a_network_that_helps_stays():
    x, y = gaussians(500)
    model = closed_form(x, y, SPLITS)
    shout(model, 0, 0.5)
    shout(model, 1, 0.5, seed=1)
    assert network_output(model, x, y).abs().mean() > 0.05
    assert not drop_unproven_network(model, SplitRows(x, y, SPLITS))
    assert not network_output(model, x, y).any()
    # The closed form is made wrong by a constant, and the network's bias mends it.
    model = closed_form(x, y, SPLITS)
    model.constant += 1.0
    model.critic.net.rest.layers[-1].bias.data += 1.0
    before = network_output(model, x, y)
    torch.testing.assert_close(before, torch.ones_like(before))
    assert drop_unproven_network(model, SplitRows(x, y, SPLITS))
    torch.testing.assert_close(network_output(model, x, y), before)


def test_rows_of_one_group_are_one_draw():
    """Against the spread of group means, in groups of one size, and that of single rows."""
    gain = torch.randn(12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = float(gain.std()) / math.sqrt(12)
    assert residual._error_of_mean(gain, torch.arange(12) + 7) == pytest.approx(plain)
    copies, groups = gain.repeat_interleave(5), torch.arange(12).repeat_interleave(5)
    assert residual._error_of_mean(copies, groups) == pytest.approx(plain)
    assert residual._error_of_mean(copies, torch.arange(60)) < 0.5 * plain
    assert residual._error_of_mean(gain[:1], torch.zeros(1)) == math.inf
    assert residual._error_of_mean(gain, torch.zeros(12)) == math.inf


@pytest.mark.parametrize(
    ("bent", "wanted"),
    [((False, False), (True, True)), ((True, True), (False, False))],
    ids=["Gaussian", "cubes"],
)
def test_values_stand_in_for_ranks_of_pairs_that_hardly_differ(bent, wanted):
    x, y = (
        side**3 if cube else side
        for side, cube in zip(gaussians(1500, dim=1, rho=0.9998), bent, strict=True)
    )
    numeric = torch.ones(1, dtype=torch.bool)
    ranked = [RankMap(1).fit(side, numeric)(side.float()) for side in (x, y)]
    plain = [RankMap(1).fit_plain(side, numeric)(side.float()) for side in (x, y)]
    splits = [split_of(900, 400, 200)]
    assert residual.plain_sides(SplitRows(*ranked, splits), SplitRows(*plain, splits)) == wanted
