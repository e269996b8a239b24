"""What a user passes as X or Y, turned into columns of numbers and columns of categories."""

from __future__ import annotations

from typing import Any

import numpy as np

from pointdep.data.containers import Table, tabulate
from pointdep.data.encoder import SideEncoder
from pointdep.data.raw import (
    Array,
    RawSide,
    SparseInputError,
    column_label,
    require_finite,
    require_same_length,
    row_chunks,
    side_digest,
)
from pointdep.data.stored.base import ArrayRows, RowSource
from pointdep.errors import DataWarning, InputError, warn_caller

__all__ = [
    "RawSide",
    "SideEncoder",
    "SparseInputError",
    "as_side",
    "as_source",
    "require_same_length",
    "side_digest",
    "warn_of_other_order",
]

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
    if table.block is not None and not any(mask):
        if not isinstance(values, RowSource):
            require_finite(table.block, table.names, name)
            return RawSide(table.block, table.names, (), table.rows, table.named, mask)
        require_finite(table.block, table.names, name, values.whereabouts)
        column = values.list_column
        return RawSide(table.block, table.names, (), table.rows, table.named, mask, column)
    columns = table.columns if table.block is None else tuple(table.block.T)
    numeric = [part for part, is_cat in zip(columns, mask, strict=True) if not is_cat]
    numeric_names = tuple(c for c, is_cat in zip(table.names, mask, strict=True) if not is_cat)
    for column, numbers in zip(numeric_names, numeric, strict=True):
        require_finite(numbers.reshape(-1, 1), (column,), name)
    categorical = tuple(
        (column, _category_values(part, column, name))
        for column, part, is_cat in zip(table.names, columns, mask, strict=True)
        if is_cat
    )
    block = np.column_stack(numeric) if numeric else None
    return RawSide(block, numeric_names, categorical, table.rows, table.named, mask)


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


def warn_of_other_order(x: Any, y: Any) -> None:
    """Rows are paired by position: one pandas index in two orders is likely a mistake."""
    indexes: list[Any] = [getattr(side, "index", None) for side in (x, y)]
    if any(not hasattr(index, "sort_values") for index in indexes):
        return
    here, there = indexes
    if len(here) != len(there) or here.equals(there):
        return
    if here.is_unique and there.is_unique and here.isin(there).all():
        warn_caller(
            "X and Y have the same index in another order, and rows are paired by position: align "
            "them first, as with Y.loc[X.index]",
            DataWarning,
        )


def _category_mask(table: Table, side: str, discrete: bool | None) -> tuple[bool, ...]:
    """Which columns are categories, in the order given."""
    width = len(table.names)
    if discrete is True:
        return (True,) * width
    if table.block is not None:
        kinds = (table.block.dtype.kind,) * width
    else:
        kinds = tuple(column.dtype.kind for column in table.columns)
    if discrete is False:
        for column, kind in zip(table.names, kinds, strict=True):
            if kind == "U":
                raise InputError(
                    f"{column_label(side, column)} holds strings, which cannot be numbers: "
                    "leave discrete unset for this side, or convert the column"
                )
        return (False,) * width
    if width == 1 and kinds[0] in "iu":
        lone = table.block[:, 0] if table.block is not None else table.columns[0]
        distinct = _count_distinct(lone, stop_after=MOST_LABELS)
        is_label = distinct <= MOST_LABELS and distinct < table.rows / 2
        return (is_label or table.declared[0],)
    return tuple(
        kind in "bU" or declared for kind, declared in zip(kinds, table.declared, strict=True)
    )


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
        raise InputError(
            f"{column_label(side, column)} holds more than {MOST_FLOAT_CATEGORIES} distinct "
            "floating-point values, too many for categories: leave discrete unset for this side, "
            "or bin the column"
        )
    return values.astype(np.float64)
