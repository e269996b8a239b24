"""Answers: PMI, MI and scores, and how far they can be trusted."""

import math
import pickle
from functools import cache

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, ShuffleSplit, TimeSeriesSplit

from pointdep import METHODS, ClassicalDependency, PointwiseDependency
from pointdep.data.tasks import correlated_gaussians, discrete_table, make_task, table_pmi
from pointdep.errors import DataWarning
from pointdep.inference import scoring
from pointdep.inference.scoring import score_pairs
from refusals import refused

from .helpers import CRITICS, encoded, fit, fitted, new_pairs, pairs

KINDS = [(method, "concat") for method in METHODS] + [
    (method, critic) for critic in CRITICS if critic != "concat" for method in ("pc", "cpc", "dv")
]


def assert_same(found, wanted):
    np.testing.assert_array_less(np.abs(found - wanted), 1e-5 * (1 + np.abs(wanted)))


@pytest.mark.parametrize(("method", "critic"), KINDS)
def test_pmi_is_a_function_of_the_pair(method, critic, monkeypatch):
    model, (x, y) = fitted(method, critic), new_pairs(critic)
    wanted = model.pmi(x, y)
    assert (wanted.shape, wanted.dtype) == ((30,), np.float32)
    assert np.isfinite(wanted).all()
    rows, order = np.arange(30), np.random.default_rng(0).permutation(30)
    for some in (order, rows[::3], np.repeat(rows, 7), *rows[:, None]):
        assert_same(model.pmi(x[some], y[some]), wanted[some])
    matrix = model.pmi_matrix(x, y[:20])
    assert matrix.shape == (30, 20)
    assert_same(matrix.diagonal(), wanted[:20])
    assert_same(matrix[7], model.pmi(np.repeat(x[7:8], 20, 0), y[:20]))
    np.testing.assert_allclose(model.pd(x, y), np.exp(wanted), rtol=1e-6)
    for budget in (1, 50, 300):
        monkeypatch.setattr(scoring, "_BUDGET", budget)
        assert_same(model.pmi(x, y), wanted)


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


@pytest.mark.parametrize("critic", ["concat", "auto"])
def test_mutual_information_is_the_corrected_mean_out_of_fold(critic):
    model = fitted(critic=critic)
    found, bias = model.mutual_information(), model.bias_
    assert found.correction == bias.correction
    assert found.nats == pytest.approx(model.oof_pmi_.mean() + bias.correction, rel=1e-5)
    wanted = math.hypot(bias.inflation * stats.sem(model.oof_values_), bias.stderr)
    assert found.stderr == pytest.approx(wanted, rel=1e-5)
    if critic != "auto":
        np.testing.assert_allclose(model.oof_values_, model.oof_pmi_, rtol=1e-5)
    assert (found.rows, found.method, found.confidence) == (120, "pc", 0.95)
    assert found.warnings == tuple(map(str, model.flags_))
    assert model.mutual_information(confidence=0.5).ci[0] > found.ci[0]
    refused(r"confidence=1\.5", model.mutual_information, confidence=1.5)


@pytest.mark.parametrize("grouped", [False, True])
def test_the_closed_form_alone_gives_the_estimate_of_all_rows(grouped):
    """Two columns of 4 nats: their ranks have lost a part of it, and the rows have not."""
    rho = math.sqrt(1 - math.exp(-8.0))
    x, y = np.random.default_rng(0).multivariate_normal([0, 0], [[1, rho], [rho, 1]], 600).T
    cca = ClassicalDependency("cca", progress=False, random_state=0).fit(x, y).mutual_information()
    rows = np.repeat(np.arange(600), 1 + grouped)  # copies add nothing to a group
    model = fit(x[rows], y[rows], groups=rows if grouped else None, critic="auto", max_epochs=1)
    found = model.mutual_information()
    assert model.model_.answered == "closed form alone"
    assert found.nats == pytest.approx(cca.nats, abs=2e-3)
    assert cca.stderr < found.stderr < 2 * cca.stderr
    assert model.outside([1e6], [0.0]).all()


def test_few_correlated_columns_among_many():
    """120 columns a side, of which three matter: as exact as if only they were given."""
    x, y = np.random.default_rng(0).standard_normal((2, 600, 120))
    y[:, :3] = 0.8 * x[:, :3] + 0.6 * y[:, :3]
    cca = ClassicalDependency("cca", progress=False).fit(x[:, :3], y[:, :3]).mutual_information()
    model = fit(x, y, critic="auto", max_epochs=1)
    found = model.mutual_information()
    assert model.model_.answered == "closed form alone"
    assert found.nats == pytest.approx(cca.nats, abs=0.03)  # ranks and values differ a little
    assert found.ci[0] < -1.5 * math.log(1 - 0.8**2) < found.ci[1]
    assert found.stderr < 2.5 * cca.stderr


@pytest.mark.parametrize("method", METHODS)
def test_mutual_information_of_given_rows(method):
    model, (x, y) = fitted(method), new_pairs()
    found = model.mutual_information(x, y)
    key, log_ratio = METHODS[method], torch.from_numpy(model.pmi_matrix(x, y)).double()
    wanted = key.inference(key.inverse(log_ratio)).item()
    assert (found.nats, found.rows) == (pytest.approx(wanted, rel=1e-4, abs=1e-5), 30)
    again = model.mutual_information(x[::-1].copy(), y[::-1].copy())
    assert again.nats == pytest.approx(found.nats, rel=1e-4)


def test_score_by_hand_and_npmi_of_a_table():
    model, (x, y) = fitted(), new_pairs(rows=6)
    matrix = model.pmi_matrix(x, y).astype(float)
    # Six rows have five others each, all of which the shuffles meet.
    joint = np.log1p(np.exp(-matrix.diagonal())).mean()
    product = np.log1p(np.exp(matrix))[~np.eye(6, dtype=bool)].mean()
    assert model.score(x, y) == pytest.approx(-(joint + product) / 2, rel=1e-5)
    assert model.score(x, y) == model.score(x, y)
    table = np.array([[0.4, 0.05, 0.05], [0.02, 0.2, 0.03], [0.03, 0.02, 0.2]])
    task = discrete_table(3000, table)
    model = fit(task.x, task.y, max_epochs=60, hidden=(16,))
    x, y = np.divmod(np.arange(9), 3)
    exact, found = table_pmi(table).ravel() / -np.log(table.ravel()), model.npmi(x, y)
    assert np.abs(found - exact).max() < 0.12
    # And from this model's own PMI and the frequencies of the outcomes, exactly.
    p_x, p_y = (np.bincount(side) / 3000 for side in (task.x, task.y))
    pmi = model.pmi(x, y)
    np.testing.assert_allclose(found, pmi / -(pmi + np.log(p_x[x] * p_y[y])), rtol=1e-4)


def test_npmi_of_numbers_is_bounded():
    model, (x, y) = fit(), new_pairs()
    pmi = model.pmi(x, y)
    np.testing.assert_allclose(model.npmi(x, y), pmi / (2 * math.log(120) - pmi), rtol=1e-4)
    with torch.no_grad():
        model.model_.critic.rest.layers[-1].weight *= 1e4
    found = model.npmi(x, y)
    with pytest.warns(DataWarning, match="outside the data of the fit"):
        assert np.abs(model.pmi(x, y)).max() > 2 * math.log(120)
    assert (np.abs(found) <= 1).all()
    assert found.dtype == np.float32


@pytest.mark.parametrize("ask", ["pmi", "pd", "npmi", "pmi_matrix", "score", "mutual_information"])
def test_nothing_before_fit(ask):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(PointwiseDependency(), ask)(*pairs())


TASK = correlated_gaussians(1000, 3, 1.0, seed=0)
NEW = correlated_gaussians(300, 3, 1.0, seed=1)


@cache
def good(critic="auto"):
    """A fit that nobody changes."""
    settings = {"hidden": (16, 8), "max_epochs": 30, "patience": 4, "folds": 4}
    return fit(TASK.x, TASK.y, critic=critic, **settings)


class TestStandardErrors:
    @pytest.mark.parametrize("critic", ["auto", "concat"])
    @pytest.mark.parametrize("folds", [2, 5])
    def test_the_jackknife_by_hand(self, critic, folds):
        model = fit(critic=critic, folds=folds)
        rows = encoded(model, *new_pairs())
        each = [score_pairs(model.model_.select([r]), *rows).double() for r in range(folds)]
        # Tukey: (R - 1)/R times the sum of squares around the mean of the R leave-one-out values.
        wanted = np.sqrt((folds - 1) * np.var(np.stack(each), axis=0))
        found = model.pmi_stderr(*new_pairs())
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-6)
        assert found.max() > 0.001

    def test_it_is_about_the_spread_over_samples_and_one_fold_has_none(self):
        """Ten fits of other rows of the same distribution."""
        x, y = NEW.x[:100], NEW.y[:100]
        told, values = [], []
        for seed in range(10):
            task = correlated_gaussians(200, 3, 1.0, seed=10 + seed)
            model = fit(task.x, task.y, critic="auto", hidden=(4,), folds=5, max_epochs=1)
            told.append(np.square(model.pmi_stderr(x, y)).mean())
            values.append(model.pmi_matrix(x, y).diagonal())
        spread = np.var(np.stack(values), axis=0, ddof=1).mean()
        assert 0.4 < math.sqrt(np.mean(told) / spread) < 2.5
        model = fit(folds=1)
        assert (model.n_replicas_, model.mutual_information().rows) == (1, 24)
        assert np.isfinite(model.oof_pmi_).sum() == 24
        refused("needs at least two replicas: fit with folds=2", model.pmi_stderr, *new_pairs())
        for ask in (good().pmi, good().pmi_stderr, good().outside, good().pmi_matrix):
            refused(r"0 sample\(s\)", ask, NEW.x[:0], NEW.y[:0])


class TestOutside:
    @pytest.mark.parametrize("critic", ["auto", "concat"])
    def test_rows_of_the_fit_are_inside(self, critic):
        model = good(critic)
        assert not model.outside(TASK.x, TASK.y).any()
        assert model.outside(NEW.x, NEW.y).mean() < 0.01
        model.pmi(NEW.x, NEW.y)  # without a warning
        task = make_task("table", 400)
        labels = np.arange(3)  # which are never far out
        assert not fit(task.x, task.y, critic=critic).outside(labels, labels).any()

    @pytest.mark.parametrize(("rows", "dim"), [(200, 3), (500, 20)])
    def test_new_rows_of_few_and_wide_data_are_inside(self, rows, dim):
        """Of many columns one or other is always a little past what was seen."""
        seen, new = (correlated_gaussians(n, dim, 1.0, seed=n) for n in (rows, 1000))
        model = fit(seen.x, seen.y, critic="auto", hidden=(4,), max_epochs=1)
        past = (new.x > seen.x.max(0)) | (new.x < seen.x.min(0))
        assert past.any(1).mean() > 0.01
        assert model.outside(new.x, new.y).mean() < 0.01

    @pytest.mark.parametrize("critic", ["auto", "concat"])
    @pytest.mark.parametrize("side", ["x", "y"])
    def test_values_far_out(self, critic, side):
        x, y = (30 * TASK.x, TASK.y) if side == "x" else (TASK.x, 30 * TASK.y)
        far = (np.abs(np.hstack([x, y])) > 40).any(1)
        assert far.mean() > 0.3
        found = good(critic).outside(x, y)
        assert found[far].all()
        with pytest.warns(DataWarning, match=rf"{found.sum()} of 1000 pair\(s\) lie outside"):
            good(critic).pmi(x, y)

    def test_pairs_that_never_meet(self):
        """Each value was there, but never so low an x with so high a y: log r says so."""
        low, high = TASK.x.min(0, keepdims=True), TASK.y.max(0, keepdims=True)
        assert good().outside(low, high).all()
        lowest, highest = good().model_.seen.tolist()  # of pairs and of mismatched pairs
        with pytest.warns(DataWarning, match="1 of 1 pair"):
            assert good().pmi(low, high).item() < lowest - 1
        assert -math.inf < lowest <= good().oof_pmi_.min()
        assert good().oof_pmi_.max() <= highest < math.inf
        assert lowest < np.quantile(good().pmi_matrix(NEW.x[:50], NEW.y[:50]), 0.05)


class TestCheck:
    def test_a_good_fit_passes_and_pairs_outside_are_mentioned(self):
        for found, rows in ((good().check(), 1000), (good().check(NEW.x, NEW.y), 300)):
            assert (found.passed, found.conclusive) == (True, True)
            assert (found.fault, found.rows) == ("none", rows)
        found = good().check(30 * NEW.x, NEW.y)
        assert found.outside == pytest.approx(good().outside(30 * NEW.x, NEW.y).mean())
        assert "unlike the training rows" in found.verdict

    @pytest.mark.parametrize("shift", [0.5, -0.5])
    def test_a_shifted_constant_is_found(self, shift):
        model = good.__wrapped__()  # a fit of its own
        model.model_.constant += shift  # log r is less by it
        for found in (model.check(), model.check(NEW.x, NEW.y)):
            assert not found.passed
            assert found.verdict.startswith("Fails")
            assert found.recalibration.shift == pytest.approx(shift, abs=0.25)

    def test_without_arguments_the_rows_are_out_of_fold(self):
        """A network that knows its rows by heart passes on them, and not on rows left out."""
        x, y = np.random.default_rng(0).standard_normal((2, 300, 5))
        settings = {"hidden": (128,), "max_epochs": 60, "patience": 60, "stop_fraction": 0.05}
        model = fit(x, y, critic="concat", **settings)
        model.model_.critic.rest.layers[-1].weight *= 8
        assert not model.check().passed

    def test_files_and_pickles_lack_the_rows_and_groups_are_draws(self, tmp_path):
        good().save(tmp_path / "model")
        loaded = PointwiseDependency.load(tmp_path / "model")
        for copied in (loaded, pickle.loads(pickle.dumps(good()))):
            assert copied.mutual_information() == good().mutual_information()
            assert copied.check(NEW.x, NEW.y) == good().check(NEW.x, NEW.y)
            refused(r"check\(\) needs the rows of the fit.*\(X, Y\)", copied.check)
        assert good().check().rows == 1000  # the one that was copied has them still
        x, y = pairs(400)
        groups = np.arange(400) // 4
        model = fit(x, y, groups=groups, critic="auto")
        assert (model.check().rows, model.check(x, y, groups=groups).rows) == (100, 100)
        assert model.check(x, y).rows == 400
