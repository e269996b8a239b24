"""The errors and warnings a user can meet, and the helper that suggests the nearest right name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PointdepError(Exception):
    """Base of every error this library raises on purpose."""


class InputError(PointdepError, ValueError):
    """The data or an argument cannot be used; the message says which and how to mend it."""


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


def unknown_name(what: str, name: object, allowed: Iterable[str]) -> InputError:
    """The error for a misspelt name: names the nearest right one, and all of them."""
    names = sorted(allowed)
    near = difflib.get_close_matches(str(name).lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return InputError(f"unknown {what} {name!r}: {hint}choose from {', '.join(names)}")
