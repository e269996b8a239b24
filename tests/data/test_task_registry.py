"""What every reference task promises, whatever it is."""

from __future__ import annotations

import numpy as np
import pytest

from pointdep.data.tasks import QUICK, TASKS, make_task
from pointdep.errors import InputError

ROWS = 20_000


@pytest.fixture(scope="module", params=sorted(TASKS))
def draws(request):
    """Two independent draws of a task."""
    return make_task(request.param, ROWS, seed=1), make_task(request.param, ROWS, seed=2)


def standard_error(values):
    return max(values.std() / np.sqrt(len(values)), 1e-12)


def test_mean_pmi_is_the_mutual_information(draws):
    for task in draws:
        assert np.isfinite(task.pmi).all()
        error = task.pmi.mean() - task.mutual_information
        assert abs(error) <= 4 * standard_error(task.pmi)


def test_log_ratio_is_the_pmi_of_any_pair(draws):
    task = draws[0]
    np.testing.assert_allclose(task.log_ratio(task.x, task.y), task.pmi, rtol=1e-8, atol=1e-8)
    order = np.random.default_rng(0).permutation(ROWS)
    np.testing.assert_allclose(
        task.log_ratio(task.x[order], task.y[order]), task.pmi[order], rtol=1e-8, atol=1e-8
    )


def test_joint_and_product_balance(draws):
    """E_J[1 / (1 + r)] = E_M[r / (1 + r)]: both are the integral of p q / (p + q)."""
    one, other = draws
    assert np.array_equal(other.log_ratio(one.x, one.y), one.log_ratio(one.x, one.y))
    joint = 1 / (1 + np.exp(one.pmi))
    # x of one draw with y of another are pairs of the product, independent from row to row.
    product = 1 / (1 + np.exp(-one.log_ratio(one.x, other.y)))
    error = np.hypot(standard_error(joint), standard_error(product))
    assert abs(joint.mean() - product.mean()) <= 4 * error


def test_shapes_and_seeds(draws):
    one, other = draws
    assert len(one.x) == len(one.y) == ROWS
    assert one.pmi.shape == (ROWS,)
    assert one.mutual_information == other.mutual_information
    assert not np.array_equal(one.x, other.x)
    again = make_task(one.name, 50, seed=3), make_task(one.name, 50, seed=3)
    for field in ("x", "y", "pmi"):
        np.testing.assert_array_equal(getattr(again[0], field), getattr(again[1], field))
    # Labels are integers, and all else columns of numbers: what estimators tell apart.
    for side in (one.x, one.y):
        assert (side.ndim, side.dtype.kind) in {(1, "i"), (2, "f")}


def test_descriptions():
    texts = [kind.description for kind in TASKS.values()]
    assert len(set(texts)) == len(texts)
    assert max(map(len, texts)) <= 50
    assert set(QUICK) < set(TASKS)


def test_arguments():
    with pytest.raises(InputError, match="unknown task 'spiral-4': did you mean 'spiral-"):
        make_task("spiral-4", 5)
    with pytest.raises(InputError, match="rows must be 1 or more, not 0"):
        make_task("table", 0)
    for seed in (-1, 0.5):
        with pytest.raises(InputError, match="seed"):
            make_task("table", 5, seed=seed)
