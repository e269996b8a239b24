"""Reading X and Y from every accepted container, and each refusal."""

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch

from pointdep.data.sides import SparseInputError, as_side, require_same_length
from refusals import refused


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


def test_discrete_overrides():
    floats = np.array([[0.5, 1], [1.5, 2], [0.5, 3]], dtype=np.float32)
    side = as_side(floats, "X", discrete=True)
    assert side.numeric is None
    assert side.categorical[0][1].tolist() == [0.5, 1.5, 0.5]
    assert as_side(np.arange(100) % 7, "X", discrete=False).numeric.shape == (100, 1)
    assert as_side([True, False], "X", discrete=False).numeric.shape == (2, 1)
    frame, many = pd.DataFrame({0: [1.0], 1: ["a"]}), np.arange(1001) / 7
    refused("Y column 1 holds strings.*discrete", as_side, frame, "Y", discrete=False)
    refused("X column 0 holds more than 1000 distinct", as_side, many, "X", discrete=True)
    assert as_side(many[1:], "X", discrete=True).category_mask == (True,)


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
        (np.array(["2020-01-01"], dtype="M8[D]"), "X column 0 holds dates"),
        (pd.DataFrame({"t": pd.to_timedelta([1, 2])}), "X column 't' holds dates"),
        (pd.Series(pd.date_range("2020", periods=2, tz="UTC"), name="t"), "'t' holds dates"),
        (pl.DataFrame({"a": [1.0, 2.0], "t": pl.Series([1, 2]).cast(pl.Date)}), "'t' holds dates"),
        (np.array([1, "a", None], dtype=object), "Python objects, a int in row 0"),
        (np.array([1.0, 2.0, {}], dtype=object), "Python objects, a dict in row 2"),
        ([["a", 1], ["b", None]], "X column 1 holds Python objects, a NoneType in row 1"),
        (np.array([1, True], dtype=object), "Python objects, a bool in row 1"),
        (pl.Series("v", [[1.0], [2.0]]), "X column 'v' holds Python objects"),
        (np.zeros(2, dtype=[("a", "f8")]), "X column 0 has the dtype"),
        (np.ma.masked_equal([1.0, 2.0], 2.0), "masked array"),
    ):
        refused(message, as_side, values, "X")


def test_sparse_matrices():
    assert issubclass(SparseInputError, TypeError)
    for make in (scipy.sparse.csr_matrix, scipy.sparse.coo_array):
        refused(r"for Y: .*\.toarray\(\)", as_side, make(np.eye(3)), "Y")
    refused("to_dense", as_side, torch.eye(3).to_sparse(), "Y")


def test_nan_and_infinity_are_counted():
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


def test_missing_categories():
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


def test_byte_strings_and_string_arrays_are_categories():
    assert as_side(np.array([b"a", b"b"]), "X").categorical[0][1].tolist() == ["a", "b"]
    text = np.array(["a", "bb"], dtype=np.dtypes.StringDType())
    assert as_side(text, "X").categorical[0][1].tolist() == ["a", "bb"]


def test_lengths_must_agree():
    x, y = as_side(np.zeros((4, 2)), "X"), as_side(np.zeros(3), "Y")
    refused(r"inconsistent numbers of samples: X has 4 .*Y has 3", require_same_length, x, y)
    require_same_length(x, x, groups=[1, 1, 2, 2])
    refused(r"inconsistent.*groups has 2", require_same_length, x, x, groups=[1, 2])


def test_reading_an_array_imports_no_heavy_library():
    code = (
        "import sys, numpy as np; from pointdep.data.sides import as_side; as_side(np.eye(3), 'X');"
        "print([m for m in ('torch', 'pandas', 'polars', 'pyarrow', 'sklearn', 'scipy')"
        " if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
