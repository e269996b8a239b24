"""One side of the data after reading and before encoding, and the checks every side shares."""

import hashlib
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from pointdep.errors import InputError, all_at_once

Array = npt.NDArray[Any]

# Row chunks of about this many numbers keep float64 copies of a memory-mapped side near 16 MB.
_CHUNK_NUMBERS = 1 << 21
MISSING = "(missing)"
"""The category of rows whose cell is empty."""

ASKED = "pointdep_columns_were_named"
"""Entry of a data frame's `attrs`: its columns were asked for by name, so that ids are kept."""

MEND = "drop such rows from both sides or fill the values in"


class SparseInputError(InputError, TypeError):
    """A sparse matrix was given; also a TypeError, which is what scikit-learn's users expect."""


@dataclass(frozen=True, eq=False)
class Fault:
    """Why some rows cannot be used: rows (n,) bool, and the reason for one row and for all."""

    rows: Array
    reason: str
    message: str


@dataclass(frozen=True, eq=False)
class RawSide:
    """X or Y as columns of numbers and columns of categories, checked but not yet scaled.

    numeric: (rows, dn) in its original dtype, possibly a view or a memory map; None without any.
    numeric_names: dn names; arrays have the column's position as its name.
    categorical: (name, (rows,) values) of each category column.
    named: the names come from a table and must be the same ones later.
    category_mask: which columns are categories, in the order they were given.
    list_column: the column of lists whose numbers these are, where they come from such a table.
    dates: the columns that were dates, of which these are the numbers, by `columns.part_name`.
    left_out: columns of the table that are not read, as they are ids.
    day_first: of dates, those whose strings have the day before the month.
    faults: rows that cannot be read as those of the fit. whereabouts: where a row is, in words.
    front: what made the numbers of texts, pictures or sounds (`encoders.Front`).
    Missing values are NaN among the numbers and "(missing)" among the categories.
    """

    numeric: Array | None
    numeric_names: tuple[str, ...]
    categorical: tuple[tuple[str, Array], ...]
    rows: int
    named: bool
    category_mask: tuple[bool, ...]
    list_column: str | None = None
    dates: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    whereabouts: Callable[[int], str] | None = None
    front: Any = None
    day_first: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.rows

    @property
    def width(self) -> int:
        """Number of columns as the user counts them."""
        return len(self.category_mask)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns in the order they were given."""
        numeric = iter(self.numeric_names)
        categorical = iter(name for name, _ in self.categorical)
        return tuple(next(categorical if is_cat else numeric) for is_cat in self.category_mask)

    def gaps(self) -> Array:
        """(rows,) bool: which rows have a missing value."""
        found = np.zeros(self.rows, dtype=bool)
        if self.numeric is not None and self.numeric.dtype.kind == "f":
            for rows in row_chunks(self.numeric):
                found[rows] = np.isnan(self.numeric[rows]).any(axis=1)
        for _, values in self.categorical:
            found |= values == MISSING if values.dtype.kind == "U" else False
        return found

    def index_within_kind(self, position: int) -> int:
        """Where the column at this position stands among the columns of its own kind."""
        return self.category_mask[:position].count(self.category_mask[position])

    def column(self, position: int) -> Array:
        """(rows,) values of the column at this position in the order given."""
        index = self.index_within_kind(position)
        if self.category_mask[position]:
            return self.categorical[index][1]
        assert self.numeric is not None
        return self.numeric[:, index]


def require_same_length(x: Sized, y: Sized, groups: Any = None, z: Sized | None = None) -> None:
    """Row i of X belongs with row i of Y (and of Z and groups), so their lengths must agree."""
    given = {"X": x, "Y": y, "Z": z, "groups": groups}
    lengths = {name: len(side) for name, side in given.items() if side is not None}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {rows} rows" for name, rows in lengths.items())
        raise InputError(f"inconsistent numbers of samples: {listed}; row i of each must be a pair")


def column_label(side: str, column: str) -> str:
    """How messages call a column: by its name, or by its position in an array."""
    return f"{side} column {column if column.isdigit() else repr(column)}"


def row_chunks(values: Array) -> Iterator[slice]:
    """Slices of rows that together cover values: (rows,) or (rows, columns)."""
    width = values.shape[1] if values.ndim == 2 else 1
    step = max(1, _CHUNK_NUMBERS // max(1, width))
    for start in range(0, values.shape[0], step):
        yield slice(start, start + step)


def side_digest(raw: RawSide) -> str:
    """Equal for the same rows in the same order, in whatever type; other rows have another."""
    digest = hashlib.blake2b(digest_size=16)
    if raw.numeric is not None:
        for rows in row_chunks(raw.numeric):
            with np.errstate(over="ignore"):
                digest.update(raw.numeric[rows].astype(np.float32).tobytes())
    for _, values in raw.categorical:
        for rows in row_chunks(values):
            part = values[rows]
            if part.dtype.kind == "U":  # of a width that depends on where it came from
                digest.update("\0".join(part).encode(errors="surrogatepass"))
            else:
                digest.update(part.astype(np.float64).tobytes())
    return digest.hexdigest()


def require_finite(
    values: Array,
    names: Sequence[str],
    side: str,
    whereabouts: Callable[[int], str] | None = None,
    *,
    missing: str | None = None,
) -> None:
    """InputError naming the columns of values: (rows, columns) with NaN or infinity.

    whereabouts: where the row of a number is, in words. missing: NaN is taken, where it is given.
    """
    bad = np.zeros(values.shape[1], dtype=bool)
    for rows in row_chunks(values) if values.dtype.kind == "f" else ():
        part = values[rows]
        bad |= ~np.isfinite(part).all(axis=0) if missing is None else np.isinf(part).any(axis=0)
    if bad.any():
        kept = [
            not_finite(values[:, at], names[at], side, whereabouts)
            for at in bad.nonzero()[0].tolist()
        ]
        raise all_at_once([InputError(fault.message) for fault in kept])


def not_finite(
    values: Array, name: str, side: str, whereabouts: Callable[[int], str] | None = None
) -> Fault:
    """The fault of a column (rows,) that holds NaN or infinity."""
    masks = {"NaN": np.isnan(values), "infinity": np.isinf(values)}
    bad = masks["NaN"] | masks["infinity"]
    row = int(bad.argmax())
    found = " and ".join(f"{m.sum()} {what}" for what, m in masks.items() if m.any())
    found += f" value(s), the first in {whereabouts(row) if whereabouts else f'row {row}'}"
    label = column_label(side, name)
    what = "a missing value" if masks["NaN"].any() else "infinity"
    return Fault(bad, f"{label}: {what}", f"{label} holds {found}: {MEND}")


def missing_category(count: int, row: int, name: str, side: str) -> InputError:
    """The error for a category column in which count values are missing, the first at row."""
    return InputError(
        f"{column_label(side, name)} holds {count} missing value(s) (None or NaN), the first in "
        f"row {row}: drop those rows from both sides or make them a category of their own"
    )


# Group ids: which rows are not independent draws.


def group_codes(groups: Any, rows: int | None = None) -> NDArray[np.int64] | None:
    """(n,) whole numbers, equal where the given ids are equal; None stays None.

    rows: how many there must be, if that is known.
    """
    if groups is None:
        return None
    values = np.asarray(groups)
    if values.ndim != 1:
        raise InputError(f"groups has shape {values.shape}: give one value per row, (n,)")
    if rows is not None and len(values) != rows:
        raise InputError(f"groups has {len(values)} rows but X and Y have {rows}")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise InputError("groups holds NaN: give every row a group")
    if values.dtype.kind == "O":
        if not all(isinstance(value, str | int | np.integer) for value in values):
            raise InputError("groups holds Python objects: give every row a number or a string")
        values = values.astype(str)
    return np.unique(values, return_inverse=True)[1].astype(np.int64)
