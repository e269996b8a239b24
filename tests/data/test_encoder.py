"""Encoding: against scikit-learn, under affine maps, after training, and through JSON."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from pointdep.data import raw as raw_module
from pointdep.data.sides import SideEncoder, as_side
from pointdep.errors import DataWarning
from refusals import refused


def fit(values, name="X", **kwargs):
    return SideEncoder.fit(as_side(values, name, **kwargs), name)


def encode(encoder, values, **kwargs):
    return encoder.encode(as_side(values, encoder.side, **kwargs))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "u1"])
def test_numbers_are_standardised_as_by_sklearn(dtype, monkeypatch):
    monkeypatch.setattr(raw_module, "_CHUNK_NUMBERS", 7)  # several chunks, the last one short
    values = np.random.default_rng(0).integers(0, 200, (23, 3)).astype(dtype)
    encoder, exact = fit(values), values.astype(np.float64)
    encoded = encode(encoder, values)
    assert encoded.dtype == np.float32
    expected = StandardScaler().fit_transform(exact)
    np.testing.assert_allclose(encoded, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose([encoder.center, encoder.scale], [exact.mean(0), exact.std(0)])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(1e-6, 1e6), st.booleans(), st.floats(-1e6, 1e6))
def test_affine_maps_of_numbers_change_only_the_sign(seed, factor, negative, shift):
    values = np.random.default_rng(seed).normal(size=(12, 2))
    slope = -factor if negative else factor
    mapped = slope * values + shift
    # Digits lost when the shift dwarfs the slope are lost before encoding.
    lost = 1e-15 * (abs(shift) + factor) / factor
    plain, other = encode(fit(values), values), encode(fit(mapped), mapped)
    np.testing.assert_allclose(np.sign(slope) * other, plain, rtol=1e-5, atol=1e-5 + 100 * lost)


def test_tiny_and_huge_columns():
    values = np.random.default_rng(0).normal(size=(50, 3)) * [1e-200, 1e200, 1]
    np.testing.assert_allclose(encode(fit(values), values).std(0), 1, rtol=1e-5)
    refused("X column 1 spans more than float64", fit, np.array([[0, -1.5e308], [1, 1.5e308]]))


ROW = st.tuples(st.sampled_from(["a", "bb", "", "é"]), st.integers(-3, 3), st.booleans())


@settings(max_examples=40, deadline=None)
@given(st.lists(ROW, min_size=2, max_size=30))
def test_one_hot_agrees_with_sklearn(rows):
    rows = [("a", 0, True), ("bb", 1, False), *rows]  # so that no column is constant
    frame = pd.DataFrame(rows, columns=["s", "i", "b"])
    encoder = fit(frame, discrete=True)
    expected = OneHotEncoder(sparse_output=False).fit_transform(frame)
    np.testing.assert_array_equal(encode(encoder, frame, discrete=True), expected)
    assert encoder.dim == expected.shape[1]
    assert not encoder.numeric_mask.any()


def mixed_frame():
    rows = [("u", 1.0, True, 3), ("v", 2.0, False, 1), ("u", 4.0, True, 4), ("w", 8.0, True, 1)]
    return pd.DataFrame(rows, columns=["word", "size", "flag", "age"])


def test_numbers_come_before_one_hot_blocks():
    frame, encoder = mixed_frame(), fit(mixed_frame())
    encoded = encode(encoder, frame)
    assert encoder.dim == 7
    assert encoder.numeric_mask.tolist() == [True] * 2 + [False] * 5
    np.testing.assert_allclose(encoded[:, :2].mean(0), 0, atol=1e-6)
    words = [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]
    flags = [[0, 1], [1, 0], [0, 1], [0, 1]]
    np.testing.assert_array_equal(encoded[:, 2:], np.hstack([words, flags]))
    np.testing.assert_array_equal(encode(encoder, frame[1:3]), encoded[1:3])


def test_constant_columns_are_dropped_with_a_warning():
    frame = mixed_frame().assign(fixed=0.1, same="z")
    with pytest.warns(DataWarning, match=r"X: dropped 2 column.*'fixed', 'same'"):
        encoder = fit(frame)
    assert encoder.dim == 7
    expected = encode(fit(mixed_frame()), mixed_frame())
    np.testing.assert_array_equal(encode(encoder, frame), expected)
    # A dropped column plays no part later either, whatever it holds.
    np.testing.assert_array_equal(encode(encoder, frame.assign(same="other")), expected)
    for values in (np.full((9, 2), 0.1), ["a"] * 5, np.zeros((1, 3))):
        refused("every column of Y is constant", fit, values, "Y")


def test_errors_when_encoding():
    f, encoder = mixed_frame(), fit(mixed_frame())
    for message, frame in (
        ("X has 2 features, but .* is expecting 4 features", f[["word", "size"]]),
        ("'word' holds 'new' in row 1.*unseen", f.assign(word=["u", "new", "v", "new"])),
        ("X column 0 is 'size' but was 'word'", f[["size", "word", "flag", "age"]]),
        ("X column 'size' held numbers .* now holds strings", f.assign(size="big")),
        ("X column 'word' held categories .* now holds numbers", f.assign(word=3)),
        ("X column 'word' held categories of type str .* bool", f.assign(word=True)),
    ):
        refused(message, encode, encoder, frame)


def test_names_matter_only_between_tables():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(5, 2)), columns=["a", "b"])
    encoder = fit(frame)
    np.testing.assert_array_equal(encode(encoder, frame.to_numpy()), encode(encoder, frame))
    renamed = frame.rename(columns={"b": "c"})
    refused("feature names should match.*'c' but was 'b'", encode, encoder, renamed)
    encode(fit(frame["a"]), frame["b"])  # a Series' name is its own business


def test_few_integers_are_read_as_in_training():
    labels = np.arange(100) % 7
    encoder = fit(labels, "Y")
    np.testing.assert_array_equal(encode(encoder, [3, 0]), np.eye(7)[[3, 0]])
    refused("held categories in training but now holds numbers", encode, encoder, [0.5, 1.5])
    refused("Y column 0 holds 9 in row 0", encode, encoder, [9, 1])
    frame = pd.DataFrame({"label": labels, "level": labels / 2})
    both = fit(frame, discrete=True)
    np.testing.assert_array_equal(encode(both, frame[:9]), encode(both, frame[:9], discrete=True))
    numbers = fit(np.arange(100), "Y")
    assert as_side([5, 5, 5], "Y").category_mask == (True,)
    expected = np.full((3, 1), (5 - numbers.center[0]) / numbers.scale[0])
    np.testing.assert_allclose(encode(numbers, [5, 5, 5]), expected, rtol=1e-6)


def test_log_frequency_is_that_of_the_counts():
    labels = np.array(["a"] * 6 + ["b"] * 3 + ["c"])
    encoder = fit(labels, "Y")
    got = encoder.log_frequency(as_side(["c", "a", "b"], "Y"))
    np.testing.assert_allclose(got, np.log([0.1, 0.6, 0.3]))
    assert got.dtype == np.float64
    frame, numbers = mixed_frame(), np.random.default_rng(0).normal(size=5)
    for other in (frame, frame[["word", "flag"]], numbers):
        assert fit(other).log_frequency(as_side(other, "X")) is None


@pytest.mark.parametrize("kind", [int, str, bool, float])
def test_round_trip_through_json(kind):
    values = [kind(value) for value in (0, 1, 1, 0)]
    frame = mixed_frame().assign(other=pd.Categorical(values))
    encoder = fit(frame)
    again = SideEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert again.to_dict() == encoder.to_dict()
    assert type(again.categories[-1].values.tolist()[0]) is kind
    np.testing.assert_array_equal(encode(again, frame), encode(encoder, frame))
    early = encoder.to_dict()
    del early["list_column"]
    assert SideEncoder.from_dict(early).list_column is None


@pytest.mark.parametrize(
    "change",
    [
        *({"center": [1.0]}, {"center": ["a", "b"]}, {"scale": [1.0, 0.0]}, {"categories": [1, 2]}),
        *({"scale": [1.0, float("nan")]}, {"names": [1, 2, 3, 4]}, {"names": None}),
        *({"list_column": 1}, {"named": "yes"}, {"category_mask": [True]}, {"categories": []}),
        *({"category_mask": [True] * 4}, {"numeric_at": [1, 9]}, {"numeric_at": [1, 1]}),
        {"numeric_at": [1, "3"]},
        {"numeric_at": [], "category_at": [], "center": [], "scale": [], "categories": []},
    ],
)
def test_nonsense_is_not_an_encoder(change):
    refused(None, SideEncoder.from_dict, {**fit(mixed_frame()).to_dict(), **change})


@pytest.mark.parametrize(
    "change",
    [
        *({"type": "date"}, {"type": "int"}, {"type": []}, {"values": ["u", "v"]}),
        *({"values": ["v", "u", "w"]}, {"values": ["u", "u", "w"]}, {"values": ["u", 1, "w"]}),
        *({"counts": [1, 2, 0]}, {"counts": [1, 2, 0.5]}, {"counts": [1, 2, 10**30]}),
    ],
)
def test_nonsense_is_no_category_column(change):
    saved = fit(mixed_frame()).to_dict()
    saved["categories"][0] = {**saved["categories"][0], **change}
    for nonsense in (saved, {}, [], None, 3):
        refused("not a saved encoder", SideEncoder.from_dict, nonsense)


def test_what_is_no_category():
    text = [str(i / 7) for i in range(199)]
    for values, message in (
        ([f"id{i}" for i in range(200)], "categories in 200 rows, too many"),
        ([f"w{i // 3}" for i in range(90_000)], "categories in 90000 rows, too many"),
        ([*text, "N/A?"], r"all but 'N/A\?'"),
        ([*text, "7.5"], "all are num"),
    ):
        refused(message, fit, values, "Y")
    for numbers in (np.linspace(0, 1, 600), np.arange(600)):
        refused("600 different numbers in 600 rows", fit, numbers, "Y", discrete=True)
