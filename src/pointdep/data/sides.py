"""What a user passes as X or Y, turned into columns of numbers and columns of categories."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pointdep.data.columns import (
    as_dates,
    as_numbers,
    as_text,
    date_numbers,
    date_parts,
    from_objects,
    guessed,
    has_day_first,
    looks_like_id,
    looks_like_text,
    part_name,
)
from pointdep.data.encoder import SideEncoder, too_many
from pointdep.data.encoders import Front
from pointdep.data.media import RawRows
from pointdep.data.raw import (
    ASKED,
    MISSING,
    Array,
    Fault,
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
from pointdep.errors import DataWarning, InputError, all_at_once, all_of, warn_caller

# Arrays, tensors, data frames and lists as plain NumPy columns.
#
# pandas, polars and torch objects are recognised by the module their class comes from, so none of
# these libraries is imported for a user who does not use it.


@dataclass(frozen=True, eq=False)
class Table:
    """Columns as plain NumPy arrays of kind b, i, u, f, U or M.

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
    """Read any accepted container; side ("X" or "Y") is for the messages.

    Missing values are NaN, NaT, or the category "(missing)".
    """
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
    how = (partial(plain_column, block[:, j], name, side) for j, name in enumerate(names))
    return Table(names, False, declared, None, all_of(how))


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
    how = (partial(_pandas_column, frame.iloc[:, j], name, side) for j, name in enumerate(names))
    return Table(names, named, declared, None, all_of(how))


def _pandas_column(series: Any, name: str, side: str) -> Array:
    """(rows,) plain values of one Series of any dtype, nullable and Arrow ones included."""
    dtype = series.dtype
    if "pyarrow" in str(dtype) and str(dtype).startswith(("date", "timestamp", "duration")):
        series = series.astype("m8[us]" if str(dtype).startswith("duration") else "M8[us]")
        dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return plain_column(series.to_numpy(), name, side)
    kind = getattr(dtype, "kind", "O")
    if kind == "M":  # with a time zone
        return plain_column(series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy(), name, side)
    missing = series.isna().to_numpy(dtype=bool)
    if kind in "iuf":
        plain = np.float64 if missing.any() else getattr(dtype, "numpy_dtype", np.float64)
        how = {"na_value": np.nan} if missing.any() else {}
        return np.asarray(series.to_numpy(dtype=plain, **how))
    if str(dtype) == "category":
        values = plain_column(np.asarray(series.cat.categories), name, side)
        codes = series.cat.codes.to_numpy()
        return (
            np.where(missing, MISSING, as_text(values)[codes]) if missing.any() else values[codes]
        )
    if kind == "b" and not missing.any():
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
    """values: (rows,) of any dtype as kind b, i, u, f, U or M, or the error that says why not."""
    label, kind = column_label(side, name), values.dtype.kind
    if kind in "biufU":
        return values
    if kind == "S":
        return np.char.decode(values, "utf-8", "replace")
    if kind == "c":
        raise InputError(f"Complex data not supported: give {label} as two columns of real numbers")
    if kind == "M":
        return values.astype("M8[us]")
    if kind == "m":  # seconds
        spans = values.astype("m8[us]")
        return np.where(np.isnat(spans), np.nan, spans.astype(np.int64) / 1e6)
    if kind in "OT":
        return from_objects(values.astype(object), name, side)
    raise InputError(f"{label} has the dtype {values.dtype}: give one number or string per cell")


__all__ = ["RawSide", "SideEncoder", "as_side", "as_source", "require_same_length"]
__all__ += ["SparseInputError", "side_digest", "warn_of_other_order"]

# A single integer column with no more values than this is taken for a label.
MOST_LABELS = 100
# A float column with more values than this is a measurement, whatever discrete= says.
MOST_FLOAT_CATEGORIES = 1000


def as_side(
    values: Any,
    name: str,
    *,
    discrete: bool | None = None,
    missing: str = "error",
    known: SideEncoder | None = None,
) -> RawSide:
    """Read values, any accepted container of (rows,) or (rows, columns), as the side name.

    discrete=None takes strings, booleans, declared categoricals, and a lone integer column with few
    values as categories; True takes every column as a category, False every column as numbers.
    Dates become numbers, and columns of a table that look like ids are left out.
    missing: "error" refuses missing values, which other words take.
    known: reads the columns as they were read in the fit; rows that cannot be are `faults`.
    """
    if discrete is not None and not isinstance(discrete, bool | np.bool_):
        raise InputError(f"discrete_{name.lower()}={discrete!r} must be True, False or None")
    discrete = None if discrete is None else bool(discrete)
    values = _raw_values(values, name, discrete, known)
    if isinstance(values, RawRows):
        return _raw_side(values, name, None if known is None else known.front)
    table = tabulate(values, name)
    if known is None:
        asked = discrete is not None or bool(getattr(values, "attrs", {}).get(ASKED))
        found = _as_guessed(table, name, asked=asked)
    else:
        found = _as_known(table, known)
    table, mask = found.table, found.mask
    if mask is None:
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
    takes = None if missing == "error" else missing
    readers: list[Callable[[], Any]] = [
        partial(_category_values, table.column(i), column, name, missing, known is None)
        for i, column in enumerate(table.names)
        if mask[i]
    ]
    if numeric is not None and known is None:
        readers.append(partial(require_finite, numeric, names, name, whereabouts, missing=takes))
    read = all_of(readers)[: sum(mask)]
    labels = (column for column, is_category in zip(table.names, mask, strict=True) if is_category)
    categorical = tuple(zip(labels, read, strict=True))
    rows = len(table.column(0))
    return RawSide(
        numeric,
        names,
        categorical,
        rows,
        table.named,
        mask,
        list_column,
        found.dates,
        found.left_out,
        found.faults,
        whereabouts,
        day_first=found.day_first,
    )


def _raw_values(values: Any, side: str, discrete: bool | None, known: SideEncoder | None) -> Any:
    """Texts, pictures and sounds as `RawRows`, and other values as they are."""
    if not isinstance(values, RawRows):
        rows = None if known is None or known.front is None else known.front.wrap(values)
        return values if rows is None else rows
    if known is not None and known.front is None:
        is_categories = all(known.category_mask)
        if not is_categories:
            raise InputError(f"{side} held numbers in training but now holds {values.kind}s")
    elif not discrete:
        return values
    return values.texts


def _raw_side(rows: RawRows, side: str, front: Any) -> RawSide:
    """The numbers of texts, pictures or sounds; front: what makes them, or None to learn it."""
    if front is None:
        front, numeric, reasons = Front.fit(rows)
    else:
        numeric, reasons = front.transform(rows)
    by_reason: dict[str, list[int]] = {}
    for row, reason in reasons.items():
        by_reason.setdefault(reason, []).append(row)
    faults = []
    label = side if rows.column is None else column_label(side, rows.column)
    for reason, numbers in by_reason.items():
        mask = np.zeros(len(rows), dtype=bool)
        mask[numbers] = True
        message = f"{label}, row {numbers[0]}: {reason} ({len(numbers)} such row(s))"
        faults.append(Fault(mask, f"{label}: {reason}", message))
    numeric[np.fromiter(reasons, np.int64, len(reasons))] = 0  # which nobody is to read
    names = tuple(str(position) for position in range(numeric.shape[1]))
    mask_of_columns = (False,) * len(names)
    how: dict[str, Any] = {"faults": tuple(faults), "front": front}
    return RawSide(numeric, names, (), len(rows), False, mask_of_columns, **how)


class _Read(NamedTuple):
    """A table whose dates are numbers; mask: which columns are categories, where that is known."""

    table: Table
    mask: tuple[bool, ...] | None = None
    dates: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    day_first: tuple[str, ...] = ()


def _as_guessed(table: Table, side: str, *, asked: bool) -> _Read:
    """The columns as what they look like; asked: ids are kept."""
    if table.block is not None and not table.named:
        return _Read(table)
    width = len(table.names)
    read = [
        guessed(table.column(i)) if table.column(i).dtype.kind == "U" else table.column(i)
        for i in range(width)
    ]
    ids: list[int] = []
    if table.named and width > 1 and not asked:
        ids = [i for i in range(width) if looks_like_id(table.names[i], read[i])]
    ids = ids if len(ids) < width else []
    if ids:
        shown = ", ".join(repr(table.names[i]) for i in ids)
        said = f"{side}: left out {shown}, which looks like an id: its values are all different"
        warn_caller(said, DataWarning)
    changed = any(read[i] is not table.column(i) for i in range(width)) or bool(ids)
    if table.block is not None and not changed:
        return _Read(table)
    texts = [
        InputError(
            f"{column_label(side, table.names[i])} holds texts, "
            f"{len(np.unique(read[i]))} different ones in {len(read[i])} rows, no categories: "
            "leave the column out, or give it alone, as pointdep.as_text does"
        )
        for i in range(width)
        if i not in ids and read[i].dtype.kind == "U" and _is_text(read[i])
    ]
    if texts:
        raise all_at_once(texts)
    kept = [i for i in range(width) if i not in ids]
    parts = {i: date_parts(read[i]) for i in kept if read[i].dtype.kind == "M"}
    found = _expanded(table, kept, read, parts)
    dates = tuple(table.names[i] for i in parts)
    of_text = [i for i in parts if table.column(i).dtype.kind == "U"]
    day_first = tuple(table.names[i] for i in of_text if has_day_first(table.column(i)))
    left_out = tuple(table.names[i] for i in ids)
    return _Read(found, None, dates, left_out, day_first=day_first)


def _is_text(values: Array) -> bool:
    """Whether strings (rows,) are sentences, and not a few of them again and again."""
    return too_many(len(np.unique(values)), len(values)) and looks_like_text(values)


def _expanded(
    table: Table, kept: Sequence[int], read: Sequence[Array], parts: Mapping[int, Sequence[str]]
) -> Table:
    """The kept columns as they were read, dates as numbers; parts: of each column of dates."""
    names, declared, columns = [], [], []
    for i in kept:
        if i not in parts:
            names.append(table.names[i])
            declared.append(table.declared[i])
            columns.append(read[i])
            continue
        names += [table.names[i], *(part_name(table.names[i], part) for part in parts[i])]
        declared += [False] * (1 + len(parts[i]))
        columns += date_numbers(read[i], parts[i])
    return Table(tuple(names), table.named, tuple(declared), None, tuple(columns))


def _as_known(table: Table, known: SideEncoder) -> _Read:
    """The columns as they were read in the fit, as far as they can be."""
    both_named = table.named and known.named
    kept = [i for i, n in enumerate(table.names) if not (both_named and n in known.left_out)]
    given = known.given
    if len(kept) != len(given):
        return _Read(table)  # which the encoder refuses
    categories = dict(zip(known.category_at, known.categories, strict=True))
    read: list[Array] = []
    parts: dict[int, Sequence[str]] = {}
    faults, mask = [], []
    for i, (at, own) in zip(kept, given, strict=True):
        values, odd, is_category = table.column(i), None, known.category_mask[at]
        if own is not None:
            if values.dtype.kind == "U":
                values, odd = as_dates(values, known.names[at] in known.day_first)
            if values.dtype.kind == "M":
                parts[i] = own
            mask += [False] * len(parts.get(i, ()))
        elif not is_category and values.dtype.kind == "U":
            numbers, wrong = as_numbers(values)
            # A column without any number is another one, which the encoder refuses.
            if not wrong.all():
                values, odd = numbers, wrong
        elif at in categories and categories[at].values.dtype.kind == "U":
            values = as_text(values) if values.dtype.kind in "biuf" else values
        if odd is not None and odd.any():
            faults.append(_unreadable(table, i, known, odd))
        mask.append(is_category or values.dtype.kind == "U")
        read.append(values)
    as_given = table.block is not None and len(kept) == len(table.names) and not parts
    if as_given and all(values.dtype.kind != "U" for values in read):
        return _Read(table, tuple(mask))
    whole: list[Array] = [np.empty(0)] * len(table.names)
    for i, values in zip(kept, read, strict=True):
        whole[i] = values
    found = _expanded(table, kept, whole, parts)
    return _Read(found, tuple(mask), known.dates, known.left_out, tuple(faults))


def _unreadable(table: Table, position: int, known: SideEncoder, odd: Array) -> Fault:
    label, row = column_label(known.side, table.names[position]), int(odd.argmax())
    what = "date" if table.names[position] in known.dates else "number"
    found = f"{str(table.column(position)[row])!r} in row {row}, which is no {what}"
    message = f"{label} holds {found} ({int(odd.sum())} such row(s)): mend or drop these rows"
    return Fault(odd, f"{label}: no {what}", message)


def as_source(
    values: Any, name: str, *, discrete: bool | None = None, missing: str = "error"
) -> RowSource | RawSide:
    """The same without looking at the rows: where they are, if all columns are numbers.

    Sides with categories or dates are read as by `as_side`.
    """
    if isinstance(values, RowSource) and values.width > 1 and discrete is not True:
        return values
    if isinstance(values, RawRows):
        return as_side(values, name, discrete=discrete, missing=missing)
    table = tabulate(values, name)
    if table.block is None or any(_category_mask(table, name, discrete)):
        return as_side(values, name, discrete=discrete, missing=missing)
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
    lone = table.column(0)
    gaps = np.isnan(lone) if kinds[0] == "f" and width == 1 else np.zeros(0, dtype=bool)
    if gaps.any() and not gaps.all():  # whole numbers with gaps come as floats
        lone = lone[~gaps]
        kinds[0] = "i" if (lone == np.rint(lone)).all() else "f"
    if width == 1 and kinds[0] in "iu":
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


def _category_values(values: Array, column: str, side: str, missing: str, checked: bool) -> Array:
    """(rows,) the categories of a column; checked: whether it is that of a fit."""
    if values.dtype.kind == "U":
        gaps = values == MISSING
        if checked and missing == "error" and gaps.any():
            raise missing_category(int(gaps.sum()), int(gaps.argmax()), column, side)
        return values
    if values.dtype.kind != "f":
        return values
    gaps = np.isnan(values)
    takes = None if missing == "error" else missing
    if checked:
        require_finite(values.reshape(-1, 1), (column,), side, missing=takes)
    if _count_distinct(values[~gaps], MOST_FLOAT_CATEGORIES) > MOST_FLOAT_CATEGORIES:
        many = f"more than {MOST_FLOAT_CATEGORIES} distinct values, no categories"
        raise InputError(f"{column_label(side, column)} holds {many}: leave discrete unset, or bin")
    return as_text(values) if gaps.any() else values.astype(np.float64)
