"""Counting, against counts made by hand, and canonical correlations, against densities."""

import math
import tracemalloc
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal
from sklearn.metrics import mutual_info_score

from pointdep import ClassicalDependency
from pointdep.core.linear import wishart_excess
from pointdep.errors import FitWarning, InputError
from refusals import refused

from .helpers import TABLE, fit, gaussian_mi, gaussians, table_rows

TRUE_PMI = np.log(TABLE / (TABLE.sum(1, keepdims=True) * TABLE.sum(0)))
X, Y = table_rows(400)


def counted_pmi(x, y, smoothing, lx=3, ly=3):
    """Every cell's PMI by a loop over the rows."""
    pairs, xs, ys = Counter(zip(x, y, strict=True)), Counter(x), Counter(y)
    total, pmi = len(x) + smoothing * lx * ly, np.empty((lx, ly))
    for a in range(lx):
        for b in range(ly):
            joint = (pairs[a, b] + smoothing) / total
            alone = (xs[a] + smoothing * ly) / total * ((ys[b] + smoothing * lx) / total)
            pmi[a, b] = math.log(joint / alone) if joint > 0 else -math.inf
    return pmi


@pytest.mark.parametrize("smoothing", [0.0, 0.5, 3.0])
def test_pmi_is_that_of_the_counts(smoothing):
    wanted = counted_pmi(X.tolist(), Y.tolist(), smoothing)
    model = fit("counting", X, Y, smoothing=smoothing)
    np.testing.assert_allclose(model.pmi(X, Y), wanted[X, Y], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.pmi_matrix([0, 1, 2], [0, 1, 2]), wanted, rtol=1e-5, atol=1e-6)


def test_the_plug_in_and_corrections_that_are_right_on_average():
    found = fit("counting", X, Y, correction="none").mutual_information()
    assert found.nats == pytest.approx(mutual_info_score(X, Y))
    model = fit("counting", X, Y, correction="out_of_fold")
    assert model.mutual_information().nats == pytest.approx(model.oof_pmi_.mean(), abs=1e-5)

    def entropy(values):
        shares = np.array(list(Counter(values).values())) / len(values)
        return -(shares * np.log(shares)).sum() + (len(shares) - 1) / (2 * len(values))

    x, y = X.tolist(), Y.tolist()
    wanted = entropy(x) + entropy(y) - entropy(list(zip(x, y, strict=True)))
    assert fit("counting", X, Y).mutual_information().nats == pytest.approx(wanted)
    truth, found = float((TABLE * TRUE_PMI).sum()), {}
    for correction in ("none", "miller_madow"):
        draws = (table_rows(100, seed=s) for s in range(150))
        runs = [fit("counting", *d, correction=correction).mutual_information() for d in draws]
        found[correction] = np.array([(run.nats, run.stderr) for run in runs])
    bias = {key: values[:, 0].mean() - truth for key, values in found.items()}
    assert abs(bias["miller_madow"]) < 0.5 * abs(bias["none"])
    values = found["miller_madow"]
    assert values[:, 1].mean() == pytest.approx(values[:, 0].std(), rel=0.2)


def test_several_columns_are_one_outcome_and_pairs_that_never_came():
    a, b = np.random.default_rng(0).integers(0, 2, (2, 300))
    y = a ^ b  # no column alone tells anything
    table = pd.DataFrame({"a": a.astype(str), "b": b.astype(str)})
    model = fit("counting", table, y, correction="none")
    assert model.mutual_information().nats == pytest.approx(mutual_info_score(2 * a + b, y))
    assert fit("counting", table[["a"]], y).mutual_information().nats < 0.02
    wanted = fit("counting", 2 * a + b, y).pmi(2 * a + b, y)
    np.testing.assert_allclose(model.pmi(table, y), wanted, rtol=1e-6)
    table = pd.DataFrame([("a", "a"), ("a", "b"), ("b", "a")] * 20)
    model = fit("counting", table, [0, 1, 1] * 20)
    unseen = pd.DataFrame([("a", "a"), ("b", "b")])
    refused("unseen in training, in row 1", model.pmi, unseen, [0, 1])
    refused("unseen in training", model.pmi, table[:1], [7])
    x, y = np.array([[0, 0, 1, 1] * 10] * 2)
    model = fit("counting", x, y, smoothing=0.0)
    assert np.isneginf(model.pmi([0], [1])).all()
    assert model.mutual_information().nats == pytest.approx(math.log(2), abs=0.05)
    refused("set smoothing above 0", model.mutual_information, [0, 1], [1, 0])
    y[0] = 1  # alone in its cell: its fold knows of none
    with pytest.warns(FitWarning, match="saturated"):
        fit("counting", x, y, smoothing=0.0)


def test_a_large_table_takes_little_memory():
    """5,000 by 5,000 cells as a table would be 200 MB."""
    x = np.arange(20_000) % 5_000
    tracemalloc.start()
    model = fit("counting", x, x, discrete_x=True, discrete_y=True, smoothing=1e-6)
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()
    assert model.pmi(x[:3], x[:3]) == pytest.approx(math.log(5_000), abs=0.05)


@pytest.mark.parametrize("side", ["X", "Y"])
def test_numbers_are_refused(side):
    data = (gaussians(400)[0], Y) if side == "X" else (X, gaussians(400)[0])
    refused(f"{side} holds numbers; say discrete_{side.lower()}", fit, "counting", *data)


def mixed_gaussians(rows, seed=0):
    """Correlated columns of different widths."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, 4)) @ random.standard_normal((4, 4)) + 3
    return x, 0.5 * x[:, :3] @ random.standard_normal((3, 3)) + random.standard_normal((rows, 3))


def log_det(values):
    return np.linalg.slogdet(np.cov(values.T))[1]


def test_information_and_pmi_are_those_of_fitted_gaussians():
    x, y = mixed_gaussians(500)
    wanted = 0.5 * (log_det(x) + log_det(y) - log_det(np.hstack([x, y])))
    found = fit("cca", x, y, correction="none").mutual_information()
    assert found.nats == pytest.approx(wanted, abs=1e-4)
    corrected = fit("cca", x, y).mutual_information()
    assert found.nats - corrected.nats == pytest.approx(wishart_excess(4, 3, 500))
    assert corrected.stderr == pytest.approx(found.stderr)
    x, y = mixed_gaussians(300)

    def log_density(values):
        return multivariate_normal(values.mean(0), np.cov(values.T, bias=True)).logpdf(values)

    wanted = log_density(np.hstack([x, y])) - log_density(x) - log_density(y)
    model = fit("cca", x, y)
    np.testing.assert_allclose(model.pmi(x, y), wanted, atol=1e-3)
    np.testing.assert_allclose(model.pmi_matrix(x, y).diagonal(), wanted, atol=1e-3)
    redundant = fit("cca", np.column_stack([x, x[:, 0] - x[:, 1], x[:, 2]]), y)
    assert redundant.model_.sample.ranks == (4, 3)
    np.testing.assert_allclose(redundant.oof_pmi_, model.oof_pmi_, atol=2e-3)


def test_the_correction_is_the_bias():
    assert wishart_excess(3, 4, 100_000) == pytest.approx(3 * 4 / (2 * 100_000), rel=1e-3)
    assert wishart_excess(5, 5, 40) > 25 / 80  # more than to first order
    draws = [gaussians(40, (0.7, 0.4, 0.0), seed=s)[:2] for s in range(200)]
    corrected, plain = (
        np.array([fit("cca", *d, correction=c, folds=2).mutual_information().nats for d in draws])
        for c in ("wishart", "none")
    )
    truth, error = gaussian_mi((0.7, 0.4)), 3 * plain.std() / np.sqrt(200)
    assert corrected.mean() == pytest.approx(truth, abs=error)
    assert plain.mean() > truth + error


def test_gaussians_the_error_and_a_linear_function():
    x, y, pmi = gaussians(4000)
    model = fit("cca", x, y)
    np.testing.assert_allclose(model.oof_pmi_, pmi, atol=0.5)
    assert np.corrcoef(model.oof_pmi_, pmi)[0, 1] > 0.995
    found = model.mutual_information()
    assert found.nats == pytest.approx(gaussian_mi(), abs=3 * found.stderr)
    assert found.stderr == pytest.approx(pmi.std() / np.sqrt(4000), rel=0.1)
    held = fit("cca", x, y, correction="out_of_fold").mutual_information()
    assert held.nats == pytest.approx(model.oof_pmi_.mean(), abs=1e-5)
    x, _, _ = gaussians(200)
    with pytest.warns(FitWarning, match="linear function of X"):
        found = fit("cca", x, 2 * x[:, :1] + x[:, 1:]).mutual_information()
    assert found.nats > 5
    assert "saturated" in found.warnings[0]
    with pytest.raises(InputError, match="80 rows for 100 columns"):
        fit("cca", *np.random.default_rng(0).standard_normal((2, 100, 50)))


def _plug_in(x: np.ndarray, y: np.ndarray) -> float:
    """Mutual information of the table of counts."""
    counts = np.zeros((3, 3))
    np.add.at(counts, (x, y), 1)
    joint = counts / counts.sum()
    product = np.outer(joint.sum(1), joint.sum(0))
    return float((joint[joint > 0] * np.log(joint[joint > 0] / product[joint > 0])).sum())


def _grouped(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups of unequal size, most rows of which repeat their first pair."""
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(120), random.integers(1, 9, 120))
    first = random.choice(9, 120, p=_TABLE.ravel())[groups]
    own = random.choice(9, len(groups), p=_TABLE.ravel())
    x, y = np.divmod(np.where(random.random(len(groups)) < 0.7, first, own), 3)
    return x, y, groups


_TABLE = np.array([[0.30, 0.05, 0.05], [0.05, 0.20, 0.05], [0.02, 0.03, 0.25]])
_COUNTED = {"discrete_x": True, "discrete_y": True, "random_state": 0, "progress": False}


def test_grouped_counts_are_a_jackknife_whose_intervals_cover() -> None:
    x, y, groups = _grouped(0)
    whole, n = _plug_in(x, y), len(x)
    pseudo = []
    for group in range(120):
        kept, m = groups != group, int((groups == group).sum())
        pseudo.append((n * whole - (n - m) * _plug_in(x[kept], y[kept])) / m)
    model = ClassicalDependency("counting", **_COUNTED).fit(x, y, groups=groups)
    assert np.allclose(model.mi_values_, np.array(pseudo)[groups], atol=1e-8)
    truth = float((_TABLE * np.log(_TABLE / np.outer(_TABLE.sum(1), _TABLE.sum(0)))).sum())
    found = []
    for seed in range(60):
        x, y, groups = _grouped(seed)
        model = ClassicalDependency("counting", folds=2, **_COUNTED).fit(x, y, groups=groups)
        found.append(model.mutual_information(confidence=0.9))
    assert sum(one.ci[0] <= truth <= one.ci[1] for one in found) >= 48
    estimates = np.array([one.nats for one in found])
    assert abs(estimates.mean() - truth) < 3 * estimates.std() / len(found) ** 0.5
