"""The estimators in scikit-learn's tools, with y as the second view."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from estimators.pointwise.helpers import pairs, small
from pointdep import mi_scorer

X, Y = pairs(80)

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")


@pytest.mark.parametrize("y", [Y, Y[:, 0], np.where(Y[:, 0] > 0, "up", "down")])
def test_cross_val_score_by_hand(y):
    """y of two dimensions, of one, and of labels; each part is scored by a fit on the others."""
    cv = KFold(2)
    found = cross_val_score(small(), X, y, cv=cv)
    expected = [
        small().fit(X[train], y[train]).score(X[test], y[test]) for train, test in cv.split(X)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_pipeline_ends_in_an_estimator():
    made = make_pipeline(PolynomialFeatures(2, include_bias=False), small())
    made.fit(X, Y)
    steps = PolynomialFeatures(2, include_bias=False).fit_transform(X)
    by_hand = small().fit(steps, Y)
    assert made.score(X, Y) == by_hand.score(steps, Y)
    assert made[-1].mutual_information() == by_hand.mutual_information()


def test_a_grid_over_a_pipeline():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), small(max_epochs=2)),
        {"pointwisedependency__hidden": [(4,), (8,)]},
        cv=2,
        scoring={"loss": lambda m, a, b: m.score(a, b), "mi": mi_scorer},
        refit="loss",
    ).fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_mi"]).all()
    best = search.cv_results_["mean_test_loss"].argmax()
    assert search.best_params_ == search.cv_results_["params"][best]


def test_groups_split_the_rows():
    groups = np.arange(80) // 4
    found = cross_val_score(small(), X, Y, groups=groups, cv=GroupKFold(2))
    train, test = next(GroupKFold(2).split(X, Y, groups))
    assert found[0] == pytest.approx(small().fit(X[train], Y[train]).score(X[test], Y[test]))


def test_parameters():
    made = clone(small(hidden=(5,)).set_params(method="js", folds=3))
    assert made.get_params() == {**small().get_params(), "hidden": (5,), "method": "js", "folds": 3}
