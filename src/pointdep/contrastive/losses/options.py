"""The options that losses share, declared once and shown by each of them."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, Concatenate, Literal, ParamSpec, TypedDict, TypeVar

from torch import nn

from pointdep.errors import InputError, names_nearest_option, require_whole, unknown_name

_Self = TypeVar("_Self")
_Options = ParamSpec("_Options")

_TWINS = {"scale": "temperature", "temperature": "scale"}
"""One divides similarities and the other multiplies them; a loss has one of the two."""

CriticLike = str | nn.Module | tuple[nn.Module, nn.Module]


class LossOptions(TypedDict, total=False):
    """What every loss takes; see `ContrastiveLoss`."""

    normalize: bool | None
    clip: float | None
    learn_scale: bool
    critic: CriticLike
    dims: int | tuple[int, int] | None
    negatives: Literal["cross", "all"]
    symmetric: bool
    gather: bool
    block_size: int | Literal["auto"]


class LogScoreOptions(LossOptions, total=False):
    """What a loss takes whose scores are logarithms."""

    temperature: float | None


class RatioScoreOptions(LossOptions, total=False):
    """What a loss takes whose scores are ratios."""

    scale: float | None


def adds_to(
    parent: type,
) -> Callable[
    [Callable[Concatenate[_Self, _Options], None]], Callable[Concatenate[_Self, _Options], None]
]:
    """For an `__init__` that hands ``**options`` on: show the parents' as its own, check names."""

    def decorate(
        init: Callable[Concatenate[_Self, _Options], None],
    ) -> Callable[Concatenate[_Self, _Options], None]:
        shown = dict(inspect.signature(init).parameters)
        shown.pop("options")
        for ancestor in parent.__mro__:
            if "__init__" in vars(ancestor):
                inherited = inspect.signature(vars(ancestor)["__init__"]).parameters
                shown.update({k: p for k, p in inherited.items() if p.kind is p.KEYWORD_ONLY})
        signature = inspect.Signature(list(shown.values()))
        init.__signature__ = signature  # type: ignore[attr-defined]
        return _names_the_twin(names_nearest_option(init))

    return decorate


def _names_the_twin(
    init: Callable[Concatenate[_Self, _Options], None],
) -> Callable[Concatenate[_Self, _Options], None]:
    """Answer `scale`, or what is nearest to it, with `temperature` where a loss has that."""
    known = inspect.signature(init).parameters

    @functools.wraps(init)
    def checked(self: _Self, /, *args: _Options.args, **options: _Options.kwargs) -> None:
        for name in options:
            near = difflib.get_close_matches(name, [*known, *_TWINS], n=1, cutoff=0.5)
            if name not in known and near and near[0] not in known:
                raise TypeError(
                    f"{type(self).__name__} has no option {name!r}; did you mean "
                    f"{_TWINS[near[0]]!r}, which is 1 / {near[0]}?"
                )
        init(self, *args, **options)

    return checked


def check_positive(name: str, value: Any) -> None:
    """Refuse an option that is neither None nor a positive number."""
    if value is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise InputError(f"{name}={value!r} must be a positive number")


def check_negatives(negatives: object) -> None:
    """Refuse anything but "cross" and "all"."""
    if negatives not in ("cross", "all"):
        raise unknown_name("negatives", negatives, ("cross", "all"))


def check_block_size(block_size: object) -> None:
    """Refuse anything but "auto" and a number of rows."""
    if block_size != "auto":
        require_whole("block_size", block_size)


def check_flags(**flags: object) -> None:
    """Refuse anything but true and false."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InputError(f"{name}={value!r} must be true or false")
