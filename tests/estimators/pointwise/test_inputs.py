"""What may be given as X and Y, and what is said of it."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from pointdep.data.tasks import make_task
from pointdep.errors import DataWarning
from pointdep.inference.mutual_information import MIEstimate
from pointdep.inference.out_of_fold import wide_flags
from refusals import refused

from .helpers import fit, fitted, pairs, small

X, Y = pairs()


CONTAINERS = {
    "float64": lambda a: a.astype(np.float64),
    "torch": torch.from_numpy,
    "torch with gradient": lambda a: torch.from_numpy(a).requires_grad_(),
    "pandas": lambda a: pd.DataFrame(a).add_prefix("c"),
    "polars": lambda a: pl.from_pandas(pd.DataFrame(a).add_prefix("c")),
    "list": lambda a: a.astype(np.float64).tolist(),
    "objects": lambda a: a.astype(object),
    "columns first": np.asfortranarray,
    "big endian": lambda a: a.astype(">f4"),
}


@pytest.mark.parametrize("kind", [*CONTAINERS, "memmap"])
def test_containers(kind, tmp_path):
    def memmap(values):
        path = tmp_path / f"{values.shape[1]} columns.npy"
        np.save(path, values)
        return np.load(path, mmap_mode="r")

    read = CONTAINERS.get(kind, memmap)
    x, y = read(X), read(Y)
    model, wanted = fit(x, y), fitted()
    np.testing.assert_array_equal(model.oof_pmi_, wanted.oof_pmi_)
    np.testing.assert_array_equal(model.pmi(x, y), wanted.pmi(X, Y))
    np.testing.assert_array_equal(wanted.pmi(x, y), wanted.pmi(X, Y))


def test_one_dimension_and_strings():
    x, y = X.copy(), Y.copy()
    column, flat = fit(x[:, :1], y), fit(x[:, 0], y)
    assert np.array_equal(x, X)  # the data are not changed
    assert np.array_equal(y, Y)
    np.testing.assert_array_equal(column.oof_pmi_, flat.oof_pmi_)
    np.testing.assert_array_equal(flat.pmi(X[:5, 0], Y[:5]), flat.pmi(X[:5, :1], Y[:5]))
    assert fit(X[:, 0], Y[:, 0]).oof_pmi_.shape == (120,)
    assert fit(pd.Series(X[:, 0], name="a"), pl.Series(Y[:, 0])).n_features_in_ == 1
    labels = np.random.default_rng(0).integers(0, 3, 120)
    numbered, named = fit(X, labels), fit(X, LETTERS[labels])
    assert numbered.encoder_y_.dim == named.encoder_y_.dim == 3
    assert named.pmi_matrix(X[:4], LETTERS).shape == (4, 3)
    # Names are sorted, so the columns are those of the numbers in another order.
    renamed = fit(X, np.argsort(LETTERS).argsort()[labels])
    np.testing.assert_array_equal(renamed.oof_pmi_, named.oof_pmi_)
    refused("Y column 0 holds 'four' in row 1, .*unseen", named.pmi, X[:2], ["one", "four"])


LETTERS = np.array(["one", "two", "three"])


@pytest.mark.filterwarnings("ignore:(wide_interval|alarm):")  # after one epoch
def test_a_table_of_both_kinds():
    frame = pd.DataFrame({"size": X[:, 0], "kind": LETTERS[np.arange(120) % 3], "mass": X[:, 1]})
    model = fit(frame, Y)
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == ["size", "kind", "mass"]
    assert model.encoder_x_.dim == 5
    np.testing.assert_array_equal(model.pmi(pl.from_pandas(frame), Y), model.pmi(frame, Y))
    refused("feature names should match", model.pmi, frame[["size", "mass", "kind"]], Y)
    with pytest.warns(UserWarning, match="still_improving"):
        refitted = model.set_params(max_epochs=1).fit(X, Y)
    assert not hasattr(refitted, "feature_names_in_")


def test_discrete_overrides_and_a_constant_column():
    few = np.arange(120) % 4
    assert (fit(X, few).encoder_y_.dim, fit(X, few, discrete_y=False).encoder_y_.dim) == (4, 1)
    assert fit(few.astype(float), Y).encoder_x_.dim == 1
    assert fit(few.astype(float), Y, discrete_x=True).encoder_x_.dim == 4
    wide = np.column_stack([X[:, 0], np.full(120, 7.0), X[:, 1]])
    with pytest.warns(DataWarning, match=r"X: dropped 1 column\(s\).*'1'"):
        model = fit(wide, Y)
    np.testing.assert_array_equal(model.oof_pmi_, fitted().oof_pmi_)
    wide[:, 1] = 1e9  # what it holds later does not matter
    np.testing.assert_array_equal(model.pmi(wide, Y), fitted().pmi(X, Y))
    refused("every column of Y is constant", fit, X, np.ones(120))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, None, "requires y to be passed"),
        (None, Y, "X has 0 dimensions"),
        (X[:50], Y, "X has 50 rows, Y has 120 rows"),
        (np.where(X > 2, np.inf, X), Y, "X column . holds . infinity"),
        (X.reshape(120, 2, 1), Y, "X has 3 dimensions"),
        (X[:5], Y[:5], r"5 sample\(s\)"),
        (X[:0], Y[:0], r"0 sample\(s\)"),
        ("images", "images", "X is 'images', not rows.* pointdep.open_rows opens"),
        (Path("images"), Path("images"), "X is 'images', not rows"),
    ],
)
def test_refused_by_fit(x, y, message):
    refused(message, small().fit, x, y)


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
    refused(message, fit, X, Y, groups=groups)


@pytest.mark.parametrize("ask", ["pmi", "npmi", "score", "mutual_information"])
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, None, "both X and Y are needed"),
        (None, Y, "both X and Y are needed"),
        (X[:, :1], Y, "X has 1 features, but PointwiseDependency is expecting 2"),
        (X, Y[:, :2], "Y has 2 features, but PointwiseDependency is expecting 3"),
        (X[:7], Y[:8], "X has 7 rows, Y has 8 rows"),
    ],
)
def test_refused_later(ask, x, y, message):
    refused(message, getattr(fitted(), ask), x, y)


def test_rows_that_no_fit_can_read():
    infinite = np.full_like(X, math.inf)
    for ask in ("pmi", "npmi", "mutual_information"):
        refused("120 infinity", getattr(fitted(), ask), infinite, Y)
    with pytest.warns(DataWarning, match="120 of 120 .* left out of the score .*infinity"):
        assert fitted().score(infinite, Y) == -math.log(2)


def test_groups_in_any_container():
    ids = (np.arange(120) % 24).tolist()
    wanted = fit(X, Y, groups=np.array(ids)).oof_pmi_
    for kind in (list, pd.Series, torch.tensor, pl.Series):
        np.testing.assert_array_equal(fit(X, Y, groups=kind(ids)).oof_pmi_, wanted)


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
    assert names(wide_flags(MIEstimate(nats, 1.0, ci))) == ["wide_interval"] * wide


def test_data_doubled():
    both = np.concatenate([X, X]), np.concatenate([Y, Y])
    found = auto(*both)
    assert "duplicated_rows" in names(found.flags_)
    assert any("duplicated_rows" in note for note in found.mutual_information().warnings)
    assert "duplicated_rows" in names(fit(*both, critic="concat").flags_)
    assert "duplicated_rows" not in names(auto(*both, groups=np.arange(240) % 120).flags_)
    for name in ("table", "zero-inflated", "label", "gaussian-1"):  # which repeat by nature
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
    labels = np.random.default_rng(0).integers(0, 3, 300)
    model = fit(labels, labels, critic=critic, hidden=(8, 4))
    assert "determined" not in names(model.flags_)  # of labels it is no fault
    assert np.isfinite(model.mutual_information().nats)


@pytest.mark.parametrize("stream", [True, False])
def test_a_shared_column_is_named(stream):
    x, y = (pd.DataFrame(side).add_prefix("c") for side in pairs(300))
    x.insert(1, "count", np.arange(300))
    y["count"] = np.arange(300)
    found = {flag.name: flag.message for flag in auto(x, y, stream=stream).flags_}
    assert "X column 'count' and Y column 'count' have the same values" in found["determined"]
