"""From a side's columns to the float32 matrix the critics see, the same way in fit and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from pointdep.data.raw import Array, RawSide, column_label, row_chunks
from pointdep.data.row_source import RowSource
from pointdep.errors import DataWarning, InputError, warn_caller

if TYPE_CHECKING:
    from pointdep.data.row_source import ColumnMoments, RowSource


# One category column: its values in training, how often each came, and where a value stands.

# JSON keeps ints, strings, booleans and floats apart, but an empty or edited list would not.
_KINDS: dict[str, type] = {"i": int, "u": int, "U": str, "b": bool, "f": float}


@dataclass(frozen=True, eq=False)
class CategoryColumn:
    """values: (categories,) sorted and distinct; counts: (categories,) rows of each in training."""

    name: str
    values: Array
    counts: Array

    @classmethod
    def count(cls, name: str, column: Array) -> CategoryColumn:
        """The categories of column: (rows,)."""
        values, counts = np.unique(column, return_counts=True)
        return cls(name, values, counts)

    def codes(self, column: Array, side: str) -> Array:
        """(rows,) index into values of each entry of column: (rows,)."""
        label = column_label(side, self.name)
        if (column.dtype.kind == "U") != (self.values.dtype.kind == "U"):
            expected, found = _kind_name(self.values), _kind_name(column)
            raise InputError(
                f"{label} held categories of type {expected} in training but now holds {found}: "
                "give the column as it was in training"
            )
        codes: Array = np.searchsorted(self.values, column)
        codes = np.minimum(codes, self.values.size - 1)
        unseen = self.values[codes] != column
        if unseen.any():
            row = int(unseen.argmax())
            raise InputError(
                f"{label} holds {column[row].item()!r} in row {row}, a category unseen in training "
                f"({int(unseen.sum())} such row(s)): drop these rows, or fit on data that has them"
            )
        return codes

    def to_dict(self) -> dict[str, Any]:
        """The column in JSON's types."""
        return {
            "name": self.name,
            "type": _kind_name(self.values),
            "values": self.values.tolist(),
            "counts": self.counts.tolist(),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> CategoryColumn:
        """The column that to_dict described; InputError when saved is something else."""
        values, counts = list(saved["values"]), list(saved["counts"])
        allowed = {kind.__name__: kind for kind in _KINDS.values()}
        kind = allowed.get(saved["type"])
        if kind is None or not all(type(value) is kind for value in values):
            raise InputError(f"saved categories must all be of the type {saved['type']!r}")
        if not all(type(count) is int and count > 0 for count in counts):
            raise InputError("saved category counts must be positive integers")
        if len(values) != len(counts) or len(values) < 2:
            raise InputError("a saved category column needs two or more values, each with a count")
        if any(not low < high for low, high in pairwise(values)):
            raise InputError("saved categories must be sorted and distinct")
        return cls(str(saved["name"]), np.array(values), np.array(counts, dtype=np.int64))


def _kind_name(values: Array) -> str:
    return _KINDS[values.dtype.kind].__name__


# One-hot columns of more categories than this take too much memory.
MOST_CATEGORIES = 10_000


@dataclass(frozen=True, eq=False)
class SideEncoder:
    """Centres and scales the numeric columns, then appends one one-hot block per category column.

    Centre and scale, mean and standard deviation in float64, only keep float32 accurate.

    side: "X" or "Y"; names, named, category_mask: the columns seen in fit (see RawSide).
    numeric_at, category_at: positions, in the order given, of the columns that were not constant.
    center, scale: (len(numeric_at),) float64. categories: one per entry of category_at.
    list_column: see RawSide.
    """

    side: str
    names: tuple[str, ...]
    named: bool
    category_mask: tuple[bool, ...]
    numeric_at: tuple[int, ...]
    center: Array
    scale: Array
    category_at: tuple[int, ...]
    categories: tuple[CategoryColumn, ...]
    list_column: str | None = None

    @classmethod
    def fit(cls, raw: RawSide, name: str) -> SideEncoder:
        """Learn the encoding of the side name from its training rows."""
        numeric_at = [i for i, is_cat in enumerate(raw.category_mask) if not is_cat]
        category_at = [i for i, is_cat in enumerate(raw.category_mask) if is_cat]
        center = scale = np.empty(0)
        if raw.numeric is not None:
            center, scale = _center_and_scale(raw.numeric, raw.numeric_names, name)
        varies = scale > 0
        columns = [CategoryColumn.count(*column) for column in raw.categorical]
        for column in columns:
            _require_repeats(column, raw.rows, name)
        kept = [column.values.size > 1 for column in columns]
        names = raw.names
        _report_constant(
            [names[i] for i, keep in zip(numeric_at, varies, strict=True) if not keep]
            + [names[i] for i, keep in zip(category_at, kept, strict=True) if not keep],
            raw.width,
            raw.rows,
            name,
        )
        return cls(
            side=name,
            names=names,
            named=raw.named,
            category_mask=raw.category_mask,
            numeric_at=tuple(i for i, keep in zip(numeric_at, varies, strict=True) if keep),
            center=center[varies],
            scale=scale[varies],
            category_at=tuple(i for i, keep in zip(category_at, kept, strict=True) if keep),
            categories=tuple(c for c, keep in zip(columns, kept, strict=True) if keep),
            list_column=raw.list_column,
        )

    @classmethod
    def of_numbers(cls, source: RowSource, name: str, moments: ColumnMoments) -> SideEncoder:
        """The encoding of a side of numbers from what one pass over its rows has found."""
        scale = moments.scale()
        if not (np.isfinite(moments.mean) & np.isfinite(scale)).all():
            column = source.names[int((~np.isfinite(scale)).argmax())]
            raise InputError(
                f"{column_label(name, column)} spans more than float64 holds: rescale it"
            )
        varies = scale > 0
        constant = [c for c, keep in zip(source.names, varies, strict=True) if not keep]
        _report_constant(constant, source.width, source.rows, name)
        return cls(
            side=name,
            names=source.names,
            named=source.named,
            category_mask=(False,) * source.width,
            numeric_at=tuple(int(i) for i in np.flatnonzero(varies)),
            center=moments.mean[varies],
            scale=scale[varies],
            category_at=(),
            categories=(),
            list_column=source.list_column,
        )

    @property
    def dim(self) -> int:
        """Number of columns that encode gives."""
        return len(self.numeric_at) + sum(c.values.size for c in self.categories)

    @property
    def discrete(self) -> bool | None:
        """How as_side must read new rows of this side: all categories, all numbers, or by type."""
        if all(self.category_mask):
            return True
        return None if any(self.category_mask) else False

    @property
    def numeric_mask(self) -> Array:
        """(dim,) bool: which encoded columns are numbers; the others are one-hot."""
        return np.arange(self.dim) < len(self.numeric_at)

    def encode(self, raw: RawSide) -> Array:
        """(rows, dim) float32: scaled numeric columns, then the one-hot blocks."""
        self.check(raw)
        encoded = np.zeros((raw.rows, self.dim), dtype=np.float32)
        start = len(self.numeric_at)
        if start:
            values, index = self._numeric(raw)
            for rows in row_chunks(values):
                chunk = values[rows][:, index].astype(np.float64)
                with np.errstate(over="ignore"):
                    encoded[rows, :start] = (chunk - self.center) / self.scale
            self._require_finite(encoded)
        every_row = np.arange(raw.rows)
        for position, column in zip(self.category_at, self.categories, strict=True):
            codes = column.codes(self._category(raw, position, column), self.side)
            encoded[every_row, start + codes] = 1
            start += column.values.size
        return encoded

    def _require_finite(self, encoded: Array) -> None:
        wrong = ~np.isfinite(encoded).all(1)
        if wrong.any():
            raise InputError(
                f"{self.side} holds a number in row {int(wrong.argmax())} that is too far from the "
                "training rows for 32-bit arithmetic: is it in the right unit?"
            )

    def log_frequency(self, raw: RawSide) -> Array | None:
        """(rows,) float64 log p(outcome) by the training counts when the side is one category.

        None for every other side, where an outcome has no frequency of its own.
        """
        self.check(raw)
        if self.numeric_at or len(self.categories) != 1:
            return None
        column = self.categories[0]
        codes = column.codes(self._category(raw, self.category_at[0], column), self.side)
        frequency: Array = np.log(column.counts / column.counts.sum())[codes]
        return frequency

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to encode again, in JSON's types."""
        return {
            "side": self.side,
            "names": list(self.names),
            "named": self.named,
            "category_mask": list(self.category_mask),
            "numeric_at": list(self.numeric_at),
            "center": self.center.tolist(),
            "scale": self.scale.tolist(),
            "category_at": list(self.category_at),
            "categories": [column.to_dict() for column in self.categories],
            "list_column": self.list_column,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> SideEncoder:
        """The encoder that to_dict described; InputError when saved is something else."""
        try:
            encoder = cls(
                side=saved["side"],
                names=tuple(saved["names"]),
                named=saved["named"],
                category_mask=tuple(saved["category_mask"]),
                numeric_at=tuple(saved["numeric_at"]),
                center=np.array(saved["center"], dtype=np.float64),
                scale=np.array(saved["scale"], dtype=np.float64),
                category_at=tuple(saved["category_at"]),
                categories=tuple(CategoryColumn.from_dict(c) for c in saved["categories"]),
                list_column=saved.get("list_column"),  # early models have no such entry
            )
            encoder._require_consistent()
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(
                f"not a saved encoder of a side ({type(error).__name__}: {error})"
            ) from error
        return encoder

    def _require_consistent(self) -> None:
        """ValueError when the fields, as read from a file, do not fit together."""
        width, kept = len(self.names), (*self.numeric_at, *self.category_at)
        if not isinstance(self.side, str) or not all(isinstance(n, str) for n in self.names):
            raise ValueError("side and names must be strings")
        if not isinstance(self.list_column, str | None):
            raise ValueError("list_column must be a string or null")
        if len(self.category_mask) != width or not all(
            isinstance(flag, bool) for flag in (*self.category_mask, self.named)
        ):
            raise ValueError("named and category_mask must be true or false, one flag per name")
        if not kept or not all(type(i) is int and 0 <= i < width for i in kept):
            raise ValueError("no column was kept, or a position is not that of a column")
        masks = [self.category_mask[i] for i in kept]
        if masks != [False] * len(self.numeric_at) + [True] * len(self.category_at):
            raise ValueError("numeric_at and category_at do not agree with category_mask")
        if len(set(kept)) != len(kept) or len(self.categories) != len(self.category_at):
            raise ValueError("a column is kept twice, or has no categories")
        if self.center.shape != self.scale.shape or self.center.shape != (len(self.numeric_at),):
            raise ValueError("center and scale must have one number per numeric column")
        if not (np.isfinite(self.center) & np.isfinite(self.scale) & (self.scale > 0)).all():
            raise ValueError("center must be finite and scale positive")

    def check(self, raw: RawSide) -> None:
        """InputError where these are not the columns of the fit."""
        if raw.width != len(self.names):
            one_row = raw.width == 1 and raw.rows == len(self.names)
            hint = f": give one row as {self.side}[:1], not {self.side}[0]" if one_row else ""
            raise InputError(
                f"{self.side} has {raw.width} features, but PointwiseDependency is expecting "
                f"{len(self.names)} features as input{hint}"
            )
        if self.named and raw.named:
            for position, (seen, given) in enumerate(zip(self.names, raw.names, strict=True)):
                if seen != given:
                    raise InputError(
                        "The feature names should match those that were passed during fit: "
                        f"{self.side} column {position} is {given!r} but was {seen!r}; "
                        "give the same columns in the same order"
                    )

    def _numeric(self, raw: RawSide) -> tuple[Array, Array]:
        """Values (rows, k) and which of the k columns are the kept ones, in their order."""
        at = self.numeric_at
        if raw.numeric is not None and not any(raw.category_mask[i] for i in at):
            return raw.numeric, np.array([raw.index_within_kind(i) for i in at])
        for position in at:
            values = raw.column(position)
            # Whether integers look like labels depends on the number of rows, so a few of them may
            # be read as categories here although the column was numeric in training.
            if raw.category_mask[position] and values.dtype.kind not in "iuf":
                raise self._mismatch(position, "numbers", values)
        return np.column_stack([raw.column(i) for i in at]), np.arange(len(at))

    def _category(self, raw: RawSide, position: int, column: CategoryColumn) -> Array:
        values = raw.column(position)
        if not raw.category_mask[position]:
            # As in _numeric: integer labels of a few rows may have been read as numbers, and beside
            # a float column as floats.
            labels = column.values.dtype.kind == "f" or bool((values == np.rint(values)).all())
            if column.values.dtype.kind not in "iuf" or not labels:
                raise self._mismatch(position, "categories", values)
        return values

    def _mismatch(self, position: int, expected: str, values: Array) -> InputError:
        found = {"U": "strings", "b": "booleans"}.get(values.dtype.kind, "numbers")
        return InputError(
            f"{column_label(self.side, self.names[position])} held {expected} in training but now "
            f"holds {found}: give the column as it was in training"
        )


def _center_and_scale(numeric: Array, names: tuple[str, ...], side: str) -> tuple[Array, Array]:
    """Mean and standard deviation in float64 of each column of (rows, k); scale 0 if constant."""
    low = np.full(numeric.shape[1], np.inf)
    high = -low
    for rows in row_chunks(numeric):
        low = np.minimum(low, numeric[rows].min(axis=0).astype(np.float64))
        high = np.maximum(high, numeric[rows].max(axis=0).astype(np.float64))
    with np.errstate(over="ignore"):
        span = high - low
    if not np.isfinite(span).all():
        column = names[int((~np.isfinite(span)).argmax())]
        raise InputError(f"{column_label(side, column)} spans more than float64 holds: rescale it")
    # Moments of the column mapped to [0, 1] neither overflow nor vanish, and as their variance is
    # at least 1 / (2 rows) the one-pass formula is accurate.
    divisor = np.where(span > 0, span, 1.0)
    total, squares = np.zeros_like(span), np.zeros_like(span)
    for rows in row_chunks(numeric):
        unit = (numeric[rows].astype(np.float64) - low) / divisor
        total += unit.sum(axis=0)
        squares += np.square(unit).sum(axis=0)
    mean = total / numeric.shape[0]
    deviation = np.sqrt(np.maximum(squares / numeric.shape[0] - np.square(mean), 0))
    return low + span * mean, np.where(span > 0, span * deviation, 0.0)


def _not_numbers(values: Array) -> list[str]:
    """Those of some strings that cannot be read as numbers."""
    odd = []
    for value in values.tolist():
        try:
            float(value)
        except ValueError:
            odd.append(value)
    return odd


def _require_repeats(column: CategoryColumn, rows: int, side: str) -> None:
    """Refuse names and ids: a category that comes once says nothing about any other row."""
    count = column.values.size
    if count > MOST_CATEGORIES or (count > 50 and 2 * count > rows):
        if column.values.dtype.kind != "U":
            raise InputError(
                f"{column_label(side, column.name)} has {count} different numbers in {rows} rows, "
                "which are not categories: leave discrete unset for this side, or bin the column"
            )
        odd = _not_numbers(column.values)
        if 2 * len(odd) < count:
            what = f"all but {odd[0]!r} and the like are numbers" if odd else "all are numbers"
            raise InputError(
                f"{column_label(side, column.name)} holds text, but {what}: mend or drop those "
                "rows, and give the column as numbers"
            )
        raise InputError(
            f"{column_label(side, column.name)} has {count} categories in {rows} rows, too many to "
            "learn from: give each value as numbers instead (an embedding), or merge rare ones"
        )


def _report_constant(constant: list[str], width: int, rows: int, side: str) -> None:
    if len(constant) == width:
        raise InputError(
            f"every column of {side} is constant (n_samples={rows}): "
            "it can tell nothing about the other side"
        )
    if constant:
        shown = ", ".join(map(repr, constant[:5])) + (", ..." if len(constant) > 5 else "")
        warn_caller(
            f"{side}: dropped {len(constant)} column(s) that have one value throughout: {shown}",
            DataWarning,
        )


# Sides with categories, which are held as they were given and encoded when they are read.


class EncodedRows(RowSource):
    """The encoded rows, (rows, encoder.dim) float32, of a side in memory."""

    def __init__(self, raw: RawSide, encoder: SideEncoder) -> None:
        self.raw, self.encoder = raw, encoder
        self.rows, self.named = raw.rows, False
        self.names = tuple(str(position) for position in range(encoder.dim))
        self.dtype = np.dtype(np.float32)

    def read(self, start: int, stop: int, step: int) -> Iterator[Array]:
        for first in range(start, stop, step):
            yield self.encoder.encode(_part(self.raw, slice(first, min(first + step, stop))))


def _part(raw: RawSide, rows: slice) -> RawSide:
    """The same side with these rows alone."""
    categorical = tuple((name, values[rows]) for name, values in raw.categorical)
    count = len(range(*rows.indices(raw.rows)))
    numeric = None if raw.numeric is None else raw.numeric[rows]
    return replace(raw, numeric=numeric, categorical=categorical, rows=count)
