"""From a side's columns to the float32 matrix the critics see, the same way in fit and after."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np

from pointdep.data.columns import PARTS, part_name
from pointdep.data.encoders import Front
from pointdep.data.files import is_number
from pointdep.data.outliers import LARGEST_SAMPLE, Limits, Outliers, find_outliers
from pointdep.data.raw import (
    MISSING,
    Array,
    Fault,
    RawSide,
    column_label,
    missing_category,
    not_finite,
    row_chunks,
)
from pointdep.data.row_source import ColumnMoments, RowSource
from pointdep.errors import DataWarning, InputError, all_at_once, warn_caller

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

    def find(self, column: Array, side: str) -> tuple[Array, Array]:
        """(rows,) index into values of each entry of column: (rows,), and which are not there."""
        label = column_label(side, self.name)
        if (column.dtype.kind == "U") != (self.values.dtype.kind == "U"):
            expected = f"categories of type {_kind_name(self.values)}"
            raise changed(label, expected, _kind_name(column))
        codes: Array = np.minimum(np.searchsorted(self.values, column), self.values.size - 1)
        return codes, self.values[codes] != column

    def codes(self, column: Array, side: str) -> Array:
        """The same of rows all of whose entries are there."""
        codes, unseen = self.find(column, side)
        if unseen.any():
            raise InputError(self.unseen(column, unseen, side).message)
        return codes

    def unseen(self, column: Array, rows: Array, side: str) -> Fault:
        """The fault of rows (rows,) bool of a column: a category unseen in training."""
        label, row = column_label(side, self.name), int(rows.argmax())
        if column.dtype.kind == "U" and (column[rows] == MISSING).all():
            text = missing_category(int(rows.sum()), row, self.name, side)
            return Fault(rows, f"{label}: a missing value", str(text))
        found = f"{column[row].item()!r} in row {row}, a category unseen in training"
        message = f"{label} holds {found} ({rows.sum()} such row(s)): drop these rows"
        return Fault(rows, f"{label}: a category unseen in training", message)

    @property
    def missing(self) -> int:
        """In how many rows of training it was missing."""
        return (
            int(self.counts[self.values == MISSING].sum()) if self.values.dtype.kind == "U" else 0
        )

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
_PIECE = 1 << 20  # numbers of streamed rows that are looked at at a time


@dataclass(frozen=True, eq=False)
class SideEncoder:
    """Centres and scales the numeric columns, then appends one one-hot block per category column.

    A missing number is the mean, and a last column for each set of columns that were missing
    together in training says in which rows they are.

    Centre and scale, mean and standard deviation in float64, only keep float32 accurate.

    side: "X" or "Y"; names, named, category_mask: the columns seen in fit (see RawSide).
    numeric_at, category_at: positions, in the order given, of the columns that were not constant.
    center, scale: (len(numeric_at),) float64. categories: one per entry of category_at.
    list_column, dates, day_first, left_out: see RawSide.
    missing: what missing values mean: "indicator", "drop" or "error".
    front: see RawSide; it was learned from this side.
    indicators: the sets of columns that were missing together; gaps: in how many rows.
    limits: of the numeric columns with outliers, by position among them; odd: what was found in
    these, in words, of a fit alone.
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
    dates: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    missing: str = "error"
    indicators: tuple[tuple[int, ...], ...] = ()
    gaps: tuple[int, ...] = ()
    limits: tuple[tuple[int, Limits], ...] = ()
    odd: tuple[str, ...] = ()
    front: Any = None
    day_first: tuple[str, ...] = ()

    @classmethod
    def fit(cls, raw: RawSide, name: str, missing: str = "error") -> SideEncoder:
        """Learn the encoding of the side name from its training rows."""
        center = scale = np.empty(0)
        far: dict[int, Outliers] = {}
        together: dict[bytes, list[int]] = {}
        if raw.numeric is not None:
            numbers = raw.numeric
            low, high, center, scale = _center_and_scale(numbers)
            far = find_outliers(
                numbers[:: max(1, len(numbers) // LARGEST_SAMPLE)],
                *(low, high, len(numbers)),
                lambda: ((rows.start, numbers[rows]) for rows in row_chunks(numbers)),
            )
            _scale_again(center, scale, far, numbers)
            at = [i for i, is_category in enumerate(raw.category_mask) if not is_category]
            for column in np.flatnonzero(~np.isfinite(_totals(raw.numeric))).tolist():
                empty = np.isnan(raw.numeric[:, column])
                if not empty.all():
                    together.setdefault(np.packbits(empty).tobytes(), []).append(at[column])
        columns = [CategoryColumn.count(*column) for column in raw.categorical]
        require_repeats(columns, raw.rows, name)
        gaps = tuple(np.unpackbits(np.frombuffer(bits, np.uint8)).sum().item() for bits in together)
        how: dict[str, Any] = {"dates": raw.dates, "left_out": raw.left_out, "missing": missing}
        how |= {"front": raw.front, "day_first": raw.day_first}
        how |= {"indicators": tuple(map(tuple, together.values())), "gaps": gaps}
        found = cls._varying(raw, name, center, scale, columns, far, **how)
        found._warn_of_gaps()
        return found

    def _warn_of_gaps(self) -> None:
        """Say how many values are missing."""
        if self.missing != "indicator":
            return
        of_numbers = zip(self.indicators, self.gaps, strict=True)
        count = {self.names[at]: gap for own, gap in of_numbers for at in own}
        count |= {c.name: n for c in self.categories if (n := c.missing)}
        count = {name: count[name] for name in self.given_names if name in count}
        if count:
            shown = ", ".join(f"{name!r} ({gap})" for name, gap in list(count.items())[:5])
            shown += ", ..." if len(count) > 5 else ""
            said = f"{self.side}: {sum(count.values())} value(s) are missing, in {shown}: they are"
            said += " read as a state of their own (missing='drop' leaves such rows out)"
            warn_caller(said, DataWarning)

    @classmethod
    def of_numbers(
        cls, source: RowSource, name: str, moments: ColumnMoments, kept: Array
    ) -> SideEncoder:
        """The encoding of a side of numbers from what one pass over its rows has found.

        kept: some of the rows. All are read once more if there are values far out.
        """
        step = max(1, _PIECE // max(1, source.width))

        def read() -> Iterator[tuple[int, Array]]:
            pieces = source.read(0, source.rows, step)
            return zip(range(0, source.rows, step), pieces, strict=True)

        far = find_outliers(kept, moments.low, moments.high, source.rows, read)
        center, scale = moments.mean.copy(), moments.scale().copy()
        _scale_again(center, scale, far, kept)
        return cls._varying(source, name, center, scale, [], far)

    @classmethod
    def _varying(
        cls,
        given: _Side,
        side: str,
        center: Array,
        scale: Array,
        categories: list[CategoryColumn],
        far: dict[int, Outliers],
        **how: Any,
    ) -> SideEncoder:
        """The encoding by the columns that have more than one value.

        center, scale, far: of all columns that are not categories.
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
        if len(constant) == len(mask) and not how.get("indicators"):
            raise InputError(f"every column of {side} is constant (n_samples={given.rows})")
        if constant:
            shown = ", ".join(map(repr, constant[:5])) + (", ..." if len(constant) > 5 else "")
            dropped = f"dropped {len(constant)} column(s) that have one value throughout"
            warn_caller(f"{side}: {dropped}: {shown}", DataWarning)
        kept = set(np.array(order)[varies].tolist())
        place = np.cumsum(scale > 0) - 1  # among the numeric columns that are kept
        names = [given.names[i] for i in numeric_at]
        odd = [f"{column_label(side, names[i])} holds {one.told}" for i, one in far.items()]
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
            limits=tuple((int(place[i]), one.limits) for i, one in far.items()),
            odd=tuple(odd),
            **how,
        )

    @property
    def dim(self) -> int:
        """Number of columns that encode gives."""
        blocks = sum(c.values.size for c in self.categories)
        return len(self.numeric_at) + blocks + len(self.indicators)

    @property
    def given(self) -> list[tuple[int, list[str] | None]]:
        """The columns as the user counts them: the position of each, and for dates their parts."""
        parts = {part_name(date, part): part for date in self.dates for part in PARTS}
        found: list[tuple[int, list[str] | None]] = []
        for at, name in enumerate(self.names):
            if found and (own := found[-1][1]) is not None and name in parts:
                own.append(parts[name])
            else:
                found.append((at, [] if name in self.dates else None))
        return found

    @property
    def knows_names(self) -> bool:
        """Whether `given_names` are names that a table must have."""
        return self.named or (self.front is not None and self.front.column is not None)

    @property
    def given_names(self) -> tuple[str, ...]:
        """Names of the columns as the user counts them."""
        if self.front is not None:
            return (self.front.column or "0",)
        return tuple(self.names[at] for at, _ in self.given)

    def described(self) -> list[tuple[str, str]]:
        """How each column was read, in words."""
        if self.front is not None:
            how = f"{self.front.described}, {len(self.names)} numbers"
            return [(self.front.column or "", how)]
        categories = dict(zip(self.category_at, self.categories, strict=True))
        gaps = {at: gap for own, gap in zip(self.indicators, self.gaps, strict=True) for at in own}
        told = []
        for at, parts in self.given:
            how, missing = "number", gaps.get(at, 0)
            if at in categories:
                how, missing = f"{categories[at].values.size} categories", categories[at].missing
            elif parts is not None:
                how = ", ".join(["date", *parts])
            elif at not in self.numeric_at:
                how = "constant, left out"
            told.append((self.names[at], f"{how}, {missing} missing" if missing else how))
        return [*told, *((name, "id, left out") for name in self.left_out)]

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
        """(rows, dim) float32: scaled numeric columns, the one-hot blocks, and the indicators."""
        encoded, faults = self.encode_some(raw)
        if faults:
            raise all_at_once([InputError(fault.message) for fault in faults])
        return encoded

    def encode_some(self, raw: RawSide) -> tuple[Array, list[Fault]]:
        """The same, and what keeps some of the rows from being encoded, whose values are void."""
        self.check(raw)
        faults = list(raw.faults)
        encoded = np.zeros((raw.rows, self.dim), dtype=np.float32)
        if start := len(self.numeric_at):
            values, index = self._numeric(raw)
            for rows in row_chunks(values):
                chunk = self.within_limits(values[rows][:, index].astype(np.float64))
                with np.errstate(over="ignore", invalid="ignore"):
                    encoded[rows, :start] = (chunk - self.center) / self.scale
            wrong = np.logical_not(np.isfinite(encoded[:, :start]).all(1))
            if wrong.any():
                faults += self._fill_gaps(encoded, raw, wrong)
        every_row = np.arange(raw.rows)
        for position, column in zip(self.category_at, self.categories, strict=True):
            given = self._category(raw, position, column)
            codes, unseen = column.find(given, self.side)
            gaps = given == MISSING if given.dtype.kind == "U" else np.zeros(raw.rows, dtype=bool)
            unseen |= gaps if self.missing != "indicator" else False
            for odd in (unseen & gaps, unseen & ~gaps):
                if odd.any():
                    faults.append(column.unseen(given, odd, self.side))
            encoded[every_row, start + codes] = 1
            start += column.values.size
        for own in self.indicators:
            encoded[:, start] = np.any([np.isnan(raw.column(at)) for at in own], axis=0)
            start += 1
        return encoded, faults

    def within_limits(self, chunk: Array) -> Array:
        """(rows, len(numeric_at)) float64, with outliers in their places; changed in place."""
        for column, limits in self.limits:
            chunk[:, column] = limits.apply(chunk[:, column])
        return chunk

    def outlying(self, raw: RawSide) -> Array:
        """(rows,) bool: which rows have a value that is taken for missing."""
        found = np.zeros(raw.rows, bool)
        if self.limits:
            values, index = self._numeric(raw)
            for column, limits in self.limits:
                one = values[:, index[column]]
                found |= (one < limits.low) | (one > limits.high)
        return found

    def _fill_gaps(self, encoded: Array, raw: RawSide, rows: Array) -> list[Fault]:
        """Put zero in place of missing numbers; what keeps rows from that. rows: (n,) bool."""
        faults, seen = [], {at for own in self.indicators for at in own}
        far, told = np.zeros(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
        for fault in raw.faults:
            told |= fault.rows
        for number, at in enumerate(self.numeric_at):
            odd = rows & ~np.isfinite(encoded[:, number])
            if not odd.any():
                continue
            values = raw.column(at)
            encoded[odd, number] = 0
            far |= odd & np.isfinite(values)
            odd &= ~np.isfinite(values) & ~told
            if self.missing == "indicator" and at in seen:
                odd &= ~np.isnan(values)
            if odd.any():
                shown = np.where(odd, values, 0)
                faults.append(not_finite(shown, self.names[at], self.side, raw.whereabouts))
        if far.any():
            where = f"{self.side} holds a number in row {int(far.argmax())}"
            message = f"{where} that is too far from training: is its unit right?"
            faults.append(Fault(far, f"{self.side}: a number too far from training", message))
        return faults

    def log_frequency(self, raw: RawSide) -> Array | None:
        """(rows,) float64 log p(outcome) by the training counts when the side is one category.

        None for every other side, where an outcome has no frequency of its own.
        """
        self.check(raw)
        if self.numeric_at or self.indicators or len(self.categories) != 1:
            return None
        column = self.categories[0]
        codes = column.codes(self._category(raw, self.category_at[0], column), self.side)
        frequency: Array = np.log(column.counts / column.counts.sum())[codes]
        return frequency

    def entropy_limit(self, draws: int | None = None) -> float:
        """An upper estimate of the side's entropy; infinite for a side with numbers.

        draws: see `CategoryColumn.entropy_limit`. Several columns have at most the sum of theirs.
        """
        if self.numeric_at or self.indicators:
            return math.inf
        return sum(column.entropy_limit(draws) for column in self.categories)

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to encode again, in JSON's types."""
        saved = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(self).items()}
        del saved["odd"]
        return saved | {
            "limits": [[column, *astuple(limits)] for column, limits in self.limits],
            "front": None if self.front is None else self.front.to_dict(),
            "center": self.center.tolist(),
            "scale": self.scale.tolist(),
            "categories": [column.to_dict() for column in self.categories],
        }

    @property
    def arrays(self) -> dict[str, Array]:
        """What of it is not in to_dict."""
        return {} if self.front is None else self.front.arrays

    @classmethod
    def from_dict(
        cls, saved: Mapping[str, Any], arrays: Mapping[str, Array] | None = None
    ) -> SideEncoder:
        """The encoder that to_dict and arrays described; InputError if saved is something else."""
        try:
            # Early models have no entries for list_column and limits.
            names = {field.name for field in fields(cls)} - {"odd"}
            known = {name: saved[name] for name in names if name in saved}
            for name, value in known.items():
                known[name] = tuple(value) if isinstance(value, list) else value
            if "indicators" in known:  # early models have none
                known["indicators"] = tuple(map(tuple, known["indicators"]))
            for name in ("center", "scale"):
                known[name] = np.array(known[name], dtype=np.float64)
            if known.get("front") is not None:
                known["front"] = Front.from_dict(known["front"], arrays or {})
                known["front"].require_width(len(known["names"]))
            known["categories"] = tuple(map(CategoryColumn.from_dict, known["categories"]))
            limits = known.get("limits", ())
            known["limits"] = tuple((column, Limits(*map(float, four))) for column, *four in limits)
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
            and len(kept) + len(self.indicators) > 0
            and len(kept) == len(set(kept))
            and len(self.indicators) == len(self.gaps)
            and all(
                type(i) is int and 0 <= i < len(self.names) for own in self.indicators for i in own
            )
            and not any(self.category_mask[i] for own in self.indicators for i in own)
            and all(
                isinstance(text, str)
                for text in (*self.dates, *self.day_first, *self.left_out, self.missing)
            )
            and [self.category_mask[i] for i in kept] == [k >= numbers for k in range(len(kept))]
            and len(self.categories) == len(self.category_at)
            and all(type(k) is int and 0 <= k < numbers for k, _ in self.limits)
            and all(map(math.isfinite, (v for _, one in self.limits for v in astuple(one))))
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


def _scale_again(center: Array, scale: Array, far: dict[int, Outliers], numbers: Array) -> None:
    """Set centre and scale of the columns with outliers by what these become; numbers: (n, k).

    What would leave a column with one value is all that it tells, and no outlier.
    """
    for column, one in [*far.items()]:
        clean = one.limits.apply(numbers[:, column].astype(np.float64))
        middle, spread = (float(part[0]) for part in _center_and_scale(clean[:, None])[2:])
        if spread > 0:
            center[column], scale[column] = middle, spread
        else:
            del far[column]


def _center_and_scale(numeric: Array) -> tuple[Array, Array, Array, Array]:
    """Extremes, mean and standard deviation in float64 of each column of (rows, k).

    The scale is 0 if a column is constant, and neither is finite if its range is not.
    """
    low = np.full(numeric.shape[1], np.inf)
    high = -low
    for rows in row_chunks(numeric):  # fmin and fmax leave missing numbers out
        low = np.fmin(low, np.fmin.reduce(numeric[rows], axis=0).astype(np.float64))
        high = np.fmax(high, np.fmax.reduce(numeric[rows], axis=0).astype(np.float64))
    low, high = (np.where(low > high, 0.0, ends) for ends in (low, high))  # of nothing but gaps
    with np.errstate(over="ignore"):
        span = high - low
    if not np.isfinite(span).all():
        return low, high, span, span
    # Moments of the column mapped to [0, 1] neither overflow nor vanish, and as their variance is
    # at least 1 / (2 rows) the one-pass formula is accurate.
    divisor = np.where(span > 0, span, 1.0)
    total, squares = np.zeros_like(span), np.zeros_like(span)
    count = np.zeros_like(span)
    for rows in row_chunks(numeric):
        unit = (numeric[rows].astype(np.float64) - low) / divisor
        given = np.isfinite(unit)
        count += given.sum(axis=0)
        total += unit.sum(axis=0, where=given)
        squares += np.square(unit).sum(axis=0, where=given)
    count = np.maximum(count, 1)
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - np.square(mean), 0))
    return low, high, low + span * mean, np.where(span > 0, span * deviation, 0.0)


def _totals(numeric: Array) -> Array:
    """(k,) sums of (rows, k): not finite where a column holds what is not."""
    total = np.zeros(numeric.shape[1])
    for rows in row_chunks(numeric) if numeric.dtype.kind == "f" else ():
        with np.errstate(over="ignore", invalid="ignore"):
            total += numeric[rows].sum(axis=0) * 0.0
    return total


def too_many(count: int, rows: int) -> bool:
    """Whether so many different values are no categories: what comes once says nothing else."""
    return count > MOST_CATEGORIES or (count > 50 and 4 * count > 3 * rows)


def require_repeats(columns: list[CategoryColumn], rows: int, side: str) -> None:
    """Refuse names and ids."""
    if problems := [error for column in columns if (error := _no_repeats(column, rows, side))]:
        raise all_at_once(problems)


def _no_repeats(column: CategoryColumn, rows: int, side: str) -> InputError | None:
    """The error for a column of names or ids."""
    count, label = column.values.size, column_label(side, column.name)
    if not too_many(count, rows):
        return None
    if column.values.dtype.kind != "U":
        numbers = f"{count} different numbers in {rows} rows"
        return InputError(
            f"{label} has {numbers}, no categories: leave discrete unset, or bin them"
        )
    odd = [value for value in column.values.tolist() if not is_number(value)]
    if 2 * len(odd) < count:
        what = f"all but {odd[0]!r} and the like are numbers" if odd else "all are numbers"
        return InputError(f"{label} holds text, but {what}: mend those rows, and give numbers")
    several = f"{label} has {count} categories in {rows} rows, too many"
    return InputError(f"{several}: leave the column out if it is an id, or merge rare ones")


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
            yield self.encoder.encode(part_of(self.raw, slice(first, min(first + step, stop))))


def part_of(raw: RawSide, rows: slice | Array) -> RawSide:
    """The same side with these rows alone."""
    categorical = tuple((name, values[rows]) for name, values in raw.categorical)
    numeric = None if raw.numeric is None else raw.numeric[rows]
    count = len(range(*rows.indices(raw.rows))) if isinstance(rows, slice) else len(rows)
    faults = [replace(fault, rows=fault.rows[rows]) for fault in raw.faults]
    left = tuple(fault for fault in faults if fault.rows.any())
    return replace(raw, numeric=numeric, categorical=categorical, rows=count, faults=left)
