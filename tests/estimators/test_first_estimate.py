"""The first estimate, against exact values and other code; it comes before torch."""

import subprocess
import sys

import numpy as np
import pytest

from pointdep import ClassicalDependency
from pointdep.data.tasks import make_task
from pointdep.estimators.first_estimate import first_estimate
from refusals import refused


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("gaussian-1", "ksg"),
        ("zero-inflated", "ksg"),
        ("mixture-cross", "ksg"),
        ("gaussian-20", "cca"),
        ("cubic-5", "cca"),
        ("label", "cca"),
        ("table", "counting"),
    ],
)
def test_against_exact_values(name, method):
    task = make_task(name, 3000, seed=5)
    sides = (np.char.add("w", s.astype(str)) if s.ndim == 1 else s for s in (task.x, task.y))
    found = first_estimate(*sides)
    assert (found.method, found.rows, found.of) == (method, 3000, 3000)
    # Labels are not Gaussian: their closed form is a lower limit here.
    margin = 0.1 if name == "label" else max(4 * found.stderr, 0.06)
    assert abs(found.nats - task.mutual_information) < margin
    assert 0 < found.stderr < 0.1


def test_ties_and_gaps_are_no_dependence():
    random = np.random.default_rng(0)
    columns = [
        random.integers(0, 7, 3000).astype(float) + 0.5,
        random.choice([0.0, 1.0, 5.5, 100.0], 3000),
        np.round(random.exponential(size=3000), 1) + 0.25,
        random.normal(size=3000),
    ]
    for a, b in ((0, 1), (1, 2), (2, 3), (0, 3)):
        found = first_estimate(columns[a], columns[b], discrete=(False, False))
        assert found.nats < 0.05


def test_counting_is_that_of_the_classical_estimator():
    x, y = np.random.default_rng(1).integers(0, 4, (2, 500)).astype(str)
    y[:200] = x[:200]
    other = ClassicalDependency("counting", progress=False).fit(x, y).mutual_information()
    assert first_estimate(x, y).nats == pytest.approx(other.nats, abs=1e-6)
    assert first_estimate(x, y).stderr == pytest.approx(other.stderr, rel=0.01)


def test_many_rows_are_sampled_and_few_refused():
    x = np.random.default_rng(2).normal(size=(12_000, 1))
    found = first_estimate(x, x + 1.0 * x[::-1])
    assert (found.rows, found.of) == (10_000, 12_000)
    assert "of 10,000 rows" in found.source
    refused("9 row", first_estimate, x[:9], x[:9])
    wide = np.random.default_rng(3).normal(size=(20, 15))
    refused("too few for a first estimate of 30 columns", first_estimate, wide, wide[::-1])


def test_rows_with_missing_numbers_are_left_out():
    x = np.random.default_rng(4).normal(size=(600, 2))
    y = x + np.random.default_rng(5).normal(size=x.shape)
    gaps = x.copy()
    gaps[::7, 1] = np.nan
    kept = np.arange(600) % 7 != 0
    found = first_estimate(gaps, y, missing="drop")
    assert found.rows == kept.sum()
    assert found.nats == pytest.approx(first_estimate(x[kept], y[kept]).nats, abs=0.05)
    assert found.interval(0.95)[1] - found.nats == pytest.approx(1.96 * found.stderr, rel=1e-3)
    refused("NaN|missing", first_estimate, gaps, y)


def test_torch_is_not_loaded(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(200, 5)))
    code = (
        "import sys; from pointdep.cli.app import run; run(['mi', 'x.npy', 'x.npy', '--quick']); "
        "assert not {'torch', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_ids_are_refused_as_by_a_fit():
    ids = np.array([f"row {n}" for n in range(200)], dtype=object)
    refused("200 categories in 200 rows, too many: leave", first_estimate, ids, np.arange(200.0))
