"""Seeds, splits, groups, scikit-learn's ways, and files."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupShuffleSplit, KFold, ShuffleSplit

from pointdep import ConditionalDependency, PointwiseDependency
from pointdep.errors import InputError, ModelFileError
from pointdep.estimators.conditional import make_parts

from .helpers import base, conditional, fit, small, triples

X, Y, Z = triples()
GROUPS = np.arange(120) // 3
LABELS = np.where(Z[:, 0] > 0.3, "high", "low")


def assert_same_splits(model):
    joint, marginal = (
        model.joint_.training_rows_.paired.splits,
        model.marginal_.training_rows_.paired.splits,
    )
    assert len(joint) == len(marginal)
    for one, other in zip(joint, marginal, strict=True):
        for part in ("train", "stop", "report"):
            np.testing.assert_array_equal(getattr(one, part), getattr(other, part))


@pytest.mark.parametrize(
    ("options", "groups"),
    [
        ({"random_state": 0}, None),
        ({"random_state": None}, None),
        ({"random_state": np.random.RandomState(3)}, GROUPS),
        ({"estimator": small(cv=KFold(2, shuffle=True))}, None),
        ({"estimator": small(cv=GroupShuffleSplit(2, test_size=0.3))}, GROUPS),
    ],
)
def test_both_fits_split_alike(options, groups):
    model = fit(X, Y, Z, groups=groups, **options)
    assert_same_splits(model)
    assert model.joint_.random_state == model.marginal_.random_state


def test_random_state():
    np.testing.assert_array_equal(fit(X, Y, Z).oof_pmi_, base().oof_pmi_)
    assert not np.array_equal(fit(X, Y, Z, random_state=1).oof_pmi_, base().oof_pmi_)
    of_estimator = fit(X, Y, Z, estimator=small(random_state=0), random_state=None)
    np.testing.assert_array_equal(of_estimator.oof_pmi_, base().oof_pmi_)
    overruled = fit(X, Y, Z, estimator=small(random_state=5), random_state=0)
    np.testing.assert_array_equal(overruled.oof_pmi_, base().oof_pmi_)


@pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
def test_it_is_the_difference_of_two_fits():
    options = {"random_state": base().joint_.random_state, "progress": False}
    joint = small(**options).fit(X, np.hstack([Y, Z]))
    marginal = small(**options).fit(X, Z)
    np.testing.assert_array_equal(base().oof_pmi_, joint.oof_pmi_ - marginal.oof_pmi_)
    wanted = joint.pmi(X, np.hstack([Y, Z])) - marginal.pmi(X, Z)
    np.testing.assert_array_equal(base().pmi(X, Y, Z), wanted)


@pytest.mark.parametrize("estimator", [small(folds=1), small(cv=ShuffleSplit(1, test_size=0.2))])
def test_rows_that_no_model_reports(estimator):
    """With one fold a fifth of the rows is reported, and the estimate is theirs."""
    model = fit(X, Y, Z, estimator=estimator)
    assert np.isnan(model.oof_pmi_).sum() == 96
    found = model.mutual_information()
    assert found.rows == 24
    known = model.oof_pmi_[~np.isnan(model.oof_pmi_)]
    assert found.nats == pytest.approx(known.mean() + found.correction, rel=1e-4)


@pytest.mark.parametrize("method", ["variational", "dm1", "dm2", "drf", "drf_relative", "rpc"])
def test_methods(method):
    model = fit(X, Y, Z, estimator=small(method=method))
    found = model.mutual_information()
    assert found.method == method
    assert found.estimates == "mutual information"
    assert np.isfinite([found.nats, found.stderr]).all()


def test_rows_of_one_group_count_once():
    """Each row five times over is no more than once, where the groups say so."""
    data = [np.repeat(side, 5, axis=0) for side in triples(60)]
    groups = np.repeat([f"g{i}" for i in range(60)], 5)
    model = fit(*data, groups=groups)
    assert_same_splits(model)
    for split in model.joint_.training_rows_.paired.splits:
        assert not set(groups[split.report]) & set(groups[split.train])
    values = (model.joint_.oof_values_ - model.marginal_.oof_values_)[::5]
    found = model.mutual_information().stderr
    assert found >= values.std(ddof=1) / np.sqrt(60) - 1e-6
    given = [side[:100] for side in data]
    apart = model.mutual_information(*given)
    together = model.mutual_information(*given, groups=groups[:100])
    assert together.nats == apart.nats
    assert together.stderr > apart.stderr


class TestScikitLearn:
    def test_parameters(self):
        model = conditional(small(folds=3), discrete_z=False)
        params = model.get_params()
        assert params["estimator__folds"] == 3
        assert params["discrete_z"] is False
        model.set_params(estimator__folds=4, random_state=9)
        assert model.estimator.folds == 4
        assert model.random_state == 9
        names = {"estimator", "discrete_z", "random_state", "progress"}
        assert set(model.get_params(deep=False)) == names
        assert ConditionalDependency().get_params()["estimator"] is None

    def test_clone(self):
        copy = clone(base())
        assert not hasattr(copy, "joint_")
        assert copy.estimator is not base().estimator
        assert copy.get_params()["estimator__hidden"] == (8,)
        assert "ConditionalDependency(estimator=PointwiseDependency(" in repr(copy)

    def test_the_estimator_is_left_alone(self):
        estimator = small(cv=KFold(2, shuffle=True))
        before = estimator.get_params()
        model = fit(X, Y, LABELS, estimator=estimator)
        assert estimator.get_params() == before
        assert not hasattr(estimator, "model_")
        # The models may be fitted again, to other rows, by the splitter rather than its splits.
        assert model.joint_.cv is estimator.cv

    @pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
    def test_fitting_again(self):
        model = conditional().fit(pd.DataFrame(X, columns=["a", "b"]), Y, LABELS)
        assert model.feature_names_in_.tolist() == ["a", "b"]
        model.fit(X, Y, Z)
        np.testing.assert_array_equal(model.oof_pmi_, base().oof_pmi_)
        assert not hasattr(model, "feature_names_in_")

    def test_quiet(self):
        loud = {"given": small(), "progress": True}
        for options in ({"progress": False}, {"given": small(progress=False)}):
            parts = make_parts(**{**loud, **options}, random_state=0)
            assert not any(part.progress for part in parts.values())
        assert all(part.progress for part in make_parts(**loud, random_state=0).values())


class TestFiles:
    @pytest.mark.parametrize("z", [Z, LABELS], ids=["numbers", "categories"])
    def test_saving_and_loading(self, z, tmp_path):
        model = fit(X, Y, z, groups=GROUPS)
        model.save(tmp_path / "model")
        files = {"joint", "marginal", "model.json", "weights.safetensors"}
        assert {p.name for p in (tmp_path / "model").iterdir()} == files
        again = ConditionalDependency.load(tmp_path / "model")
        np.testing.assert_array_equal(again.oof_pmi_, model.oof_pmi_)
        np.testing.assert_array_equal(again.pmi(X, Y, z), model.pmi(X, Y, z))
        assert again.mutual_information() == model.mutual_information()
        assert again.flags_ == model.flags_
        assert again.n_rows_ == 120
        assert again.n_features_in_ == 2
        with pytest.raises(InputError, match="Z has 3 features"):
            again.pmi(X, Y, np.ones((120, 3)))

    def test_the_options_come_back(self, tmp_path):
        model = fit(X, Y, LABELS, estimator=small(discrete_y=False), discrete_z=True)
        model.save(tmp_path / "model")
        again = ConditionalDependency.load(tmp_path / "model", device="cpu")
        assert again.random_state == 0
        assert again.discrete_z is True
        assert again.estimator.discrete_y is False
        assert again.estimator.hidden == (8,)
        assert not hasattr(again.estimator, "model_")
        refitted = fit(X, Y, LABELS, **again.get_params(deep=False))
        np.testing.assert_array_equal(refitted.oof_pmi_, model.oof_pmi_)

    def test_replacing(self, tmp_path):
        place = tmp_path / "model"
        base().save(place)
        other = fit(X, Y, Z, random_state=1)
        other.save(place)
        found = ConditionalDependency.load(place).oof_pmi_
        np.testing.assert_array_equal(found, other.oof_pmi_)
        assert [p.name for p in tmp_path.iterdir()] == ["model"]
        (place / "notes.txt").write_text("mine")
        with pytest.raises(InputError, match="holds other files"):
            base().save(place)
        with pytest.raises(InputError, match="does not exist"):
            base().save(tmp_path / "no" / "model")

    def test_other_folders(self, tmp_path):
        base().joint_.save(tmp_path / "pairs")
        with pytest.raises(ModelFileError, match=r"read it with PointwiseDependency\.load"):
            ConditionalDependency.load(tmp_path / "pairs")
        with pytest.raises(ModelFileError, match="no such folder"):
            ConditionalDependency.load(tmp_path / "nothing")
        base().save(tmp_path / "model")
        with pytest.raises(ModelFileError):
            PointwiseDependency.load(tmp_path / "model")

    def test_damage(self, tmp_path):
        place = tmp_path / "model"
        base().save(place)
        fit(X, Y, Z, random_state=1).save(tmp_path / "other")
        kept = (place / "marginal").rename(tmp_path / "kept")
        with pytest.raises(ModelFileError, match="no such folder"):
            ConditionalDependency.load(place)
        (tmp_path / "other" / "marginal").rename(place / "marginal")
        with pytest.raises(ModelFileError, match="belongs to another model"):
            ConditionalDependency.load(place)
        (place / "marginal").rename(tmp_path / "swapped")
        kept.rename(place / "marginal")
        ConditionalDependency.load(place)
        about = json.loads((place / "model.json").read_text())
        about["conditional"]["sides"]["y"]["named"] = True
        (place / "model.json").write_text(json.dumps(about))
        with pytest.raises(ModelFileError, match="edited or damaged"):
            ConditionalDependency.load(place)

    def test_checkpoints_of_both(self, tmp_path):
        model = fit(X, Y, Z, estimator=small(checkpoint=tmp_path / "fit.ckpt"))
        np.testing.assert_array_equal(model.oof_pmi_, base().oof_pmi_)
        assert model.joint_.checkpoint.name == "fit.ckpt.joint"
        assert model.marginal_.checkpoint.name == "fit.ckpt.marginal"
        assert not list(tmp_path.iterdir())
