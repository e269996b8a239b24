"""Every row answered by replicas that did not train on it."""

import math

import numpy as np
import pytest
import torch

from pointdep.core.critics import ModuleCritic
from pointdep.core.methods import METHODS
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import Standardizer
from pointdep.fitting.batches import held_out_cells
from pointdep.fitting.splits import Split, make_splits
from pointdep.inference import out_of_fold as module
from pointdep.inference.mutual_information import HeldOutBound
from pointdep.inference.out_of_fold import held_out_bound, inference_values, out_of_fold

from .models import log_ratio_by_hand, model_of, rows

X, Y = rows(60)
every_method = pytest.mark.parametrize("key", METHODS)


def split_of(report):
    rest = np.setdiff1d(np.arange(60), report)
    return Split(rest[2:], rest[:2], np.asarray(report))


@every_method
def test_each_row_by_the_replica_that_reports_it_and_their_average(key):
    model, splits = model_of(key), make_splits(60, folds=3)
    found = out_of_fold(model, X, Y, splits, seed=0)
    for replica, split in enumerate(splits):
        wanted = [log_ratio_by_hand(model, replica, X[i], Y[i]) for i in split.report[:5]]
        np.testing.assert_allclose(found.pmi[split.report[:5]], wanted, rtol=1e-4, atol=1e-4)
    assert found.pmi.dtype == np.float32
    assert np.isfinite(found.pmi).all()
    # 60 rows are one block: every row against every other.
    model, method = model_of(key, 1), METHODS[key]
    values = inference_values(model, X, Y, np.arange(60), seed=0)
    log_ratio = model.log_ratio_matrix(X[None], Y[None])[0].double()
    wanted = method.inference(method.inverse(log_ratio)).item()
    assert values.mean() == pytest.approx(wanted, rel=1e-5)


def test_rows_reported_twice_and_never():
    model = model_of("pc")
    splits = [split_of(range(20)), split_of(range(10, 30)), split_of(range(15, 40))]
    found = out_of_fold(model, X, Y, splits, seed=0)
    assert np.isnan(found.pmi[40:]).all()
    assert np.isnan(found.pseudo_values[40:]).all()
    for row, replicas in ((5, [0]), (12, [0, 1]), (17, [0, 1, 2]), (22, [1, 2]), (35, [2])):
        wanted = np.mean([log_ratio_by_hand(model, r, X[row], Y[row]) for r in replicas])
        for values in (found.pmi, found.pseudo_values):
            assert values[row] == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def test_groups_and_the_influence_of_each_row_by_hand(monkeypatch):
    model, groups = model_of("js", 1), torch.arange(60) // 2
    values = inference_values(model, X, Y, np.arange(60), seed=0, groups=groups)
    log_ratio = model.log_ratio_matrix(X[None], Y[None])[0].double()
    apart = (groups[:, None] != groups[None, :]).double()
    wanted = 1 + log_ratio.diagonal().mean() - (log_ratio.exp() * apart).sum() / apart.sum()
    assert values.mean() == pytest.approx(wanted.item(), rel=1e-5)
    # js, 1 + E_J[s] - E_M[exp s], in ragged blocks: row k is x in its cells and y in others'.
    monkeypatch.setattr(module, "_BLOCK", 16)
    model, chosen = model_of("js", 1), np.arange(3, 50)
    found = inference_values(model, X, Y, chosen, seed=0)
    _, index = held_out_cells(X, Y, [chosen], block=16, seed=0)
    score = model.log_ratio_matrix(X[None], Y[None])[0].double().numpy()
    cells = [(i, j) for b in index.reshape(-1, 16) for i in b for j in b if i >= 0 <= j and i != j]
    mean_joint = np.mean([score[k, k] for k in chosen])
    mean_product = np.mean([np.exp(score[i, j]) for i, j in cells])
    for position, k in enumerate(chosen):
        excess = sum(np.exp(score[i, j]) - mean_product for i, j in cells if k in (i, j))
        slope = score[k, k] - mean_joint - len(chosen) * excess / len(cells)
        wanted = 1 + mean_joint - mean_product + slope
        assert found[position] == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_values_at_the_floor_are_flagged():
    low, splits = model_of("drf"), make_splits(60, folds=3)
    found = out_of_fold(low, X, Y, splits, seed=0)
    at_floor = np.isclose(found.pmi, math.log(1e-4), atol=1e-3).mean()
    assert at_floor > 0.01
    (flag,) = found.flags
    assert flag.name == "saturated"
    assert f"{at_floor:.1%}" in flag.message
    assert "method='pc'" in flag.message
    with torch.no_grad():
        low.critic.rest.layers[-1].bias += 50.0
    assert out_of_fold(low, X, Y, splits, seed=0).flags == ()


def test_an_estimate_near_the_logarithm_of_the_batch_is_flagged():
    class Sure(torch.nn.Module):
        """Knows which of these rows belong together."""

        def forward(self, x, y):
            return 20.0 * (x[:, 0] == y[:, 0]).float() + 0.0 * self.weight

        weight = torch.nn.Parameter(torch.zeros(()))

    number = torch.arange(60.0)[:, None]
    maps = Standardizer(3, 1), Standardizer(3, 1)
    model = RatioModel(ModuleCritic(3, Sure()), *maps, [METHODS["cpc"]] * 3).requires_grad_(False)
    found = out_of_fold(model, number, number, make_splits(60, folds=3), seed=0)
    assert np.mean(found.pseudo_values) == pytest.approx(math.log(20), abs=1e-3)
    (flag,) = found.flags
    assert flag.name == "saturated"
    assert "log(batch) = 3.00" in flag.message


class GaussianRatio(torch.nn.Module):
    """The exact log r of pairs of unit variance and this correlation, times scale, plus shift."""

    def __init__(self, rho, scale=1.0, shift=0.0):
        super().__init__()
        self.rho, self.how = rho, torch.nn.Parameter(torch.tensor([scale, shift]))

    def forward(self, x, y):
        spread, squares = 1 - self.rho**2, self.rho**2 * (x**2 + y**2) - 2 * self.rho * x * y
        exact = -0.5 * math.log(spread) - squares.squeeze(-1) / (2 * spread)
        return self.how[0] * exact + self.how[1]


def gaussian_bound(seed, module, rho=0.8, n=150, groups=None):
    """`held_out_bound` of n Gaussian pairs, reported by three replicas of the module."""
    x, noise = np.random.default_rng(seed).standard_normal((2, n, 1))
    y = rho * x + math.sqrt(1 - rho**2) * noise
    maps = Standardizer(1, 1), Standardizer(1, 1)
    model = RatioModel(ModuleCritic(1, module), *maps, [METHODS["pc"]]).requires_grad_(False)
    parts = [(model, np.arange(n)[k::3]) for k in range(3)]
    sides = (torch.from_numpy(side.astype(np.float32)) for side in (x, y))
    return held_out_bound(parts, *sides, seed=seed, groups=groups)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (2.0, 0.0), (1.0, 3.0), (2.0, 3.0)])
def test_the_bound_is_below_the_truth_whatever_the_model(scale, shift):
    """On average, and its lower limit in 95 of 100 sets: of 200, chance leaves out 19 at most."""
    truth = -0.5 * math.log(1 - 0.8**2)
    found = [gaussian_bound(seed, GaussianRatio(0.8, scale, shift)) for seed in range(200)]
    nats = np.array([one.nats for one in found])
    assert nats.mean() < truth + 2 * nats.std() / math.sqrt(200)
    assert sum(one.at(0.95) > truth for one in found) <= 19
    assert np.mean([one.stderr for one in found]) == pytest.approx(nats.std(), rel=0.25)
    if scale == 1.0:  # and the exact ratio does not leave much on the table
        assert nats.mean() > 0.9 * truth


def test_the_bound_never_exceeds_the_logarithm_of_its_rows():
    bounds = [gaussian_bound(0, GaussianRatio(0.9999), 0.9999, n) for n in (9, 150, 2000)]
    assert [one.rows for one in bounds] == [3, 50, 667]
    for one in bounds:
        assert 0.5 * math.log(one.rows) < one.nats <= math.log(one.rows)
    # A part of a single row has nothing to say.
    assert gaussian_bound(0, GaussianRatio(0.5), n=5).rows == 2
    assert gaussian_bound(0, GaussianRatio(0.5), n=3) is None
    # The limit at a confidence.
    bound = HeldOutBound(1.0, 0.1, 128)
    assert bound.at(0.95) == pytest.approx(1.0 - 1.6449 * 0.1, abs=1e-4)  # one side: 5 % below
    assert (bound.at(0.5), HeldOutBound(0.1, 0.1, 128).at(0.95)) == (pytest.approx(1.0), 0.0)


def test_the_bound_takes_one_row_of_a_group_and_no_row_twice():
    model, rows = model_of("pc", 1), np.arange(60)
    scores = model.log_ratio_matrix(X[None], Y[None])[0].double().numpy()
    expected = np.diag(scores) - np.log(np.exp(scores).mean(1))
    alone = held_out_bound([(model, rows)], X, Y, seed=0)
    assert (alone.nats, alone.rows) == (pytest.approx(expected.mean(), rel=1e-4), 60)
    # A row that several replicas report, as by a repeated cv, is one draw.
    again = held_out_bound([(model, rows)] * 4, X, Y, seed=0)
    assert again.stderr == pytest.approx(alone.stderr, rel=0.05)
    # Four copies of each pair, known to be copies, tell no more than the pairs themselves.
    four = np.repeat(np.arange(60), 4)
    copies = held_out_bound(
        [(model, np.arange(240))], X[four], Y[four], seed=0, groups=torch.from_numpy(four)
    )
    assert (copies.nats, copies.rows) == (pytest.approx(alone.nats, rel=1e-4), 60)
    assert copies.stderr == pytest.approx(alone.stderr, rel=0.02)
    blind = held_out_bound([(model, np.arange(240))], X[four], Y[four], seed=0)
    assert blind.stderr < 0.7 * copies.stderr
