"""Mutual information of columns and as a score, against closed forms and scikit-learn."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.datasets import load_wine
from sklearn.feature_selection import SelectKBest, mutual_info_regression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pointdep
from estimators.pointwise.helpers import small
from pointdep import ClassicalDependency, InputError, mi_scorer, mutual_information_features
from refusals import refused

CCA = ClassicalDependency("cca", random_state=0, progress=False)
KSG = ClassicalDependency("ksg", random_state=0, progress=False)


def draw(rows=1500, seed=0):
    """y = sum of weights times x, and noise; the MI of any columns in closed form."""
    random, weights = np.random.default_rng(seed), np.array([1.0, 0.5, 0.0, 0.25])
    x = random.standard_normal((rows, 4))
    y = x @ weights + random.standard_normal(rows)

    def truth(columns):
        inside = np.square(weights[list(columns)]).sum()
        return -0.5 * np.log(1 - inside / (np.square(weights).sum() + 1))

    return x, y, truth


X, Y, TRUTH = draw()
TABLE = pd.DataFrame(X, columns=["a", "b", "c", "d"])


def test_columns_and_groups_of_them():
    for estimator in (CCA, KSG, None):
        found = mutual_information_features(X, Y, estimator=estimator)
        np.testing.assert_allclose(found, [TRUTH([k]) for k in range(4)], atol=0.06)
        assert list(np.argsort(found)) == [2, 3, 1, 0]
        assert (found >= 0).all()
        if estimator is not CCA:
            theirs = mutual_info_regression(X, Y, random_state=0)
            np.testing.assert_allclose(found, theirs, atol=0.05)
    groups = [[0, 1], [2, 3], [0, 1, 2, 3]]
    found = mutual_information_features(X, Y, columns=groups, estimator=CCA)
    np.testing.assert_allclose(found, [TRUTH(group) for group in groups], atol=0.06)


@pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
def test_the_default_is_the_network():
    """Columns that tell something only together: the product of their signs."""
    x = np.random.default_rng(0).standard_normal((600, 3))
    y = np.sign(x[:, 0] * x[:, 1]).astype(int)
    network = small(hidden=(32,), max_epochs=60, critic="auto")
    found = mutual_information_features(x, y, columns=[0, [0, 1], 2], estimator=network)
    assert found[1] > 0.4  # of log 2
    assert max(found[0], found[2]) < 0.05


def test_names_of_columns_and_the_type_of_y():
    named = [TABLE, pl.from_pandas(TABLE)]
    numbered = [*named, X, torch.from_numpy(X), X.tolist()]
    expected = mutual_information_features(X, Y, columns=[[0], [1, 3]], estimator=CCA)
    for columns, tables in (
        (["a", ["b", "d"]], named),
        ({"one": "a", "two": ["b", "d"]}, named),
        ([0, (1, 3)], numbered),
        ([np.int64(0), [1, 3]], numbered),
    ):
        for table in tables:
            found = mutual_information_features(table, Y, columns=columns, estimator=CCA)
            np.testing.assert_array_equal(found, expected)
    wrong = ["z"], [4], [-1], [[]], [], "ab", [[0.5]], [0.5], [[True, False]], [True], [[None]]
    for columns in wrong:
        refused("columns", mutual_information_features, TABLE, Y, columns=columns, estimator=CCA)
    # Two classes of two columns that tell nothing else: log 2 of one, nothing of the other.
    labels = np.arange(200) % 2
    x = np.column_stack([labels, np.arange(200) // 2 % 2]).astype(float) + 1e-3 * X[:200, :2]
    for y in (labels, labels.astype(str)):
        found = mutual_information_features(x, y, estimator=KSG)
        np.testing.assert_allclose(found, [np.log(2), 0.0], atol=0.1)
    found = mutual_information_features(x, labels.astype(float))  # quick, numbers that are labels
    np.testing.assert_allclose(found, [np.log(2), 0.0], atol=0.1)


def test_selecting_warnings_and_what_is_refused():
    x = np.column_stack([X, np.full(len(X), 3.0)])  # a constant tells nothing
    chosen = SelectKBest(partial(mutual_information_features, estimator=CCA), k=2).fit(x, Y)
    assert list(chosen.get_support()) == [True, True, False, False, False]
    assert chosen.scores_[4] == 0.0
    for wrong in (SelectKBest(), pointdep.PointwiseDependency, pointdep.ConditionalDependency()):
        message = "estimator=.* must be a PointwiseDependency"
        refused(message, mutual_information_features, X, Y, estimator=wrong)
    refused("X must be", mutual_information_features, Y, Y)
    with pytest.raises(InputError, match="sparse") as caught:
        mutual_information_features(csr_array(X), Y, estimator=CCA)
    assert isinstance(caught.value, TypeError)
    with pytest.warns(pointdep.FitWarning, match=r"column\(s\) 1: .*still"):
        mutual_information_features(X[:100], Y[:100], columns=[1], estimator=small(max_epochs=1))


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(4)), st.floats(0.1, 10.0), st.floats(-5.0, 5.0))
def test_order_and_units_do_not_matter(order, scale, shift):
    plain = mutual_information_features(X[:200], Y[:200], estimator=CCA)
    moved = mutual_information_features(scale * X[:200][:, order] + shift, Y[:200], estimator=CCA)
    np.testing.assert_allclose(moved, plain[list(order)], atol=1e-6)


def test_mutual_information_as_a_score():
    """On Gaussians: the closed form of other rows, near the truth, -log(1 - r^2) / 2."""
    random = np.random.default_rng(0)
    x = random.standard_normal((600, 1))
    y = 0.8 * x + 0.6 * random.standard_normal((600, 1))
    found = cross_val_score(CCA, x, y, cv=3, scoring=mi_scorer)
    assert found.mean() == pytest.approx(-np.log(0.6), abs=0.1)
    again = cross_val_score(make_pipeline(StandardScaler(), CCA), x, y, cv=3, scoring=mi_scorer)
    np.testing.assert_allclose(again, found, rtol=1e-6)
    alone = cross_val_score(make_pipeline(CCA), x, y, cv=3, scoring=mi_scorer)
    np.testing.assert_array_equal(alone, found)


def test_folds_that_lack_a_category():
    """Rows of a class that a fold has not seen are left out, and told of once for the line."""
    wine, kind = load_wine(return_X_y=True)  # sorted by class
    made = make_pipeline(StandardScaler(), small(max_epochs=2, discrete_y=True))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = cross_val_score(made, wine, kind, cv=3)
    assert np.isfinite(found).all()
    told = [str(one.message) for one in caught]
    assert sum("left out of the score" in one for one in told) == 1
    assert sum(one.startswith("still_improving") for one in told) <= 1
    # As by hand: the rows of the other classes, and -log 2 where there is only one.
    assert found[0] == pytest.approx(-np.log(2))
    model = small(max_epochs=2, discrete_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaled = StandardScaler().fit(wine[:119]).transform(wine)
        model.fit(scaled[:119], kind[:119])
    known = np.flatnonzero(np.isin(kind, kind[:119]) & (np.arange(len(kind)) >= 119))
    assert found[2] == pytest.approx(model.score(scaled[known], kind[known]))
    assert len(known) == 11
