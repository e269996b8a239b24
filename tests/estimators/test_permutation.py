"""The permutation null."""

import math
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from pointdep import PointwiseDependency
from pointdep.data.tasks import correlated_gaussians, make_task
from pointdep.estimators import permutation
from pointdep.estimators.permutation import p_value, permutation_null
from pointdep.fitting.progress import Silent
from refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")


CROSS = make_task("mixture-cross", 400, seed=0)  # dependent but not correlated


@pytest.fixture(autouse=True)
def small_networks(monkeypatch):
    """As small as the pairs: how the null counts does not depend on it."""
    monkeypatch.setattr(permutation, "_HIDDEN", (16, 8))
    monkeypatch.setattr(permutation, "_MAX_EPOCHS", 5)


def fitted(x, y, groups=None, **options):
    settings = {"hidden": (8, 4), "folds": 2, "max_epochs": 2, "random_state": 0}
    model = PointwiseDependency(**{**settings, "progress": False, **options})
    return model.fit(x, y, groups=groups)


def null_of(model, shuffles):
    return permutation_null(model._settings, model.training_rows_.paired, shuffles, Silent())


@pytest.mark.parametrize(
    ("observed", "shuffled", "wanted"),
    [
        (1.0, (0.1, 0.2, 0.3), 1 / 4),
        (0.2, (0.1, 0.2, 0.3), 3 / 4),  # a tie is a hit
        (0.0, (0.1, 0.2, 0.3), 1.0),
        (0.5, (0.0,) * 19, 1 / 20),
        (0.5, (0.9,), 1.0),
        (math.nan, (0.1, 0.2), 1.0),  # what cannot be compared is no evidence
        (0.5, (math.nan, 0.2), 2 / 3),
    ],
)
def test_the_p_value_counts_hits(observed, shuffled, wanted):
    assert p_value([observed, *shuffled]) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("task", "shuffles", "options"),
    [
        (correlated_gaussians(200, 2, 0.5, seed=0), 19, {}),
        (CROSS, 9, {}),
        (make_task("label", 150, seed=0), 9, {}),
        (correlated_gaussians(200, 1, 0.7, seed=0), 9, {"critic": "separable", "hidden": (16,)}),
    ],
    ids=["gaussians", "cross", "labels", "plain critic"],
)
def test_dependent_pairs(task, shuffles, options):
    assert abs(np.corrcoef(CROSS.x[:, 0], CROSS.y[:, 0])[0, 1]) < 0.15
    found = fitted(task.x, task.y, embedding_dim=8, **options).mutual_information(shuffles=shuffles)
    assert (found.null_p, found.shuffles) == (pytest.approx(1 / (shuffles + 1)), shuffles)
    assert f"p <= {1 / (shuffles + 1)} for independence, by {shuffles} shuffles" in str(found)


def test_it_is_the_count_of_its_statistics(monkeypatch):
    task = correlated_gaussians(80, 2, 0.05, seed=3)
    model = fitted(task.x, task.y)
    observed, *shuffled = null_of(model, 9)
    assert len(set(shuffled)) == len(shuffled) == 9
    found = model.mutual_information(shuffles=9)
    assert found.null_p == (1 + sum(value >= observed for value in shuffled)) / 10
    assert found.nats == model.mutual_information().nats
    assert model.mutual_information().null_p is None
    # How many are asked for, and trained at a time, changes nothing but by rounding.
    monkeypatch.setattr(permutation, "_TOGETHER", 4)
    assert null_of(model, 5)[0] == pytest.approx(observed, abs=1e-5)


@pytest.mark.slow
def test_independent_pairs_give_any_p_value():
    """Uniform on tenths: twelve of them are neither all small nor all large."""
    found = []
    for seed in range(12):
        x, y = np.random.default_rng(seed).standard_normal((2, 50, 2))
        found.append(fitted(x, y, random_state=seed).mutual_information(shuffles=9).null_p)
    assert set(np.round(10 * np.array(found))) <= set(range(1, 11))
    assert len(set(found)) >= 4
    assert sum(p <= 0.1 for p in found) <= 5  # of 12, with probability over 0.999
    assert 0.25 < np.mean(found) < 0.85  # 0.55 on average, with a spread of 0.08


def test_one_row_of_each_group(monkeypatch):
    groups = np.arange(200) % 40
    x, y = np.random.default_rng(0).standard_normal((2, 200, 2))
    model, spy = fitted(x, y, groups=groups), Mock(wraps=permutation._statistics)
    monkeypatch.setattr(permutation, "_statistics", spy)
    model.mutual_information(shuffles=3)
    seen = [call.args[1] for call in spy.call_args_list]
    assert {len(rows.x) for rows in seen} == {40}
    assert all(rows.codes is None for rows in seen)
    paired = model.training_rows_.paired
    places = [int(torch.nonzero((paired.x == row).all(1))[0, 0]) for row in seen[0].x]
    assert sorted(groups[places]) == list(range(40))
    torch.testing.assert_close(seen[0].y, paired.y[places])  # still pairs


def test_what_is_refused(tmp_path):
    task = correlated_gaussians(80, 2, 0.3, seed=0)
    model, few = fitted(task.x, task.y), np.random.default_rng(0).standard_normal((2, 15, 2))
    for x, y, groups in ((*few, None), (task.x, task.y, np.arange(80) % 15)):
        said = "16 rows, one of each group, not 15"
        refused(said, fitted(x, y, groups=groups).mutual_information, shuffles=4)
    for shuffles in (-1, 2.5, "many", True):
        refused("shuffles=", model.mutual_information, shuffles=shuffles)
    refused("are of the rows of the fit", model.mutual_information, task.x, task.y, shuffles=5)
    model.save(tmp_path / "model")
    loaded = PointwiseDependency.load(tmp_path / "model")
    refused("which a saved model does not hold", loaded.mutual_information, shuffles=5)
    assert loaded.mutual_information() == model.mutual_information()
