"""What all classical estimators share."""

import copy
import math
import pickle
import tracemalloc
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from estimators.pointwise.helpers import assert_scikit_learn_checks
from pointdep import CLASSICAL, ClassicalDependency, PointwiseDependency
from pointdep.errors import InputError
from pointdep.estimators.classical.catalogue import MOST_CENTRES, get_classical
from refusals import refused

from .helpers import fit, gaussians, labelled, table_rows

X, Y, _ = gaussians(200)
LABELS, VALUES, _ = labelled(200)
ON_NUMBERS = [key for key in CLASSICAL if key != "counting"]
WITH_PMI = [key for key, method in CLASSICAL.items() if method.pmi != "none"]
IN_NATS = [key for key, method in CLASSICAL.items() if method.pmi == "nats"]


def data_for(key, rows=200, seed=0):
    return table_rows(rows, seed=seed) if key == "counting" else gaussians(rows, seed=seed)[:2]


@pytest.mark.parametrize("key", WITH_PMI)
def test_pairs_matrix_tiles_copies_and_swapped_sides_agree(key, monkeypatch):
    x, y = data_for(key)
    model = fit(key, x, y)
    pairs, matrix = model.pmi(x, y), model.pmi_matrix(x, y[:50])
    assert pairs.dtype == matrix.dtype == np.float32
    assert (pairs.shape, matrix.shape) == ((200,), (200, 50))
    np.testing.assert_allclose(matrix[:50].diagonal(), pairs[:50], rtol=1e-4, atol=1e-5)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.pmi(x, y), pairs)
    np.testing.assert_array_equal(again.oof_pmi_, model.oof_pmi_)
    monkeypatch.setattr("pointdep.estimators.classical.estimator._ROWS", 7)
    monkeypatch.setattr("pointdep.estimators.classical.estimator._COLUMNS", 33)
    np.testing.assert_allclose(model.pmi(x, y), pairs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.pmi_matrix(x, y[:50]), matrix, rtol=1e-5, atol=1e-6)
    monkeypatch.undo()
    swapped = fit(key, y, x)
    # The kernel methods draw landmarks and widths side by side, so only roughly.
    if key in ("phsic", "ulsif"):
        assert np.corrcoef(model.oof_pmi_, swapped.oof_pmi_)[0, 1] > 0.98
        return
    np.testing.assert_allclose(model.oof_pmi_, swapped.oof_pmi_, rtol=1e-3, atol=1e-4)
    one, other = (each.mutual_information().nats for each in (model, swapped))
    assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize("key", WITH_PMI)
def test_the_matrix_is_computed_in_tiles(key):
    """2,000 by 20,000: the answer has 160 MB, and little more is needed for it."""
    model, x, y = fit(key, *data_for(key)), data_for(key, 2000)[0], data_for(key, 20_000)[1]
    tracemalloc.start()
    matrix = model.pmi_matrix(x, y)
    assert tracemalloc.get_traced_memory()[1] - matrix.nbytes < 250e6
    tracemalloc.stop()


@pytest.mark.parametrize("key", ON_NUMBERS)
def test_scale_and_container_do_not_matter(key):
    frames = [pd.DataFrame(v, columns=["a", "b"]) for v in (X, Y)]
    tensors = torch.from_numpy(1000 * X - 5), torch.from_numpy(Y / 7)
    wanted, table, scaled = fit(key, X, Y), fit(key, *frames), fit(key, *tensors)
    assert table.feature_names_in_.tolist() == ["a", "b"]
    assert table.n_features_in_ == wanted.n_features_in_ == 2
    if key == "ksg":
        for found in (table, scaled):
            assert np.isclose(found.mi_values_, wanted.mi_values_, atol=1e-6).mean() > 0.9
    else:
        np.testing.assert_array_equal(table.oof_pmi_, wanted.oof_pmi_)
        np.testing.assert_allclose(scaled.oof_pmi_, wanted.oof_pmi_, rtol=0.01, atol=1e-3)


@pytest.mark.parametrize("key", IN_NATS)
def test_score_is_that_of_the_implied_classifier(key):
    model = fit(key, *data_for(key, 400))
    fresh = fresh_x, fresh_y = data_for(key, 400, seed=1)
    assert -math.log(2) < model.score(*fresh) < 0
    assert model.score(fresh_x, np.random.default_rng(0).permutation(fresh_y)) < model.score(*fresh)
    two_x, two_y = fresh_x[:2], fresh_y[:2]
    joint, product = model.pmi(two_x, two_y), model.pmi(two_x, two_y[::-1])
    wanted = -0.5 * (np.logaddexp(0, -joint).mean() + np.logaddexp(0, product).mean())
    assert model.score(two_x, two_y) == pytest.approx(wanted, rel=1e-5)


def test_groups_confidence_and_options():
    groups = np.arange(200) // 2
    for call in (partial(fit, "ksg"), fit("ksg", X, Y).mutual_information):
        refused("one row of each group", call, X, Y, groups=groups)
    model = fit("cca", X, Y)
    for confidence in (0, 1, "most"):
        refused("confidence", model.mutual_information, confidence=confidence)
    narrow, wide = (model.mutual_information(confidence=c) for c in (0.5, 0.99))
    assert wide.ci[0] < narrow.ci[0] < narrow.nats < narrow.ci[1] < wide.ci[1]
    assert narrow.ci[1] - narrow.nats == pytest.approx(0.6745 * narrow.stderr, rel=1e-3)
    assert get_classical("ksg", {"k": 3}).options == {"k": 3}
    assert get_classical("ulsif", {"ridge": 0.1}).options["bandwidth"] is None
    assert CLASSICAL["ksg"].options == {"k": 5}
    with pytest.raises(TypeError):
        CLASSICAL["ksg"].options["k"] = 3


@pytest.mark.parametrize("key", ["cca", "ulsif"])
def test_groups_widen_the_error(key):
    x, y = np.repeat(X, 3, axis=0), np.repeat(Y, 3, axis=0)
    x, y = x + 1e-3 * np.random.default_rng(0).standard_normal((2, *x.shape))
    groups = np.repeat(np.arange(200), 3)
    model, alone = fit(key, x, y, groups=groups), fit(key, x, y)
    assert model.mutual_information().stderr > 1.2 * alone.mutual_information().stderr
    given = model.mutual_information(x, y, groups=groups)
    assert given.stderr > 1.2 * model.mutual_information(x, y).stderr
    for ask in (model.mutual_information, model.score):
        refused("groups has 2 rows", ask, x, y, groups=[0, 1])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((X, Y[:-1]), "inconsistent numbers of samples"),
        ((np.where(X[3, 1] == X, np.nan, X), Y), "X column 1 holds 1 NaN"),
        ((X, np.ones(200)), "column of Y is constant"),
        ((X[:5], Y[:5]), r"Found 5 sample\(s\)"),
        ((X,), "target y is None"),
    ],
)
def test_what_is_refused_as_by_the_networks(data, said):
    for key in ON_NUMBERS:
        refused(said, fit, key, *data, missing="error")


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: fit("kgs", X, Y), InputError, "'kgs': did you mean 'ksg'"),
        (lambda: fit("pc", X, Y), InputError, "'pc' .* PointwiseDependency"),
        (lambda: fit("ulsif", X, Y, centers=3), InputError, "did you mean 'centres'"),
        (lambda: ClassicalDependency(method_option={}), TypeError, "mean 'method_options'"),
        (lambda: ClassicalDependency(method_options=[3]).fit(X, Y), InputError, "be a mapping"),
        (lambda: fit("cca", X, Y).pmi(X[:, :1], Y), InputError, "X has 1 features, .* expecting 2"),
        (lambda: fit("cca", X, Y).pmi(X, Y[:5]), InputError, "inconsistent numbers of samples"),
        (lambda: fit("cca", X, Y).mutual_information(X), InputError, "both X and Y"),
    ],
)
def test_names_options_and_given_rows(make, error, said):
    with pytest.raises(error, match=said):
        make()


def test_scikit_learn_checks():
    """Of a method that takes every kind of side and gives every kind of answer."""
    assert_scikit_learn_checks(ClassicalDependency("cca", folds=3, progress=False))


@pytest.mark.parametrize("key", CLASSICAL)
def test_every_method_is_complete(key):
    method = CLASSICAL[key]
    assert method.name
    assert method.cannot
    assert set(method.options) == set(method.rules)
    assert (method.fit is None) != (method.local is None)
    assert all(f"`{name}`" in method.equation for name in method.options)
    assert copy.deepcopy(method).options == method.options
    refused(rf"use ClassicalDependency\('{key}'\)", PointwiseDependency(method=key).fit, X, Y)


@pytest.mark.parametrize(
    ("key", "name", "wrong"),
    [
        ("counting", "smoothing", (-1, True)),
        ("counting", "correction", ("miller",)),
        ("phsic", "features", (0,)),
        ("phsic", "bandwidth", (0,)),
        ("ulsif", "centres", (MOST_CENTRES + 1,)),
        ("ulsif", "bandwidth", (float("nan"),)),
        ("ulsif", "ridge", (0.0,)),
        ("ulsif", "floor", (1.0,)),
        ("likelihood", "components", (0,)),
        ("likelihood", "max_components", (2.5,)),
        ("likelihood", "ridge", (-1e-6,)),
        ("ksg", "k", (0, None)),
        ("cca", "correction", (True,)),
    ],
)
def test_wrong_options(key, name, wrong):
    for value in wrong:
        refused(name, get_classical, key, {name: value})
