"""How the mean over unseen rows grows with the rows: by hand, and what a fit does with it."""

import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from pointdep import ConditionalDependency, MIEstimate, PointwiseDependency, audit
from pointdep.fitting.splits import CURVE_SHARES, Split, curve_splits, make_splits
from pointdep.inference.learning_curve import LearningCurve, learning_curve
from refusals import quietly, refused

from .models import log_ratio_by_hand, model_of, rows

CURVE = LearningCurve((500, 1000, 2000), (0.78, 0.83, 0.85), (0.02, 0.01, 0.03))
X, Y = rows(60)


def pairs(n=600, seed=0):
    x, noise = np.random.default_rng(seed).standard_normal((2, n, 2))
    return x, np.tanh(2 * x) + 0.5 * noise


def fit(*data, groups=None, **options):
    given = {"hidden": (16,), "folds": 3, "max_epochs": 12, "random_state": 0, "progress": False}
    with quietly():
        return PointwiseDependency(**{**given, **options}).fit(*(data or pairs()), groups=groups)


@pytest.fixture(scope="module")
def fitted():
    return fit()


class TestByHand:
    """Models with drawn weights."""

    def test_means_and_errors(self):
        model, values = model_of("pc", 2), np.arange(60.0) / 60
        values[7] = np.nan  # a row without an answer
        splits = [Split(np.arange(40), np.arange(40, 50), np.arange(50, 60)),
                  Split(np.arange(20, 60), np.arange(10, 20), np.arange(10))]  # fmt: skip
        found = learning_curve([(model, splits)], X, Y, values, shares=[0.5], stderr=0.3)
        assert found.rows == (30, 60)
        assert (found.mean[1], found.stderr[1]) == (pytest.approx(np.nanmean(values)), 0.3)
        apart = []
        for replica, split in enumerate(splits):
            known = [row for row in split.report if row != 7]
            each = [values[i] - log_ratio_by_hand(model, replica, X[i], Y[i]) for i in known]
            apart.append(np.array(each))
        means = [part.mean() for part in apart]
        assert found.mean[0] == pytest.approx(np.nanmean(values) - np.mean(means), rel=1e-4)
        every = np.concatenate(apart)  # no row is reported twice: the plain error of a mean
        plain = np.sqrt(np.square(every - every.mean()).sum()) / len(every)
        luck = abs(means[0] - means[1]) / math.sqrt(2) / math.sqrt(2)
        assert found.stderr[0] == pytest.approx(math.hypot(plain, luck), rel=1e-3)

    def test_rows_of_one_group_are_one_draw(self):
        model, values = model_of("pc", 1), np.zeros(60)
        splits = [Split(np.arange(10), np.arange(10, 20), np.arange(20, 60))]
        how = {"shares": [0.5], "stderr": 0.1}
        alone = learning_curve([(model, splits)], X, Y, values, codes=np.arange(60), **how)
        plain = learning_curve([(model, splits)], X, Y, values, **how)
        assert alone == plain
        codes = np.arange(60) // 4
        grouped = learning_curve([(model, splits)], X, Y, values, codes=codes, **how)
        each = np.array([-log_ratio_by_hand(model, 0, X[i], Y[i]) for i in range(20, 60)])
        sums = (each - each.mean()).reshape(-1, 4).sum(1)
        assert grouped.mean == plain.mean
        assert grouped.stderr[0] == pytest.approx(np.sqrt(np.square(sums).sum()) / 40, rel=1e-3)

    def test_what_it_says_and_draws(self):
        assert CURVE.rise == (pytest.approx(0.02), 0.01)
        assert CURVE.earlier == pytest.approx(0.05)
        alone = LearningCurve((50,), (0.1,), (0.2,))
        assert alone.rise == (0.0, math.inf)
        assert alone.earlier is None
        told = "0.780 nats from 500 rows, 0.830 from 1,000, 0.850 from 2,000"
        assert (str(CURVE), CURVE.in_words()) == (f"held-out mean: {told}", told)
        assert LearningCurve((64,), (math.log(2),), (0.0,)).in_words("bits").startswith("1.000 bit")
        wanted = {"rows": [500, 1000, 2000], "mean": [0.78, 0.83, 0.85]}
        assert CURVE.to_dict() == {**wanted, "stderr": [0.02, 0.01, 0.03]}
        ax = CURVE.plot(Figure().subplots())
        (bars,) = ax.containers
        xs, ys = bars.lines[0].get_data()
        assert (list(xs), list(ys)) == (list(CURVE.rows), list(CURVE.mean))
        ends = bars.lines[2][0].get_segments()[0][:, 1]
        assert list(ends) == pytest.approx([0.74, 0.82])  # two standard errors either way
        assert [tick.get_text() for tick in ax.get_xticklabels()] == ["500", "1,000", "2,000"]
        names = [text.get_text() for text in ax.get_legend().get_texts()]
        assert "mean, with two standard errors" in names


class TestFit:
    """The models of a curve ride along."""

    def test_the_models_are_as_without_it(self, fitted):
        """Up to the rounding of tensors that hold more replicas."""
        labels = (np.random.default_rng(0).integers(0, 30, (2, 600)) // [[1], [2]]).astype(str)
        cases = {"auto": (fitted, fit(curve=False))}
        for name, data in (("concat", ()), ("separable", ()), ("auto", tuple(labels))):
            cases[f"{name} {len(data)}"] = [fit(*data, critic=name, curve=c) for c in (True, False)]
        for case, (one, other) in cases.items():
            np.testing.assert_allclose(one.oof_pmi_, other.oof_pmi_, atol=2e-5, err_msg=case)
            assert (len(one.history_), one.n_replicas_) == (len(other.history_), 3), case
            for ours, others in zip(one.history_, other.history_, strict=True):
                assert ours["stop"] == pytest.approx(others["stop"], abs=2e-5), case
            ours, others = one.model_.state_dict(), other.model_.state_dict()
            assert ours.keys() == others.keys()
            for name, tensor in ours.items():
                torch.testing.assert_close(tensor, others[name], atol=2e-5, rtol=1e-5)
            found, without = one.mutual_information(), other.mutual_information()
            assert found.lower == pytest.approx(without.lower, abs=1e-5)
            assert other.curve_ is without.curve is None
            assert one.curve_.rows == (150, 300, 600)

    def test_the_last_point_is_the_mean_of_all_rows_and_is_saved(self, fitted, tmp_path):
        curve = fitted.mutual_information().curve
        assert curve == fitted.curve_
        assert curve.mean[-1] == pytest.approx(fitted.oof_pmi_.mean(dtype=float), rel=1e-6)
        assert curve.mean[0] < curve.mean[-1]
        assert all(0 < error < 0.3 for error in curve.stderr)
        fitted.save(tmp_path / "model")
        loaded = PointwiseDependency.load(tmp_path / "model", device="cpu")
        ours, others = (m.mutual_information(confidence=0.8) for m in (loaded, fitted))
        assert ours == others
        assert (loaded.curve_, loaded.bound_) == (fitted.curve_, fitted.bound_)
        assert isinstance(loaded.curve_.rows, tuple)

    def test_an_earlier_point_is_that_of_the_fit_of_fewer_rows(self):
        """Gaussian pairs: what models of 150 rows lack, separate fits of 150 rows lack too."""
        x, noise = np.random.default_rng(4).standard_normal((2, 600, 4))
        y, how = x + noise, {"critic": "concat", "hidden": (32,), "max_epochs": 25}
        curve = fit(x, y, **how).curve_
        apart = [fit(x[k::4], y[k::4], curve=False, **how).oof_pmi_.mean() for k in range(4)]
        error = math.hypot(curve.stderr[0], np.std(apart, ddof=1) / 2)
        assert curve.mean[0] == pytest.approx(np.mean(apart), abs=3 * error)

    def test_groups_folds_few_rows_and_what_has_none(self):
        codes = np.arange(600) // 3
        assert fit(groups=codes).curve_.rows == (150, 300, 600)
        assert fit(folds=1).curve_.rows == (150, 300, 600)
        assert fit(*pairs(160)).curve_.rows == (80, 160)  # of 40, too few would train
        assert fit(*pairs(90)).curve_ is None
        refused("does not average log r", fit, method="dv", curve=True)
        refused("but 90 rows are too few", fit, *pairs(90), curve=True)
        refused("rows are streamed", fit, stream=True, curve=True)
        refused("curve='yes' must be", fit, curve="yes")
        for options in ({"method": "cpc"}, {"stream": True}):
            found = fit(**options).mutual_information()
            assert found.curve is None
            assert 0.0 < found.lower < 2.0
        assert fit(method="smi").mutual_information().lower is None  # not of mutual information

    def test_new_rows_have_a_limit_by_hand_and_no_curve(self, fitted, tmp_path):
        x, y = pairs(90, seed=1)
        single = fit(folds=1)
        scores = single.pmi_matrix(x, y).astype(float)
        bound = np.diag(scores) - np.log(np.exp(scores).mean(1))
        found = single.mutual_information(x, y, confidence=0.5)
        assert found.lower == pytest.approx(bound.mean(), abs=1e-4)
        assert found.curve is None
        single.save(tmp_path / "model")
        loaded = PointwiseDependency.load(tmp_path / "model", device="cpu")
        assert loaded.mutual_information(x, y, confidence=0.5) == found
        more = pairs(1000, seed=2)  # each row by one of the models
        assert 0 < fitted.mutual_information(*more).lower < fitted.mutual_information(*more).nats
        copies = [np.repeat(side[:200], 5, axis=0) for side in more]
        told = fitted.mutual_information(*copies, groups=np.arange(1000) // 5).lower
        assert told < fitted.mutual_information(*copies).lower  # which takes copies for draws
        assert fitted.mutual_information(x[:1], y[:1]).lower is None  # nothing to compare it with
        assert fit(method="smi").mutual_information(x, y).lower is None

    def test_no_curve_within_audits_and_parts(self):
        x, y = pairs(300)
        prototype = PointwiseDependency(hidden=(8,), folds=2, max_epochs=2, random_state=0)
        with quietly():
            for model in (None, prototype):
                how = {"random_state": 0, "folds": 2} if model is None else {}
                found = audit(x, y, model=model, progress=False, **how)
                assert found.mutual_information.curve is None
            three = ConditionalDependency(prototype, progress=False).fit(x, y, y[:, :1])
            assert all(model.curve_ is None for model in (three.joint_, three.marginal_))


def test_shares_are_of_the_rows():
    splits = make_splits(600, folds=2)
    parts = curve_splits(splits, groups=None, seed=0, least=8)
    for share, part in zip(CURVE_SHARES, parts, strict=True):
        assert len(part[0].train) == round(share * len(splits[0].train))


def test_an_estimate_prints_its_limit_and_its_curve():
    found = MIEstimate(0.9, 0.1, (0.7, 1.1), rows=2000, method="pc", lower=0.811, curve=CURVE)
    first, second, third = str(found).splitlines()
    assert first == found.headline == "0.900 nats (1.298 bits), 95% interval 0.700 to 1.100"
    assert second == "at least 0.811 nats (95% one-sided limit, even if the model is wrong)"
    assert third == str(CURVE)
    assert found.at_least("bits").startswith("1.170 bits (95%")
    html = found._repr_html_()
    assert found.at_least() in html
    assert CURVE.in_words() in html
    assert found.to_dict()["curve"] == CURVE.to_dict()
    plain = MIEstimate(0.9, 0.1, (0.7, 1.1))
    assert (str(plain), plain.at_least()) == (plain.headline, "")
    assert "at least" not in plain._repr_html_()
