"""Columns as tables have them: missing values, placeholders, dates, ids and texts."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from pointdep.data.raw import MISSING, Array, column_label
from pointdep.errors import InputError

# What people write into a cell of a column of numbers that has no number.
_PLACEHOLDERS = {"", "?", "-", "--", "---", ".", "*", "na", "n/a", "n.a.", "#n/a", "<na>", MISSING}
_PLACEHOLDERS |= {"nan", "null", "none", "nil", "missing", "unknown", "not available"}
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T]\d{1,2}:\d{2}.*)?")
_DAY_FIRST = re.compile(r"(\d{1,2})[-/.]\d{1,2}[-/.]\d{4}")
_TRIED = 100  # different strings that must all look like dates before a column is parsed as dates
_ID_NAME = re.compile(r"(^|[\W_])(u?u?ids?|guid|key|index|idx)$|[a-z]I[Dd]$", re.IGNORECASE)
_FEWEST_IDS = 20  # rows: of fewer, all different is no sign of an id
_WORDS, _LONG = 3, 40  # per string on average: what is longer is a text, not an id

PARTS = TIME_OF_DAY, WEEKDAY, YEAR = "time of day", "weekday", "year fraction"
_DAY = 86_400_000_000  # microseconds


def from_objects(values: Array, name: str, side: str) -> Array:
    """(rows,) of Python objects as an array of kind b, i, u, f, U or M; else an error.

    A table of mixed columns turned into one array holds numbers as objects, so they are taken. What
    is missing is NaN among numbers, NaT among dates, and the category "(missing)" otherwise.
    """
    count = len(values)
    missing = np.fromiter((_is_missing(v) for v in values), dtype=bool, count=count)
    is_string = np.fromiter((isinstance(v, str) for v in values), dtype=bool, count=count)
    is_number = np.fromiter((_is_number(v) for v in values), dtype=bool, count=count) & ~missing
    if (is_string | missing).all() and is_string.any():
        return np.where(missing, MISSING, values).astype(str)
    empty = missing.copy()
    if is_number.any() and is_string.any():
        empty[is_string] = [v.strip().lower() in _PLACEHOLDERS for v in values[is_string]]
    if (is_number | empty).all():
        if empty.any():
            return np.where(empty, np.nan, values).astype(np.float64)
        numbers = np.array(values.tolist())
        return numbers if numbers.dtype.kind in "iuf" else values.astype(np.float64)
    for kinds, read in ((bool, _from_flags), (datetime.date, _from_dates)):
        of_kind = np.fromiter((isinstance(v, kinds) for v in values), dtype=bool, count=count)
        if (of_kind | missing).all():
            return read(values, missing)
    # Among numbers it is the odd one out that offends, not the first number.
    row = int(((is_string if is_string.any() else is_number) | missing).argmin())
    found = f"Python objects, a {type(values[row]).__name__} in row {row}"
    raise InputError(f"{column_label(side, name)} holds {found}: use astype(float) or astype(str)")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _is_missing(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _from_flags(values: Array, missing: Array) -> Array:
    if not missing.any():
        return values.astype(bool)
    return np.where(missing, MISSING, values).astype(str)


def _from_dates(values: Array, missing: Array) -> Array:
    import pandas as pd

    given = values.copy()
    given[missing] = None
    found = pd.to_datetime(pd.Series(given), utc=True)
    return found.dt.tz_localize(None).to_numpy().astype("M8[us]")


def as_text(values: Array) -> Array:
    """Numbers or flags (rows,) as the categories that their strings would be: 1.0 as "1"."""
    if values.dtype.kind != "f":
        return values.astype(str)
    whole = np.isfinite(values) & (values == np.rint(values))
    text = np.where(np.isnan(values), MISSING, values.astype(str))
    text = text.astype(object)
    text[whole] = [f"{value:.0f}" for value in values[whole]]
    return text.astype(str)


def as_numbers(text: Array) -> tuple[Array, Array]:
    """(rows,) strings as float64, NaN where a cell holds none, and which cells hold other text."""
    distinct, place = np.unique(text, return_inverse=True)
    numbers, odd = np.full(len(distinct), np.nan), np.zeros(len(distinct), dtype=bool)
    for at, cell in enumerate(distinct.tolist()):
        try:
            numbers[at] = float(cell)
        except ValueError:
            odd[at] = cell.strip().lower() not in _PLACEHOLDERS
    return numbers[place.ravel()], odd[place.ravel()]


def has_day_first(text: Array) -> bool:
    """Whether a string (rows,) such as 13/02/2020 shows that days stand before months."""
    return any(
        int(found[1]) > 12 for cell in np.unique(text).tolist() if (found := _DAY_FIRST.match(cell))
    )


def as_dates(text: Array, day_first: bool | None = None) -> tuple[Array, Array]:
    """(rows,) strings as dates, NaT where a cell holds none, and which cells hold other text.

    day_first: how 03/02/2020 is read; None for what the strings show.
    """
    import pandas as pd

    day_first = has_day_first(text) if day_first is None else day_first
    distinct, place = np.unique(text, return_inverse=True)
    cells = pd.Series(distinct, dtype=object)
    empty = cells.str.strip().str.lower().isin(_PLACEHOLDERS)
    how: dict[str, Any] = {"errors": "coerce", "utc": True, "format": "mixed"}
    found = pd.to_datetime(cells.where(~empty), dayfirst=day_first, **how)
    odd = (found.isna() & ~empty).to_numpy()
    dates = found.dt.tz_localize(None).to_numpy().astype("M8[us]")
    return dates[place.ravel()], odd[place.ravel()]


def guessed(text: Array) -> Array:
    """(rows,) strings as what they stand for: numbers with placeholders, dates, or as they are."""
    distinct = np.unique(text)
    given = [cell for cell in distinct.tolist() if cell.strip().lower() not in _PLACEHOLDERS]
    marked = len(distinct) - len(given) > int(MISSING in distinct)
    if len(given) > 1 and marked:
        numbers, odd = as_numbers(text)
        if not odd.any():
            return numbers
    tried = given[:: max(1, len(given) // _TRIED)]
    if tried and all(_DATE.fullmatch(cell.strip()) for cell in tried):
        dates, odd = as_dates(text)
        if not odd.any():
            return dates
    return text


# Dates as numbers.


def date_parts(dates: Array) -> list[str]:
    """What of dates (rows,) varies and does not follow from their order."""
    stamps = dates[~np.isnat(dates)].astype("M8[us]").astype(np.int64)
    if not len(stamps):
        return []
    span, parts = int(stamps.max() - stamps.min()) / _DAY, []
    if span >= 1 and len(np.unique(stamps % _DAY)) > 1:
        parts.append(TIME_OF_DAY)
    if span >= 7 and len(np.unique(_weekday(stamps))) > 1:
        parts.append(WEEKDAY)
    if span >= 366:
        parts.append(YEAR)
    return parts


def date_numbers(dates: Array, parts: Sequence[str]) -> list[Array]:
    """(rows,) each: days since 1970, then the parts; NaN for a missing date."""
    empty = np.isnat(dates)
    stamps = np.where(empty, 0, dates.astype("M8[us]").astype(np.int64))
    years = stamps.astype("M8[us]").astype("M8[Y]").astype("M8[us]").astype(np.int64)
    found = {
        "": stamps / _DAY,
        TIME_OF_DAY: stamps % _DAY / (_DAY / 24),
        WEEKDAY: _weekday(stamps).astype(np.float64),
        YEAR: (stamps - years) / (365.25 * _DAY),
    }
    return [np.where(empty, np.nan, found[part]) for part in ("", *parts)]


def _weekday(stamps: Array) -> Array:
    days: Array = (stamps // _DAY + 3) % 7  # 0 is a Monday
    return days


def part_name(column: str, part: str) -> str:
    """What a part of the dates of a column is called."""
    return f"{column} ({part})"


# Strings that are no categories.


def looks_like_id(name: str, values: Array) -> bool:
    """Whether a column (rows,) numbers or names its rows: it says nothing about any other row."""
    if len(values) < _FEWEST_IDS or values.dtype.kind not in "iuU":
        return False
    if values.dtype.kind != "U" and not _ID_NAME.search(name):
        return False
    if len(np.unique(values)) < len(values):
        return False
    return values.dtype.kind != "U" or not looks_like_text(values)


def looks_like_text(values: Array) -> bool:
    """Whether strings, most of which differ, are sentences rather than names."""
    some = values[:: max(1, len(values) // 1000)].tolist()
    words = sum(len(cell.split()) for cell in some) / len(some)
    return words >= _WORDS or sum(map(len, some)) / len(some) >= _LONG
