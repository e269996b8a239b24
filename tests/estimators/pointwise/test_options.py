"""Options: their defaults, their errors, and scikit-learn's ways with them."""

import copy
import inspect
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold
from torch import nn

from pointdep import PointwiseDependency
from pointdep.errors import DivergedError, FitWarning, InputError

from .helpers import X_DIM, Y_DIM, PairNet, encoders, fit, fitted, pairs, small

X, Y = pairs()


def test_the_signature_is_that_of_init():
    names = list(inspect.signature(PointwiseDependency).parameters)
    assert names[0] == "method"
    assert sorted(names) == sorted(PointwiseDependency().get_params())


def test_params_are_kept_as_given():
    hidden, options = [8, 8], {"eta": 2.0}
    model = PointwiseDependency(hidden=hidden, method_options=options, method="dm2", folds="five")
    assert model.hidden is hidden
    assert model.method_options is options
    assert model.get_params()["folds"] == "five"
    assert model.set_params(folds=3, method="pc").folds == 3
    with pytest.raises(ValueError, match="Invalid parameter 'fold'"):
        model.set_params(fold=3)


def test_clone():
    model = fit(critic=encoders(), method="dm2", method_options={"eta": 2.0})
    made = clone(model)
    assert not hasattr(made, "model_")
    for name, value in model.get_params(deep=False).items():
        other = getattr(made, name)
        if name == "critic":
            assert [type(part) for part in other] == [type(part) for part in value]
        else:
            assert other == value, name
    with pytest.warns(FitWarning):
        made.fit(X, Y)
    np.testing.assert_array_equal(made.oof_pmi_, model.oof_pmi_)


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


def test_options_are_keywords():
    with pytest.raises(TypeError, match="positional"):
        PointwiseDependency("pc")


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
        ({"method": None}, "unknown method None"),
        ({"method": "dm2", "method_options": {"etta": 1.0}}, "'dm2' 'etta': did you mean 'eta'"),
        ({"method": "pc", "method_options": {"eta": 1.0}}, "method 'pc' has no options, got 'eta'"),
        ({"method": "dm2", "method_options": {"eta": -1.0}}, r"eta=-1\.0 must be positive"),
        ({"method_options": "eta"}, "method_options='eta' must be a mapping"),
        ({"critic": "concatt"}, "unknown critic 'concatt': did you mean 'concat'"),
        ({"critic": 3}, "unknown critic 3"),
        ({"critic": (nn.Linear(2, 2),)}, "exactly two torch modules"),
        ({"critic": (nn.Linear(2, 2), "y")}, "exactly two torch modules"),
        ({"critic": (nn.Linear(2, 2), nn.Linear(3, 4))}, "vectors of 2 and 4 numbers"),
        ({"critic": NoParameters()}, "no parameters to train"),
        ({"critic": PairNet().requires_grad_(False)}, "no parameters to train"),
        ({"critic": WrongShape()}, "one score per pair"),
        ({"critic": "inner"}, "critic='inner' needs x and y of one dimension, got 2 and 3"),
        ({"critic": "separable", "embedding_dim": 0}, "embedding_dim=0"),
        ({"activation": "rellu"}, "unknown activation 'rellu': did you mean 'relu'"),
        ({"link": "log"}, "unknown link 'log'.*log_ratio, score"),
        ({"hidden": 8}, "hidden=8 must be a sequence"),
        ({"hidden": ()}, r"hidden=\(\) must name at least one layer"),
        ({"hidden": (8, 0)}, r"hidden=\(8, 0\)"),
        ({"hidden": ("wide",)}, r"hidden=\('wide',\) must be a sequence of layer widths"),
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
        ({"device": "abacus"}, "unknown device 'abacus'"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(InputError, match=message):
        small(**options).fit(X, Y)


@pytest.mark.parametrize("method", ["dv", "cpc"])
def test_reports_too_small_for_the_method_are_refused_before_training(method, monkeypatch):
    from pointdep.estimators import assembly

    monkeypatch.setattr(assembly, "train_model", None)
    with pytest.raises(InputError, match=rf"'{method}' infers from pairs of different rows"):
        small(method=method, folds=6).fit(X, Y, groups=np.arange(120) % 6)


def test_divergence_names_the_method_and_a_way_out():
    """A learning rate beyond reason."""
    with pytest.raises(DivergedError, match=r"'nwj'.*method='pc'"):
        small(method="nwj", learning_rate=1e30, hidden=(8, 8)).fit(X, Y)


def test_flags_are_warned_of_and_kept():
    model = small(max_epochs=2)
    with pytest.warns(FitWarning, match="still_improving.*max_epochs"):
        model.fit(X, Y)
    assert [flag.name for flag in model.flags_] == ["still_improving"]
    assert len(model.history_) == 2
    assert model.mutual_information().warnings == (str(model.flags_[0]),)


@pytest.mark.parametrize("method", ["cpc", "dv"])
def test_a_reference_too_small(method):
    """Pairs that determine each other, and five references or eight stopping rows."""
    x = np.random.default_rng(0).standard_normal((100, 2))
    model = fit(x, x, method=method, reference_size=5, max_epochs=15, hidden=(16,))
    assert "reference_too_small" in {flag.name for flag in model.flags_}


def test_own_modules_are_trained_in_copies():
    for critic in (PairNet(), encoders()):
        parts = critic if isinstance(critic, tuple) else (critic,)
        before = [p.clone() for part in parts for p in part.state_dict().values()]
        model = fit(critic=critic)
        after = [p for part in parts for p in part.state_dict().values()]
        assert all(map(torch.equal, before, after))
        assert model.critic is critic
        assert not any(m.training for m in model.model_.modules())
        assert np.array_equal(model.pmi(X, Y), model.pmi(X, Y))


def test_a_module_without_a_hint_of_its_dimensions():
    """Sees standardised rows of the given width."""
    seen = []

    class Spy(PairNet):
        def forward(self, x, y):
            seen.append((x.shape[1], y.shape[1]))
            return super().forward(x, y)

    fit(critic=Spy())
    assert set(seen) == {(X_DIM, Y_DIM)}


def test_grid_search():
    search = GridSearchCV(
        small(max_epochs=4), {"critic": ["concat", "bilinear"], "method": ["pc", "js"]}, cv=2
    )
    with pytest.warns(FitWarning):
        search.fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(set(search.cv_results_["mean_test_score"])) == 4
    assert search.score(X, Y) == search.best_estimator_.score(X, Y)


def test_a_checkpoint_needs_a_seed(tmp_path):
    with pytest.raises(InputError, match="checkpoint needs a fixed random_state"):
        fit(X, Y, checkpoint=tmp_path / "fit.ckpt", random_state=None)


@pytest.mark.parametrize("cv", [GroupKFold(2), StratifiedKFold(2)])
def test_a_splitter_that_needs_more_than_rows(cv):
    with pytest.raises(InputError, match="cannot split these rows"):
        fit(X, Y, cv=cv)
