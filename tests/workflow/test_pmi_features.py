"""PMI as columns for another model: without leakage, named; estimators in scikit-learn's tools."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, RepeatedKFold, ShuffleSplit
from sklearn.model_selection import cross_val_score as scores_of
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from estimators.pointwise.helpers import FAULTY_CHECKS, pairs, small
from pointdep import PMIFeatures, mi_scorer
from refusals import quietly, refused

X, Y = pairs(80)
LABELS = np.where(X[:, 0] > 0, "right", "left")

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")


def features(**options):
    own = {name: options.pop(name) for name in ("anchors", "append") if name in options}
    return PMIFeatures(small(**options), progress=False, **own)


class TestValues:
    def test_transform_is_the_pmi_with_each_class(self):
        made, new = features().fit(X, LABELS), pairs(9, seed=3)[0]
        expected = made.estimator_.pmi_matrix(new, ["left", "right"])
        found = made.transform(new)
        np.testing.assert_array_equal(found[:, :2], new)
        np.testing.assert_allclose(found[:, 2:], expected, rtol=1e-6)
        assert (list(made.classes_), made.anchor_rows_) == (["left", "right"], None)

    @pytest.mark.parametrize("cv", [3, RepeatedKFold(n_splits=2, n_repeats=2, random_state=0)])
    def test_the_rows_of_the_fit_are_answered_out_of_fold(self, cv):
        """The column of a row's own class is its out-of-fold PMI, the mean if several report it."""
        made = features(folds=3) if cv == 3 else features(cv=cv)
        found = made.fit_transform(X, LABELS)[:, 2:]
        own = found[np.arange(len(X)), (LABELS == "right").astype(int)]
        np.testing.assert_allclose(own, made.estimator_.oof_pmi_, rtol=1e-5, atol=1e-6)
        assert np.abs(found - made.transform(X)[:, 2:]).max() > 1e-3
        assert np.array_equal(found, clone(made).fit_transform(X, LABELS)[:, 2:])

    def test_noise_is_no_feature(self):
        """Networks that memorise random labels: the rows of the fit must not show it."""
        random = np.random.default_rng(0)
        x, labels = random.standard_normal((120, 60)), random.integers(2, size=120)
        made = features(
            hidden=(64,), max_epochs=15, patience=15, learning_rate=3e-3, append=False, average=0
        )
        held, seen = made.fit_transform(x, labels), made.transform(x)
        auc = [roc_auc_score(labels, part[:, 1] - part[:, 0]) for part in (held, seen)]
        assert auc[0] < 0.6
        assert auc[1] > 0.75


def test_rows_that_are_spread_over_all_or_given():
    y = X[:, 0] + 10.0 * np.repeat([0, 1, 2, 3], 20)
    made = features(anchors=4).fit(X, y)
    assert sorted(made.anchor_rows_ // 20) == [0, 1, 2, 3]
    expected = made.estimator_.pmi_matrix(X, y[made.anchor_rows_])
    np.testing.assert_allclose(made.transform(X)[:, 2:], expected, rtol=1e-5, atol=1e-6)
    y = np.repeat([0.0, 1.5, 7.25], [30, 30, 20])
    made = features(anchors=8, append=False).fit(X, y)
    assert sorted(y[made.anchor_rows_]) == [0.0, 1.5, 7.25]
    made = features(anchors=Y[:5], append=False).fit(X, Y)
    expected = made.estimator_.pmi_matrix(X, Y[:5])
    np.testing.assert_allclose(made.transform(X), expected, rtol=1e-6)
    assert list(made.get_feature_names_out()) == [f"pmi_{k}" for k in range(5)]
    for anchors in (0, 2.5, Y[:, :2]):
        refused(None, features(anchors=anchors).fit, X, Y)


class TestTables:
    TABLE = pd.DataFrame({"a": X[:, 0], "kind": LABELS}, index=np.arange(80) + 5)

    def test_a_table_keeps_its_types_and_names(self):
        made = features().set_output(transform="pandas")
        found = made.fit_transform(self.TABLE, LABELS)
        assert list(found) == ["a", "kind", "pmi_left", "pmi_right"]
        assert list(found) == list(made.get_feature_names_out())
        assert found.index.equals(self.TABLE.index)
        pd.testing.assert_frame_equal(found[["a", "kind"]], self.TABLE)
        made = features().set_output(transform="polars")
        found = made.fit_transform(pl.from_pandas(self.TABLE), LABELS)
        assert found.columns == ["a", "kind", "pmi_left", "pmi_right"]
        assert found["kind"].to_list() == list(LABELS)
        made = features().set_output(transform="pandas").fit(X, LABELS)
        assert list(made.transform(X)) == ["x0", "x1", "pmi_left", "pmi_right"]
        made.set_output(transform="polars")
        assert made.transform(X).columns == ["x0", "x1", "pmi_left", "pmi_right"]
        nameless = make_pipeline(features(), LogisticRegression()).fit(pd.DataFrame(X), LABELS)
        assert nameless[:1].transform(pd.DataFrame(X)).shape == (80, 4)
        table = self.TABLE.rename(columns={"a": "pmi_left"})
        refused("column 'pmi_left'.*append=False", features(max_epochs=1).fit, table, LABELS)
        found = features(max_epochs=1, append=False).fit(table, LABELS).transform(table)
        assert list(found) == ["pmi_left", "pmi_right"]

    @pytest.mark.parametrize("library", [pd.DataFrame, pl.from_pandas])
    def test_a_table_stays_one_with_and_without_its_columns(self, library):
        table, made = library(self.TABLE), features(append=False)
        found = made.fit_transform(table, LABELS)
        assert type(found) is type(made.transform(table)) is type(table)
        assert list(found.columns) == ["pmi_left", "pmi_right"]
        alone = features(append=False).fit_transform(self.TABLE.to_numpy(dtype=object), LABELS)
        assert isinstance(alone, np.ndarray)
        np.testing.assert_allclose(found.to_numpy(), alone, rtol=1e-6)
        if library is pd.DataFrame:
            assert found.index.equals(self.TABLE.index)


class TestInPipelines:
    def test_a_classifier_learns_from_them_and_options_are_searched(self):
        """A ring: no linear model sees it, PMI does."""
        x = np.random.default_rng(1).standard_normal((200, 2))
        labels = np.square(x).sum(1) > 1.4
        columns = features(hidden=(32,), max_epochs=60, append=False)
        made = make_pipeline(StandardScaler(), columns, LogisticRegression())
        alone = scores_of(LogisticRegression(), x, labels, cv=2).mean()
        assert scores_of(made, x, labels, cv=2).mean() > alone + 0.15
        made = make_pipeline(features(max_epochs=2), LogisticRegression())
        grid = {"pmifeatures__append": [True, False], "pmifeatures__estimator__hidden": [(4,)]}
        search = GridSearchCV(made, grid, cv=2).fit(X, LABELS)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        for message, made, y in (
            ("folds=1", features(folds=1), LABELS),
            ("row .* every network", features(cv=ShuffleSplit(1, random_state=0)), LABELS),
            ("must be a PointwiseDependency", PMIFeatures(LogisticRegression()), LABELS),
            ("target y is None", features(), None),
        ):
            refused(message, made.fit_transform, X, y)


EXPECTED_FAILURES = {
    "check_fit1d": "one-dimensional X is one column, not an error",
    "check_transformer_general": "fit_transform is out of fold, transform of unseen rows is not",
    "check_transformer_data_not_an_array": "fit_transform is out of fold",
}


def test_the_checks_of_scikit_learn():
    made = PMIFeatures(small(folds=3, max_epochs=1, hidden=(4,)), anchors=2, progress=False)
    with quietly():
        allowed = {"expected_failed_checks": EXPECTED_FAILURES, "on_skip": None, "on_fail": None}
        results = check_estimator(made, **allowed)
    assert len(results) > 40
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert set(failed) == FAULTY_CHECKS, failed
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(EXPECTED_FAILURES)


@pytest.mark.parametrize("y", [Y, Y[:, 0], np.where(Y[:, 0] > 0, "up", "down")])
def test_cross_val_score_by_hand(y):
    """y of two dimensions, of one, and of labels; each part is scored by a fit on the others."""
    cv = KFold(2)
    found = scores_of(small(), X, y, cv=cv)
    expected = [small().fit(X[a], y[a]).score(X[b], y[b]) for a, b in cv.split(X)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_pipelines_grids_groups_and_parameters():
    made = make_pipeline(PolynomialFeatures(2, include_bias=False), small())
    made.fit(X, Y)
    steps = PolynomialFeatures(2, include_bias=False).fit_transform(X)
    by_hand = small().fit(steps, Y)
    assert made.score(X, Y) == by_hand.score(steps, Y)
    assert made[-1].mutual_information() == by_hand.mutual_information()
    made = make_pipeline(StandardScaler(), small(max_epochs=2))
    grid = {"pointwisedependency__hidden": [(4,), (8,)]}
    scoring = {"loss": lambda m, a, b: m.score(a, b), "mi": mi_scorer}
    search = GridSearchCV(made, grid, cv=2, scoring=scoring, refit="loss").fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_mi"]).all()
    best = search.cv_results_["mean_test_loss"].argmax()
    assert search.best_params_ == search.cv_results_["params"][best]
    groups = np.arange(80) // 4
    found = scores_of(small(), X, Y, groups=groups, cv=GroupKFold(2))
    train, test = next(GroupKFold(2).split(X, Y, groups))
    assert found[0] == pytest.approx(small().fit(X[train], Y[train]).score(X[test], Y[test]))
    made = clone(small(hidden=(5,)).set_params(method="js", folds=3))
    assert made.get_params() == {**small().get_params(), "hidden": (5,), "method": "js", "folds": 3}
