"""Mixtures of Gaussians, against scikit-learn's densities and integrals over a side."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from pointdep.errors import InputError
from pointdep.estimators.classical import likelihood
from pointdep.estimators.classical.likelihood import Mixture
from pointdep.estimators.classical.prepared import Side

from .helpers import fit, gaussians, labelled


def two_clouds(rows, seed=0):
    """A mixture of two Gaussians, which no single one describes: x and y are uncorrelated."""
    random = np.random.default_rng(seed)
    sign = random.choice([-1, 1], size=rows)
    x = random.standard_normal(rows)
    y = 0.9 * sign * x + np.sqrt(1 - 0.81) * random.standard_normal(rows)

    def density(s):
        joint = multivariate_normal([0, 0], [[1, 0.9 * s], [0.9 * s, 1]])
        return joint.pdf(np.column_stack([x, y]))

    alone = multivariate_normal(0, 1)
    return x, y, np.log((density(1) + density(-1)) / 2) - alone.logpdf(x) - alone.logpdf(y)


def mixture_of(x, y, components):
    options = {"seed": 0, "ridge": 1e-6, "max_components": 5}
    return likelihood.fit(Side(x), Side(y), components=components, **options)


def test_one_component_is_cca():
    x, y, _ = gaussians(500)
    found, wanted = fit("likelihood", x, y, components=1), fit("cca", x, y)
    np.testing.assert_allclose(found.pmi(x, y), wanted.pmi(x, y), atol=2e-3)
    np.testing.assert_allclose(found.oof_pmi_, wanted.oof_pmi_, atol=2e-3)
    assert found.mutual_information().nats == pytest.approx(wanted.oof_pmi_.mean(), abs=1e-3)


def test_the_joint_density_is_that_of_scikit_learn():
    x, y, _ = gaussians(300)
    model = mixture_of(x, y, 3)
    theirs = GaussianMixture(3, reg_covar=1e-6, random_state=0, max_iter=300)
    wanted = theirs.fit(np.hstack([x, y])).score_samples(np.hstack([x, y]))
    mixture = model.mixture
    np.testing.assert_allclose(mixture.log_density(np.hstack([x, y])), wanted, rtol=1e-8)
    alone = mixture.log_density(x, slice(None, 2)) + mixture.log_density(y, slice(2, None))
    np.testing.assert_allclose(model.pairs(Side(x), Side(y)), wanted - alone, rtol=1e-6, atol=1e-8)
    matrix = model.matrix(Side(x[:7]), Side(y[:5]))
    for i in range(7):
        row = model.pairs(Side(np.repeat(x[i : i + 1], 5, axis=0)), Side(y[:5]))
        np.testing.assert_allclose(matrix[i], row, rtol=1e-9, atol=1e-9)


def test_the_marginal_is_the_integral_of_the_joint():
    x, y, _ = two_clouds(400)
    model = mixture_of(x[:, None], y[:, None], 2)
    grid = np.linspace(-8, 8, 4001)[:, None]
    for at in (-1.0, 0.3, 2.0):
        joint = model.mixture.log_density(np.hstack([np.full_like(grid, at), grid]))
        integral = np.log(np.trapezoid(np.exp(joint), grid[:, 0]))
        found = model.mixture.log_density(np.array([[at]]), slice(None, 1))
        assert found[0] == pytest.approx(integral, abs=1e-6)


def test_the_number_of_components():
    x, y, pmi = two_clouds(2000)
    model = fit("likelihood", x, y)
    assert model.model_.mixture.weights.size > 1
    assert np.corrcoef(model.oof_pmi_, pmi)[0, 1] > 0.98
    assert model.mutual_information().nats == pytest.approx(pmi.mean(), abs=0.05)
    assert abs(fit("cca", x, y).mutual_information().nats) < 0.02
    # Of few rows more would collapse onto a row each, and give others hardly any density.
    x, y, _ = gaussians(20)
    model = fit("likelihood", x, y, folds=2, components=5)
    assert model.model_.mixture.weights.size == 2
    assert fit("likelihood", x[:12], y[:12], folds=2).mutual_information().nats > -10


def test_labels_have_a_mixture_each():
    labels, values, pmi = labelled(2000)
    for data in ((labels, values), (values, labels)):
        model = fit("likelihood", *data)
        assert np.corrcoef(model.oof_pmi_, pmi)[0, 1] > 0.99
        assert model.mutual_information().nats == pytest.approx(pmi.mean(), abs=0.05)
    matrix = model.pmi_matrix(values[:20], ["a", "b", "c"])
    shares = [(labels == label).mean() for label in "abc"]
    np.testing.assert_allclose(np.exp(matrix) @ shares, 1, rtol=1e-4)  # p(l|v) sums to one
    swapped = fit("likelihood", labels, values).pmi_matrix(["a", "b", "c"], values[:20])
    np.testing.assert_allclose(swapped.T, matrix, rtol=1e-4)


def test_rare_labels_share_a_covariance():
    labels, values, _ = labelled(300)
    labels[:3] = "z"
    values[:3] = 5
    model = fit("likelihood", values, labels)
    rare = model.model_.densities[-1]
    assert isinstance(rare, Mixture)
    within = [values[labels == c] - values[labels == c].mean(0) for c in "abcz"]
    within = np.concatenate(within) / values.std(0)
    np.testing.assert_allclose(rare.covariances[0], within.T @ within / 300, atol=1e-4)
    assert np.isfinite(model.oof_pmi_).all()
    labels[:3] = "a"
    labels[5] = "z"  # which the fold that reports it did not see
    model = fit("likelihood", values, labels)
    assert model.oof_pmi_[5] == 0
    assert model.pmi(values[5:6], labels[5:6])[0] > 0


def test_what_is_refused():
    labels, values, _ = labelled(100)
    mixed = pd.DataFrame({"label": labels, "number": values[:, 0]})
    for data, said in (
        ((labels, labels), "counting"),
        ((values, mixed), "Y holds numbers and categories"),
        (np.random.default_rng(0).standard_normal((2, 20, 30)), "16 rows .* 60 columns"),
    ):
        with pytest.raises(InputError, match=said):
            fit("likelihood", *data)
