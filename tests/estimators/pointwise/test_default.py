"""The default critic, of few and of many columns, from the data to the answers."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logsumexp
from scipy.stats import rankdata

from pointdep import METHODS, FitWarning, PointwiseDependency
from pointdep.data.tasks import correlated_gaussians, make_task
from pointdep.errors import DataWarning
from pointdep.fitting.closed_form import closed_form_only
from pointdep.inference.scoring import score_pairs
from refusals import quietly

from .helpers import encoded, fit, pairs


def auto(x, y, **options):
    settings = {"critic": "auto", "hidden": (16, 8), "patience": 4, "max_epochs": 40}
    return fit(x, y, **{**settings, **options})


def network_output(model, x, y):
    """What the networks add to log r, (n,)."""
    rows, parts = encoded(model, x, y), (model.model_, closed_form_only(model.model_))
    whole, closed = (score_pairs(part, *rows) for part in parts)
    return (whole - closed).numpy()


@pytest.mark.filterwarnings("ignore:wide_interval")  # of so few rows
def test_it_is_the_default():
    given = PointwiseDependency().get_params()
    assert (given["critic"], given["hidden"], given["link"]) == ("auto", "auto", "auto")
    x, y = pairs()
    model = PointwiseDependency(folds=2, max_epochs=60, random_state=0, progress=False).fit(x, y)
    assert type(model.model_.critic).__name__ == "ResidualCritic"
    assert model.model_.link == "log_ratio"


@pytest.mark.parametrize("name", ["gaussian-1", "gaussian-5", "independent"])
def test_the_network_goes_on_gaussian_pairs(name):
    task = make_task(name, 600, seed=1)
    assert not network_output(auto(task.x, task.y), task.x, task.y).any()


@pytest.mark.parametrize(("name", "rows"), [("mixture-cross", 1000), ("student-2", 2000)])
def test_the_network_stays_where_pairs_are_not_gaussian(name, rows):
    task = make_task(name, rows, seed=1)
    model = auto(task.x, task.y, max_epochs=60)
    assert np.abs(network_output(model, task.x, task.y)).mean() > 0.02
    assert np.corrcoef(model.oof_pmi_, task.pmi)[0, 1] > 0.7


@pytest.mark.parametrize("name", ["gaussian-1", "gaussian-5", "dense-2"])
def test_gaussian_pairs_within_three_standard_errors(name):
    task = make_task(name, 2000, seed=2)
    found = auto(task.x, task.y, folds=5).mutual_information()
    assert abs(found.nats - task.mutual_information) < 3 * found.stderr
    assert found.stderr < 0.06


def test_the_correction_takes_most_of_the_bias_away():
    """Ten small samples; what the model says is set against the exact PMI of the same rows."""
    plain, corrected = [], []
    for seed in range(10):
        task = correlated_gaussians(250, 5, 1.0, seed=seed)
        found = auto(task.x, task.y, folds=5, max_epochs=4, random_state=seed).mutual_information()
        corrected.append(found.nats - task.pmi.mean())
        plain.append(corrected[-1] - found.correction)
    assert np.mean(plain) < -0.05
    assert abs(np.mean(corrected)) < 0.5 * abs(np.mean(plain))


@pytest.mark.parametrize("critic", ["auto", "concat", "separable"])
@pytest.mark.parametrize("rows", [40, 200])
def test_whatever_a_network_learns_of_independent_pairs_is_noise(critic, rows):
    x, y = np.random.default_rng(rows).standard_normal((2, rows, 5))
    settings = {"critic": critic, "hidden": (32, 32), "embedding_dim": 32, "learning_rate": 3e-3}
    found = fit(x, y, folds=5, max_epochs=30, patience=8, **settings).mutual_information()
    assert found.ci[0] <= 0.0
    assert found.nats < 2 * found.stderr


@pytest.mark.parametrize(
    "name",
    ["label", *(pytest.param(name, marks=pytest.mark.slow) for name in ("table", "zero-inflated"))],
)
def test_sides_of_labels_and_of_many_zeros(name):
    task = make_task(name, 2000, seed=3)
    # With the settings that are the user's default: a small network stops too soon on the zeros.
    settings = {"hidden": "auto", "patience": "auto", "learning_rate": "auto", "max_epochs": 200}
    model = auto(task.x, task.y, **settings)
    found = model.mutual_information()
    assert abs(found.nats - task.mutual_information) < 4 * found.stderr
    assert found.stderr < 0.1
    assert np.corrcoef(model.oof_pmi_, task.pmi)[0, 1] > 0.9


@pytest.mark.parametrize("rows", [50, 400])
def test_a_label_that_tells_nothing(rows):
    """The Gaussian MI of all rows is not for labels, and log r is zero exactly."""
    random = np.random.default_rng(rows)
    model = auto(random.standard_normal((rows, 2)), random.integers(3, size=rows))
    assert model.model_.answered == "closed form alone"
    assert model.bias_.known is None
    model.model_.critic.correlations.zero_()
    assert not model.pmi_matrix(random.standard_normal((9, 2)), [0, 1, 2]).any()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_it_narrow_and_wide(method):
    model, (x, y) = auto(*pairs(150), method=method, max_epochs=3), pairs(40, seed=5)
    found = model.mutual_information()
    for values in (model.pmi(x, y), model.oof_pmi_, [found.nats, found.stderr]):
        assert np.isfinite(values).all()
    # Three epochs spoil little of the closed form they start from, with correlations of 1/sqrt(2).
    scaled = y[:, :2] / np.sqrt(2)
    truth = np.log(2) - (0.5 * (x**2 + scaled**2) - np.sqrt(2) * x * scaled).sum(1)
    assert np.corrcoef(model.pmi(x, y), truth)[0, 1] > 0.7
    # What is known up to a constant, or a function of x, is not mixed with a closed form.
    fitted = fit(*pairs(80, x_dim=30, y_dim=3), **WIDE, method=method, max_epochs=2)
    relative = METHODS[method].reference != "none"
    assert kind_of(fitted) == ("ResidualCritic" if relative else "TowersCritic")
    assert relative or method not in {"cpc", "dv"}
    assert np.isfinite(fitted.oof_pmi_).all()


def test_rising_maps_orders_and_roles_change_nothing():
    task = correlated_gaussians(400, 2, 0.7, seed=0)
    x, y = (side.astype(float) for side in (task.x, task.y))
    wanted, changes = auto(x, y), (lambda a: a**3, np.exp, lambda a: 40 * a - 7, rankdata)
    for change, other in zip(changes, (*changes[1:], changes[0]), strict=True):
        found = auto(*(np.apply_along_axis(f, 0, s) for f, s in ((change, x), (other, y))))
        np.testing.assert_allclose(found.oof_pmi_, wanted.oof_pmi_, atol=1e-3)
        one, two = (each.mutual_information().nats for each in (found, wanted))
        assert one == pytest.approx(two, abs=1e-3)
    task = correlated_gaussians(500, 4, 1.0, seed=0)
    wanted, found = auto(task.x, task.y), auto(task.x[:, ::-1].copy(), task.y)
    np.testing.assert_allclose(found.oof_pmi_, wanted.oof_pmi_, atol=1e-3)
    other = auto(task.y, task.x)
    assert np.corrcoef(wanted.oof_pmi_, other.oof_pmi_)[0, 1] > 0.99
    nats = wanted.mutual_information().nats
    assert other.mutual_information().nats == pytest.approx(nats, abs=0.03)


@pytest.mark.parametrize(("rows", "dim"), [(40, 60), (30, 100), (14, 6)])
def test_more_columns_than_rows(rows, dim):
    x, y = pairs(rows, x_dim=dim, y_dim=dim + 1)
    model = auto(x, y, max_epochs=2)
    found = model.mutual_information()
    assert np.isfinite([found.nats, found.stderr, *found.ci]).all()
    assert np.isfinite(model.oof_pmi_).all()


def test_ties_and_constants():
    random = np.random.default_rng(0)
    columns = random.integers(0, 3, 300), np.round(random.standard_normal(300)), np.full(300, 4.0)
    x = np.column_stack(columns).astype(float)
    y = np.column_stack([x[:, 0] + random.integers(0, 3, 300), random.poisson(0.1, 300)])
    with pytest.warns(DataWarning, match="dropped 1 column"):
        model = auto(x, y.astype(float))
    found = model.mutual_information()
    # Only the first columns have to do with each other: a third, and a sum of two thirds.
    share = np.array([1, 2, 3, 2, 1]) / 9
    exact = -(share * np.log(share)).sum() - np.log(3)
    assert abs(found.nats - exact) < 4 * found.stderr
    assert np.isfinite(model.pmi(x, y)).all()
    # One row in a hundred is not zero, so some replicas see a constant.
    x, y = pairs(100)
    x[:, 1] = np.arange(100) == 17
    assert np.isfinite(auto(x, y, folds=5, max_epochs=2).oof_pmi_).all()


def test_a_table_of_numbers_and_categories():
    random = np.random.default_rng(0)
    kind, number = random.integers(0, 2, 800), random.standard_normal(800)
    x = pd.DataFrame({"kind": np.array(["a", "b"])[kind], "number": number})
    y = np.where(kind == 1, 1.0, -1.0) * number + 0.3 * random.standard_normal(800)
    model = auto(x, y, hidden=(32, 16), max_epochs=80)
    found = model.mutual_information()
    # Given its kind, y is a Gaussian with a correlation of 1/sqrt(1.09), and y alone has no kind.
    exact = -0.5 * np.log(1 - 1 / 1.09)
    assert abs(found.nats - exact) < 4 * found.stderr
    kinds = (pd.DataFrame({"kind": list(both), "number": 1.0}) for both in ("ab", "ba"))
    high, low = (model.pmi(kind, [-1.0, 1.0]) for kind in kinds)
    assert high.min() > 0 > low.max()


@pytest.mark.parametrize(("patience", "told"), [(1, False), (8, True)])
def test_a_network_that_is_left_out_need_not_improve(patience, told):
    """Gaussian pairs: the closed form answers alone, and more epochs would change nothing.

    After fewer than it would have waited for nobody can say so.
    """
    x, noise = np.random.default_rng(1).normal(size=(2, 300, 2))
    model = fit(x, x + noise, critic="auto", max_epochs=1, patience=patience, learning_rate=1e-3)
    assert model.model_.answered == "closed form alone"
    assert ("still_improving" in [flag.name for flag in model.flags_]) == told


WIDE = {"critic": "auto", "hidden": (16,), "embedding_dim": 8}


def kind_of(fitted):
    return type(fitted.model_.critic).__name__


@pytest.mark.parametrize(
    ("x_dim", "y_dim", "kind"),
    [(25, 25, "Residual"), (26, 2, "Towers"), (2, 26, "Towers"), (40, 40, "Towers")],
)
def test_the_wider_side_decides(x_dim, y_dim, kind):
    fitted = fit(*pairs(80, x_dim=x_dim, y_dim=y_dim), **WIDE, max_epochs=1)
    assert kind_of(fitted) == f"{kind}Critic"
    assert np.isfinite(fitted.oof_pmi_).all()


@pytest.mark.parametrize("mixed", [False, True])
def test_saved_and_loaded(tmp_path, mixed):
    rows = pairs(300, x_dim=30, y_dim=30)
    fitted = fit(*rows, **WIDE)
    if mixed:
        fitted.model_.critic.set_mixture(0.5, 0.7, -0.1)
    fitted.save(tmp_path / "model")
    again = PointwiseDependency.load(tmp_path / "model", device="cpu")
    assert kind_of(again) == "TowersCritic"
    new = [side[:50] for side in rows]
    assert np.array_equal(again.pmi(*new), fitted.pmi(*new))
    assert np.array_equal(again.pmi_matrix(*new), fitted.pmi_matrix(*new))
    assert np.ptp(fitted.pmi(*new)) > 0


MANY = {"critic": "auto", "hidden": "auto"}


def hidden_parabola(rows, seed=0):
    """Thirty columns a side, the last of y a parabola of the first of x, and its mean PMI."""
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(2, rows, 30))
    y[:, -1] = x[:, 0] ** 2 + 0.3 * y[:, -1]
    given = stats.norm.logpdf(y[:, -1], x[:, 0] ** 2, 0.3)
    draws = random.normal(size=4000) ** 2
    apart = stats.norm.logpdf(y[:, -1:], draws, 0.3)
    return x, y, float((given - logsumexp(apart, axis=1) + np.log(len(draws))).mean())


def test_a_parabola_among_many_columns(tmp_path):
    x, y, nats = hidden_parabola(1000)
    fitted = fit(x, y, **MANY, folds=3, max_epochs=60, learning_rate="auto")
    assert kind_of(fitted) == "PickedCritic"
    low, high = fitted.mutual_information().ci
    assert low < nats < high
    assert fitted.mutual_information().lower > 0.7 * nats
    fitted.save(tmp_path / "model")
    again = PointwiseDependency.load(tmp_path / "model", device="cpu")
    assert np.array_equal(again.pmi(x[:50], y[:50]), fitted.pmi(x[:50], y[:50]))
    elsewhere = hidden_parabola(50, seed=1)
    other = x[:50].copy()
    other[:, 1:] = elsewhere[0][:, 1:]  # what no replica has picked says nothing
    assert np.allclose(fitted.pmi(other, y[:50]), fitted.pmi(x[:50], y[:50]), atol=1e-6)


def test_rows_of_a_group_pick_columns_as_one_draw():
    """Ten copies of each row make chance look strong, in many columns."""
    x, y, _ = hidden_parabola(300)
    copies, groups = [np.repeat(side, 10, axis=0) for side in (x, y)], np.repeat(np.arange(300), 10)
    how = {**MANY, "folds": 2, "max_epochs": 1}
    assert kind_of(fit(*copies, **how)) == "TowersCritic"
    assert kind_of(fit(*copies, groups=groups, **how)) == "PickedCritic"


def test_layers_that_were_asked_for_are_those_of_towers():
    x, y, _ = hidden_parabola(300)
    assert kind_of(fit(x, y, **WIDE, folds=2, max_epochs=1)) == "TowersCritic"


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
    with quietly(FitWarning):
        model.fit(x, y)
    assert model.model_.critic.silent
    low, high = model.mutual_information().ci
    assert low < 5 < high
