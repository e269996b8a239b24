"""What may be given, and what is said of what may not."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.exceptions import NotFittedError

from pointdep import ClassicalDependency, ConditionalDependency, PointwiseDependency
from pointdep.errors import DataWarning, FitWarning, InputError

from .helpers import base, conditional, fit, small, triples

X, Y, Z = triples()
LABELS = np.where(Z[:, 0] > 0.3, "high", "low")


def frame(values, *names):
    return pd.DataFrame(values, columns=list(names))


@pytest.mark.parametrize(
    "read",
    [
        torch.from_numpy,
        np.ndarray.tolist,
        pd.DataFrame,
        lambda side: pd.DataFrame(side, columns=[f"c{i}" for i in range(side.shape[1])]),
        lambda side: pl.DataFrame(side, schema=[f"c{i}" for i in range(side.shape[1])]),
    ],
)
def test_containers(read):
    """y and z may be tables with the same names of columns."""
    model = fit(read(X), read(Y), read(Z))
    np.testing.assert_array_equal(model.oof_pmi_, base().oof_pmi_)
    np.testing.assert_array_equal(model.pmi(read(X), read(Y), read(Z)), base().pmi(X, Y, Z))
    np.testing.assert_array_equal(model.pmi(X, Y, Z), base().pmi(X, Y, Z))


def test_different_containers_for_different_sides():
    model = fit(pl.DataFrame(X), torch.from_numpy(Y), frame(Z, "a", "b"))
    np.testing.assert_array_equal(model.oof_pmi_, base().oof_pmi_)
    assert model.joint_.encoder_y_.names == ("Y0", "a", "b")
    assert model.marginal_.encoder_y_.names == ("a", "b")
    assert base().joint_.encoder_y_.names == ("Y0", "Z0", "Z1")
    assert model.n_features_in_ == 2
    assert model.feature_names_in_.tolist() == ["column_0", "column_1"]
    assert not hasattr(base(), "feature_names_in_")


def test_one_column_without_a_second_dimension():
    model = fit(X[:, 0], Y[:, 0], Z[:, 0])
    assert np.isfinite(model.oof_pmi_).all()
    np.testing.assert_array_equal(
        model.pmi(X[:, 0], Y[:, 0], Z[:, 0]), model.pmi(X[:, :1], Y, Z[:, :1])
    )


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

    def test_of_both_sides_and_tables_of_both_kinds(self):
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

    def test_declared(self):
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

    def test_a_new_one(self):
        with pytest.raises(InputError, match="Z column 0"):
            fit(X, Y, LABELS).pmi(X[:1], Y[:1], ["middle"])


def test_constant_columns():
    constant = np.column_stack([Z, np.ones(120)])
    with pytest.warns(DataWarning) as caught:
        model = fit(X, Y, constant)
    (said,) = (str(one.message) for one in caught)
    assert said.startswith("Z: dropped 1 column(s)")
    np.testing.assert_array_equal(model.oof_pmi_, base().oof_pmi_)
    with pytest.raises(InputError, match="every column of Z is constant"):
        fit(X, Y, np.ones(120))


def test_rows_in_another_order():
    tables = [pd.DataFrame(side) for side in (X, Y, Z)]
    with pytest.warns(DataWarning, match=r"X and Z .* as with Z.loc\[X.index\]"):
        fit(*tables[:2], tables[2][::-1])
    order = np.random.default_rng(0).permutation(120)
    fit(*(table.iloc[order] for table in tables))  # all in one order: nothing to warn of


def with_nan(side):
    return np.where(side == side[3, 1], np.nan, side)


def refit(*data, groups=None, estimator=None, **options):
    return conditional(estimator, **options).fit(*data, groups=groups)


def refit_with(**options):
    return refit(X, Y, Z, **options)


MISSING = r"{} is missing: call fit\(X, Y, Z\)".format


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: refit(X, Y), MISSING("Z")),
        (lambda: refit(X, Y, None), MISSING("Z")),
        (lambda: refit(X, None, Z), MISSING("Y")),
        (lambda: refit(X), MISSING("Y")),
        (lambda: refit(X, Y, Z[:100]), "X has 120 rows, Y has 120 rows, Z has 100"),
        (lambda: refit(X[:90], Y, Z), "X has 90 rows, Y has 120 rows, Z has 120"),
        (lambda: refit_with(groups=np.arange(7)), "groups has 7 rows"),
        (lambda: refit(X, Y, with_nan(Z)), "Z column 1 holds 1 NaN .* row 3"),
        (lambda: base().pmi(X, Y, with_nan(Z)), "Z column 1 holds 1 NaN"),
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
        (lambda: refit_with(estimator=ClassicalDependency()), "be a PointwiseDependency"),
        (lambda: refit_with(estimator=small(critic=torch.nn.Bilinear(2, 3, 1))), "your own"),
        (lambda: refit_with(discrete_z="yes"), "discrete_z='yes'"),
        (lambda: refit_with(estimator=small(checkpoint="c"), random_state=None), "checkpoint"),
        *(
            (lambda m=m: refit_with(estimator=small(method=m)), f"'{m}' .* from variational, pc")
            for m in ("cpc", "nwj", "js", "dv", "smile", "mine", "smi")
        ),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(InputError, match=said):
        call()


def test_other_names():
    model = fit(X, Y, frame(Z, "a", "b"))
    with pytest.raises(InputError, match="Z column 0 is 'b' but was 'a'"):
        model.pmi(X, Y, frame(Z, "b", "a"))
    with pytest.raises(TypeError, match="'radnom_state'; did you mean 'random_state'"):
        ConditionalDependency(radnom_state=0)


@pytest.mark.parametrize("ask", ["pmi", "outside", "mutual_information", "save"])
def test_not_fitted(ask):
    with pytest.raises(NotFittedError):
        getattr(conditional(), ask)(*(("nowhere",) if ask == "save" else (X, Y, Z)))


def test_pairs_unlike_the_fit():
    with pytest.warns(DataWarning, match=r"outside\(X, Y, Z\) says which"):
        base().pmi(X, Y, Z + 1000.0)
    assert base().outside(X, Y, Z + 1000.0).all()
    assert base().outside(X, Y, Z).mean() < 0.05


def test_flags_say_which_fit_they_are_of():
    with pytest.warns(FitWarning) as caught:
        model = conditional().fit(X, Y, Z)
    said = [str(flag) for flag in model.flags_]
    assert [str(one.message) for one in caught] == said
    names = [flag.name for part in (model.joint_, model.marginal_) for flag in part.flags_]
    assert [flag.name for flag in model.flags_] == names
    assert any(": in the fit of X with (Y, Z), " in text for text in said)
    assert any(": in the fit of X with Z, " in text for text in said)
    assert model.mutual_information().warnings == tuple(said)
