"""Canonical correlations, against determinants and Gaussian densities."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pointdep.errors import FitWarning, InputError
from pointdep.estimators.classical.plug_in import wishart_excess

from .helpers import fit, gaussian_mi, gaussians, labelled


def mixed_gaussians(rows, seed=0):
    """Correlated columns of different widths."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, 4)) @ random.standard_normal((4, 4)) + 3
    return x, 0.5 * x[:, :3] @ random.standard_normal((3, 3)) + random.standard_normal((rows, 3))


def log_det(values):
    return np.linalg.slogdet(np.cov(values.T))[1]


def test_mutual_information_is_that_of_the_determinants():
    x, y = mixed_gaussians(500)
    wanted = 0.5 * (log_det(x) + log_det(y) - log_det(np.hstack([x, y])))
    found = fit("cca", x, y, correction="none").mutual_information()
    assert found.nats == pytest.approx(wanted, abs=1e-4)
    corrected = fit("cca", x, y).mutual_information()
    assert found.nats - corrected.nats == pytest.approx(wishart_excess(4, 3, 500))
    assert corrected.stderr == pytest.approx(found.stderr)


def test_pmi_is_that_of_three_fitted_gaussians():
    x, y = mixed_gaussians(300)
    both = np.hstack([x, y])

    def log_density(values):
        fitted = multivariate_normal(values.mean(0), np.cov(values.T, bias=True))
        return fitted.logpdf(values)

    wanted = log_density(both) - log_density(x) - log_density(y)
    model = fit("cca", x, y)
    np.testing.assert_allclose(model.pmi(x, y), wanted, atol=1e-3)
    np.testing.assert_allclose(model.pmi_matrix(x, y).diagonal(), wanted, atol=1e-3)


def test_the_correction_is_the_bias():
    excess = wishart_excess(3, 4, 100_000)
    assert excess == pytest.approx(3 * 4 / (2 * 100_000), rel=1e-3)
    assert wishart_excess(5, 5, 40) > 25 / 80  # more than to first order
    found = [
        fit("cca", *gaussians(40, (0.7, 0.4, 0.0), seed=s)[:2], correction=correction, folds=2)
        .mutual_information()
        .nats
        for correction in ("wishart", "none")
        for s in range(200)
    ]
    corrected, plain = np.reshape(found, (2, 200))
    truth, error = gaussian_mi((0.7, 0.4)), 3 * plain.std() / np.sqrt(200)
    assert corrected.mean() == pytest.approx(truth, abs=error)
    assert plain.mean() > truth + error


def test_gaussians_and_the_error():
    x, y, pmi = gaussians(4000)
    model = fit("cca", x, y)
    np.testing.assert_allclose(model.oof_pmi_, pmi, atol=0.5)
    assert np.corrcoef(model.oof_pmi_, pmi)[0, 1] > 0.995
    found = model.mutual_information()
    assert found.nats == pytest.approx(gaussian_mi(), abs=3 * found.stderr)
    assert found.stderr == pytest.approx(pmi.std() / np.sqrt(4000), rel=0.1)
    held = fit("cca", x, y, correction="out_of_fold").mutual_information()
    assert held.nats == pytest.approx(model.oof_pmi_.mean(), abs=1e-5)


def test_redundant_columns_change_nothing():
    x, y = mixed_gaussians(300)
    wanted = fit("cca", x, y)
    found = fit("cca", np.column_stack([x, x[:, 0] - x[:, 1], x[:, 2]]), y)
    assert found.model_.ranks == (4, 3)
    np.testing.assert_allclose(found.oof_pmi_, wanted.oof_pmi_, atol=2e-3)


def test_labels_are_one_hot():
    labels, values, pmi = labelled(2000)
    model = fit("cca", values, labels)
    assert model.model_.ranks == (2, 2)
    assert np.corrcoef(model.pmi(values, labels), pmi)[0, 1] > 0.8


def test_a_linear_function_is_flagged():
    x, _, _ = gaussians(200)
    with pytest.warns(FitWarning, match="linear function of X"):
        model = fit("cca", x, 2 * x[:, :1] + x[:, 1:])
    found = model.mutual_information()
    assert found.nats > 5
    assert "saturated" in found.warnings[0]


def test_too_few_rows():
    random = np.random.default_rng(0)
    with pytest.raises(InputError, match=r"80 rows for 50 \+ 50 dimensions.*at least 102"):
        fit("cca", random.standard_normal((100, 50)), random.standard_normal((100, 50)))
