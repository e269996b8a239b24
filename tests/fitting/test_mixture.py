"""How much of each part of the default critic of wide data is right."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from pointdep import PointwiseDependency
from pointdep.core.critics import BilinearCritic
from pointdep.core.critics.auto import TowersCritic
from pointdep.core.linear import gaussian_log_ratio
from pointdep.core.methods import METHODS
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import Standardizer
from pointdep.errors import FitWarning
from pointdep.fitting import closed_form
from pointdep.fitting.batches import SplitRows
from pointdep.fitting.closed_form import fit_mixture
from refusals import quietly

from .helpers import split_of

RHO = 0.6
SIGNS = 3  # columns of signs; one column of normal numbers comes before them
DIM = 1 + SIGNS


def signs_and_normal(rows, *, seed=0):
    """Column 0 normal, the others signs; column k of x and column k of y correlate by RHO."""
    random = np.random.default_rng(seed)
    x, noise = random.standard_normal((2, rows, DIM))
    y, signs = RHO * x + math.sqrt(1 - RHO**2) * noise, np.sign(x[:, 1:])
    x[:, 1:] = signs
    y[:, 1:] = np.where(random.random((rows, SIGNS)) < (1 + RHO) / 2, signs, -signs)
    return torch.from_numpy(x), torch.from_numpy(y)


def model_of(replicas, *, scale=1.0):
    """Its closed form is right about the normal column, its towers, scaled, about the signs.

    Of signs log r = sum_k atanh(RHO) x_k y_k + log(1 - RHO^2) / 2.
    """
    critic = TowersCritic(replicas, DIM, DIM, hidden=(4,), embedding_dim=DIM)
    critic.towers = BilinearCritic(replicas, DIM, DIM)
    weight = torch.zeros(DIM, DIM)
    weight[1:, 1:] = scale * math.atanh(RHO) * torch.eye(SIGNS)
    critic.towers.product.weight.data[:] = weight
    for side in (critic.x_weight, critic.y_weight):
        side[:] = torch.eye(DIM)
    critic.correlations[:, 0] = RHO
    maps = Standardizer(replicas, DIM), Standardizer(replicas, DIM)
    made = RatioModel(critic, *maps, [METHODS["pc"]] * replicas, "log_ratio").double()
    return made.eval().requires_grad_(False)


SPLITS = [split_of(10, 1500, 10), split_of(10, 1500, 10, start=1520)]
CONSTANT = SIGNS * 0.5 * math.log(1 - RHO**2)


@pytest.mark.parametrize("scale", [1.0, 2.0, 0.5])
@pytest.mark.parametrize("linear", [True, False])
def test_each_part_takes_part_where_it_is_right(scale, linear):
    """Unless linear, the normal columns have nothing to do with each other."""
    x, y = signs_and_normal(3040)
    y[:, 0] = y[:, 0] if linear else y[:, 0].roll(1)
    model = model_of(2, scale=scale)
    fit_mixture(model, SplitRows(x, y, SPLITS))
    a, b, c = model.critic.mixture[0].tolist()
    assert torch.equal(*model.critic.mixture)
    assert (scale * b, c) == (pytest.approx(1.0, abs=0.1), pytest.approx(CONSTANT, abs=0.1))
    if not linear:
        assert a == 0.0
        return
    assert a == pytest.approx(1.0, abs=0.2)
    new = signs_and_normal(500, seed=1)
    told = model.select([0]).log_ratio_pairs(*(side[None] for side in new))[0]
    normal = gaussian_log_ratio(new[0][:, :1], new[1][:, :1], torch.tensor([RHO]).double())
    exact = normal + math.atanh(RHO) * (new[0] * new[1])[:, 1:].sum(1) + CONSTANT
    assert float((told - exact).square().mean().sqrt()) < 0.2


def test_replicas_with_unequally_few_stopping_rows():
    x, y = signs_and_normal(3040)
    splits, found = [split_of(10, 40, 10), split_of(10, 25, 10, start=1520)], []
    for given in (splits, splits[::-1]):
        model = model_of(2)
        fit_mixture(model, SplitRows(x, y, given))
        found.append(model.critic.mixture[0].tolist())
    assert found[0] == pytest.approx(found[1], abs=1e-6)
    assert found[0][1] > 0


def test_a_closed_form_that_helps_by_chance_does_not_take_part(monkeypatch):
    """Sixty stopping rows, whose normal columns have nothing to do with each other."""

    def shares_of_the_closed_form():
        found = []
        for seed in range(20):
            x, y = signs_and_normal(80, seed=seed)
            y[:, 0] = y[:, 0].roll(1)
            model = model_of(1)
            model.critic.correlations[:, 0] = 0.1
            fit_mixture(model, SplitRows(x, y, [split_of(10, 60, 10)], seed=seed))
            found.append(float(model.critic.mixture[0, 0]))
        return np.array(found)

    assert (shares_of_the_closed_form() > 0).sum() <= 3
    monkeypatch.setattr(closed_form, "proven", lambda *_: True)
    assert (shares_of_the_closed_form() > 0).sum() >= 6


def test_only_stopping_rows_of_other_groups_count():
    x, y = signs_and_normal(3040)
    model, other = model_of(2), model_of(2)
    fit_mixture(model, SplitRows(x, y, SPLITS))
    rest = np.setdiff1d(np.arange(3040), np.concatenate([split.stop for split in SPLITS]))
    x[rest], y[rest] = 99.0, -99.0
    fit_mixture(other, SplitRows(x, y, SPLITS))
    assert torch.equal(model.critic.mixture, other.critic.mixture)
    # Every row twice: without groups some mismatched pairs are pairs, and less is believed.
    x, y = (side.repeat_interleave(2, 0) for side in signs_and_normal(60))
    plain, grouped = model_of(1), model_of(1)
    fit_mixture(plain, SplitRows(x, y, [split_of(4, 112, 4)]))
    fit_mixture(grouped, SplitRows(x, y, [split_of(4, 112, 4)], np.arange(120) // 2))
    assert plain.critic.mixture[0, 1] < grouped.critic.mixture[0, 1]


@pytest.mark.parametrize("pairs", [0.5, 0.05])
@pytest.mark.parametrize("columns", [1, 2])
def test_against_scikit_learn(pairs, columns):
    random = np.random.default_rng(0)
    values = np.column_stack([random.normal(size=(4000, columns)), np.ones(4000)])
    odds = values @ np.array([0.5, 1.4, -0.3])[-columns - 1 :] + math.log(pairs / (1 - pairs))
    target = (random.random(4000) < 1 / (1 + np.exp(-odds))).astype(float)
    shift = math.log((1 - target.mean()) / target.mean())
    given = torch.from_numpy(values), torch.from_numpy(target), torch.tensor(shift)
    found = closed_form._logistic(*given)
    fitted = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=1000)
    wanted = fitted.fit(values, target).coef_[0]
    wanted[-1] += shift
    np.testing.assert_allclose(found, wanted, atol=0.03)  # which the prior moves little
    held = np.append(np.full(columns, 1 / columns), 0.0)

    def lost(weights):
        odds = values @ weights - shift
        return np.logaddexp(0, odds).sum() - target @ odds + np.square(weights - held).sum() / 2

    np.testing.assert_allclose(found, minimize(lost, held, tol=1e-12).x, atol=1e-4)


@pytest.mark.parametrize("gap", [1.0, 30.0])
def test_parts_that_separate_are_left_as_large_as_they_are(gap):
    random, target = np.random.default_rng(0), np.repeat([1.0, 0.0], [100, 900])
    parts = gap * (2 * target[:, None] - 1) + 0.1 * gap * random.random((1000, 2))
    values = torch.from_numpy(np.column_stack([parts, np.ones(1000)]))
    found = closed_form._logistic(values, torch.from_numpy(target), torch.tensor(math.log(9)))
    assert 0.95 < found[0] + found[1] < 8.0
    if gap > 20:
        assert found == pytest.approx((0.5, 0.5, 0.0), abs=0.01)


def fitted(x, y, **options):
    """Small towers, and no warning that the fit is short."""
    settings = {"hidden": (64,), "embedding_dim": 16, "folds": 2, "max_epochs": 30, "device": "cpu"}
    settings |= {"random_state": 0, "progress": False}
    with quietly(FitWarning):
        return PointwiseDependency(**{**settings, **options}).fit(x, y)


class TestWholeFits:
    def test_rows_so_dependent_that_no_other_looks_like_a_pair(self):
        """Truth 29.5 nats; by 800 rows the parts alone say how large PMI is."""
        random, noise = np.random.default_rng(1), 0.3
        shared = random.normal(size=(800, 32))
        x, y = (shared + noise * random.normal(size=(800, 32)) for _ in range(2))
        truth = -16 * math.log(1 - 1 / (1 + noise**2) ** 2)
        assert fitted(x, y).mutual_information().nats == pytest.approx(truth, rel=0.1)

    def test_gaussian_pairs_are_left_to_the_closed_form(self):
        random, rho = np.random.default_rng(0), np.repeat([0.8, 0.0], [5, 25])
        x, noise = random.normal(size=(2, 2000, 30))
        y = rho * x + np.sqrt(1 - rho**2) * noise
        turned = [np.linalg.qr(random.normal(size=(30, 30)))[0] for _ in range(2)]
        model = fitted(x @ turned[0], y @ turned[1], max_epochs=5)
        exact = gaussian_log_ratio(*(torch.from_numpy(s) for s in (x, y, rho))).numpy()
        assert isinstance(model.model_.critic, TowersCritic)
        assert model.model_.critic.silent
        assert np.sqrt(np.square(model.oof_pmi_ - exact).mean()) < 0.35 * exact.std()
        assert np.corrcoef(model.oof_pmi_, exact)[0, 1] > 0.94
        assert abs(model.mutual_information().nats - exact.mean()) < 0.15

    def test_towers_answer_where_nothing_is_linear(self):
        """The size of three columns of x sets three columns of y, out of thirty."""
        x, y = np.random.default_rng(0).normal(size=(2, 3000, 30))
        y[:, :3] = 3 * (np.abs(x[:, :3]) - 0.8) + 0.3 * y[:, :3]
        model = fitted(x, y, hidden=(64, 64), learning_rate=3e-3)
        assert not model.model_.critic.silent
        a, b, _ = model.model_.critic.mixture[0].tolist()
        assert a == 0.0
        assert 0.5 < b < 2.0
        assert model.mutual_information().ci[0] > 0.5
        assert np.mean(model.oof_pmi_ > 0) > 0.6
        assert model.oof_pmi_.mean() > model.pmi(x, np.roll(y, 1, 0)).mean() + 0.5
