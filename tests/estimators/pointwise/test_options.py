"""Options: their defaults, their errors, and scikit-learn's ways with them."""

import copy
import inspect
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold
from torch import nn

from pointdep import PointwiseDependency
from pointdep.errors import DataWarning, DivergedError, FitWarning, InputError
from refusals import refused

from .helpers import PairNet, assert_scikit_learn_checks, encoders, fit, fitted, pairs, small

X, Y = pairs()


def test_the_signature_is_that_of_init_and_an_index_in_two_orders():
    names = list(inspect.signature(PointwiseDependency).parameters)
    assert (names[0], sorted(names)) == ("method", sorted(PointwiseDependency().get_params()))
    with pytest.raises(TypeError, match="positional"):
        PointwiseDependency("pc")
    frame, other = pd.DataFrame(X), pd.DataFrame(Y)
    with pytest.warns(DataWarning, match="same index in another order"):
        fit(frame, other[::-1])
    fit(frame, other)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_of_a_fitted_model(copied):
    for method in ("pc", "cpc"):
        model = fitted(method)
        np.testing.assert_array_equal(copied(model).pmi(X, Y), model.pmi(X, Y))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("metod", "method"), ("fold", "folds"), ("hiden", "hidden"), ("seed", None)],
)
def test_a_misspelt_option(name, nearest):
    with pytest.raises(TypeError, match=f"PointwiseDependency has no option '{name}'") as caught:
        PointwiseDependency(**{name: 1})
    assert nearest is None or f"did you mean '{nearest}'?" in str(caught.value)


class NoParameters(nn.Module):
    def forward(self, x, y):
        return (x[:, 0] * y[:, 0]).detach()


class WrongShape(PairNet):
    def forward(self, x, y):
        return super().forward(x, y).mean()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "pcc"}, "unknown method 'pcc': did you mean 'pc'"),
        ({"method": "dm2", "method_options": {"etta": 1.0}}, "'dm2' 'etta': did you mean 'eta'"),
        ({"method_options": "eta"}, "method_options='eta' must be a mapping"),
        ({"critic": "concatt"}, "unknown critic 'concatt': did you mean 'concat'"),
        ({"critic": 3}, "unknown critic 3"),
        ({"critic": (nn.Linear(2, 2),)}, "exactly two torch modules"),
        ({"critic": (nn.Linear(2, 2), nn.Linear(3, 4))}, "vectors of 2 and 4 numbers"),
        ({"critic": NoParameters()}, "no parameters to train"),
        ({"critic": WrongShape()}, "one score per pair"),
        ({"critic": "inner"}, "critic='inner' needs x and y of one dimension, got 2 and 3"),
        ({"critic": "separable", "embedding_dim": 0}, "embedding_dim=0"),
        ({"activation": "rellu"}, "unknown activation 'rellu': did you mean 'relu'"),
        ({"link": "log"}, "unknown link 'log'.*log_ratio, score"),
        ({"hidden": 8}, "hidden=8 must be a sequence"),
        ({"hidden": ()}, r"hidden=\(\) must name at least one layer"),
        ({"folds": 0}, "folds=0 must be at least 1"),
        ({"cv": 3}, "cv=3 is not a splitter"),
        ({"stop_fraction": 1.0}, r"stop_fraction=1\.0"),
        ({"batch_size": 100}, "batch_size=100 but a split has only 51 training rows"),
        ({"batch_size": 1}, "batch_size=1 with 0 negatives"),
        ({"batch_size": "large"}, "batch_size='large' must be a whole number or 'auto'"),
        ({"negatives": 0}, "0 negatives"),
        ({"negatives": 80}, "negatives=80 but a split has only 51 training rows"),
        ({"negatives": 20, "batch_size": 16}, "batch_size=16 with 20 negatives"),
        ({"learning_rate": -1.0}, r"learning_rate=-1\.0"),
        ({"max_epochs": 0}, "max_epochs=0"),
        ({"patience": 1.5}, r"patience=1\.5"),
        ({"average": 1.0}, r"average=1\.0"),
        ({"reference_size": 0}, "reference_size=0 must be at least 1"),
        ({"discrete_x": "no"}, "discrete_x='no' must be True, False or None"),
        ({"hidden": "25"}, "hidden='25' must be 'auto' or layer widths"),
        ({"hidden": (16.7,)}, "must be a sequence of layer widths"),
        ({"critic": np.dot}, "must be a torch.nn.Module"),
        ({"critic": nn.Linear(99, 1)}, r"critic, called with float32 of shape .* failed"),
        ({"device": "abacus"}, "unknown device 'abacus'"),
        ({"checkpoint": "fit.ckpt", "random_state": None}, "needs a fixed random_state"),
        ({"random_state": -1}, r"random_state=-1 must be a whole number from 0 to 2\*\*32 - 1"),
        ({"cv": GroupKFold(2)}, "cannot split these rows"),
        ({"cv": StratifiedKFold(2)}, "cannot split these rows"),
    ],
)
def test_refusals(options, message):
    refused(message, small(**options).fit, X, Y)


@pytest.mark.parametrize("method", ["dv", "cpc"])
def test_reports_too_small_for_the_method_are_refused_before_training(method, monkeypatch):
    monkeypatch.setattr("pointdep.estimators.assembly.train_model", None)
    with pytest.raises(InputError, match=rf"'{method}' infers from pairs of different rows"):
        small(method=method, folds=6).fit(X, Y, groups=np.arange(120) % 6)


def test_divergence_and_far_numbers():
    with pytest.raises(DivergedError, match=r"'nwj'.*method='pc'"):
        small(method="nwj", learning_rate=1e30, hidden=(8, 8)).fit(X, Y)
    far = X.astype(np.float64)
    far[3, 0] = 1e9
    assert np.abs(fitted().pmi(far, Y)).max() < 1e3  # an outlier does not run away
    far[3, 0] = 1e45
    refused(r"X holds a number in row 3 .* too far", fitted().pmi, far, Y)
    refused(r"pmi has shape \(1,\)", fitted().npmi, X, Y, pmi=np.zeros(1))


def test_flags_are_warned_of_and_kept():
    model = small(max_epochs=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, Y)
    told = [str(one.message) for one in caught if issubclass(one.category, FitWarning)]
    assert told == [str(flag) for flag in model.flags_] == list(model.mutual_information().warnings)
    (improving,) = (flag for flag in model.flags_ if flag.name == "still_improving")
    assert "raise max_epochs (now 2)" in improving.message
    assert len(model.history_) == 2
    values = np.random.default_rng(0).normal(size=(400, 2))
    heavy = np.sign(values) * np.abs(values) ** 15  # a few rows that decide are flagged
    model = fit(heavy, heavy[:, ::-1] + 1e-3 * values, max_epochs=20)
    squares = (model.oof_values_ - model.oof_values_.mean()) ** 2
    decided = squares.max() > 0.5 * squares.sum()
    assert decided == any(flag.name == "few_rows_decide" for flag in model.flags_)


@pytest.mark.parametrize("method", ["cpc", "dv"])
def test_a_reference_too_small(method):
    """Pairs that determine each other, and five references or eight stopping rows."""
    x = np.random.default_rng(0).standard_normal((100, 2))
    model = fit(x, x, method=method, reference_size=5, max_epochs=15, hidden=(16,))
    assert "reference_too_small" in {flag.name for flag in model.flags_}


@pytest.mark.parametrize("critic", [PairNet(), encoders()], ids=["module", "encoders"])
def test_own_modules_are_trained_in_copies(critic):
    parts = nn.ModuleList(critic if isinstance(critic, tuple) else [critic])
    before, model = copy.deepcopy(parts.state_dict()), fit(critic=critic)
    assert all(map(torch.equal, before.values(), parts.state_dict().values()))
    assert model.critic is critic
    assert not any(m.training for m in model.model_.modules())
    assert np.array_equal(model.pmi(X, Y), model.pmi(X, Y))


def test_grid_search():
    grid = {"critic": ["concat", "bilinear"], "method": ["pc", "js"]}
    search = GridSearchCV(small(max_epochs=4), grid, cv=2)
    with pytest.warns(FitWarning):
        search.fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(set(search.cv_results_["mean_test_score"])) == 4
    assert search.score(X, Y) == search.best_estimator_.score(X, Y)


@pytest.mark.parametrize("critic", ["auto", "separable"])
def test_scikit_learn_checks(critic):
    # Three folds of scikit-learn's ten rows leave enough of them to train.
    assert_scikit_learn_checks(small(folds=3, max_epochs=2, critic=critic))


@pytest.mark.parametrize("link", ["score", "log_ratio", "asinh"])
def test_cpc_is_normalised_over_its_reference_whatever_the_link(link):
    model = fit(method="cpc", link=link, max_epochs=5).model_
    rows = torch.randn(model.replicas, 7, model.x_map.mean.shape[1])
    log_ratio = model.log_ratio_matrix(rows, model.reference)
    mean = torch.logsumexp(log_ratio, -1) - np.log(model.reference.shape[1])
    torch.testing.assert_close(mean, torch.zeros_like(mean), atol=1e-4, rtol=0)


def test_copies_in_groups_do_not_narrow_the_interval():
    x, y = (side.repeat(5, 0) for side in pairs(60))
    groups = np.arange(60).repeat(5)
    model = fit(x, y, groups=groups)
    values = model.oof_values_ - model.oof_values_.mean()
    sums = np.array([values[groups == g].sum() for g in range(60)])
    expected, doubt = np.sqrt(60 / 59 * (sums**2).sum()) / 300, model.bias_.stderr
    assert model.mutual_information().stderr == pytest.approx(np.hypot(expected, doubt))
    assert expected > 1.8 * values.std(ddof=1) / np.sqrt(300)
    # Of given rows the whole correction is in doubt, whatever their groups.
    doubt = np.hypot(doubt, model.bias_.correction)
    new, plain = (model.mutual_information(x, y, groups=g).stderr for g in (groups, None))
    assert new**2 - doubt**2 > 1.8**2 * (plain**2 - doubt**2)
    refused("groups has 2 rows", model.score, x, y, groups=[0, 1])
    refused("no two rows of different groups", model.score, x, y, groups=np.zeros(300))


def test_saving_keeps_what_was_fitted(tmp_path):
    model = fit(folds=np.int64(2), method="dm2", method_options={"eta": np.float64(2.0)})
    before = model.pmi(X, Y)
    model.set_params(method="nwj", method_options=None, hidden=(3, 3), link="asinh")
    model.save(tmp_path / "model")
    again = PointwiseDependency.load(tmp_path / "model")
    assert (again.method, again.folds) == ("dm2", 2)
    np.testing.assert_array_equal(again.pmi(X, Y), before)
    # One encoder for both sides is saved once.
    (x, y), encoder = pairs(x_dim=3, y_dim=3), nn.Linear(3, 4)
    model = fit(x, y, critic=(encoder, encoder))
    refused(r"holds a model of other data \(120 rows\)", model.save, tmp_path / "model")
    model.save(tmp_path / "model", overwrite=True)
    again = PointwiseDependency.load(tmp_path / "model", critic=(encoder, encoder))
    np.testing.assert_array_equal(again.pmi(x, y), model.pmi(x, y))
