"""Kernel methods, against the kernel matrices they stand for and a grid searched by hand."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from pointdep.errors import FitWarning
from pointdep.estimators.classical import kernels
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


def test_the_weights_solve_the_normal_equations():
    x, y, _ = gaussians(40)
    options = {"centres": 6, "bandwidth": 0.8, "ridge": 0.1, "floor": 1e-4}
    model = kernels.fit_ulsif(Side(x), Side(y), seed=0, **options)
    H, h = slow_moments(model, x, y)
    np.testing.assert_allclose((H + 0.1 * np.eye(6)) @ model.weights, h, rtol=1e-9)


def test_bandwidth_and_ridge_are_cross_validated():
    x, y, _ = gaussians(60)
    sides, options = (Side(x), Side(y)), {"centres": 8, "floor": 1e-4}
    found = kernels.fit_ulsif(*sides, seed=3, bandwidth=None, ridge=None, **options)
    # The same draws as in the fit: centres, two medians, then the parts.
    random = np.random.default_rng(3)
    random.choice(60, size=8, replace=False)
    random.choice(60, size=60, replace=False), random.choice(60, size=60, replace=False)
    part = random.permutation(60) % 3
    best = None
    for scale in kernels.BANDWIDTHS:
        basis = kernels.fit_ulsif(*sides, seed=3, bandwidth=scale, ridge=1.0, **options)
        moments = [
            [slow_moments(basis, x[rows], y[rows]) for rows in (part != p, part == p)]
            for p in range(3)
        ]
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


def test_ulsif_of_gaussians_and_labels():
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


def test_the_floor_is_a_floor_and_flagged():
    x, y, _ = gaussians(300, (0.9,))
    with pytest.warns(FitWarning, match="least PMI"):
        model = fit("ulsif", x, y, floor=0.5)
    assert model.oof_pmi_.min() == pytest.approx(np.log(0.5))
    assert model.pmi_matrix(x[:50], y[:50]).min() == pytest.approx(np.log(0.5))
