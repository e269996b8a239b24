"""Columns of Arrow tables as (rows, width) arrays of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pointdep.data.raw import Array
from pointdep.errors import InputError, unknown_name


@dataclass(frozen=True)
class Layout:
    """Which columns of a table make the rows: one column of lists, or columns of single numbers.

    width: numbers in a row; dtype: of all of them.
    """

    columns: tuple[str, ...]
    width: int
    dtype: np.dtype[Any]
    lists: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns of numbers; those of lists have their positions, as in an array."""
        return tuple(str(k) for k in range(self.width)) if self.lists else self.columns


def has_lists(schema: Any, columns: Sequence[str] | None) -> bool:
    """Whether one of the named columns, or of all, is of lists."""
    return any(_is_list(field.type) for field in schema if columns is None or field.name in columns)


def is_numeric(schema: Any, columns: Sequence[str] | None) -> bool:
    """Whether the named columns, or all, are numbers or lists of them (no categories)."""
    fields = [field for field in schema if columns is None or field.name in columns]
    return all(_dtype(_inner(field.type)) is not None for field in fields)


def find_layout(
    path: Path | str, schema: Any, columns: Sequence[str] | None, first: Any, option: str
) -> Layout:
    """How rows are made of the columns of a file; first: called for a batch of its first row.

    columns: those wanted, or None for all; option: how a user names them, for the message.
    """
    known = [str(name) for name in schema.names]
    for name in columns or ():
        if name not in known:
            raise InputError(f"{path}: {unknown_name('column', name, known)}")
    chosen = tuple(columns) if columns is not None else tuple(known)
    types = [schema.field(name).type for name in chosen]
    if any(_is_list(kind) for kind in types) and len(chosen) > 1:
        listed = [name for name, kind in zip(chosen, types, strict=True) if _is_list(kind)]
        raise InputError(
            f"{path} has the column {listed[0]!r} of lists beside others: name one column with "
            f"{option}, from {', '.join(known)}"
        )
    dtypes = [_dtype(_inner(kind)) for kind in types]
    for name, kind, dtype in zip(chosen, types, dtypes, strict=True):
        if dtype is None:
            raise InputError(f"{path}: column {name!r} is of type {kind}, which holds no numbers")
    dtype = np.result_type(*(dtype for dtype in dtypes if dtype is not None))
    if not _is_list(types[0]):
        return Layout(chosen, len(chosen), dtype, False)
    size = getattr(types[0], "list_size", -1)
    if size <= 0:
        column = first().column(chosen[0])
        _require_no_nulls(column, chosen[0], path, 0)
        size = len(column[0])
    width = int(size)
    if width == 0:
        raise InputError(f"{path}: column {chosen[0]!r} has an empty list in row 0")
    return Layout(chosen, width, dtype, True)


def to_matrix(batch: Any, layout: Layout, path: Path | str, row: int) -> Array:
    """A record batch that begins at this row of its file -> (rows, width)."""
    if not layout.lists:
        columns = [_numbers(batch.column(name), name, path, row) for name in layout.columns]
        return np.column_stack(columns).astype(layout.dtype, copy=False)
    name = layout.columns[0]
    column = batch.column(name)
    _require_no_nulls(column, name, path, row)
    if hasattr(column, "value_lengths"):
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        wrong = lengths != layout.width
        if wrong.any():
            at = int(wrong.argmax())
            raise InputError(
                f"{path}: column {name!r} has a list of {int(lengths[at])} numbers in row "
                f"{row + at} where the others have {layout.width}"
            )
    values = _numbers(column.flatten(), name, path, row, layout.width)
    return values.reshape(-1, layout.width)


def _numbers(values: Any, name: str, path: Path | str, row: int, width: int = 1) -> Array:
    _require_no_nulls(values, name, path, row, width)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _require_no_nulls(values: Any, name: str, path: Path | str, row: int, width: int = 1) -> None:
    if values.null_count:
        at = int(values.is_null().to_numpy(zero_copy_only=False).argmax()) // width
        raise InputError(
            f"{path}: column {name!r} has a missing value in row {row + at}: drop such rows from "
            "both sides, or fill the values in"
        )


def _is_list(kind: Any) -> bool:
    return str(kind).startswith(("list<", "large_list<", "fixed_size_list<"))


def _inner(kind: Any) -> Any:
    return kind.value_type if _is_list(kind) else kind


def _dtype(kind: Any) -> np.dtype[Any] | None:
    """NumPy's name of an Arrow type of numbers, None for any other."""
    names = {"halffloat": "float16", "float": "float32", "double": "float64"}
    name = names.get(str(kind), str(kind))
    known = {"float16", "float32", "float64"} | {
        f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
    }
    return np.dtype(name) if name in known else None
