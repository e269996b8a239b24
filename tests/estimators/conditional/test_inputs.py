"""What may be given and what is refused; seeds, splits, groups and files."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GroupShuffleSplit, KFold, ShuffleSplit

from pointdep import ClassicalDependency, ConditionalDependency, PointwiseDependency
from pointdep.errors import DataWarning, FitWarning, ModelFileError
from pointdep.estimators.conditional import make_parts
from refusals import refused

from .helpers import base, conditional, fit, small, triples

X, Y, Z = triples()
GROUPS = np.arange(120) // 3
LABELS = np.where(Z[:, 0] > 0.3, "high", "low")


@pytest.mark.parametrize(
    "read",
    [
        torch.from_numpy,
        np.ndarray.tolist,
        pd.DataFrame,
        lambda side: pd.DataFrame(side).add_prefix("c"),
        lambda side: pl.from_pandas(pd.DataFrame(side).add_prefix("c")),
    ],
)
def test_containers(read):
    """y and z may be tables with the same names of columns."""
    model = fit(read(X), read(Y), read(Z))
    np.testing.assert_array_equal(model.oof_pmi_, base().oof_pmi_)
    np.testing.assert_array_equal(model.pmi(read(X), read(Y), read(Z)), base().pmi(X, Y, Z))
    np.testing.assert_array_equal(model.pmi(X, Y, Z), base().pmi(X, Y, Z))


def test_containers_of_different_sides_names_and_not_fitted():
    model = fit(pl.DataFrame(X), torch.from_numpy(Y), pd.DataFrame(Z, columns=["a", "b"]))
    np.testing.assert_array_equal(model.oof_pmi_, base().oof_pmi_)
    parts = model.joint_, model.marginal_
    assert [part.encoder_y_.names for part in parts] == [("Y0", "a", "b"), ("a", "b")]
    assert base().joint_.encoder_y_.names == ("Y0", "Z0", "Z1")
    assert model.n_features_in_ == 2
    assert model.feature_names_in_.tolist() == ["column_0", "column_1"]
    assert not hasattr(base(), "feature_names_in_")
    model = fit(X, Y, pd.DataFrame(Z, columns=["a", "b"]))
    refused("Z column 0 is 'b' but was 'a'", model.pmi, X, Y, pd.DataFrame(Z, columns=["b", "a"]))
    with pytest.raises(TypeError, match="'radnom_state'; did you mean 'random_state'"):
        ConditionalDependency(radnom_state=0)
    for ask in ("pmi", "outside", "mutual_information"):
        with pytest.raises(NotFittedError):
            getattr(conditional(), ask)(X, Y, Z)
    with pytest.raises(NotFittedError):
        conditional().save("nowhere")


class TestCategories:
    @pytest.mark.parametrize(
        "labels",
        [
            LABELS,
            LABELS.tolist(),
            pd.Series(LABELS, dtype="category"),
            pl.Series(LABELS, dtype=pl.Categorical),
            LABELS == "high",
            np.where(LABELS == "high", 3, 7),
        ],
        ids=["strings", "list", "pandas", "polars", "booleans", "integers"],
    )
    def test_of_one_side(self, labels):
        """One-hot columns of two categories, in whatever order, beside the number of the other."""
        for data, columns in (((X, Y, labels), 3), ((X, labels, Z), 4)):
            model = fit(*data)
            assert model.joint_.encoder_y_.dim == columns
            assert sum(model.joint_.encoder_y_.numeric_mask) == columns - 2
            few = model.pmi(*(side[:5] for side in data))
            np.testing.assert_allclose(few, model.pmi(*data)[:5], atol=1e-5)

    def test_of_both_sides_tables_of_both_kinds_and_declared(self):
        table = pd.DataFrame({"size": Z[:, 0], "kind": pd.Categorical(LABELS), "count": range(120)})
        for data, kinds in (
            ((X, LABELS, np.arange(120) % 3), (True, True)),
            ((X, Y, table), (False, False, True, False)),
        ):
            model = fit(*data)
            assert model.joint_.encoder_y_.category_mask == kinds
            few = model.pmi(*(side[:4] for side in data))
            np.testing.assert_allclose(few, model.pmi(*data)[:4], atol=1e-5)
        assert model.joint_.encoder_y_.names == ("Y0", "size", "kind", "count")
        codes = np.column_stack([np.arange(120) % 3, np.arange(120) % 2])
        assert fit(X, Y, codes).marginal_.encoder_y_.dim == 2
        assert fit(X, Y, codes, discrete_z=True).marginal_.encoder_y_.dim == 5
        numbers = fit(X, codes[:, 0], LABELS == "low", discrete_z=False)
        assert numbers.joint_.encoder_y_.category_mask == (True, False)
        as_given = small(discrete_y=False, discrete_x=False)
        numbers = fit(codes[:, 1], codes[:, 0], LABELS == "low", estimator=as_given)
        assert numbers.joint_.encoder_y_.category_mask == (False, True)
        assert numbers.joint_.encoder_x_.category_mask == (False,)
        assert len(numbers.pmi(codes[:2, 1], codes[:2, 0], [True, False])) == 2


def test_constant_columns_and_rows_in_another_order():
    constant = np.column_stack([Z, np.ones(120)])
    with pytest.warns(DataWarning) as caught:
        model = fit(X, Y, constant)
    (said,) = (str(one.message) for one in caught)
    assert said.startswith("Z: dropped 1 column(s)")
    np.testing.assert_array_equal(model.oof_pmi_, base().oof_pmi_)
    refused("every column of Z is constant", fit, X, Y, np.ones(120))
    tables = [pd.DataFrame(side) for side in (X, Y, Z)]
    with pytest.warns(DataWarning, match=r"X and Z .* as with Z.loc\[X.index\]"):
        fit(*tables[:2], tables[2][::-1])
    fit(*(table[::-1] for table in tables))  # all in one order: nothing to warn of


NAN = np.where(Z[3, 1] == Z, np.nan, Z)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fit(X, Y), r"Z is missing: call fit\(X, Y, Z\)"),
        (lambda: fit(X, Y, None), "Z is missing"),
        (lambda: fit(X, None, Z), "Y is missing"),
        (lambda: fit(X), "Y is missing"),
        (lambda: fit(X, Y, Z[:100]), "X has 120 rows, Y has 120 rows, Z has 100"),
        (lambda: fit(X[:90], Y, Z), "X has 90 rows, Y has 120 rows, Z has 120"),
        (lambda: fit(X, Y, Z, groups=np.arange(7)), "groups has 7 rows"),
        (lambda: fit(X, Y, NAN), "Z column 1 holds 1 NaN .* row 3"),
        (lambda: base().pmi(X, Y, NAN), "Z column 1 holds 1 NaN"),
        (lambda: base().pmi(X, Y, Z[:, :1]), "Z has 1 features, .* expecting 2"),
        (lambda: base().mutual_information(X, Z, Z), "Y has 2 features, .* expecting 1"),
        (lambda: base().pmi(X[:, :1], Y, Z), "X has 1 features"),
        (lambda: base().pmi(X, Y, Z[:9]), "X has 120 rows, Y has 120 rows, Z has 9"),
        (lambda: base().mutual_information(X), "X, Y and Z are all needed"),
        (lambda: base().mutual_information(X, Y), "X, Y and Z are all needed"),
        (lambda: base().mutual_information(Z=Z), "X, Y and Z are all needed"),
        (lambda: base().mutual_information(X, Y, Z, groups=[1, 2, 3]), "groups has 3 rows"),
        (lambda: base().mutual_information(confidence=95), "confidence"),
        (lambda: ConditionalDependency(PointwiseDependency).fit(X, Y, Z), "PointwiseDependency"),
        (lambda: ConditionalDependency("pc").fit(X, Y, Z), "be a PointwiseDependency"),
        (lambda: fit(X, Y, Z, estimator=ClassicalDependency()), "be a PointwiseDependency"),
        (lambda: fit(X, Y, Z, estimator=small(critic=torch.nn.Bilinear(2, 3, 1))), "your own"),
        (lambda: fit(X, Y, Z, discrete_z="yes"), "discrete_z='yes'"),
        (lambda: fit(X, Y, Z, estimator=small(checkpoint="c"), random_state=None), "checkpoint"),
        (lambda: fit(X, Y, LABELS).pmi(X[:1], Y[:1], ["middle"]), "Z column 0"),
    ],
)
def test_what_is_refused(call, said):
    refused(said, call)


@pytest.mark.parametrize("method", ["cpc", "nwj", "js", "dv", "smile", "mine", "smi"])
def test_methods_that_are_refused(method):
    refused(f"'{method}' .* from variational, pc", fit, X, Y, Z, estimator=small(method=method))


def test_a_learning_curve_is_refused():
    refused("a difference has no learning curve", fit, X, Y, Z, estimator=small(curve=True))


def test_pairs_unlike_the_fit_and_which_fit_flags_are_of():
    with pytest.warns(DataWarning, match=r"outside\(X, Y, Z\) says which"):
        base().pmi(X, Y, Z + 1000.0)
    assert base().outside(X, Y, Z + 1000.0).all()
    assert base().outside(X, Y, Z).mean() < 0.05
    with pytest.warns(FitWarning) as caught:
        model = conditional().fit(X, Y, Z)
    said = [str(flag) for flag in model.flags_]
    assert [str(one.message) for one in caught] == said
    names = [flag.name for part in (model.joint_, model.marginal_) for flag in part.flags_]
    assert [flag.name for flag in model.flags_] == names
    assert any(": in the fit of X with (Y, Z), " in text for text in said)
    assert any(": in the fit of X with Z, " in text for text in said)
    assert model.mutual_information().warnings == tuple(said)


def assert_same_splits(model):
    parts = (part.training_rows_.paired.splits for part in (model.joint_, model.marginal_))
    for one, other in zip(*parts, strict=True):
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
    assert not np.array_equal(fit(X, Y, Z, random_state=1).oof_pmi_, base().oof_pmi_)
    for of_estimator, given in ((None, 0), (0, None), (5, 0)):
        model = fit(X, Y, Z, estimator=small(random_state=of_estimator), random_state=given)
        np.testing.assert_array_equal(model.oof_pmi_, base().oof_pmi_)


@pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
def test_it_is_the_difference_of_two_fits():
    options = {"random_state": base().joint_.random_state, "progress": False}
    joint, marginal = small(**options).fit(X, np.hstack([Y, Z])), small(**options).fit(X, Z)
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


def test_rows_of_one_group_count_once():
    """Each row five times over is no more than once, where the groups say so."""
    data = [np.repeat(side, 5, axis=0) for side in triples(60)]
    groups = np.repeat([f"g{i}" for i in range(60)], 5)
    model = fit(*data, groups=groups)
    assert_same_splits(model)
    for split in model.joint_.training_rows_.paired.splits:
        assert not set(groups[split.report]) & set(groups[split.train])
    values = (model.joint_.oof_values_ - model.marginal_.oof_values_)[::5]
    assert model.mutual_information().stderr >= values.std(ddof=1) / np.sqrt(60) - 1e-6
    given = [side[:100] for side in data]
    apart, together = (model.mutual_information(*given, groups=g) for g in (None, groups[:100]))
    assert together.nats == apart.nats
    assert together.stderr > apart.stderr


class TestScikitLearn:
    @pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
    def test_fitting_again(self):
        model = conditional().fit(pd.DataFrame(X, columns=["a", "b"]), Y, LABELS)
        assert model.feature_names_in_.tolist() == ["a", "b"]
        model.fit(X, Y, Z)
        np.testing.assert_array_equal(model.oof_pmi_, base().oof_pmi_)
        assert not hasattr(model, "feature_names_in_")

    def test_the_estimator_is_left_alone(self):
        estimator = small(cv=KFold(2, shuffle=True))
        before, model = estimator.get_params(), fit(X, Y, LABELS, estimator=estimator)
        assert estimator.get_params() == before
        assert not hasattr(estimator, "model_")
        # The models may be fitted again, to other rows, by the splitter rather than its splits.
        assert model.joint_.cv is estimator.cv
        for loud, progress in ((small(), True), (small(), False), (small(progress=False), True)):
            parts = make_parts(loud, progress=progress, random_state=0).values()
            assert {part.progress for part in parts} == {progress and loud.progress}


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
        assert (again.n_rows_, again.n_features_in_) == (120, 2)
        refused("Z has 3 features", again.pmi, X, Y, np.ones((120, 3)))

    def test_the_options_come_back(self, tmp_path):
        model = fit(X, Y, LABELS, estimator=small(discrete_y=False), discrete_z=True)
        model.save(tmp_path / "model")
        again = ConditionalDependency.load(tmp_path / "model", device="cpu")
        assert (again.random_state, again.discrete_z) == (0, True)
        assert (again.estimator.discrete_y, again.estimator.hidden) == (False, (8,))
        assert not hasattr(again.estimator, "model_")
        refitted = fit(X, Y, LABELS, **again.get_params(deep=False))
        np.testing.assert_array_equal(refitted.oof_pmi_, model.oof_pmi_)

    def test_other_folders_damage_and_what_is_replaced(self, tmp_path):
        place, other = tmp_path / "model", fit(X, Y, Z, random_state=1)

        def unreadable(match, path=place, by=ConditionalDependency):
            with pytest.raises(ModelFileError, match=match):
                by.load(path)

        base().joint_.save(tmp_path / "pairs")
        unreadable(r"use PointwiseDependency\.load", tmp_path / "pairs")
        unreadable("no such folder", tmp_path / "nothing")
        base().save(place)
        unreadable(None, by=PointwiseDependency)
        other.save(tmp_path / "other")
        kept = (place / "marginal").rename(tmp_path / "kept")
        unreadable("no such folder")
        (tmp_path / "other" / "marginal").rename(place / "marginal")
        unreadable("belongs to another model")
        (place / "marginal").rename(tmp_path / "swapped")
        kept.rename(place / "marginal")
        ConditionalDependency.load(place)
        about = json.loads((place / "model.json").read_text())
        about["conditional"]["sides"]["y"]["named"] = True
        (place / "model.json").write_text(json.dumps(about))
        unreadable("edited or damaged")

    def test_replacing_and_checkpoints_of_both(self, tmp_path):
        place, other = tmp_path / "model", fit(X, Y, Z, random_state=1)
        base().save(place)
        other.save(place)
        np.testing.assert_array_equal(ConditionalDependency.load(place).oof_pmi_, other.oof_pmi_)
        assert [p.name for p in tmp_path.iterdir()] == ["model"]
        (place / "notes.txt").write_text("mine")
        refused("holds other files", base().save, place)
        refused("does not exist", base().save, tmp_path / "no" / "model")
        model = fit(X, Y, Z, estimator=small(checkpoint=tmp_path / "fit.ckpt"))
        np.testing.assert_array_equal(model.oof_pmi_, base().oof_pmi_)
        parts = model.joint_, model.marginal_
        assert [p.checkpoint.name for p in parts] == ["fit.ckpt.joint", "fit.ckpt.marginal"]
        assert [p.name for p in tmp_path.iterdir()] == ["model"]
