"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from pointdep.core.critics import CRITICS
from pointdep.core.methods import METHODS, WITHOUT_NETWORKS
from pointdep.data.files import FORMATS
from pointdep.errors import InputError

_NETWORKS = " ".join(METHODS)
_OWN = "One of yours: package.module:NAME."


def check_confidence(value: float) -> float:
    """Refuse it before the fit rather than after."""
    if not 0.0 < value < 1.0:
        raise InputError(f"--confidence {value:g} must lie between 0 and 1, as 0.95")
    return value


def check_seed(value: int) -> int:
    """As NumPy's generators take it."""
    if not 0 <= value < 2**32:
        raise InputError(f"--seed {value} must lie between 0 and {2**32 - 1}")
    return value


def from_here(name: str) -> str:
    """Let an import path name a module in the working directory, as `python -m` would."""
    here = str(Path.cwd())
    if ":" in name and here not in sys.path:
        sys.path.append(here)
    return name


def as_written(text: str, table: Iterable[tuple[str, str]]) -> str:
    """A message of the library, with its options as they are written on the command line."""
    for pattern, written in table:
        text = re.sub(pattern, written, text)
    return text


Files = Annotated[
    list[Path],
    Argument(
        metavar="X Y",
        help=f"Two files of paired rows, or one with both sides: {' '.join(FORMATS)} "
        ".arrow .feather .ipc, or folders of shards.",
        show_default=False,
    ),
]
XColumns = Annotated[
    str | None, Option(help="Columns of x in a table, comma separated, or a key of .npz.")
]
YColumns = Annotated[
    str | None, Option(help="Columns of y in a table, comma separated, or a key of .npz.")
]
Groups = Annotated[
    Path | None, Option(help="One group per row, where rows are not independent draws.")
]
GroupColumn = Annotated[
    str | None, Option(help="Column (or key) of the groups, there or in the file of both sides.")
]
_HOW = ("--method", "-m")
MethodName = Annotated[str, Option(*_HOW, callback=from_here, help=f"{_NETWORKS}. {_OWN}")]
_ANY = f"{_NETWORKS}; or, without networks, {' '.join(WITHOUT_NETWORKS[:-1])}. {_OWN}"
AnyMethodName = Annotated[str, Option(*_HOW, callback=from_here, help=_ANY)]
MethodOptions = Annotated[
    list[str] | None, Option(help="Option of the method as NAME=VALUE, e.g. eta=2.")
]
CriticName = Annotated[
    str,
    Option(
        callback=from_here,
        help=f"{', '.join(CRITICS)}. auto: the closed form for Gaussian pairs, and a network for "
        f"what it misses; the others: a network alone. {_OWN}",
    ),
]
Hidden = Annotated[str, Option(help="Widths of the layers, as 256,64, or auto.")]
Folds = Annotated[int, Option(help="Models trained; each scores the rows it did not see.")]
Negatives = Annotated[str, Option(help="Counter-examples per row and step, or auto.")]
ReferenceSize = Annotated[int, Option(help="Rows of y that cpc keeps to normalise by.")]
MaxEpochs = Annotated[int, Option(help="Limit on the epochs.")]
WeightDecay = Annotated[float, Option(help="Of the optimiser: pulls weights towards zero.")]
Stream = Annotated[
    bool | None,
    Option(
        help="Read rows as they are needed, or hold them in memory.",
        show_default="hold up to 2^27 numbers",
    ),
]
Curve = Annotated[
    bool | None,
    Option(
        help="Also fit a quarter and half of the rows, to see whether more rows would help.",
        show_default="if the rows are held in memory",
    ),
]
Seed = Annotated[int, Option(callback=check_seed, help="The same seed gives the same numbers.")]
Device = Annotated[str, Option(help="auto, cpu, cuda or mps.")]
Discrete = Annotated[
    str | None, Option(help="Sides that are categories: x, y, both or none; by default, by type.")
]
Confidence = Annotated[float, Option(callback=check_confidence, help="Confidence of the interval.")]
ModelFolder = Annotated[str, Argument(help="Folder written by pointdep fit.")]
SavedModel = Annotated[Path, Option("--output", "-o", help="Folder to save the model in.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object, for programs.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress on standard error.")]


Given = dict[str, Any]
_DEFAULTS: Given = {"seed": 0, "device": "auto", "checkpoint_every": 2.0}
_DEFAULTS |= dict.fromkeys(("json", "quiet", "quick", "merge", "download"), False)


def takes(
    table: Mapping[str, Any], **defaults: Any
) -> Callable[[Callable[[Given], None]], Callable[..., None]]:
    """Show typer an option for each line of the table; the command gets all that was given.

    table: from names to annotations. Options that have no default are None unless they are given.
    """
    defaults = {**_DEFAULTS, **defaults}

    def decorate(command: Callable[[Given], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def spread(**given: Any) -> None:
            command(given)

        show(spread, {name: (kind, defaults.get(name)) for name, kind in table.items()})
        return spread

    return decorate


def show(command: Callable[..., None], shown: Mapping[str, tuple[Any, Any]]) -> None:
    """Let typer see these parameters: name -> annotation and default."""
    by_name = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(name, by_name, default=default, annotation=kind)
        for name, (kind, default) in shown.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {name: kind for name, (kind, _) in shown.items()}


def read_groups(groups: Path | None, column: str | None, files: list[Path]) -> Any:
    """The groups from their own file, or from a column of the one file that holds both sides."""
    from pointdep.data.readers import read_column

    if groups is not None:
        return read_column(groups, column)
    if column is None:
        return None
    if len(files) != 1:
        raise InputError("--group-column needs --groups FILE, or one file with both sides in it")
    return read_column(files[0], column)


def parse_options(
    pairs: list[str] | None, option: str = "--method-option"
) -> dict[str, Any] | None:
    """["eta=2"] -> {"eta": 2}; words stay words."""
    options: dict[str, Any] = {}
    for pair in pairs or []:
        name, separator, text = (part.strip() for part in pair.partition("="))
        if not separator or not name or not text:
            raise InputError(f"{option} {pair!r} must be NAME=VALUE, as eta=2")
        try:
            options[name] = json.loads(text.lower())
        except ValueError:
            options[name] = text
    return options or None


def parse_count(text: str) -> int | str:
    """ "7" -> 7; "auto" stays."""
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--negatives {text!r} must be a whole number or auto") from None


def parse_widths(text: str) -> tuple[int, ...] | str:
    """ "256,64" -> (256, 64); "auto" stays."""
    if text == "auto":
        return text
    return parse_numbers("--hidden", text, "layer widths, as 256,64, or auto")


def parse_names(option: str, text: str) -> tuple[str, ...]:
    """ "a,b" -> ("a", "b")."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise InputError(f"{option} {text!r} must be names, comma separated")
    return names


def parse_numbers(
    option: str, text: str, what: str = "whole numbers, as 1000,10000"
) -> tuple[int, ...]:
    """ "1000,10000" -> (1000, 10000); what: the option must be, for the error."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text!r} must be {what}") from None


def parse_sides(text: str | None) -> tuple[bool | None, bool | None]:
    """Which sides are categories: "x" -> (True, None); None leaves it to their types."""
    if text not in (None, "x", "y", "both", "none"):
        raise InputError(f"--discrete {text!r}: choose x, y, both or none")
    if text == "none":
        return False, False
    return text in ("x", "both") or None, text in ("y", "both") or None
