"""Threads of a fit: one unless more are asked for or worth it, and as before after the call."""

import numpy as np
import pytest
import torch

from pointdep import PointwiseDependency
from pointdep.core import precision
from pointdep.core.precision import own_threads, paying_threads
from refusals import quietly, refused

X, NOISE = np.random.default_rng(0).standard_normal((2, 80, 1))
QUICK = {"critic": "concat", "hidden": (4,), "folds": 2, "max_epochs": 2, "random_state": 0}


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.mark.parametrize(("asked", "wanted"), [(None, 1), (1, 1), (2, 2)])
def test_threads_are_as_before_after_the_call(asked, wanted):
    with own_threads(asked) as most:
        assert (torch.get_num_threads(), most) == (wanted, asked or 2)
    with pytest.raises(ZeroDivisionError), own_threads(asked):
        _ = 1 / 0
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("together", "wanted"), [(0.7, 2), (0.9, 1), (30.0, 1)])
def test_more_threads_where_a_trial_says_so(together, wanted, monkeypatch):
    seconds = {1: 1.0, 2: together}
    monkeypatch.setattr(precision, "_trial", seconds.__getitem__)
    assert paying_threads(2, 1 << 30) == wanted
    assert paying_threads(2, 1000) == 1
    assert paying_threads(1, 1 << 30) == 1


def test_numbers_do_not_depend_on_threads(monkeypatch):
    found = []
    for asked in (None, 1):
        model = PointwiseDependency(**QUICK, threads=asked, curve=False, progress=False)
        with quietly():
            found.append(model.fit(X, X + NOISE).oof_pmi_)
    assert np.array_equal(*found)
    refused("threads=0", PointwiseDependency(threads=0).fit, X, NOISE)
