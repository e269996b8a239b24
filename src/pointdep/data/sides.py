"""What a user passes as X or Y, turned into columns of numbers and columns of categories."""

import math
import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pointdep.data.encoder import SideEncoder
from pointdep.data.raw import (
    Array,
    RawSide,
    SparseInputError,
    column_label,
    missing_category,
    require_finite,
    require_same_length,
    row_chunks,
    side_digest,
)
from pointdep.data.row_source import ArrayRows, RowSource
from pointdep.errors import DataWarning, InputError, warn_caller

# Arrays, tensors, data frames and lists as plain NumPy columns.
#
# pandas, polars and torch objects are recognised by the module their class comes from, so none of
# these libraries is imported for a user who does not use it.


@dataclass(frozen=True, eq=False)
class Table:
    """Columns as plain NumPy arrays of kind b, i, u, f or U.

    block: (rows, columns) when all columns share one numeric dtype (no copy is made), or else
    columns: one (rows,) array each. declared: which columns the user's table calls categories.
    """

    names: tuple[str, ...]
    named: bool
    declared: tuple[bool, ...]
    block: Array | None
    columns: tuple[Array, ...] = ()

    def column(self, position: int) -> Array:
        """(rows,) values of the column at this position."""
        return self.columns[position] if self.block is None else self.block[:, position]


def tabulate(values: Any, side: str) -> Table:
    """Read any accepted container; side ("X" or "Y") is for the messages."""
    if isinstance(values, RowSource):
        return Table(values.names, values.named, values.category_mask, values.load())
    if isinstance(values, str | os.PathLike):
        path = os.fspath(values)
        raise InputError(f"{side} is {path!r}, not rows: give what pointdep.open_rows opens")
    libraries = {base.__module__.split(".")[0] for base in type(values).__mro__}
    if "scipy" in libraries and hasattr(values, "toarray"):
        raise _sparse(side, "toarray")
    if "torch" in libraries and hasattr(values, "detach"):
        return _from_array(_tensor_to_array(values, side), side)
    if "pandas" in libraries:
        return _from_pandas(values, side)
    if "polars" in libraries and hasattr(values, "to_numpy"):
        return _from_polars(values, side)
    return _from_array(_to_array(values, side), side)


def _sparse(side: str, method: str) -> SparseInputError:
    return SparseInputError(f"Sparse data was passed for {side}: make it dense by .{method}()")


def _tensor_to_array(tensor: Any, side: str) -> Array:
    if str(tensor.layout) != "torch.strided":
        raise _sparse(side, "to_dense")
    tensor = tensor.detach().cpu()
    if str(tensor.dtype).startswith(("torch.bfloat", "torch.float8")):
        tensor = tensor.float()  # NumPy has no such dtype, and float32 holds each value exactly
    array: Array = tensor.resolve_conj().resolve_neg().numpy()
    return array


def _to_array(values: Any, side: str) -> Array:
    if np.ma.is_masked(values):
        raise InputError(f"{side} is a masked array with missing values: drop or .filled() them")
    try:
        array = np.asarray(values)
        # NumPy silently turns the 1 of [1, "a"] into text; as objects the mixture can be seen.
        if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
            array = np.asarray(values, dtype=object)
    except (ValueError, TypeError) as error:
        raise InputError(f"{side} needs as many columns in every row ({error})") from error
    return array


def _from_array(array: Array, side: str) -> Table:
    if array.ndim == 0 or array.ndim > 2:
        shape = f"{array.ndim} dimensions (shape={array.shape})"
        raise InputError(f"{side} has {shape} but needs 1 or 2. Reshape your data: (rows, columns)")
    block = array.reshape(-1, 1) if array.ndim == 1 else array
    _require_some(block.shape, side)
    names = tuple(str(position) for position in range(block.shape[1]))
    declared = (False,) * len(names)
    if block.dtype.kind in "biuf":
        return Table(names, False, declared, block)
    columns = tuple(plain_column(block[:, j], name, side) for j, name in enumerate(names))
    return Table(names, False, declared, None, columns)


def _require_some(shape: tuple[int, ...], side: str) -> None:
    for size, what in zip(shape, ("sample(s)", "feature(s)"), strict=True):
        if size == 0:
            found = f"found array with 0 {what} (shape={tuple(shape)})"
            raise InputError(f"{side}: {found} while a minimum of 1 is required.")


def _from_pandas(values: Any, side: str) -> Table:
    if not hasattr(values, "iloc"):  # an Index or a bare extension array such as pd.Categorical
        import pandas as pd

        values = pd.Series(values)
    frame = values if values.ndim == 2 else values.to_frame()
    _require_some(frame.shape, side)
    named = values.ndim == 2 and all(isinstance(name, str) for name in frame.columns)
    names = tuple(str(name) for name in frame.columns)
    declared = tuple(str(dtype) == "category" for dtype in frame.dtypes)
    dtypes = set(frame.dtypes)
    shared = dtypes.pop()
    if not dtypes and isinstance(shared, np.dtype) and shared.kind in "biuf":
        return Table(names, named, declared, frame.to_numpy())
    columns = tuple(_pandas_column(frame.iloc[:, j], name, side) for j, name in enumerate(names))
    return Table(names, named, declared, None, columns)


def _pandas_column(series: Any, name: str, side: str) -> Array:
    """(rows,) plain values of one Series of any dtype, nullable and Arrow ones included."""
    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return plain_column(series.to_numpy(), name, side)
    missing = series.isna().to_numpy(dtype=bool)
    kind = getattr(dtype, "kind", "O")
    if kind in "iuf":
        if missing.any():  # NaN, which is then reported as in any float column
            return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asarray(series.to_numpy(dtype=getattr(dtype, "numpy_dtype", np.float64)))
    if kind in "mM":
        raise _holds_times(column_label(side, name), dtype)
    if missing.any():
        raise missing_category(int(missing.sum()), int(missing.argmax()), name, side)
    if str(dtype) == "category":
        categories = plain_column(np.asarray(series.cat.categories), name, side)
        return np.asarray(categories[series.cat.codes.to_numpy()])
    if kind == "b":
        return np.asarray(series.to_numpy(dtype=bool))
    return plain_column(series.astype(object).to_numpy(), name, side)


def _from_polars(values: Any, side: str) -> Table:
    import polars as pl

    named = hasattr(values, "columns")
    frame = values if named else values.to_frame()
    frame = frame.rename({"": "0"}) if "" in frame.columns else frame
    one_type = len(set(frame.dtypes)) == 1 and frame.height > 0
    if one_type and (frame.dtypes[0].is_integer() or frame.dtypes[0].is_float()):
        # Missing numbers come out as NaN, which is then reported as in any float column.
        names = tuple(frame.columns)
        return Table(names, named, (False,) * len(names), frame.to_numpy())
    decimals = pl.selectors.decimal().cast(pl.Float64)
    return replace(_from_pandas(frame.with_columns(decimals).to_pandas(), side), named=named)


def plain_column(values: Array, name: str, side: str) -> Array:
    """values: (rows,) of any dtype as kind b, i, u, f or U, or the error that says why not."""
    label, kind = column_label(side, name), values.dtype.kind
    if kind in "biufU":
        return values
    if kind == "S":
        return np.char.decode(values, "utf-8", "replace")
    if kind == "c":
        raise InputError(f"Complex data not supported: give {label} as two columns of real numbers")
    if kind in "mM":
        raise _holds_times(label, values.dtype)
    if kind in "OT":
        return _from_objects(values.astype(object), name, side)
    raise InputError(f"{label} has the dtype {values.dtype}: give one number or string per cell")


def _holds_times(label: str, dtype: object) -> InputError:
    return InputError(f"{label} holds dates or time spans ({dtype}): turn them into numbers")


def _from_objects(values: Array, name: str, side: str) -> Array:
    """(rows,) of Python objects, all strings or all numbers, as an array of these; else an error.

    A table of mixed columns turned into one array holds numbers as objects, so they are taken.
    """
    count = len(values)
    is_string = np.fromiter((isinstance(v, str) for v in values), dtype=bool, count=count)
    if is_string.all():
        return values.astype(str)
    is_number = np.fromiter((_is_number(v) for v in values), dtype=bool, count=count)
    if is_number.all():
        numbers = np.array(values.tolist())
        return numbers if numbers.dtype.kind in "iuf" else values.astype(np.float64)
    missing = np.fromiter((_is_missing(v) for v in values), dtype=bool, count=count)
    labels = is_string | np.fromiter((isinstance(v, bool) for v in values), bool, count=count)
    if labels.any() and missing.any() and (labels | missing).all():
        raise missing_category(int(missing.sum()), int(missing.argmax()), name, side)
    # Among numbers it is the odd one out that offends, not the first number.
    row = int((is_string if is_string.any() else is_number).argmin())
    found = f"Python objects, a {type(values[row]).__name__} in row {row}"
    raise InputError(f"{column_label(side, name)} holds {found}: use astype(float) or astype(str)")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _is_missing(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


__all__ = ["RawSide", "SideEncoder", "as_side", "as_source", "require_same_length"]
__all__ += ["SparseInputError", "side_digest", "warn_of_other_order"]

# A single integer column with no more values than this is taken for a label.
MOST_LABELS = 100
# A float column with more values than this is a measurement, whatever discrete= says.
MOST_FLOAT_CATEGORIES = 1000


def as_side(values: Any, name: str, *, discrete: bool | None = None) -> RawSide:
    """Read values, any accepted container of (rows,) or (rows, columns), as the side name.

    discrete=None takes strings, booleans, declared categoricals, and a lone integer column with few
    values as categories; True takes every column as a category, False every column as numbers.
    """
    if discrete is not None and not isinstance(discrete, bool | np.bool_):
        raise InputError(f"discrete_{name.lower()}={discrete!r} must be True, False or None")
    discrete = None if discrete is None else bool(discrete)
    table = tabulate(values, name)
    mask = _category_mask(table, name, discrete)
    whereabouts = list_column = None
    if isinstance(values, RowSource):
        whereabouts, list_column = values.whereabouts, values.list_column
    numeric_at = [i for i, is_category in enumerate(mask) if not is_category]
    numeric = table.block
    if numeric is None or any(mask):
        parts = [table.column(i) for i in numeric_at]
        numeric = np.column_stack(parts) if parts else None
    names = tuple(table.names[i] for i in numeric_at)
    if numeric is not None:
        require_finite(numeric, names, name, whereabouts)
    categorical = tuple(
        (column, _category_values(table.column(i), column, name))
        for i, column in enumerate(table.names)
        if mask[i]
    )
    rows = len(table.column(0))
    return RawSide(numeric, names, categorical, rows, table.named, mask, list_column)


def as_source(values: Any, name: str, *, discrete: bool | None = None) -> RowSource | RawSide:
    """The same without looking at the rows: where they are, if all columns are numbers.

    Sides with categories are read as by `as_side`.
    """
    if isinstance(values, RowSource) and values.width > 1 and discrete is not True:
        return values
    table = tabulate(values, name)
    if table.block is None or any(_category_mask(table, name, discrete)):
        return as_side(values, name, discrete=discrete)
    return ArrayRows(table.block, table.names, table.named)


def warn_of_other_order(x: Any, y: Any, name: str = "Y") -> None:
    """Rows are paired by position: one pandas index in two orders is likely a mistake."""
    here: Any = getattr(x, "index", None)
    there: Any = getattr(y, "index", None)
    if not hasattr(here, "sort_values") or not hasattr(there, "sort_values"):
        return
    if len(here) != len(there) or here.equals(there):
        return
    if here.is_unique and there.is_unique and here.isin(there).all():
        said = f"X and {name} have the same index in another order, and rows are paired by position"
        warn_caller(f"{said}: align them first, as with {name}.loc[X.index]", DataWarning)


def _category_mask(table: Table, side: str, discrete: bool | None) -> tuple[bool, ...]:
    """Which columns are categories, in the order given."""
    width = len(table.names)
    if discrete is True:
        return (True,) * width
    kinds = [table.column(i).dtype.kind for i in range(width)]
    if discrete is False:
        for column, kind in zip(table.names, kinds, strict=True):
            if kind == "U":
                label = column_label(side, column)
                raise InputError(f"{label} holds strings, not numbers: leave discrete unset")
        return (False,) * width
    if width == 1 and kinds[0] in "iu":
        lone = table.column(0)
        distinct = _count_distinct(lone, stop_after=MOST_LABELS)
        is_label = distinct <= MOST_LABELS and distinct < len(lone) / 2
        return (is_label or table.declared[0],)
    return tuple(kind in "bU" or said for kind, said in zip(kinds, table.declared, strict=True))


def _count_distinct(values: Array, stop_after: int) -> int:
    """Number of distinct values of (rows,), or some number above stop_after when there are more."""
    seen = values[:0]
    for rows in row_chunks(values):
        seen = np.union1d(seen, values[rows])
        if seen.size > stop_after:
            break
    return int(seen.size)


def _category_values(values: Array, column: str, side: str) -> Array:
    if values.dtype.kind != "f":
        return values
    require_finite(values.reshape(-1, 1), (column,), side)
    if _count_distinct(values, stop_after=MOST_FLOAT_CATEGORIES) > MOST_FLOAT_CATEGORIES:
        many = f"more than {MOST_FLOAT_CATEGORIES} distinct values, no categories"
        raise InputError(f"{column_label(side, column)} holds {many}: leave discrete unset, or bin")
    return values.astype(np.float64)
