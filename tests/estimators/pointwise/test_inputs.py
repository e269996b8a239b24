"""What may be given as X and Y, and what is said of it."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from pointdep.data.tasks import make_task
from pointdep.errors import DataWarning, InputError
from pointdep.inference.mutual_information import MIEstimate
from pointdep.inference.out_of_fold import wide_flags

from .helpers import fit, fitted, pairs, small

X, Y = pairs()


def memmap(values, folder, name):
    np.save(folder / f"{name}.npy", values)
    return np.load(folder / f"{name}.npy", mmap_mode="r")


CONTAINERS = {
    "float64": lambda a, *_: a.astype(np.float64),
    "torch": lambda a, *_: torch.from_numpy(a),
    "torch with gradient": lambda a, *_: torch.from_numpy(a).requires_grad_(),
    "pandas": lambda a, *_: pd.DataFrame(a, columns=[f"c{k}" for k in range(a.shape[1])]),
    "polars": lambda a, *_: pl.DataFrame(a, schema=[f"c{k}" for k in range(a.shape[1])]),
    "list": lambda a, *_: a.astype(np.float64).tolist(),
    "objects": lambda a, *_: a.astype(object),
    "columns first": lambda a, *_: np.asfortranarray(a),
    "big endian": lambda a, *_: a.astype(">f4"),
    "memmap": memmap,
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_containers(kind, tmp_path):
    x, y = (CONTAINERS[kind](side, tmp_path, name) for side, name in ((X, "x"), (Y, "y")))
    model, wanted = fit(x, y), fitted()
    np.testing.assert_array_equal(model.oof_pmi_, wanted.oof_pmi_)
    np.testing.assert_array_equal(model.pmi(x, y), wanted.pmi(X, Y))
    np.testing.assert_array_equal(wanted.pmi(x, y), wanted.pmi(X, Y))


def test_one_dimension():
    column, flat = fit(X[:, :1], Y), fit(X[:, 0], Y)
    np.testing.assert_array_equal(column.oof_pmi_, flat.oof_pmi_)
    np.testing.assert_array_equal(flat.pmi(X[:5, 0], Y[:5]), flat.pmi(X[:5, :1], Y[:5]))
    assert fit(X[:, 0], Y[:, 0]).oof_pmi_.shape == (120,)
    assert fit(pd.Series(X[:, 0], name="a"), pl.Series(Y[:, 0])).n_features_in_ == 1


LETTERS = np.array(["one", "two", "three"])


def test_strings_are_categories():
    labels = np.random.default_rng(0).integers(0, 3, 120)
    numbered, named = fit(X, labels), fit(X, LETTERS[labels])
    assert numbered.encoder_y_.dim == named.encoder_y_.dim == 3
    assert named.pmi_matrix(X[:4], LETTERS).shape == (4, 3)
    # Names are sorted, so the columns are those of the numbers in another order.
    order = np.argsort(LETTERS).argsort()
    renamed = fit(X, order[labels])
    np.testing.assert_array_equal(renamed.oof_pmi_, named.oof_pmi_)


def test_a_table_of_both_kinds():
    frame = pd.DataFrame({"size": X[:, 0], "kind": LETTERS[np.arange(120) % 3], "mass": X[:, 1]})
    model = fit(frame, Y)
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == ["size", "kind", "mass"]
    assert model.encoder_x_.dim == 5
    np.testing.assert_array_equal(model.pmi(pl.from_pandas(frame), Y), model.pmi(frame, Y))
    with pytest.raises(InputError, match="feature names should match"):
        model.pmi(frame[["size", "mass", "kind"]], Y)
    refitted = model.set_params(max_epochs=1)
    with pytest.warns(UserWarning, match="still_improving"):
        refitted.fit(X, Y)
    assert not hasattr(refitted, "feature_names_in_")


def test_discrete_overrides():
    few = np.arange(120) % 4
    assert fit(X, few).encoder_y_.dim == 4
    assert fit(X, few, discrete_y=False).encoder_y_.dim == 1
    assert fit(few.astype(float), Y).encoder_x_.dim == 1
    assert fit(few.astype(float), Y, discrete_x=True).encoder_x_.dim == 4


def test_an_unseen_category():
    model = fit(X, LETTERS[np.arange(120) % 3])
    with pytest.raises(InputError, match=r"Y column 0 holds 'four' in row 1, a category unseen"):
        model.pmi(X[:2], ["one", "four"])


def test_a_constant_column_is_dropped():
    wide = np.column_stack([X[:, 0], np.full(120, 7.0), X[:, 1]])
    with pytest.warns(DataWarning, match=r"X: dropped 1 column\(s\).*'1'"):
        model = fit(wide, Y)
    np.testing.assert_array_equal(model.oof_pmi_, fitted().oof_pmi_)
    wide[:, 1] = 1e9  # what it holds later does not matter
    np.testing.assert_array_equal(model.pmi(wide, Y), fitted().pmi(X, Y))
    with pytest.raises(InputError, match="every column of Y is constant"):
        fit(X, np.ones(120))


def test_the_data_are_not_changed():
    x, y = X.copy(), Y.copy()
    fit(x, y)
    assert (x == X).all()
    assert (y == Y).all()


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, None, "requires y to be passed"),
        (None, Y, "X has 0 dimensions"),
        (X[:50], Y, "X has 50 rows, Y has 120 rows"),
        (np.where(X > 2, np.nan, X), Y, "X column . holds . NaN"),
        (X.reshape(120, 2, 1), Y, "X has 3 dimensions"),
        (X[:5], Y[:5], r"5 sample\(s\)"),
        (X[:0], Y[:0], r"0 sample\(s\)"),
    ],
)
def test_refused_by_fit(x, y, message):
    with pytest.raises(InputError, match=message):
        small().fit(x, y)


@pytest.mark.parametrize("ask", ["pmi", "npmi", "score", "mutual_information"])
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, None, "both X and Y are needed"),
        (None, Y, "both X and Y are needed"),
        (X[:, :1], Y, "X has 1 features, but PointwiseDependency is expecting 2"),
        (X, Y[:, :2], "Y has 2 features, but PointwiseDependency is expecting 3"),
        (X[:7], Y[:8], "X has 7 rows, Y has 8 rows"),
        (np.full_like(X, math.inf), Y, "120 infinity"),
    ],
)
def test_refused_later(ask, x, y, message):
    with pytest.raises(InputError, match=message):
        getattr(fitted(), ask)(x, y)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros((120, 1)), r"groups has shape \(120, 1\)"),
        (np.r_[np.nan, np.arange(119) % 30], "groups holds NaN"),
        (np.arange(100) % 20, "groups has 100 rows"),
        (np.zeros(120), "groups has 1 distinct"),
        ([None] * 120, "groups holds Python objects"),
    ],
)
def test_groups_refused(groups, message):
    with pytest.raises(InputError, match=message):
        fit(X, Y, groups=groups)


@pytest.mark.parametrize("kind", [list, pd.Series, torch.tensor, pl.Series, np.array])
def test_groups_in_any_container(kind):
    ids = (np.arange(120) % 24).tolist()
    np.testing.assert_array_equal(
        fit(X, Y, groups=kind(ids)).oof_pmi_, fit(X, Y, groups=np.array(ids)).oof_pmi_
    )


@pytest.mark.parametrize("path", ["images", Path("images")])
def test_a_path_is_no_rows(path):
    with pytest.raises(InputError, match=r"X is 'images', not rows.* pointdep.open_rows opens"):
        small().fit(path, path)


def names(flags):
    return [flag.name for flag in flags]


def auto(x, y, **options):
    return fit(x, y, critic="auto", hidden=(8, 4), **options)


@pytest.mark.parametrize(("rows", "few"), [(99, True), (100, False)])
def test_few_rows(rows, few):
    found = auto(*pairs(rows), max_epochs=1)
    assert ("few_rows" in names(found.flags_)) == few
    notes = [note for note in found.mutual_information().warnings if note.startswith("few_rows:")]
    assert bool(notes) == few
    assert all(f"({rows}, of 100 at least)" in note for note in notes)


@pytest.mark.parametrize(
    ("nats", "ci", "wide"),
    [
        (0.49, (0.0, 1.13), True),
        (2.91, (2.51, 3.31), False),  # narrow beside the estimate
        (0.01, (0.0, 0.4), False),  # no more than 0.4, whatever it is
        (1.5, (1.1, 1.9), True),
        (1.5, (1.2, 1.8), False),
        (float("nan"), (float("nan"),) * 2, False),
    ],
)
def test_wide_intervals(nats, ci, wide):
    found = MIEstimate(nats, stderr=1.0, ci=ci)
    assert names(wide_flags(found)) == ["wide_interval"] * wide


def test_data_doubled():
    x, y = pairs(120)
    both = np.concatenate([x, x]), np.concatenate([y, y])
    found = auto(*both)
    assert "duplicated_rows" in names(found.flags_)
    assert any("duplicated_rows" in note for note in found.mutual_information().warnings)
    assert "duplicated_rows" in names(fit(*both, critic="concat").flags_)
    grouped = auto(*both, groups=np.arange(240) % 120)
    assert "duplicated_rows" not in names(grouped.flags_)


@pytest.mark.parametrize("name", ["table", "zero-inflated", "label", "gaussian-1"])
def test_data_that_repeat_by_nature(name):
    task = make_task(name, 400)
    assert "duplicated_rows" not in names(auto(task.x, task.y).flags_)


@pytest.mark.parametrize("critic", ["auto", "concat"])
def test_y_is_x(critic):
    x = np.random.default_rng(0).standard_normal((300, 2))
    model = fit(x, x, critic=critic, hidden=(8, 4), max_epochs=5)
    found = model.mutual_information()
    assert np.isfinite([found.nats, found.stderr]).all()
    assert found.nats > 0.3
    assert ("determined" in names(model.flags_)) == (critic == "auto")


@pytest.mark.parametrize("stream", [True, False])
def test_a_shared_column_is_named(stream):
    x, y = (pd.DataFrame(side).add_prefix("c") for side in pairs(300))
    x.insert(1, "id", np.arange(300))
    y["id"] = np.arange(300)
    found = {flag.name: flag.message for flag in auto(x, y, stream=stream).flags_}
    assert "X column 'id' and Y column 'id' have the same values" in found["determined"]


def test_labels_that_determine_each_other_are_no_fault():
    labels = np.random.default_rng(0).integers(0, 3, 300)
    model = auto(labels, labels)
    assert "determined" not in names(model.flags_)
    assert np.isfinite(model.mutual_information().nats)
