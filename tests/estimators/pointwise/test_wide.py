"""The default critic of data with more than 25 columns on a side."""

import warnings
from functools import cache

import numpy as np
import pytest

from pointdep import METHODS, FitWarning, PointwiseDependency

from .helpers import fit, pairs

WIDE = {"critic": "auto", "hidden": (16,), "embedding_dim": 8}


@cache
def model():
    return fit(*pairs(300, x_dim=30, y_dim=30), **WIDE)


def kind_of(fitted):
    return type(fitted.model_.critic).__name__


@pytest.mark.parametrize(
    ("x_dim", "y_dim", "kind"),
    [
        (25, 25, "ResidualCritic"),
        (26, 2, "TowersCritic"),
        (2, 26, "TowersCritic"),
        (40, 40, "TowersCritic"),
    ],
)
def test_the_wider_side_decides(x_dim, y_dim, kind):
    fitted = fit(*pairs(80, x_dim=x_dim, y_dim=y_dim), **WIDE, max_epochs=1)
    assert kind_of(fitted) == kind
    assert np.isfinite(fitted.oof_pmi_).all()


@pytest.mark.parametrize("method", METHODS)
def test_methods_that_learn_r_itself(method):
    """What is known up to a constant, or a function of x, is not mixed with a closed form."""
    fitted = fit(*pairs(80, x_dim=30, y_dim=3), **WIDE, method=method, max_epochs=2)
    relative = METHODS[method].reference != "none"
    assert kind_of(fitted) == ("ResidualCritic" if relative else "TowersCritic")
    assert relative or method not in {"cpc", "dv"}
    assert np.isfinite(fitted.oof_pmi_).all()


def test_other_critics_stay_what_they_are():
    data = pairs(80, x_dim=30, y_dim=30)
    for critic, kind in (("concat", "ConcatCritic"), ("separable", "SeparableCritic")):
        assert kind_of(fit(*data, **{**WIDE, "critic": critic}, max_epochs=1)) == kind


@pytest.mark.parametrize("mixed", [False, True])
def test_saved_and_loaded(tmp_path, mixed):
    fitted = fit(*pairs(300, x_dim=30, y_dim=30), **WIDE)
    if mixed:
        fitted.model_.critic.set_mixture(0.5, 0.7, -0.1)
    fitted.save(tmp_path / "model")
    again = PointwiseDependency.load(tmp_path / "model", device="cpu")
    assert kind_of(again) == "TowersCritic"
    new = [side[:50] for side in pairs(300, x_dim=30, y_dim=30)]
    assert np.array_equal(again.pmi(*new), fitted.pmi(*new))
    assert np.array_equal(again.pmi_matrix(*new), fitted.pmi_matrix(*new))
    assert np.ptp(fitted.pmi(*new)) > 0


@pytest.mark.parametrize("mixture", [(0.0, 0.9, 0.1), (0.6, 0.5, 0.0), (1.0, 0.0, 0.0)])
def test_every_x_with_every_y(mixture):
    fitted = fit(*pairs(300, x_dim=30, y_dim=30), **WIDE)
    fitted.model_.critic.set_mixture(*mixture)
    x, y = pairs(20, seed=3, x_dim=30, y_dim=30)
    matrix = fitted.pmi_matrix(x, y)
    for column in range(20):
        wanted = fitted.pmi(x, np.repeat(y[column : column + 1], 20, 0))
        np.testing.assert_allclose(matrix[:, column], wanted, rtol=1e-4, atol=1e-4)


def test_the_same_seed_gives_the_same_numbers():
    again = fit(*pairs(300, x_dim=30, y_dim=30), **WIDE)
    assert np.array_equal(again.oof_pmi_, model().oof_pmi_)
    other = fit(*pairs(300, x_dim=30, y_dim=30), **WIDE, random_state=1)
    assert not np.array_equal(other.oof_pmi_, model().oof_pmi_)


def test_pairs_are_told_from_others():
    x, y = pairs(300, seed=4, x_dim=30, y_dim=30)
    assert np.mean(model().pmi(x, y) > model().pmi(x, np.roll(y, 1, 0))) > 0.9


def test_a_wide_side_of_categories():
    """Forty names make forty columns."""
    random = np.random.default_rng(0)
    kind = random.integers(0, 40, 400)
    names = np.array([f"name {k}" for k in kind])
    x = random.normal(size=(40, 3))[kind] * 3 + random.normal(size=(400, 3))
    fitted = fit(x, names, **WIDE, max_epochs=20)
    assert kind_of(fitted) == "TowersCritic"
    assert fitted.mutual_information().ci[0] > 0


def test_strong_gaussian_pairs_are_left_to_the_closed_form():
    """Towers that add next to nothing must not let the closed form be stretched."""
    random = np.random.default_rng(0)
    correlation = np.sqrt(-np.expm1(-2 * 5 / 50))  # 5 nats over 50 columns
    x = random.normal(size=(2000, 50))
    y = correlation * x + np.sqrt(1 - correlation**2) * random.normal(size=x.shape)
    model = PointwiseDependency(random_state=0, folds=3, max_epochs=6, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        model.fit(x, y)
    assert model.model_.critic.silent
    low, high = model.mutual_information().ci
    assert low < 5 < high
