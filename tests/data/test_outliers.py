"""One value of 1e12 must not drown its column, and heavy tails are no outliers."""

import json
import warnings

import numpy as np
import pytest
import torch

from estimators.pointwise.helpers import small
from pointdep import ClassicalDependency, FitWarning, PointwiseDependency, open_rows
from pointdep.data.encoder import SideEncoder
from pointdep.data.sides import as_side
from refusals import refused

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(1000, 2))
Y = 0.8 * X + 0.6 * RANDOM.normal(size=(1000, 2))
VALUES = (1e6, -1e9, 1e12, 9.969209968386869e36, 1e300)


def encoder(values):
    return SideEncoder.fit(as_side(values, "X", discrete=False), "X")


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("count", [1, 5, 10, 100])
def test_the_others_keep_their_order_and_outliers_go_to_the_middle(value, count):
    rows, given = np.sort(RANDOM.permutation(1000)[:count]), X.copy()
    given[rows, 1] = value
    found = encoder(given)
    encoded, others = found.encode(as_side(given, "X", discrete=False)), np.delete(X[:, 1], rows)
    rest = np.delete(encoded[:, 1], rows)
    np.testing.assert_array_equal(np.argsort(rest), np.argsort(others))
    assert 0.2 < rest.std() < 1.5
    assert len(set(encoded[rows, 1])) == 1
    if count <= 50:
        np.testing.assert_allclose(encoded[rows, 1], 0.0, atol=0.1)
    else:  # so many may tell something: beyond all others, on their side
        assert (np.sign(value) * encoded[rows, 1] > abs(rest).max()).all()
    (told,) = found.odd
    assert f"X column 1 holds {value:.6g}" in told
    assert all(str(row) in told for row in rows[:5])
    assert ("likely a mark of missing values" in told) == (value == VALUES[3])
    np.testing.assert_array_equal(encoded[:, 0], encoder(X).encode(as_side(X, "X"))[:, 0])


@pytest.mark.parametrize("mark", [-999, -9999, 32767, 1e20])
def test_known_marks_need_a_smaller_gap(mark):
    given = 10 * X
    given[[7, 8], 0] = mark
    assert "likely a mark" in encoder(given).odd[0]
    given[[7, 8], 0] = mark + 0.5 if abs(mark) < 1e5 else 200.0
    assert encoder(given).odd == ()


def test_heavy_tails_and_counts_are_ordinary():
    columns = [RANDOM.standard_t(freedom, size=(2000, 100)) for freedom in (1, 2, 3)]
    columns += [np.exp(RANDOM.normal(size=(2000, 100))), RANDOM.poisson(0.1, size=(2000, 100))]
    columns.append(np.where(RANDOM.random((2000, 100)) < 0.97, 0.0, RANDOM.exponential(size=100)))
    for values in columns:
        found = encoder(values)
        assert (found.limits, found.odd) == ((), ())
        np.testing.assert_allclose(found.center, values.mean(0), rtol=1e-9)
        np.testing.assert_allclose(found.scale, values.std(0), rtol=1e-9)


def quick(**options):
    return small(hidden=(16,), critic="auto", max_epochs=3, curve=False, **options)


def nats(model, *pairs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        return model.fit(*pairs).mutual_information().nats


def test_the_estimate_and_the_saved_model(tmp_path):
    model, x = quick(), X.copy()
    usual = nats(quick(), X, Y)
    x[[3, 70]] = 1e12
    assert abs(nats(model, x, Y) - usual) < 0.05
    (flag,) = (flag for flag in model.flags_ if flag.name == "outliers")
    assert "X column 0 holds 1e+12 in 2 rows (3, 70)" in flag.message
    model.save(tmp_path / "model")
    loaded = PointwiseDependency.load(tmp_path / "model", device="cpu")
    middle = np.median(x, axis=0)
    for far in (1e12, -1e8):
        new = np.array([[far, 0.3], X[5]])
        as_missing = np.where(np.abs(new) > 1e6, middle, new)
        for one in (model, loaded):
            with pytest.warns(match="lie outside the data of the fit"):
                found = one.pmi(new, Y[:2])
            np.testing.assert_allclose(found, one.pmi(as_missing, Y[:2]), atol=0.02)
            assert one.outside(new, Y[:2]).tolist() == [True, False]
    about = json.loads((tmp_path / "model" / "model.json").read_text())["encoder_x"]
    refused("not a saved encoder", SideEncoder.from_dict, {**about, "limits": [[9, 0, 1, 0, 0]]})
    refused("not a saved encoder", SideEncoder.from_dict, {**about, "limits": [[0, 0, 1]]})


def test_streamed_rows_and_shards(tmp_path):
    x = X.copy()
    x[[3, 70], 1] = -1e20
    x[2, 0] = 3e9
    np.save(tmp_path / "x.npy", x)
    held, streamed = quick(), quick(stream=True)
    usual = nats(quick(stream=True), X, Y)
    nats(held, x, Y)
    for source in (np.load(tmp_path / "x.npy", mmap_mode="r"), open_rows(tmp_path / "x.npy")):
        assert abs(nats(streamed, source, Y) - usual) < 0.05
        assert streamed.encoder_x_.limits[0][0] == 0
        assert streamed.encoder_x_.odd[1].startswith(
            "X column 1 holds -1e+20, likely a mark of missing values, in 2 rows (3, 70)"
        )
        numbers = streamed.training_rows_.mapped.x.encoded(torch.from_numpy(x[:80]))
        far = streamed.encoder_x_.encode(as_side(x[:80], "X", discrete=False))
        np.testing.assert_allclose(numbers.numpy(), far, rtol=1e-6, atol=1e-6)
        assert [f.name for f in streamed.flags_ if f.name == "outliers"] == ["outliers"]


@pytest.mark.parametrize("critic", ["concat", "separable"])
def test_training_that_went_astray_is_told(critic):
    """With finite numbers all the way: 1e10 nats, or as many below zero."""
    astray = small(critic=critic, hidden=(16,), learning_rate=1e6, max_epochs=3, curve=False)
    assert abs(nats(astray, X[:300], Y[:300])) > 1e3
    assert [flag.name for flag in astray.flags_].count("diverged") == 1
    sound = small(critic=critic, hidden=(16,), learning_rate=1e-2, max_epochs=5, curve=False)
    nats(sound, X[:300], Y[:300])
    assert "diverged" not in [flag.name for flag in sound.flags_]


def test_other_estimators_tell_it():
    x = X.copy()
    x[4, 0] = 1e12
    model = ClassicalDependency("ksg", progress=False)
    found = nats(model, x, Y)
    assert [flag.name for flag in model.flags_] == ["outliers"]
    assert abs(found - nats(ClassicalDependency("ksg", progress=False), X, Y)) < 0.05
