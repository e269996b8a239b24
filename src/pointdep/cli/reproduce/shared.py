"""What the commands that reproduce something share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from pointdep.cli import options
from pointdep.errors import require_whole

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Settings = TypeVar("_Settings", bound="DataclassInstance")

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for figure and numbers.")]
Critic = Annotated[
    str | None, typer.Option("--critic", show_default="concat", help="concat or separable.")
]


def chosen(base: _Settings, **given: Any) -> _Settings:
    """The settings with the options that were given."""
    return replace(base, **{name: value for name, value in given.items() if value is not None})


def names(option: str, text: str | None) -> tuple[str, ...] | None:
    """ "a,b" -> ("a", "b"); None stays."""
    return None if text is None else options.parse_names(option, text)


def widths(text: str | None) -> tuple[int, ...] | None:
    """ "64,64" -> (64, 64); None stays."""
    if text is None:
        return None
    parsed = options.parse_numbers("--hidden", text, "64,64")
    for width in parsed:
        require_whole("--hidden", width)
    return parsed
