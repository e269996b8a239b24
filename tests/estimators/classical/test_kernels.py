"""Kernel methods against kernel matrices and a grid by hand; mixtures against scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal, spearmanr
from sklearn.mixture import GaussianMixture

from pointdep.errors import FitWarning
from pointdep.estimators.classical import kernels, likelihood
from pointdep.estimators.classical.likelihood import Mixture
from pointdep.estimators.classical.prepared import Side
from refusals import refused

from .helpers import fit, gaussian_mi, gaussians, labelled


def direct(x, y, new_x, new_y):
    """1/n sum_i k(x, x_i) l(y, y_i), both kernels centred, by loops over kernel values."""

    def centred(rows, new):
        distances = np.array([np.linalg.norm(a - b) for a in rows for b in rows])
        width = np.median(distances[distances > 0])

        def kernel(one, other):
            squares = np.array([[np.square(a - b).sum() for b in other] for a in one])
            return np.exp(-squares / (2 * width**2))

        gram, cross = kernel(rows, rows), kernel(new, rows)
        return cross - gram.mean(0) - cross.mean(1, keepdims=True) + gram.mean()

    return (centred(x, new_x) * centred(y, new_y)).mean(1)


@pytest.mark.parametrize("new", [False, True])
def test_all_rows_as_landmarks_is_the_kernel(new):
    x, y, _ = gaussians(50)
    other = gaussians(20, seed=1)[:2] if new else (x, y)
    model = fit("phsic", x, y, features=50)
    sides = zip((x, y, x, y), (x, y, *other), strict=True)
    wanted = direct(*((side - of.mean(0)) / of.std(0) for of, side in sides))
    np.testing.assert_allclose(model.pmi(*other), wanted, atol=1e-6)


def test_phsic_ranks_pairs_without_nats():
    x, y, pmi = gaussians(1000)
    model = fit("phsic", x, y)
    assert spearmanr(model.oof_pmi_, pmi).statistic > 0.5
    for rows in ((), (x, y)):
        refused("gives no mutual information", model.mutual_information, *rows)
    refused("has no log-loss", model.score, x, y)
    assert model.mi_values_ is None
    fresh = gaussians(1000, seed=1)
    assert spearmanr(model.pmi(*fresh[:2]), fresh[2]).statistic > 0.5
    labels, values, pmi = labelled(800)
    assert spearmanr(fit("phsic", values, labels).oof_pmi_, pmi).statistic > 0.5


def slow_moments(model, x, y):
    """H over all pairs of rows, h over the rows, one row at a time."""
    count = len(model.weights)

    def basis(a, b):
        near_x = np.square(a - model.centres_x).sum(1) / (2 * model.widths[0] ** 2)
        near_y = np.square(b - model.centres_y).sum(1) / (2 * model.widths[1] ** 2)
        return np.exp(-near_x - near_y)

    H, h, n = np.zeros((count, count)), np.zeros(count), len(x)
    for i in range(n):
        h += basis(x[i], y[i]) / n
        for other in range(n):
            values = basis(x[i], y[other])
            H += np.outer(values, values) / n**2
    return H, h


def test_the_weights_solve_equations_with_a_validated_bandwidth():
    x, y, _ = gaussians(40)
    options = {"centres": 6, "bandwidth": 0.8, "ridge": 0.1, "floor": 1e-4}
    model = kernels.fit_ulsif(Side(x), Side(y), seed=0, **options)
    H, h = slow_moments(model, x, y)
    np.testing.assert_allclose((H + 0.1 * np.eye(6)) @ model.weights, h, rtol=1e-9)
    x, y, _ = gaussians(60)
    sides, options = (Side(x), Side(y)), {"centres": 8, "floor": 1e-4}
    found = kernels.fit_ulsif(*sides, seed=3, bandwidth=None, ridge=None, **options)
    # The same draws as in the fit: centres, two medians, then the parts.
    random = np.random.default_rng(3)
    random.choice(60, size=8, replace=False)
    random.choice(60, size=60, replace=False), random.choice(60, size=60, replace=False)
    part, best = random.permutation(60) % 3, None
    for scale in kernels.BANDWIDTHS:
        basis = kernels.fit_ulsif(*sides, seed=3, bandwidth=scale, ridge=1.0, **options)
        halves = [(part != p, part == p) for p in range(3)]
        moments = [[slow_moments(basis, x[rows], y[rows]) for rows in both] for both in halves]
        for ridge in kernels.RIDGES:
            loss = 0.0
            for (H, h), (held_H, held_h) in moments:
                weights = np.linalg.solve(H + ridge * np.eye(8), h)
                loss += 0.5 * weights @ held_H @ weights - held_h @ weights
            if best is None or loss < best[0]:
                best = (loss, scale, ridge)
    wanted = kernels.fit_ulsif(*sides, seed=3, bandwidth=best[1], ridge=best[2], **options)
    assert found.widths == wanted.widths
    np.testing.assert_allclose(found.weights, wanted.weights)


def test_ulsif_of_gaussians_and_labels_and_its_floor():
    x, y, pmi = gaussians(2000, (0.8,))
    model = fit("ulsif", x, y)
    assert np.corrcoef(model.oof_pmi_, pmi)[0, 1] > 0.9
    found = model.mutual_information()
    assert found.nats == pytest.approx(gaussian_mi((0.8,)), abs=0.1)
    assert found.nats == pytest.approx(model.oof_pmi_.mean(), abs=1e-5)
    fresh = gaussians(2000, (0.8,), seed=1)[:2]
    assert model.mutual_information(*fresh).nats == pytest.approx(gaussian_mi((0.8,)), abs=0.1)
    labels, values, pmi = labelled(1500)
    model = fit("ulsif", values, labels)
    assert np.corrcoef(model.oof_pmi_, pmi)[0, 1] > 0.85
    assert model.mutual_information().nats == pytest.approx(pmi.mean(), abs=0.1)
    x, y, _ = gaussians(300, (0.9,))
    with pytest.warns(FitWarning, match="least PMI"):
        model = fit("ulsif", x, y, floor=0.5)
    assert model.oof_pmi_.min() == pytest.approx(np.log(0.5))
    assert model.pmi_matrix(x[:50], y[:50]).min() == pytest.approx(np.log(0.5))


def two_clouds(rows, seed=0):
    """A mixture of two Gaussians, which no single one describes: x and y are uncorrelated."""
    random = np.random.default_rng(seed)
    sign, x = random.choice([-1, 1], size=rows), random.standard_normal(rows)
    y = 0.9 * sign * x + np.sqrt(1 - 0.81) * random.standard_normal(rows)

    def density(s):
        joint = multivariate_normal([0, 0], [[1, 0.9 * s], [0.9 * s, 1]])
        return joint.pdf(np.column_stack([x, y]))

    alone = multivariate_normal(0, 1)
    return x, y, np.log((density(1) + density(-1)) / 2) - alone.logpdf(x) - alone.logpdf(y)


def mixture_of(x, y, components):
    options = {"seed": 0, "ridge": 1e-6, "max_components": 5}
    return likelihood.fit(Side(x), Side(y), components=components, **options)


def test_one_component_is_cca_and_the_density_that_of_scikit_learn():
    x, y, _ = gaussians(500)
    found, wanted = fit("likelihood", x, y, components=1), fit("cca", x, y)
    np.testing.assert_allclose(found.pmi(x, y), wanted.pmi(x, y), atol=2e-3)
    np.testing.assert_allclose(found.oof_pmi_, wanted.oof_pmi_, atol=2e-3)
    assert found.mutual_information().nats == pytest.approx(wanted.oof_pmi_.mean(), abs=1e-3)
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


def test_the_marginal_and_the_number_of_components():
    x, y, _ = two_clouds(400)
    model, grid = mixture_of(x[:, None], y[:, None], 2), np.linspace(-8, 8, 4001)[:, None]
    for at in (-1.0, 0.3, 2.0):
        joint = model.mixture.log_density(np.hstack([np.full_like(grid, at), grid]))
        integral = np.log(np.trapezoid(np.exp(joint), grid[:, 0]))
        found = model.mixture.log_density(np.array([[at]]), slice(None, 1))
        assert found[0] == pytest.approx(integral, abs=1e-6)
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


def test_labels_have_a_mixture_each_and_rare_ones_share():
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
        refused(said, fit, "likelihood", *data)
