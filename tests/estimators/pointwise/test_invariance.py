"""What must not change the answers, and what must."""

import numpy as np
import pytest
import torch

from .helpers import PairNet, fit, fitted, pairs

X, Y = (side.astype(np.float64) for side in pairs())


@pytest.mark.parametrize(("scale", "shift"), [(3.0, -2.0), (1e8, 0.0), (1.0, 1e6), (1e-4, 1e3)])
@pytest.mark.parametrize("side", ["x", "y"])
def test_affine_maps(scale, shift, side):
    """The columns are scaled anyway, so the fit is the same up to rounding."""
    x = scale * X + shift if side == "x" else X
    y = scale * Y + shift if side == "y" else Y
    model = fit(x, y)
    np.testing.assert_allclose(model.oof_pmi_, fitted().oof_pmi_, atol=2e-3)
    np.testing.assert_allclose(model.pmi(x, y), fitted().pmi(X, Y), atol=2e-3)


def test_each_column_by_itself():
    x = X * [1.0, 1e5] + [7.0, -1e7]
    np.testing.assert_allclose(fit(x, Y).oof_pmi_, fitted().oof_pmi_, atol=2e-3)


def test_an_exponential_changes_it():
    """So that the test above could fail: this map is invertible but not affine."""
    assert np.abs(fit(np.exp(X), Y).oof_pmi_ - fitted().oof_pmi_).max() > 0.05


@pytest.mark.parametrize(
    "rename", [lambda g: 10 * g + 3, lambda g: g.astype(str), lambda g: g / 7.0]
)
def test_names_of_groups(rename):
    groups = np.random.default_rng(0).permutation(np.arange(120) % 9)
    wanted = fit(X, Y, groups=groups, method="dv")
    found = fit(X, Y, groups=rename(groups), method="dv")
    assert np.array_equal(found.oof_pmi_, wanted.oof_pmi_)
    assert not np.array_equal(found.oof_pmi_, fitted("dv").oof_pmi_)


def test_groups_keep_copies_out_of_the_report():
    """Every pair is there four times, in another order; x and y have nothing to do with each other.

    Without groups a copy of each reported row was trained on and learned by heart.
    """
    random = np.random.default_rng(0)
    x, y = random.standard_normal((2, 40, 6))
    number = random.permutation(np.arange(160) % 40)
    settings = {"hidden": (64,), "max_epochs": 30, "patience": 30, "critic": "separable"}
    leaking = fit(x[number], y[number], **settings)
    honest = fit(x[number], y[number], groups=number, **settings)
    assert leaking.oof_pmi_.mean() > 1.0
    assert honest.oof_pmi_.mean() < 0.1
    assert leaking.mutual_information().ci[0] > 1.0
    assert honest.mutual_information().ci[0] == 0.0


@pytest.mark.parametrize("critic", ["concat", "separable", PairNet()], ids=["c", "s", "module"])
def test_random_state(critic):
    first, again = (fit(X, Y, critic=critic) for _ in range(2))
    other = fit(X, Y, critic=critic, random_state=1)
    assert np.array_equal(first.oof_pmi_, again.oof_pmi_)
    assert np.array_equal(first.pmi(X, Y), again.pmi(X, Y))
    assert first.history_ == again.history_
    assert first.mutual_information() == again.mutual_information()
    assert np.abs(first.oof_pmi_ - other.oof_pmi_).max() > 1e-3


def test_random_state_of_other_kinds():
    state = np.random.RandomState(3)
    first, second = (fit(X, Y, random_state=state).oof_pmi_ for _ in range(2))
    assert not np.array_equal(first, second)
    again = fit(X, Y, random_state=np.random.RandomState(3)).oof_pmi_
    assert np.array_equal(first, again)
    assert not np.array_equal(*(fit(X, Y, random_state=None).oof_pmi_ for _ in range(2)))


@pytest.mark.parametrize("critic", ["concat", PairNet()], ids=["concat", "module"])
def test_no_global_generator_is_touched(critic):
    torch.manual_seed(5)
    np.random.seed(5)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    model = fit(X, Y, critic=critic)
    model.score(X, Y)
    model.mutual_information(X, Y)
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == numpy_before).all()
    torch.manual_seed(6)
    assert np.array_equal(fit(X, Y, critic=critic).oof_pmi_, model.oof_pmi_)


def test_fitting_again_starts_afresh():
    model = fit(X, Y)
    first = model.oof_pmi_
    model.set_params(random_state=0)
    with pytest.warns(UserWarning, match="still_improving"):
        model.fit(X, Y)
    assert np.array_equal(model.oof_pmi_, first)
