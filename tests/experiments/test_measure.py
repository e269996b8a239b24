"""What a run finds, against small examples and on real estimators."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pointdep.data.tasks import make_task
from pointdep.experiments.bench import Run, compare_information, compare_pmi, measure
from pointdep.inference.mutual_information import MIEstimate


class TestComparisons:
    def test_information(self):
        reasons = []
        squared = MIEstimate(1.0, 0.1, (0.9, 1.1), estimates="squared-loss mutual information")
        assert compare_information(squared, 1.0, reasons) == {}
        assert reasons == ["estimates the squared-loss mutual information"]
        assert compare_information(MIEstimate(math.nan, 0.1, (0.0, 1.0)), 1.0, reasons) == {}
        bare = compare_information(MIEstimate(1.5, math.inf, (-math.inf, math.inf)), 1.0, reasons)
        assert bare == {"mi": 1.5, "error": 0.5}

    def test_pmi(self):
        true = np.array([0.0, 1.0, 2.0, 4.0])
        found = compare_pmi(np.array([0.0, 2.0, 1.0, 4.0]), true, [])
        assert found["pmi_rmse"] == pytest.approx(np.sqrt(0.5))
        assert found["pmi_spearman"] == pytest.approx(1 - 6 * 2 / (4 * 15))
        assert found["pmi_pearson"] == pytest.approx(np.corrcoef([0, 2, 1, 4], true)[0, 1])

    def test_a_score_that_is_not_pmi(self):
        true = np.array([0.0, 1.0, 2.0, 4.0])
        found = compare_pmi(true / 100, true, [], nats=False)
        assert found == {"pmi_spearman": pytest.approx(1), "pmi_pearson": pytest.approx(1)}

    def test_pmi_that_is_not_finite(self):
        true, reasons = np.array([0.0, 1.0, 2.0]), []
        found = compare_pmi(np.array([-np.inf, 1.0, 2.0]), true, reasons)
        assert found == {"pmi_spearman": pytest.approx(1)}
        assert compare_pmi(np.array([np.nan, 1.0, 2.0]), true, reasons) == {}
        assert reasons == ["1 of 3 PMI are infinite", "1 of 3 PMI are NaN"]


@pytest.mark.parametrize(
    ("task", "name", "reason"),
    [
        ("gaussian-1", "pc:bilinear", ""),
        ("gaussian-1", "smi:bilinear", "estimates the squared-loss"),
        ("gaussian-1", "cca", ""),
        ("gaussian-1", "ksg", "method 'ksg' gives no PMI"),
        ("gaussian-1", "phsic", "method 'phsic' gives no mutual information"),
        ("gaussian-1", "counting", "method 'counting' counts pairs of categories"),
        ("table", "counting", ""),
    ],
)
def test_a_real_estimator(task, name, reason):
    found = measure(Run(task, name, 60, 0, 0.9, "cpu", "1"))
    assert found.reason.startswith(reason)
    assert bool(found.reason) == bool(reason)
    assert found.true_mi == make_task(task, 5).mutual_information
    assert found.failed == (task == "gaussian-1" and name == "counting")
    if found.mi is not None:
        assert found.error == pytest.approx(found.mi - found.true_mi)
        assert found.low < found.mi < found.high
        assert found.covered == (found.low <= found.true_mi <= found.high)
    assert (found.mi is None) == (name in {"smi:bilinear", "phsic"} or found.failed)
    assert (found.pmi_spearman is None) == (name == "ksg" or found.failed)
    assert (found.pmi_rmse is None) == (name in {"ksg", "phsic"} or found.failed)
    if found.pmi_spearman is not None:
        assert found.pmi_spearman > 0.5
