"""Values so far from all others of their column that they would drown them.

One value of 1e12 makes the standard deviation of a column so large that float32 tells its other
values no longer apart. Such values are mostly marks of missing ones, or glitches of an instrument.
They are named in a flag, and taken for missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pointdep.data.raw import Array

# Ratios to the next value, in distances from the median. Of the two farthest of a Cauchy variable
# it exceeds 1,000 once in a thousand columns, of a Student t with 3 degrees of freedom once in 1e9.
_GAP = 1e3
_GAP_OF_MARKS = 8.0
_MOST = 0.05  # share of the rows that are taken for missing
_MOST_MARKS = 0.5
_REPEATED = 3  # equal values, far out, are a mark
_NEAR, _CANDIDATE = 4.0, 30.0  # interquartile ranges from the median
_SAMPLE_NUMBERS, _FEWEST, LARGEST_SAMPLE = 1 << 20, 256, 1 << 12
_NAMED = 5  # rows

# What files have instead of missing values, with either sign.
_MARKS = np.array(
    [
        *(10.0**digits - 1 for digits in range(2, 8)),
        *(2.0**bits - 1 for bits in (15, 16, 31, 32)),
        *(2.0**15, 2.0**31, 1e10, 1e15, 1e20, 1e30, 1e31, 1e34, 1e35, 1e36, 1e37),
        9.969209968386869e36,  # NetCDF
        *(float(np.finfo(kind).max) for kind in (np.float16, np.float32, np.float64)),
    ]
)

Read = Callable[[], Iterator[tuple[int, Array]]]
"""The number of the first row of each piece, and its rows, (n, width)."""


@dataclass(frozen=True)
class Limits:
    """Values of a column outside [low, high] become `below` and `above`."""

    low: float
    high: float
    below: float
    above: float

    def apply(self, column: Array) -> Array:
        """column: (n,) float64 -> the same shape."""
        clean: Array = np.where(column < self.low, self.below, column)
        return np.where(column > self.high, self.above, clean)


@dataclass(frozen=True)
class Outliers:
    """What was found in a column; told: in words."""

    limits: Limits
    told: str


@np.errstate(over="ignore", invalid="ignore")
def find_outliers(
    sample: Array, low: Array, high: Array, rows: int, read: Read
) -> dict[int, Outliers]:
    """The columns with outliers, by their numbers.

    sample: (some, width), rows of the data; low, high: (width,), the extremes of all. Only if these
    are far out, which is rare, all rows are read once more.
    """
    if not len(sample):
        return {}
    width = sample.shape[1]
    count = min(max(_SAMPLE_NUMBERS // max(1, width), _FEWEST), LARGEST_SAMPLE)
    some = sample[:: max(1, len(sample) // count)].astype(np.float64)
    empty = np.isnan(some)
    if empty.any():
        known = np.where(empty.all(axis=0), 0.0, some)
        some = np.where(empty, np.nanmedian(known, axis=0), some)
    middle, unit = _middle_and_unit(some)
    reach = np.maximum(high - middle, middle - low)
    columns = np.flatnonzero((unit > 0) & (reach > _CANDIDATE * unit)).tolist()
    if not columns:
        return {}
    # Rows that lie farther out than all of the sample but its own outliers are few.
    near = {}
    for column in columns:
        distances, _ = _farthest_first(some[:, column], middle[column])
        cut = _cut(some[:, column], middle[column], _NEAR * unit[column], len(some))
        rest = distances[cut] if cut < len(distances) else 0.0
        near[column] = max(_NEAR * unit[column], rest)
    found: dict[int, list[tuple[Array, Array]]] = {column: [] for column in columns}
    for first, piece in read():
        for column in columns:
            values = piece[:, column].astype(np.float64)
            at = np.flatnonzero(np.abs(values - middle[column]) > near[column])
            found[column].append((first + at, values[at]))
    told = {}
    for column in columns:
        numbers, values = (np.concatenate(part) for part in zip(*found[column], strict=True))
        one = _judged(numbers, values, middle[column], near[column], rows)
        if one is not None:
            told[column] = one
    return told


def _judged(
    numbers: Array, values: Array, middle: float, near: float, rows: int
) -> Outliers | None:
    """Which of the far values of a column are outliers; numbers: of their rows, (far,) each."""
    count = _cut(values, middle, near, rows)
    if not count:
        return None
    distances, order = _farthest_first(values, middle)
    out, rest = order[:count], values[order[count:]]
    inner = distances[count] if count < len(distances) else near
    # Between the two, so that new values near either are what these are.
    limit = float(np.sqrt(distances[count - 1]) * np.sqrt(inner))
    below = above = middle
    if count > _MOST * rows:  # so many may tell something: they stay apart from the others
        below, above = middle - 2 * inner, middle + 2 * inner
    limits = Limits(float(middle - limit), float(middle + limit), float(below), float(above))
    ends = (
        min(rest.min(initial=middle), middle - near),
        max(rest.max(initial=middle), middle + near),
    )
    return Outliers(limits, _in_words(numbers[out], values[out], ends))


def _in_words(numbers: Array, values: Array, ends: tuple[float, float]) -> str:
    """The values, from the most frequent on, with their rows. ends: of the other values."""
    different, counts = np.unique(values, return_counts=True)
    said = []
    for value in different[np.argsort(-counts, kind="stable")][:3].tolist():
        rows = np.sort(numbers[values == value]).tolist()
        shown = ", ".join(map(str, rows[:_NAMED])) + (", ..." if len(rows) > _NAMED else "")
        where = f"row {shown}" if len(rows) == 1 else f"{len(rows)} rows ({shown})"
        mark = ", likely a mark of missing values," if _is_mark(np.array([value]))[0] else ""
        said.append(f"{value:.6g}{mark} in {where}")
    more = len(different) - len(said)
    if more:
        said.append(f"{more} more such value(s)")
    return f"{' and '.join(said)}, where all others lie within {ends[0]:.3g} to {ends[1]:.3g}"


def _middle_and_unit(some: Array) -> tuple[Array, Array]:
    """(width,) the median, and a spread that half of the rows could not move; 0 if there is none.

    Of columns with few different values it is a wider range, or the median distance of the others.
    """
    shares = [0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975]
    levels = np.quantile(some, shares, axis=0, method="nearest")  # nothing between two values
    middle, unit = levels[3], levels[4] - levels[2]
    for low, high in ((1, 5), (0, 6)):
        unit = np.where(unit > 0, unit, levels[high] - levels[low])
    for column in np.flatnonzero(unit == 0).tolist():
        distance = np.abs(some[:, column] - middle[column])
        if (distance > 0).any():
            unit[column] = np.median(distance[distance > 0])
    return middle, unit


def _farthest_first(values: Array, middle: float) -> tuple[Array, Array]:
    """Distances from the middle, and the order that sorts the values so."""
    distances = np.abs(values - middle)
    order = np.argsort(-distances, kind="stable")
    return distances[order], order


def _cut(values: Array, middle: float, near: float, rows: int) -> int:
    """How many of the values, the farthest ones, are outliers: a gap parts them from the others.

    near: the distance of values that are not given.
    """
    distances, order = _farthest_first(values, middle)
    values = values[order]
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    marked = _is_mark(values) | (counts[codes.reshape(-1)] >= _REPEATED)
    ratios = distances / np.maximum(np.append(distances[1:], near), near)
    total = 0
    while total < len(values):
        rest, place = slice(total, None), np.arange(len(values) - total)
        in_marks = np.cumprod(marked[rest]).astype(bool)
        far = (ratios[rest] >= _GAP) & (total + place < max(1, int(_MOST * rows)))
        far |= (ratios[rest] >= _GAP_OF_MARKS) & in_marks & (total + place < _MOST_MARKS * rows)
        if not far.any():
            break
        total += int(np.flatnonzero(far)[-1]) + 1
    return total


def _is_mark(values: Array) -> Array:
    """(n,) which are known marks of missing values, in float16, float32 or float64."""
    near = np.abs(np.abs(values)[:, None] - _MARKS) <= 1e-6 * _MARKS
    found: Array = near.any(1)
    return found
