"""Nearest neighbours, against scikit-learn, loops over all pairs, and closed forms."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import digamma
from sklearn.feature_selection import mutual_info_classif, mutual_info_regression

from pointdep.data.sides import as_side
from pointdep.data.tasks import make_task
from pointdep.errors import MEANINGS
from pointdep.estimators.classical.ksg import ksg_alarm, local_values
from pointdep.fitting.progress import Silent
from pointdep.inference.mutual_information import MIEstimate
from refusals import refused

from .helpers import fit, gaussian_mi, gaussians, labelled


def slow_ksg(x, y, k):
    """The terms, and what a row adds to others' terms, by a loop over the rows."""
    n = len(x)
    terms, added = np.empty(n), np.ones(n)
    for i in range(n):
        dx, dy = np.abs(x - x[i]).max(1), np.abs(y - y[i]).max(1)
        both = np.maximum(dx, dy)
        reach = np.sort(both)[k]
        near_x, near_y = dx < reach, dy < reach
        terms[i] = digamma(k) + digamma(n) - digamma(near_x.sum()) - digamma(near_y.sum())
        added += ((both <= reach) & (np.arange(n) != i)) / k
        added -= near_x / near_x.sum() + near_y / near_y.sum()
    return terms, added


@pytest.mark.parametrize("k", [1, 3, 5])
def test_vectors_against_a_loop(k):
    x, y, _ = gaussians(150)
    # The estimator standardises columns in 32 bits.
    x, y = (((v - v.mean(0)) / v.std(0)).astype(np.float32).astype(float) for v in (x, y))
    terms, added = slow_ksg(x, y, k)
    model = fit("ksg", x, y, k=k)
    assert model.mutual_information().nats == pytest.approx(terms.mean(), abs=1e-4)
    assert added.mean() == pytest.approx(0, abs=1e-12)
    # Rounding may swap two neighbours.
    assert np.isclose(model.mi_values_, terms + added, atol=1e-3).mean() > 0.97


@pytest.mark.parametrize("k", [3, 5])
def test_scikit_learn(k):
    options = {"n_neighbors": k, "random_state": 0}
    for rho in (0.0, 0.6, 0.95):
        x, y, _ = gaussians(600, (rho,))
        (wanted,) = mutual_info_regression(x, y[:, 0], **options)
        found = fit("ksg", x, y, k=k).mutual_information().nats
        assert max(found, 0) == pytest.approx(wanted, abs=0.01)  # theirs is never below zero
    labels, values, _ = labelled(500)
    for column in values.T:
        (wanted,) = mutual_info_classif(column[:, None], labels, **options)
        found = fit("ksg", column, labels, k=k).mutual_information().nats
        assert found == pytest.approx(wanted, abs=0.005)


@pytest.mark.parametrize("draw", [gaussians, labelled])
def test_the_error_is_that_of_the_estimate(draw):
    runs = [fit("ksg", *draw(300, seed=s)[:2]).mutual_information() for s in range(80)]
    spread = np.std([run.nats for run in runs])
    assert np.mean([run.stderr for run in runs]) == pytest.approx(spread, rel=0.25)


def test_given_rows_and_a_side_that_mixes_numbers_and_categories():
    model = fit("ksg", *gaussians(100, seed=1)[:2])
    found, wanted = model.mutual_information(X, Y), fit("ksg", X, Y).mutual_information()
    assert (found.nats, found.rows) == (pytest.approx(wanted.nats, abs=0.03), 500)
    for ask in (model.pmi, model.pmi_matrix, model.score):
        refused(r"'ksg' gives no .*no function of a pair", ask, X, Y)
    assert not hasattr(model, "oof_pmi_")
    # Gao et al.: y is a label and, within it, a number that depends on x.
    random = np.random.default_rng(0)
    kind, x = random.integers(0, 2, 2000), random.standard_normal(2000)
    number = np.where(kind == 1, 0.9 * x + np.sqrt(1 - 0.81) * random.standard_normal(2000), 0.0)
    y = pd.DataFrame({"kind": kind.astype(str), "number": number})
    truth = 0.5 * gaussian_mi((0.9,))  # x and kind are independent; half the rows have 0 nats
    model = fit("ksg", x, y)
    assert model.mutual_information().nats == pytest.approx(truth, abs=0.05)
    # Ties are spread at random, those of the second side by the next seed.
    readers = (model.reader_y_, y, "Y"), (model.reader_x_, x, "X")
    sides = (reader.read(as_side(side, name), dense=False) for reader, side, name in readers)
    swapped = local_values(*sides, seed=model.seed_ + 1, progress=Silent(), k=5)
    np.testing.assert_allclose(swapped, model.mi_values_, atol=1e-9)


def test_rounded_values_and_rows_that_come_twice():
    exact, rounded = (fit("ksg", X, y).mutual_information() for y in (Y[:, 0], Y[:, 0].round(1)))
    assert rounded.nats == pytest.approx(exact.nats, abs=0.02)
    assert rounded.stderr == pytest.approx(exact.stderr, rel=0.1)
    # Each x with two values of y that have nothing to do with it.
    found = fit("ksg", np.repeat(X[:250], 2, axis=0), Y).mutual_information()
    assert abs(found.nats) < 2 * found.stderr < 0.1


def test_labels_that_come_once_are_left_out_and_ties_are_broken():
    labels, values, _ = labelled(200)
    labels[17] = "z"
    model = fit("ksg", values, labels)
    assert np.flatnonzero(np.isnan(model.mi_values_)).tolist() == [17]
    assert model.mutual_information().rows == 199
    tied = np.vstack([np.round(X[:100], 1), X[100:]])
    found, wanted = (fit("ksg", x, Y).mutual_information().nats for x in (tied, X))
    assert found == pytest.approx(wanted, abs=0.1)


X, Y, _ = gaussians(500)
LABELS = labelled(100)[0]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((LABELS, LABELS), "counting"),
        ((X[:6], Y[:6]), "k=5 .* at least 7"),
    ],
)
def test_what_is_refused(data, said):
    refused(said, fit, "ksg", *data)
    assert fit("ksg", X[:6], Y[:6], k=4).n_rows_ == 6


def sine(rows, seed=0):
    """x, and a noisy sine of it: 0.86 nats by numerical integration."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (rows, 1))
    return x, np.sin(6 * x) + 0.3 * random.normal(size=(rows, 1))


def reading(nats, stderr=0.02):
    return MIEstimate(nats, stderr, (nats - 2 * stderr, nats + 2 * stderr))


def alarm(x, y, estimate, seed=0, log_ratio=None):
    """`ksg_alarm` of a model that says the same of every pair, unless it says log_ratio."""
    same = np.full(len(x), estimate.nats)
    return ksg_alarm(x, y, same if log_ratio is None else log_ratio, estimate, seed)


class TestAlarm:
    @pytest.mark.parametrize("change", [np.asarray, np.exp, lambda v: v.round(2)])
    def test_an_estimate_far_below_raises_it(self, change):
        x, y = (change(side) for side in sine(1000))
        flag, nats, stderr = alarm(x, y, reading(0.5))
        assert flag.name == "alarm"
        assert MEANINGS["alarm"] in flag.message
        assert nats == pytest.approx(0.86, abs=3 * stderr + 0.02)
        assert alarm(x, y, reading(0.5, stderr=0.3)) is None  # its interval holds that
        assert alarm(x, y, reading(0.86)) is None

    def test_many_rows_are_sampled_and_some_may_be_unknown(self):
        x, y = sine(20_000)
        flag, nats, _ = alarm(x[:, 0], y[:, 0], reading(0.5))
        assert (flag.name, nats) == ("alarm", pytest.approx(0.86, abs=0.05))
        known = np.where(np.arange(1000) < 950, 0.5, np.nan)
        x, y = (side[:1000].copy() for side in (x, y))
        before = alarm(x, y, reading(0.5), log_ratio=known)
        x[950:] = 7.0  # rows without an answer are not looked at
        assert alarm(x, y, reading(0.5), log_ratio=known) == before
        known[90:] = np.nan
        assert alarm(x, y, reading(0.5), log_ratio=known) is None

    def test_the_error_is_that_of_the_difference_and_where_it_has_no_say(self):
        """A model that ranks the pairs as they should be leaves less to chance than a constant."""
        task = make_task("gaussian-1", 1000, seed=0)
        low = reading(task.mutual_information - 0.5)
        _, nats, wide = alarm(task.x, task.y, low)
        _, same, narrow = alarm(task.x, task.y, low, log_ratio=task.pmi - 0.5)
        assert same == nats
        assert narrow < 0.8 * wide
        x, y = sine(400)
        assert alarm(x[:90], y[:90], reading(0.0)) is None
        assert alarm(np.tile(x, 4), y, reading(0.0)) is None
        independent = np.random.default_rng(1).normal(size=(2, 400, 1))
        copied = (np.concatenate([side, side]) for side in independent)
        assert alarm(*copied, reading(0.0)) is None

    @pytest.mark.parametrize("name", ["gaussian-1", "student-3", "mixture-cross", "table"])
    def test_the_truth_does_not(self, name):
        for seed in range(5):
            task = make_task(name, 500, seed=seed)
            exact = MIEstimate(task.mutual_information, 0.0, (task.mutual_information,) * 2)
            assert alarm(task.x, task.y, exact, seed) is None
