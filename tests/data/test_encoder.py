"""X and Y from every accepted container, each refusal; encoding against scikit-learn, and JSON."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from pointdep.data import raw as raw_module
from pointdep.data.sides import SideEncoder, SparseInputError, as_side, require_same_length
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
    np.testing.assert_allclose(encoded, StandardScaler().fit_transform(exact), rtol=1e-5, atol=1e-6)
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


def test_numbers_come_before_one_hot_blocks_and_constants_are_dropped():
    frame, encoder = mixed_frame(), fit(mixed_frame())
    encoded = encode(encoder, frame)
    assert (encoder.dim, encoder.numeric_mask.tolist()) == (7, [True] * 2 + [False] * 5)
    np.testing.assert_allclose(encoded[:, :2].mean(0), 0, atol=1e-6)
    words = [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]
    flags = [[0, 1], [1, 0], [0, 1], [0, 1]]
    np.testing.assert_array_equal(encoded[:, 2:], np.hstack([words, flags]))
    np.testing.assert_array_equal(encode(encoder, frame[1:3]), encoded[1:3])
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


def test_errors_when_encoding_and_names_of_columns():
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
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(5, 2)), columns=["a", "b"])
    encoder = fit(frame)
    np.testing.assert_array_equal(encode(encoder, frame.to_numpy()), encode(encoder, frame))
    renamed = frame.rename(columns={"b": "c"})
    refused("feature names should match.*'c' but was 'b'", encode, encoder, renamed)
    encode(fit(frame["a"]), frame["b"])  # a Series' name is its own business


def test_few_integers_are_read_as_in_training_and_log_frequency():
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
    encoder = fit(np.array(["a"] * 6 + ["b"] * 3 + ["c"]), "Y")
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
        ([f"w{i % 400}" for i in range(500)], "400 categories in 500 rows, too many"),
        ([*text, "N/A?"], r"all but 'N/A\?'"),
        ([*text, "7.5"], "all are num"),
    ):
        refused(message, fit, values, "Y")
    kept = fit([f"w{i % 370}" for i in range(500)], "Y").to_dict()["categories"][0]
    assert len(kept["values"]) == 370
    for numbers in (np.linspace(0, 1, 600), np.arange(600)):
        refused("600 different numbers in 600 rows", fit, numbers, "Y", discrete=True)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i8", "u1", "u8"])
def test_numeric_dtype_is_kept_and_not_copied(dtype):
    values = np.arange(12).reshape(6, 2).astype(dtype)
    side = as_side(values, "X")
    assert side.numeric.dtype == np.dtype(dtype)
    assert np.shares_memory(side.numeric, values)
    assert (side.rows, side.width, side.categorical) == (6, 2, ())


def test_numbers_among_objects():
    """As a table of mixed columns gives them when it is turned into one array."""
    mixed = pd.DataFrame({"a": [1.5, 2.5], "b": ["u", "v"], "c": [3, 4]}).to_numpy()
    assert mixed.dtype == object
    side = as_side(mixed, "X")
    assert side.category_mask == (False, True, False)
    assert side.numeric.tolist() == [[1.5, 3.0], [2.5, 4.0]]
    assert as_side(np.array([1, 2, 3], dtype=object), "X").numeric.dtype.kind == "i"
    assert as_side(np.array([10**30, 1], dtype=object), "X").numeric[0, 0] == 1e30
    refused("1 NaN", as_side, np.array([1.0, np.nan], dtype=object), "X")
    assert as_side([0.5, 1.5, 2.5], "X").numeric.shape == (3, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
def test_tensors(dtype):
    values = torch.arange(6).reshape(3, 2).to(dtype)
    np.testing.assert_array_equal(as_side(values, "X").numeric, [[0, 1], [2, 3], [4, 5]])
    assert as_side(torch.ones(3, 2, requires_grad=True), "X").numeric.dtype == np.float32


def test_pandas_columns_of_every_kind():
    frame = pd.DataFrame({"f": [0.5, 1.5, 2.5], "s": ["a", "b", "a"], "i": [1, 2, 3]})
    frame = frame.astype({"i": "Int64"}).assign(
        c=pd.Categorical([3, 1, 3]),
        b=pd.array([True, False, True], dtype="boolean"),
        arrow=pd.array([1.0, 2.0, 4.0], dtype="float32[pyarrow]"),
    )
    side = as_side(frame, "X")
    assert side.named
    assert side.names == ("f", "s", "i", "c", "b", "arrow")
    assert side.category_mask == (False, True, False, True, True, False)
    assert side.numeric_names == ("f", "i", "arrow")
    np.testing.assert_array_equal(side.numeric, [[0.5, 1, 1], [1.5, 2, 2], [2.5, 3, 4]])
    found = {name: values.tolist() for name, values in side.categorical}
    assert found == {"s": ["a", "b", "a"], "c": [3, 1, 3], "b": [True, False, True]}
    np.testing.assert_array_equal(side.column(5), [1, 2, 4])
    # A Series, an Index and a bare Categorical.
    assert as_side(pd.Series(["a", "b"], name="w"), "Y").names == ("w",)
    assert not as_side(pd.Series(["a", "b"], name="w"), "Y").named
    assert as_side(pd.Index([0.5, 1.5]), "Y").numeric.shape == (2, 1)
    assert as_side(pd.Categorical([7, 8]), "Y").category_mask == (True,)


def test_polars_columns_of_every_kind():
    columns = {"f": [0.5, 1.5], "i": [1, 2], "s": ["a", "b"]}
    columns["c"] = pl.Series(["u", "v"], dtype=pl.Categorical)
    columns["e"] = pl.Series(["u", "v"], dtype=pl.Enum(["v", "u"]))
    columns |= {"b": [True, False], "d": pl.Series(["1.5", "2.5"]).cast(pl.Decimal(10, 2))}
    side = as_side(pl.DataFrame(columns), "X")
    assert side.category_mask == (False, False, True, True, True, True, False)
    np.testing.assert_array_equal(side.numeric, [[0.5, 1, 1.5], [1.5, 2, 2.5]])
    assert dict(side.categorical)["c"].tolist() == ["u", "v"]
    assert as_side(pl.Series([1.0, 2.0]), "X").names == ("0",)
    assert as_side(pl.DataFrame({"a": [1.0], "b": [2.0]}), "X").numeric.shape == (1, 2)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.arange(100) % 7, True),
        (np.arange(100) % 50, False),  # not fewer than half the rows
        (np.arange(100) % 49, True),
        (np.arange(1000) % 101, False),  # more than a hundred
        (np.arange(1000) % 100, True),
        (np.arange(100.0) % 7, False),  # floats
        (np.stack([np.arange(100) % 7] * 2, axis=1), False),  # two columns
        (pd.Series(np.arange(100) % 7, dtype="Int64"), True),
        (pl.Series(np.arange(100) % 7), True),
        (np.arange(100) % 2 == 0, True),
        (["a"] * 100, True),
    ],
)
def test_which_sides_are_categories(values, expected):
    assert all(flag == expected for flag in as_side(values, "Y").category_mask)


def test_discrete_overrides_and_kinds_of_strings():
    side = as_side(np.array([[0.5, 1], [1.5, 2], [0.5, 3]], dtype=np.float32), "X", discrete=True)
    assert side.numeric is None
    assert side.categorical[0][1].tolist() == [0.5, 1.5, 0.5]
    assert as_side(np.arange(100) % 7, "X", discrete=False).numeric.shape == (100, 1)
    assert as_side([True, False], "X", discrete=False).numeric.shape == (2, 1)
    frame, many = pd.DataFrame({0: [1.0], 1: ["a"]}), np.arange(1001) / 7
    refused("Y column 1 holds strings.*discrete", as_side, frame, "Y", discrete=False)
    refused("X column 0 holds more than 1000 distinct", as_side, many, "X", discrete=True)
    assert as_side(many[1:], "X", discrete=True).category_mask == (True,)
    assert as_side(np.array([b"a", b"b"]), "X").categorical[0][1].tolist() == ["a", "b"]
    text = np.array(["a", "bb"], dtype=np.dtypes.StringDType())
    assert as_side(text, "X").categorical[0][1].tolist() == ["a", "bb"]


def test_refusals():
    for values, message in (
        (np.float64(3), r"X has 0 dimensions.*\(rows, columns\)"),
        (np.zeros((2, 2, 2)), r"X has 3 dimensions.*Reshape your data"),
        (None, "0 dimensions"),
        (np.zeros((0, 2)), r"0 sample\(s\)"),
        (pd.DataFrame({"a": []}), r"0 sample\(s\)"),
        (pl.DataFrame({"a": []}), r"0 sample\(s\)"),
        (np.zeros((3, 0)), r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1 is required\."),
        (pd.DataFrame(index=range(3)), r"0 feature\(s\) \(shape=\(3, 0\)\)"),
        ([[1, 2], [3]], "as many columns in every row"),
        (np.array([1 + 2j]), "Complex data not supported"),
        (np.array([1, "a", None], dtype=object), "Python objects, a int in row 0"),
        (np.array([1.0, 2.0, {}], dtype=object), "Python objects, a dict in row 2"),
        ([["a", 1], ["b", None]], "X column 1 holds 1 NaN value.* row 1"),
        (np.array([1, True], dtype=object), "Python objects, a bool in row 1"),
        (pl.Series("v", [[1.0], [2.0]]), "X column 'v' holds Python objects"),
        (np.zeros(2, dtype=[("a", "f8")]), "X column 0 has the dtype"),
        (np.ma.masked_equal([1.0, 2.0], 2.0), "masked array"),
    ):
        refused(message, as_side, values, "X")


def test_sparse_matrices_and_unequal_lengths():
    assert issubclass(SparseInputError, TypeError)
    for make in (scipy.sparse.csr_matrix, scipy.sparse.coo_array):
        refused(r"for Y: .*\.toarray\(\)", as_side, make(np.eye(3)), "Y")
    refused("to_dense", as_side, torch.eye(3).to_sparse(), "Y")
    x, y = as_side(np.zeros((4, 2)), "X"), as_side(np.zeros(3), "Y")
    refused(r"inconsistent numbers of samples: X has 4 .*Y has 3", require_same_length, x, y)
    require_same_length(x, x, groups=[1, 1, 2, 2])
    refused(r"inconsistent.*groups has 2", require_same_length, x, x, groups=[1, 2])


def test_what_is_missing_is_counted():
    values = np.zeros((10, 3), dtype=np.float32)
    values[4, 1] = values[7, 1] = np.nan
    refused("X column 1 holds 2 NaN value.s., the first in row 4", as_side, values, "X")
    values[2, 1] = -np.inf
    refused(r"2 NaN and 1 infinity value.*first in row 2", as_side, values, "X")
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, np.inf], "c": ["u", "v"]})
    refused(r"Y column 'b' holds 1 infinity value.*row 1", as_side, frame, "Y")
    refused(r"1 NaN.*row 0", as_side, [np.nan, 1.0], "Y", discrete=True)
    refused(r"1 NaN.*row 1", as_side, pd.Series([1, None], dtype="Int64"), "Y")
    refused(r"1 NaN.*row 1", as_side, pl.Series([1, None]), "Y")
    for values in (
        ["a", None, "b"],
        np.array(["a", np.nan, "b"], dtype=object),
        pd.Series(["a", None, "b"]),
        pd.Series(["a", pd.NA, "b"], dtype="string"),
        pd.Series(pd.Categorical(["a", None, "b"])),
        pd.Series([True, None, False], dtype="boolean"),
        pl.Series(["a", None, "b"]),
        pl.Series(["a", None, "b"], dtype=pl.Categorical),
        pl.Series([True, None, False]),
    ):
        refused(r"Y column 0 holds 1 missing .*NaN.*first in row 1", as_side, values, "Y")


def test_reading_an_array_imports_no_heavy_library():
    code = (
        "import sys, numpy as np; from pointdep.data.sides import as_side; as_side(np.eye(3), 'X');"
        "print([m for m in ('torch', 'pandas', 'polars', 'pyarrow', 'sklearn', 'scipy')"
        " if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
