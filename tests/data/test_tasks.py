"""The reference tasks against scipy's densities and sums over the table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import multivariate_normal

from pointdep.data.tasks import correlated_gaussians, discrete_table, table_pmi
from pointdep.errors import InputError


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.floats(0.01, 8.0), st.integers(0, 100))
def test_gaussian_pmi_agrees_with_scipy(dim, mutual_information, seed):
    task = correlated_gaussians(20, dim, mutual_information, seed=seed)
    rho = np.sqrt(1 - np.exp(-2 * mutual_information / dim))
    cov = np.block([[np.eye(dim), rho * np.eye(dim)], [rho * np.eye(dim), np.eye(dim)]])
    joint = multivariate_normal(np.zeros(2 * dim), cov).logpdf(np.hstack([task.x, task.y]))
    alone = multivariate_normal(np.zeros(dim), np.eye(dim))
    expected = joint - alone.logpdf(task.x) - alone.logpdf(task.y)
    np.testing.assert_allclose(task.pmi, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mutual_information", [0.0, 2.0, 10.0])
def test_gaussian_mean_pmi_is_the_mutual_information(mutual_information):
    task = correlated_gaussians(20_000, 20, mutual_information)
    error = task.pmi.std() / np.sqrt(len(task.pmi))
    assert abs(task.pmi.mean() - mutual_information) <= 4 * error
    assert task.mutual_information == mutual_information
    assert task.x.shape == task.y.shape == (20_000, 20)


def test_cubic_changes_only_y():
    plain, cubic = correlated_gaussians(50, seed=3), correlated_gaussians(50, cubic=True, seed=3)
    np.testing.assert_array_equal(cubic.y, plain.y**3)
    np.testing.assert_array_equal(cubic.x, plain.x)
    np.testing.assert_array_equal(cubic.pmi, plain.pmi)
    assert not np.array_equal(plain.x, correlated_gaussians(50, seed=4).x)


def test_gaussian_arguments():
    for kwargs in ({"rows": 0}, {"rows": 5, "dim": 0}, {"rows": 5, "mutual_information": -1.0}):
        with pytest.raises(InputError, match=f"{list(kwargs)[-1]} must be"):
            correlated_gaussians(**kwargs)
    with pytest.raises(InputError, match="mutual_information must be"):
        correlated_gaussians(5, mutual_information=float("nan"))


@pytest.mark.parametrize(
    ("dim", "mutual_information"), [(1, 13.0), (1, 18.0), (2, 40.0), (20, 1e9)]
)
def test_so_much_information_that_rho_rounds_to_one(dim, mutual_information):
    if mutual_information / dim < 13.5:
        task = correlated_gaussians(2000, dim, mutual_information)
        assert abs(task.pmi.mean() - mutual_information) < 4 * task.pmi.std() / np.sqrt(2000)
    else:
        with pytest.raises(InputError, match=f"more than {dim} dimension.*raise dim"):
            correlated_gaussians(5, dim, mutual_information)


tables = arrays(
    np.int64, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.integers(0, 9)
)


@settings(max_examples=50, deadline=None)
@given(tables.filter(lambda table: table.sum() > 0))
def test_ratio_has_mean_one_under_the_product(counts):
    joint = counts / counts.sum()
    product = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    assert (product * np.exp(table_pmi(joint))).sum() == pytest.approx(1, abs=1e-12)
    task = discrete_table(30, joint)
    assert task.mutual_information >= -1e-12
    assert (joint[task.x, task.y] > 0).all()
    assert np.isfinite(task.pmi).all()


def test_table_draws_and_mutual_information():
    joint = np.array([[0.4, 0.1, 0.0], [0.0, 0.2, 0.3]])
    task = discrete_table(20_000, joint, seed=1)
    drawn = np.zeros_like(joint)
    np.add.at(drawn, (task.x, task.y), 1 / 20_000)
    np.testing.assert_allclose(drawn, joint, atol=0.02)
    expected = sum(
        joint[i, j] * np.log(joint[i, j] / (joint[i].sum() * joint[:, j].sum()))
        for i, j in np.argwhere(joint > 0)
    )
    assert task.mutual_information == pytest.approx(expected)
    assert task.pmi[0] == pytest.approx(table_pmi(joint)[task.x[0], task.y[0]])
    assert abs(task.pmi.mean() - expected) < 4 * task.pmi.std() / np.sqrt(20_000)
    assert task.x.dtype.kind == "i"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([0.5, 0.5], "two-dimensional"),
        ([[0.5, -0.5], [0.5, 0.5]], "none below 0"),
        ([[0.5, np.nan]], "finite"),
        ([[1.0, 3.0]], "sum to 1, not 4"),
    ],
)
def test_table_arguments(table, message):
    with pytest.raises(InputError, match=message):
        discrete_table(5, table)
    with pytest.raises(InputError, match="rows must be"):
        discrete_table(0, [[1.0]])
