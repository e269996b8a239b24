"""What a check says: nothing untrue, and advice that fits where log r comes from."""

import re

import numpy as np
import pytest

from pointdep import PointwiseDependency, from_embeddings
from pointdep.core.methods import METHODS
from pointdep.data.tasks import correlated_gaussians
from pointdep.inference.moment_tests import Recalibration
from pointdep.inference.verdicts import FAULTS, BalanceResult, Origin, put_into_words
from refusals import quietly

from .models import check_matrix

TRAINING = re.compile(r"epoch|critic|weight decay|[Tt]rain|hidden")


def exact(rows=600, wrong=0, columns=1):
    """Log r of Gaussians with correlation 0.9, (n, n); the first `wrong` y are moved on by one."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, columns))
    y = 0.9 * x + np.sqrt(0.19) * random.normal(size=(rows, columns))
    y[:wrong] = np.roll(y[:wrong], 1, axis=0)
    own = np.square(x).sum(1)[:, None] + np.square(y).sum(1)
    return -0.5 * columns * np.log(0.19) - (0.81 * own - 1.8 * x @ y.T) / 0.38


@pytest.mark.parametrize("factor", [0.6, 1.5, 3.0])
def test_the_example_lies_where_something_changes_and_goes_the_right_way(factor):
    found = check_matrix(factor * exact())
    read, right = map(float, re.findall(r"of (\S+) should read ([^)]+)\)", found.verdict)[0])
    fit = found.recalibration
    line = fit.center + fit.shift + fit.slope * (read - fit.center)
    assert right == pytest.approx(line, abs=0.1)
    assert abs(right - read) > 0.3 * abs(1 - 1 / factor)
    assert right == pytest.approx(read / factor, abs=0.4)
    true = 0.0005 * np.random.default_rng(0).normal(size=(400, 400))
    assert "should read" not in check_matrix(true + np.eye(400) * 1e-4).verdict  # for nothing


def test_wrong_pairs_are_named_and_where_log_r_comes_from():
    mixed = check_matrix(exact(wrong=60, columns=4))
    assert (mixed.passed, mixed.fault) == (False, "stretched")
    assert "a share of the pairs is wrong (what an audit looks for)" in mixed.verdict
    clean = check_matrix(1.3 * exact(columns=4))
    assert (clean.passed, clean.fault) == (False, "stretched")
    assert "wrong" not in clean.verdict
    found = check_matrix(exact() + 0.5)  # of which nothing is known
    assert found.fault == "offset"
    assert "The constant of the read-out is missing or off" in found.verdict
    assert "less dependent than those of the fit" in said("stretched", Origin("pc", given=True))
    assert "less dependent" not in said("stretched", Origin("pc"))


FIT = Recalibration(center=2.0, shift=0.1, shift_stderr=0.02, slope=0.8, slope_stderr=0.03)
BALANCES = [BalanceResult(name, 1.0, 0.3, 0.05, 0.001, 100.0) for name in ("all", "x", "y")]


def said(fault, origin, wrong_pairs=False):
    about = {"ends": (-3.0, 5.0), "wrong_pairs": wrong_pairs, "origin": origin}
    return put_into_words(fault, BALANCES, FIT, rows=500, p_value=0.001, **about)


@pytest.mark.parametrize("fault", FAULTS)
def test_nobody_is_advised_of_what_he_has_or_has_not_trained(fault):
    assert "pc" not in said(fault, Origin("pc"))
    for learned_by in ("closed form", "calibrated"):
        verdict = said(fault, Origin("pc", learned_by), wrong_pairs=True)
        assert not TRAINING.search(verdict.replace("critic='concat'", ""))
    assert "critic" not in said(fault, Origin("pc", "calibrated"))


@pytest.mark.parametrize("method", METHODS)
def test_a_read_out_is_missing_only_where_a_method_has_one(method):
    lacks = METHODS[method].reference
    depends, constant = (said(fault, Origin(method)) for fault in ("depends_on_x", "offset"))
    assert ("read-out over y" in depends) == ("method='pc'" in depends) == (lacks == "row")
    assert ("constant of the read-out" in constant) == (lacks != "none")
    assert "read-out over x" in said("depends_on_y", Origin())


def test_the_estimators_say_where_their_log_r_comes_from():
    task = correlated_gaussians(300, 2, 1.0, seed=1)  # where the network finds nothing more
    quick = {"hidden": (4,), "max_epochs": 2, "folds": 2, "random_state": 0}
    with quietly():
        auto = PointwiseDependency(**quick).fit(task.x, task.y)
        dv = PointwiseDependency(method="dv", critic="concat", **quick).fit(task.x, task.y)
        towers = from_embeddings(task.x, task.y, normalize=False)
    assert auto.model_.answered == "closed form alone"
    assert auto._origin(given=False) == Origin("pc", "closed form")
    assert dv._origin(given=True) == Origin("dv", "network", given=True)
    assert towers._origin(given=False) == Origin("pc", "calibrated")
