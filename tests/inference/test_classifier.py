"""The balanced classifier that a log-ratio implies."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import log_loss

from pointdep.inference.scoring import balanced_log_likelihood

RANDOM = np.random.default_rng(0)
logs = st.lists(st.floats(-15, 15), min_size=1, max_size=20)


@given(logs, logs)
def test_against_scikit_learn(joint, product):
    labels = [1] * len(joint) + [0] * len(product)
    weights = [1 / len(joint)] * len(joint) + [1 / len(product)] * len(product)
    wanted = log_loss(labels, expit([*joint, *product]), sample_weight=weights, labels=[0, 1])
    found = balanced_log_likelihood(np.array(joint), np.array(product))
    assert found == pytest.approx(-wanted, rel=1e-6, abs=1e-9)
    assert found <= 0


def test_independence_is_chance():
    assert balanced_log_likelihood(np.zeros(5), np.zeros(40)) == pytest.approx(-math.log(2))


def test_extreme_values_are_finite():
    sure = np.float32([1e4])
    assert balanced_log_likelihood(sure, -sure) == 0.0
    assert balanced_log_likelihood(-sure, sure) == pytest.approx(-1e4)


def test_the_true_ratio_scores_best():
    rho = 0.7
    x, y = RANDOM.multivariate_normal([0, 0], [[1, rho], [rho, 1]], 4000).T

    def score(r):
        def log_ratio(a, b):
            return -0.5 * math.log(1 - r**2) - (r**2 * (a**2 + b**2) - 2 * r * a * b) / (
                2 * (1 - r**2)
            )

        return balanced_log_likelihood(log_ratio(x, y), log_ratio(x, np.roll(y, 1)))

    assert score(rho) > max(score(0.4), score(0.85), score(0.0))
