"""The errors and warnings a user can meet, and the helper that suggests the nearest right name."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import numbers
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

_LONGEST = 1000  # characters of a message
_LISTED, _COMPARED = 50, 10_000  # names in a message, and those looked through for a near one
_PACKAGE = str(Path(__file__).parent) + os.sep
_Self = TypeVar("_Self")
_Made = TypeVar("_Made")
_Options = ParamSpec("_Options")


def printable(text: str) -> str:
    """The text with nothing in it that a terminal would act on."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """A message without line breaks and control characters, cut where it is very long."""
    line = printable(" ".join(text[: 4 * _LONGEST].split()))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


class PointdepError(Exception):
    """Base of every error this library raises on purpose: one line, safe to print.

    Messages quote names and values of files, which may be of any length and kind.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(one_line(arg) if isinstance(arg, str) else arg for arg in args))


class InputError(PointdepError, ValueError):
    """The data or an argument cannot be used; the message says which and how to mend it."""

    problems: tuple[InputError, ...] = ()  # of which it is made, if there are several


class ModelFileError(PointdepError):
    """A saved model or checkpoint is truncated, edited, newer than this version, or foreign."""


class DivergedError(PointdepError, RuntimeError):
    """Training gave non-finite numbers before there was anything to keep."""


class PointdepWarning(UserWarning):
    """Base of every warning this library raises."""


class DataWarning(PointdepWarning):
    """Something about the data was changed or looks wrong."""


class FitWarning(PointdepWarning):
    """Training ended in a way that makes the answers less trustworthy."""


_SEARCHES = tuple(f"{os.sep}{name}{os.sep}" for name in ("sklearn", "joblib"))
_TOLD: set[tuple[str, int, str]] = set()


def warn_caller(message: str, category: type[PointdepWarning], once: str = "") -> None:
    """Warn at the line outside this package that led here, however many calls lie between.

    once: what it is about. If scikit-learn fits many models for that line, as in a
    cross-validation, the line is told of it once.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    searched = False
    while frame.f_back is not None and any(s in frame.f_code.co_filename for s in _SEARCHES):
        level, frame, searched = level + 1, frame.f_back, True
    place = (frame.f_code.co_filename, frame.f_lineno, once)
    if searched and once:
        if place in _TOLD:
            return
        _TOLD.add(place)
    warnings.warn(message, category, stacklevel=level)


def unknown_name(what: str, name: object, allowed: Iterable[str]) -> InputError:
    """The error for a misspelt name: names the nearest right one, and all of them."""
    names = sorted(allowed)
    near = difflib.get_close_matches(str(name).lower(), names[:_COMPARED], n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return InputError(f"unknown {what} {name!r}: {hint}choose from {listed(names)}")


def listed(names: Iterable[object]) -> str:
    """Names for a message, of which very many are not all said."""
    known = [str(name) for name in names]
    more = f" and {len(known) - _LISTED:,} more" if len(known) > _LISTED else ""
    return ", ".join(known[:_LISTED]) + more


def all_at_once(problems: Sequence[InputError], most: int = 8) -> InputError:
    """One error that says all of these, so that a user need not mend them one by one."""
    if len(problems) == 1:
        return problems[0]
    told = "; ".join(f"({n}) {problem}" for n, problem in enumerate(problems[:most], 1))
    more = f"; and {len(problems) - most} more" if len(problems) > most else ""
    error = InputError(f"{len(problems)} problems: {told}{more}")
    error.problems = tuple(problems)
    return error


def all_of(readers: Iterable[Callable[[], _Made]]) -> tuple[_Made, ...]:
    """What all readers give, or one error that says what is wrong with each."""
    found: list[_Made] = []
    problems: list[InputError] = []
    for read in readers:
        try:
            found.append(read())
        except InputError as error:
            problems += getattr(error, "problems", None) or [error]
    if problems:
        raise all_at_once(problems)
    return tuple(found)


def require_missing(missing: object) -> None:
    """Refuse an option `missing` that is none."""
    require_known("missing", missing, ("indicator", "drop", "error"))


def require_known(what: str, name: object, known: Collection[str]) -> None:
    """Refuse a name that is not one of those known."""
    if name not in known:
        raise unknown_name(what, name, known)


def require_whole(name: str, value: object, least: int = 1) -> None:
    """Refuse an option that is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InputError(f"{name}={value!r} must be a whole number")
    if value < least:
        raise InputError(f"{name}={value!r} must be at least {least}")


def require_positive(name: str, value: object) -> None:
    """Refuse an option that is not a number above zero, or is infinite."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (real and 0 < float(value) < math.inf):  # type: ignore[arg-type]
        raise InputError(f"{name}={value!r} must be a positive number")


def names_nearest_option(
    init: Callable[Concatenate[_Self, _Options], None],
) -> Callable[Concatenate[_Self, _Options], None]:
    """Make an `__init__` answer a misspelt option with the nearest right one."""
    known = [name for name in inspect.signature(init).parameters if name != "self"]

    @functools.wraps(init)
    def checked(self: _Self, /, *args: _Options.args, **options: _Options.kwargs) -> None:
        for name in options:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"{type(self).__name__} has no option {name!r}{hint}")
        init(self, *args, **options)

    return checked


def names_options(cls: type[_Self]) -> type[_Self]:
    """The same of the `__init__` of a class whose options are the fields of a dataclass."""
    setattr(cls, "__init__", names_nearest_option(cls.__init__))  # noqa: B010
    return cls


# Training problems, recorded by name.

MEANINGS = {
    "diverged": "the objective became non-finite, and earlier weights are used, or the "
    "answer is one that cannot be",
    "not_converged": "training reached max_epochs before the held-out objective stopped rising",
    "still_improving": "the last epoch was the best one: more epochs would fit better",
    "saturated": "values sit at a limit of the method, not of the data",
    "few_rows": "so few rows tell little: the interval may miss the truth",
    "wide_interval": "the interval is wide: the rows are too few to say how dependent x and y are",
    "rises_with_rows": "the answer still rises with the rows: read it as a lower limit",
    "few_rows_decide": "a few rows carry most of the spread: do not trust the interval",
    "duplicated_rows": "rows occur more than once and stand on both sides of the splits",
    "outliers": "values far from all others of their column are taken for missing",
    "alarm": "a nearest-neighbour estimate lies clearly above: read this as a lower limit",
    "determined": "part of y is determined by x: the mutual information has no finite value",
    "collapsed": "the representations are all but constant: they tell no pair from another",
    "reference_too_small": "the stored reference of the read-out is too small for the values found",
    "few_pairs": "the pairs are too few to calibrate by: PMI may be off by a factor",
    "check_fails": "the calibrated ratio does not agree with the held-out pairs",
}


@dataclass(frozen=True)
class Flag:
    """One problem: its name (a key of `MEANINGS`), the replicas it touches, and what to do."""

    name: str
    replicas: tuple[int, ...]
    message: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"
