"""From a side's columns to the float32 matrix the critics see, the same way in fit and after."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np

from pointdep.data.files import is_number
from pointdep.data.raw import Array, RawSide, column_label, row_chunks
from pointdep.data.row_source import ColumnMoments, RowSource
from pointdep.errors import DataWarning, InputError, warn_caller

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
            expected = f"categories of type {_kind_name(self.values)}"
            raise changed(label, expected, _kind_name(column))
        codes: Array = np.minimum(np.searchsorted(self.values, column), self.values.size - 1)
        unseen = self.values[codes] != column
        if unseen.any():
            row = int(unseen.argmax())
            found = f"{column[row].item()!r} in row {row}, a category unseen in training"
            raise InputError(f"{label} holds {found} ({unseen.sum()} such row(s)): drop these rows")
        return codes

    def entropy_limit(self, draws: int | None = None) -> float:
        """An upper estimate of the entropy in nats; draws: independent ones, all rows by default.

        Two standard errors above Miller and Madow's estimate, for which the number of categories
        that can come is Chao's (1984), from those that came once and twice.
        """
        rows = int(self.counts.sum())
        share, draws = self.counts / rows, draws or rows
        once, twice = (int((self.counts == times).sum()) for times in (1, 2))
        categories = len(share) + once * (once - 1) / (2 * (twice + 1))
        entropy = -float(share @ np.log(share))
        variance = float(share @ np.square(np.log(share))) - entropy**2
        return entropy + (categories - 1) / (2 * draws) + 2 * math.sqrt(max(variance, 0.0) / draws)

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
        """The column that to_dict described; ValueError when saved is something else."""
        values, counts, kind = saved["values"], saved["counts"], saved["type"]
        if (
            kind not in {kind.__name__ for kind in _KINDS.values()}
            or any(type(value).__name__ != kind for value in values)
            or any(type(count) is not int or count <= 0 for count in counts)
            or len(values) != len(counts)
            or len(values) < 2
            or any(not low < high for low, high in pairwise(values))
        ):
            raise ValueError("categories must be sorted values of one type, with counts")
        return cls(str(saved["name"]), np.array(values), np.array(counts, dtype=np.int64))


def changed(label: str, expected: str, found: str) -> InputError:
    """The error for a column that holds something else than in training."""
    return InputError(f"{label} held {expected} in training but now holds {found}: give it as then")


def _kind_name(values: Array) -> str:
    return _KINDS[values.dtype.kind].__name__


_Side = RawSide | RowSource
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
        center = scale = np.empty(0)
        if raw.numeric is not None:
            center, scale = _center_and_scale(raw.numeric)
        columns = [CategoryColumn.count(*column) for column in raw.categorical]
        for column in columns:
            _require_repeats(column, raw.rows, name)
        return cls._varying(raw, name, center, scale, columns)

    @classmethod
    def of_numbers(cls, source: RowSource, name: str, moments: ColumnMoments) -> SideEncoder:
        """The encoding of a side of numbers from what one pass over its rows has found."""
        return cls._varying(source, name, moments.mean, moments.scale(), [])

    @classmethod
    def _varying(
        cls, given: _Side, side: str, center: Array, scale: Array, categories: list[CategoryColumn]
    ) -> SideEncoder:
        """The encoding by the columns that have more than one value.

        center, scale: of all columns that are not categories.
        """
        mask = given.category_mask
        numeric_at, category_at = ([i for i, m in enumerate(mask) if m is k] for k in (False, True))
        infinite = ~(np.isfinite(center) & np.isfinite(scale))
        if infinite.any():
            label = column_label(side, given.names[numeric_at[int(infinite.argmax())]])
            raise InputError(f"{label} spans more than float64 holds: rescale it")
        varies = np.array([*(scale > 0), *(column.values.size > 1 for column in categories)])
        order = (*numeric_at, *category_at)
        constant = [given.names[i] for i, keep in zip(order, varies, strict=True) if not keep]
        if len(constant) == len(mask):
            raise InputError(f"every column of {side} is constant (n_samples={given.rows})")
        if constant:
            shown = ", ".join(map(repr, constant[:5])) + (", ..." if len(constant) > 5 else "")
            dropped = f"dropped {len(constant)} column(s) that have one value throughout"
            warn_caller(f"{side}: {dropped}: {shown}", DataWarning)
        kept = set(np.array(order)[varies].tolist())
        return cls(
            side=side,
            names=given.names,
            named=given.named,
            category_mask=mask,
            numeric_at=tuple(i for i in numeric_at if i in kept),
            center=center[scale > 0],
            scale=scale[scale > 0],
            category_at=tuple(i for i in category_at if i in kept),
            categories=tuple(column for column in categories if column.values.size > 1),
            list_column=given.list_column,
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
        if start := len(self.numeric_at):
            values, index = self._numeric(raw)
            for rows in row_chunks(values):
                chunk = values[rows][:, index].astype(np.float64)
                with np.errstate(over="ignore"):
                    encoded[rows, :start] = (chunk - self.center) / self.scale
            wrong = ~np.isfinite(encoded).all(1)
            if wrong.any():
                where = f"{self.side} holds a number in row {int(wrong.argmax())}"
                raise InputError(f"{where} that is too far from training: is its unit right?")
        every_row = np.arange(raw.rows)
        for position, column in zip(self.category_at, self.categories, strict=True):
            codes = column.codes(self._category(raw, position, column), self.side)
            encoded[every_row, start + codes] = 1
            start += column.values.size
        return encoded

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

    def entropy_limit(self, draws: int | None = None) -> float:
        """An upper estimate of the side's entropy; infinite for a side with numbers.

        draws: see `CategoryColumn.entropy_limit`. Several columns have at most the sum of theirs.
        """
        if self.numeric_at:
            return math.inf
        return sum(column.entropy_limit(draws) for column in self.categories)

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to encode again, in JSON's types."""
        saved = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(self).items()}
        return saved | {
            "center": self.center.tolist(),
            "scale": self.scale.tolist(),
            "categories": [column.to_dict() for column in self.categories],
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> SideEncoder:
        """The encoder that to_dict described; InputError when saved is something else."""
        try:
            # Early models have no entry for list_column.
            known = {field.name: saved[field.name] for field in fields(cls) if field.name in saved}
            for name, value in known.items():
                known[name] = tuple(value) if isinstance(value, list) else value
            for name in ("center", "scale"):
                known[name] = np.array(known[name], dtype=np.float64)
            known["categories"] = tuple(map(CategoryColumn.from_dict, known["categories"]))
            encoder = cls(**known)
            if not encoder._is_consistent():
                raise ValueError("its fields do not fit together")
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"not a saved encoder ({type(error).__name__}: {error})") from error
        return encoder

    def _is_consistent(self) -> bool:
        """Whether the fields, as read from a file, are of their types and fit together."""
        kept, numbers = (*self.numeric_at, *self.category_at), len(self.numeric_at)
        return (
            all(isinstance(text, str) for text in (self.side, *self.names))
            and isinstance(self.list_column, str | None)
            and all(isinstance(flag, bool) for flag in (*self.category_mask, self.named))
            and len(self.category_mask) == len(self.names)
            and all(type(i) is int and 0 <= i < len(self.names) for i in kept)
            and 0 < len(kept) == len(set(kept))
            and [self.category_mask[i] for i in kept] == [k >= numbers for k in range(len(kept))]
            and len(self.categories) == len(self.category_at)
            and self.center.shape == self.scale.shape == (numbers,)
            and bool((np.isfinite(self.center) & np.isfinite(self.scale) & (self.scale > 0)).all())
        )

    def check(self, raw: RawSide) -> None:
        """InputError where these are not the columns of the fit."""
        if raw.width != len(self.names):
            one_row = raw.width == 1 and raw.rows == len(self.names)
            hint = f": give one row as {self.side}[:1], not {self.side}[0]" if one_row else ""
            known = f"PointwiseDependency is expecting {len(self.names)} features as input"
            raise InputError(f"{self.side} has {raw.width} features, but {known}{hint}")
        if self.named and raw.named:
            for position, (seen, given) in enumerate(zip(self.names, raw.names, strict=True)):
                if seen != given:
                    raise InputError(
                        "The feature names should match those that were passed during fit: "
                        f"{self.side} column {position} is {given!r} but was {seen!r}"
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
        return changed(column_label(self.side, self.names[position]), expected, found)


def _center_and_scale(numeric: Array) -> tuple[Array, Array]:
    """Mean and standard deviation in float64 of each column of (rows, k).

    The scale is 0 if a column is constant, and neither is finite if its range is not.
    """
    low = np.full(numeric.shape[1], np.inf)
    high = -low
    for rows in row_chunks(numeric):
        low = np.minimum(low, numeric[rows].min(axis=0).astype(np.float64))
        high = np.maximum(high, numeric[rows].max(axis=0).astype(np.float64))
    with np.errstate(over="ignore"):
        span = high - low
    if not np.isfinite(span).all():
        return span, span
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


def _require_repeats(column: CategoryColumn, rows: int, side: str) -> None:
    """Refuse names and ids: what comes once says nothing about any other row."""
    count, label = column.values.size, column_label(side, column.name)
    if count <= MOST_CATEGORIES and (count <= 50 or 4 * count <= 3 * rows):
        return
    if column.values.dtype.kind != "U":
        numbers = f"{count} different numbers in {rows} rows"
        raise InputError(f"{label} has {numbers}, no categories: leave discrete unset, or bin them")
    odd = [value for value in column.values.tolist() if not is_number(value)]
    if 2 * len(odd) < count:
        what = f"all but {odd[0]!r} and the like are numbers" if odd else "all are numbers"
        raise InputError(f"{label} holds text, but {what}: mend those rows, and give numbers")
    raise InputError(f"{label} has {count} categories in {rows} rows, too many: merge rare ones")


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
