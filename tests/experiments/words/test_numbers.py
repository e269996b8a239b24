"""Intervals and shapes against scipy, scikit-learn, and loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from pointdep.experiments.words import numbers

VALUES = np.random.default_rng(0).gamma(3.0, size=500)


def test_shape_is_scipys():
    assert numbers.skewness(VALUES) == pytest.approx(stats.skew(VALUES))
    assert numbers.excess_kurtosis(VALUES) == pytest.approx(stats.kurtosis(VALUES))
    fitted = stats.norm(VALUES.mean(), VALUES.std())
    theirs = stats.kstest(VALUES, fitted.cdf).statistic
    assert numbers.distance_from_gaussian(VALUES) == pytest.approx(theirs)


@settings(deadline=None, max_examples=30)
@given(shift=st.floats(-50, 50), scale=st.floats(0.1, 20))
def test_shape_has_no_unit(shift, scale):
    moved = shift + scale * VALUES
    for shape in (numbers.skewness, numbers.excess_kurtosis, numbers.distance_from_gaussian):
        assert shape(moved) == pytest.approx(shape(VALUES), abs=1e-8)


def test_bootstrap_interval_is_about_as_wide_as_theory_says():
    normal = np.random.default_rng(1).normal(size=2000)
    found = numbers.bootstrapped(numbers.skewness, normal, 0)
    assert found.low <= found.value <= found.high
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * np.sqrt(6 / 2000), rel=0.3)


def test_share_is_wilsons():
    found = numbers.share(7, 50)
    p, n, z = 0.14, 50, 1.959964
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half), rel=1e-5)
    assert numbers.share(0, 0) is None


def test_mean():
    found = numbers.mean(VALUES)
    half = 1.959964 * stats.sem(VALUES)
    assert (found.low, found.high) == pytest.approx((VALUES.mean() - half, VALUES.mean() + half))


@settings(deadline=None, max_examples=60)
@given(a=st.integers(1, 199), b=st.integers(1, 399))
def test_two_shares_agree_where_the_chi_squared_test_says_so(a, b):
    found = numbers.share(a, 200)
    table = [[a, 200 - a], [b, 400 - b]]
    p = stats.chi2_contingency(table, correction=False).pvalue
    if abs(p - 0.05) > 1e-4:
        assert found.agrees(b / 400, 400) == (p > 0.05)


def test_above():
    found = numbers.Measured(0.5, 0.4, 0.6, 10)
    assert [found.above(limit) for limit in (0.3, 0.5, 0.7)] == [True, None, False]


def test_ratio_of_shares_is_of_the_part_against_the_rest():
    found = numbers.ratio_of_shares(300, 1000, 1200, 10_000)  # 30 % of the part, 10 % of the rest
    assert found.value == pytest.approx(3.0, rel=0.01)
    theirs = stats.contingency.relative_risk(300, 1000, 900, 9000).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), rel=0.01)
    assert numbers.ratio_of_shares(0, 0, 5, 10) is None
    assert numbers.ratio_of_shares(5, 10, 5, 10) is None


def test_separation_is_the_area_under_the_curve():
    random = np.random.default_rng(2)
    low, high = random.integers(0, 6, 40), random.integers(1, 8, 70)
    found = numbers.separation(low.astype(float), high.astype(float))
    labels = np.repeat([0, 1], [40, 70])
    assert found.value == pytest.approx(roc_auc_score(labels, np.concatenate([low, high])))
    assert found.low < found.value < found.high
    assert numbers.separation(np.array([]), VALUES) is None
