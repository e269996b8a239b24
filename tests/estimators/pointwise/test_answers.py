"""Answers of a fitted model."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, ShuffleSplit, TimeSeriesSplit

from pointdep import METHODS, PointwiseDependency
from pointdep.data.tasks import discrete_table, table_pmi
from pointdep.errors import DataWarning, InputError
from pointdep.inference import scoring

from .helpers import CRITICS, fit, fitted, new_pairs, pairs

KINDS = [(method, "concat") for method in METHODS] + [
    (method, critic) for critic in CRITICS if critic != "concat" for method in ("pc", "cpc", "dv")
]
every_kind = pytest.mark.parametrize(("method", "critic"), KINDS)


def assert_same(found, wanted):
    np.testing.assert_array_less(np.abs(found - wanted), 1e-5 * (1 + np.abs(wanted)))


@every_kind
def test_pmi_is_a_function_of_the_pair(method, critic, monkeypatch):
    model, (x, y) = fitted(method, critic), new_pairs(critic)
    wanted = model.pmi(x, y)
    assert wanted.shape == (30,)
    assert wanted.dtype == np.float32
    assert np.isfinite(wanted).all()
    order = np.random.default_rng(0).permutation(30)
    assert_same(model.pmi(x[order], y[order]), wanted[order])
    assert_same(model.pmi(x[::3], y[::3]), wanted[::3])
    alone = [model.pmi(x[i : i + 1], y[i : i + 1]).item() for i in range(30)]
    assert_same(np.array(alone), wanted)
    repeated = np.repeat(np.arange(30), 7)
    assert_same(model.pmi(x[repeated], y[repeated]), wanted[repeated])
    for budget in (1, 50, 300):
        monkeypatch.setattr(scoring, "_BUDGET", budget)
        assert_same(model.pmi(x, y), wanted)


@every_kind
def test_the_diagonal_of_the_matrix(method, critic):
    model, (x, y) = fitted(method, critic), new_pairs(critic)
    matrix = model.pmi_matrix(x, y[:20])
    assert matrix.shape == (30, 20)
    assert_same(matrix.diagonal(), model.pmi(x[:20], y[:20]))
    assert_same(matrix[7], model.pmi(np.repeat(x[7:8], 20, 0), y[:20]))
    np.testing.assert_allclose(model.pd(x, y), np.exp(model.pmi(x, y)), rtol=1e-6)


def test_pmi_is_the_mean_over_the_replicas():
    model, (x, y) = fitted(), new_pairs()
    assert model.n_replicas_ == 2
    encoded = [torch.from_numpy(side) for side in (x, y)]
    encoded = [
        (side - torch.from_numpy(e.center).float()) / torch.from_numpy(e.scale).float()
        for side, e in zip(encoded, (model.encoder_x_, model.encoder_y_), strict=True)
    ]
    one = [
        model.model_.select([r]).log_ratio_pairs(*(side[None] for side in encoded))[0]
        for r in range(2)
    ]
    assert not torch.allclose(*one, atol=1e-3)
    np.testing.assert_allclose(model.pmi(x, y), (one[0] + one[1]) / 2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "cv", [KFold(3), TimeSeriesSplit(3), ShuffleSplit(4, test_size=0.4, random_state=0)]
)
@pytest.mark.parametrize("method", ["pc", "cpc", "dv"])
def test_out_of_fold_pmi(cv, method):
    x, y = pairs()
    model = fit(x, y, cv=cv, method=method)
    sums, counts = np.zeros(120), np.zeros(120)
    whole, many = model.model_, model.n_replicas_
    for replica, (_, report) in enumerate(cv.split(x)):
        model.model_ = whole.select([replica])
        sums[report] += model.pmi(x[report], y[report])
        counts[report] += 1
    assert many == replica + 1
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(model.oof_pmi_, sums / counts, rtol=1e-5, atol=1e-5)
    assert (np.isnan(model.oof_pmi_) == (counts == 0)).all()
    if not isinstance(cv, KFold):
        assert {0} < set(counts)
    assert math.isfinite(model.mutual_information().nats)


def test_one_fold():
    model = fit(folds=1)
    assert model.n_replicas_ == 1
    assert np.isfinite(model.oof_pmi_).sum() == 24
    assert model.mutual_information().rows == 24


@pytest.mark.parametrize("critic", ["concat", "auto"])
def test_mutual_information_is_the_corrected_mean_out_of_fold(critic):
    model = fitted(critic=critic)
    found, bias = model.mutual_information(), model.bias_
    assert found.correction == bias.correction
    assert found.nats == pytest.approx(model.oof_pmi_.mean() + bias.correction, rel=1e-5)
    wanted = math.hypot(stats.sem(model.oof_pmi_), bias.stderr)
    assert found.stderr == pytest.approx(wanted, rel=1e-5)
    assert (found.rows, found.method, found.confidence) == (120, "pc", 0.95)
    assert found.warnings == tuple(map(str, model.flags_))
    narrow = model.mutual_information(confidence=0.5)
    assert narrow.ci[0] > found.ci[0]
    with pytest.raises(InputError, match=r"confidence=1\.5"):
        model.mutual_information(confidence=1.5)


@pytest.mark.parametrize("method", METHODS)
def test_mutual_information_of_given_rows(method):
    model, (x, y) = fitted(method), new_pairs()
    found = model.mutual_information(x, y)
    log_ratio = torch.from_numpy(model.pmi_matrix(x, y)).double()
    key = METHODS[method]
    wanted = key.inference(key.inverse(log_ratio)).item()
    assert found.nats == pytest.approx(wanted, rel=1e-4, abs=1e-5)
    assert found.rows == 30
    again = np.arange(30)[::-1]
    assert model.mutual_information(x[again], y[again]).nats == pytest.approx(found.nats, rel=1e-4)


def test_score_by_hand():
    model, (x, y) = fitted(), new_pairs(rows=6)
    matrix = model.pmi_matrix(x, y).astype(float)
    # Six rows have five others each, all of which the shuffles meet.
    joint = np.mean([math.log1p(math.exp(-matrix[i, i])) for i in range(6)])
    product = np.mean(
        [math.log1p(math.exp(matrix[i, j])) for i in range(6) for j in range(6) if i != j]
    )
    assert model.score(x, y) == pytest.approx(-(joint + product) / 2, rel=1e-5)
    assert model.score(x, y) == model.score(x, y)


def test_score_orders_models():
    x, y = pairs(400)
    independent = np.random.default_rng(1).permutation(y)
    chance = -math.log(2)
    noise = fit(x, independent, max_epochs=20, patience=3)
    good = fit(x, y, max_epochs=20)
    assert noise.score(*pairs(400, seed=1)) == pytest.approx(chance, abs=0.02)
    assert good.score(*pairs(400, seed=1)) > fitted().score(*pairs(400, seed=1)) > chance - 0.05
    assert good.score(*pairs(400, seed=1)) > chance + 0.1
    with pytest.raises(InputError, match="at least two rows"):
        good.score(x[:1], y[:1])


def test_npmi_of_a_table():
    table = np.array([[0.4, 0.05, 0.05], [0.02, 0.2, 0.03], [0.03, 0.02, 0.2]])
    task = discrete_table(3000, table)
    model = fit(task.x, task.y, max_epochs=60, hidden=(16,))
    x, y = np.divmod(np.arange(9), 3)
    exact = table_pmi(table).ravel() / -np.log(table.ravel())
    found = model.npmi(x, y)
    assert np.abs(found - exact).max() < 0.12
    # And from this model's own PMI and the frequencies of the outcomes, exactly.
    p_x, p_y = (np.bincount(side) / 3000 for side in (task.x, task.y))
    pmi = model.pmi(x, y)
    np.testing.assert_allclose(found, pmi / -(pmi + np.log(p_x[x] * p_y[y])), rtol=1e-4)


def test_npmi_of_numbers():
    model, (x, y) = fitted(), new_pairs()
    pmi = model.pmi(x, y)
    np.testing.assert_allclose(model.npmi(x, y), pmi / (2 * math.log(120) - pmi), rtol=1e-4)


def test_npmi_is_bounded():
    model = fit()
    with torch.no_grad():
        model.model_.critic.rest.layers[-1].weight *= 1e4
    found = model.npmi(*new_pairs())
    with pytest.warns(DataWarning, match="outside the data of the fit"):
        assert np.abs(model.pmi(*new_pairs())).max() > 2 * math.log(120)
    assert (np.abs(found) <= 1).all()
    assert found.dtype == np.float32


@pytest.mark.parametrize("ask", ["pmi", "pd", "npmi", "pmi_matrix", "score", "mutual_information"])
def test_nothing_before_fit(ask):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(PointwiseDependency(), ask)(*pairs())


def test_save_before_fit(tmp_path):
    with pytest.raises(NotFittedError):
        PointwiseDependency().save(tmp_path / "model")
