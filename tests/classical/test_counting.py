"""Counting, against tables and counts made by hand."""

import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import mutual_info_score

from pointdep.errors import FitWarning, InputError

from .helpers import TABLE, fit, gaussians, table_rows

TRUE_PMI = np.log(TABLE / (TABLE.sum(1, keepdims=True) * TABLE.sum(0)))
X, Y = table_rows(400)


def counted_pmi(x, y, smoothing, lx=3, ly=3):
    """Every cell's PMI by a loop over the rows."""
    pairs, xs, ys = Counter(zip(x, y, strict=True)), Counter(x), Counter(y)
    total = len(x) + smoothing * lx * ly
    pmi = np.empty((lx, ly))
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


def test_many_rows_find_the_table():
    x, y = table_rows(200_000)
    model = fit("counting", x, y)
    np.testing.assert_allclose(model.pmi_matrix([0, 1, 2], [0, 1, 2]), TRUE_PMI, atol=0.05)
    found = model.mutual_information()
    truth = float((TABLE * TRUE_PMI).sum())
    assert found.nats == pytest.approx(truth, abs=4 * found.stderr)
    assert found.rows == 200_000
    assert found.method == "counting"


def test_out_of_fold_pmi_counts_the_other_rows():
    model = fit("counting", X, Y, folds=2)
    from pointdep.fitting.splits import make_splits

    splits = make_splits(len(X), folds=2, seed=model.seed_)
    for split in splits:
        others = np.setdiff1d(np.arange(len(X)), split.report)
        wanted = counted_pmi(X[others].tolist(), Y[others].tolist(), 0.5)
        found = model.oof_pmi_[split.report]
        np.testing.assert_allclose(
            found, wanted[X[split.report], Y[split.report]], rtol=1e-5, atol=1e-6
        )


def test_mutual_information_without_correction_is_the_plug_in():
    found = fit("counting", X, Y, correction="none").mutual_information()
    assert found.nats == pytest.approx(mutual_info_score(X, Y))


def test_miller_madow_adds_to_each_entropy():
    def entropy(values):
        shares = np.array(list(Counter(values).values())) / len(values)
        return -(shares * np.log(shares)).sum() + (len(shares) - 1) / (2 * len(values))

    x, y = X.tolist(), Y.tolist()
    wanted = entropy(x) + entropy(y) - entropy(list(zip(x, y, strict=True)))
    assert fit("counting", X, Y).mutual_information().nats == pytest.approx(wanted)


def test_the_correction_and_the_error_are_right_on_average():
    truth = float((TABLE * TRUE_PMI).sum())
    found = {}
    for correction in ("none", "miller_madow"):
        runs = [
            fit("counting", *table_rows(100, seed=s), correction=correction).mutual_information()
            for s in range(150)
        ]
        found[correction] = np.array([(run.nats, run.stderr) for run in runs])
    bias = {key: values[:, 0].mean() - truth for key, values in found.items()}
    assert abs(bias["miller_madow"]) < 0.5 * abs(bias["none"])
    values = found["miller_madow"]
    assert values[:, 1].mean() == pytest.approx(values[:, 0].std(), rel=0.2)


def test_correction_out_of_fold_is_the_mean_of_pmi():
    model = fit("counting", X, Y, correction="out_of_fold")
    assert model.mutual_information().nats == pytest.approx(model.oof_pmi_.mean(), abs=1e-5)


def test_several_columns_are_one_outcome():
    a, b = np.random.default_rng(0).integers(0, 2, (2, 300))
    y = a ^ b  # no column alone tells anything
    table = pd.DataFrame({"a": a.astype(str), "b": b.astype(str)})
    model = fit("counting", table, y, correction="none")
    assert model.mutual_information().nats == pytest.approx(mutual_info_score(2 * a + b, y))
    assert fit("counting", table[["a"]], y).mutual_information().nats < 0.02
    np.testing.assert_allclose(
        model.pmi(table, y), fit("counting", 2 * a + b, y).pmi(2 * a + b, y), rtol=1e-6
    )


def test_a_combination_that_did_not_come():
    rows = [("a", "a"), ("a", "b"), ("b", "a")] * 20
    table = pd.DataFrame(rows, columns=["one", "two"])
    model = fit("counting", table, [0, 1, 1] * 20)
    with pytest.raises(InputError, match="row 1 a combination of categories unseen"):
        model.pmi(pd.DataFrame([("a", "a"), ("b", "b")], columns=["one", "two"]), [0, 1])
    with pytest.raises(InputError, match="unseen in training"):
        model.pmi(table[:1], [7])


def test_a_large_table_takes_little_memory():
    """5,000 by 5,000 cells as a table would be 200 MB."""
    import tracemalloc

    x = np.arange(20_000) % 5_000
    tracemalloc.start()
    model = fit("counting", x, x, discrete_x=True, discrete_y=True, smoothing=1e-6)
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()
    assert model.pmi(x[:3], x[:3]) == pytest.approx(math.log(5_000), abs=0.05)


def test_pairs_that_never_came_without_smoothing():
    x = np.array([0, 0, 1, 1] * 10)
    y = np.array([0, 0, 1, 1] * 10)
    model = fit("counting", x, y, smoothing=0.0)
    assert np.isneginf(model.pmi([0], [1])).all()
    assert model.mutual_information().nats == pytest.approx(math.log(2), abs=0.05)
    with pytest.raises(InputError, match="set smoothing above 0"):
        model.mutual_information([0, 1], [1, 0])
    y[0] = 1  # alone in its cell: its fold knows of none
    with pytest.warns(FitWarning, match="saturated"):
        fit("counting", x, y, smoothing=0.0)


@pytest.mark.parametrize("side", ["X", "Y"])
def test_numbers_are_refused(side):
    numbers = gaussians(400)[0]
    data = (numbers, Y) if side == "X" else (X, numbers)
    with pytest.raises(InputError, match=rf"{side} holds numbers.*'ksg'.*PointwiseDependency\(\)"):
        fit("counting", *data)
