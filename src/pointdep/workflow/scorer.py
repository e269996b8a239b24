"""Mutual information as a scorer of scikit-learn."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline


def mi_scorer(estimator: Any, X: Any, Y: Any) -> float:
    """The mutual information of the given rows in nats, as `scoring=` of `cross_val_score`.

    estimator: a fitted one with `mutual_information(X, Y)`, or a pipeline that ends in one. Report
    by it, but choose by `score`, the log-loss: an estimate that is too high is not a better one.
    """
    if isinstance(estimator, Pipeline):
        if len(estimator) > 1:
            X = estimator[:-1].transform(X)
        estimator = estimator[-1]
    return float(estimator.mutual_information(X, Y).nats)
