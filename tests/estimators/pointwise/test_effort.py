"""effort: without networks, or with more of them; the pace of training that "auto" stands for."""

import numpy as np
import pytest

from pointdep import ClassicalDependency, PointwiseDependency
from pointdep.estimators.assembly import CriticSettings, pace
from pointdep.fitting import engine
from pointdep.fitting.batches import TrainingOptions
from refusals import quietly, refused

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(240, 3))
Y = X[:, :2] + RANDOM.normal(size=(240, 2))


def fit(x=X, y=Y, **options):
    with quietly():
        return PointwiseDependency(random_state=0, progress=False, **options).fit(x, y)


def test_quick_is_the_closed_form_alone():
    model = fit(effort="quick")
    assert (model.model_.answered, model.history_) == ("closed form alone", [])
    told = ClassicalDependency("cca", progress=False, random_state=0).fit(X, Y)
    assert model.mutual_information().nats == pytest.approx(
        told.mutual_information().nats, abs=0.03
    )
    assert np.isfinite(model.oof_pmi_).all()
    assert model.get_params()["effort"] == "quick"


def test_quick_of_many_columns_and_of_labels():
    wide = np.hstack([X, RANDOM.normal(size=(240, 27))])
    for y, low, high in ((Y, 0.3, 1.2), (np.where(X[:, 0] > 0, "a", "b"), 0.2, 0.8)):
        model = fit(wide, y, effort="quick", curve=False)
        assert model.model_.critic.silent
        assert low < model.mutual_information().nats < high


def test_high_trains_twice_as_many_networks_for_longer():
    how = {"folds": 2, "max_epochs": 1, "curve": False, "hidden": (4, 4)}
    assert fit(effort="high", **how).n_replicas_ == 4
    assert fit(effort="high", **{**how, "folds": 1}).n_replicas_ == 1
    assert fit(**how).n_replicas_ == 2


def test_the_pace():
    auto, concat = (CriticSettings(kind, (8, 8), 4, "auto", "auto") for kind in ("auto", "concat"))
    usual = pace(auto, "auto", "auto", "default")
    assert usual["halving"] > 0
    assert pace(auto, "auto", "auto", "high")["patience"] == 3 * usual["patience"]
    assert pace(concat, "auto", "auto", "default")["halving"] == 0
    given = {"learning_rate": 0.5, "halving": 0.0, "patience": 7}
    assert pace(auto, 0.5, 7, "default") == given
    falling = TrainingOptions(8, 4, learning_rate=0.6, halving=2.0)
    assert [falling.rate(epoch) for epoch in (0, 2, 4)] == pytest.approx([0.6, 0.3, 0.2])
    assert TrainingOptions(8, 4, learning_rate=0.6).rate(9) == 0.6


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"effort": "slow"}, "unknown effort 'slow'"),
        ({"effort": "quick", "critic": "concat"}, "effort='quick' trains no networks"),
        ({"learning_rate": "fast"}, "learning_rate='fast' must be a number or 'auto'"),
        ({"patience": "long"}, "patience='long' must be"),
    ],
)
def test_what_is_refused(options, told):
    refused(told, PointwiseDependency(**options, progress=False).fit, X, Y)


@pytest.mark.parametrize("groups", [None, np.arange(240) // 2])
def test_rows_that_are_mapped_before_training_are_those_mapped_in_each_step(groups, monkeypatch):
    how = {"folds": 2, "max_epochs": 2, "hidden": (8, 8), "curve": False}
    found = []
    for most in (1 << 26, 0):
        monkeypatch.setattr(engine, "MOST_MAPPED", most)
        with quietly():
            model = PointwiseDependency(random_state=0, progress=False, **how)
            found.append(model.fit(X, np.sin(3 * X), groups=groups).oof_pmi_)
    assert found[0] == pytest.approx(found[1], abs=1e-4)
