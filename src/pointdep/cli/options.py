"""Options that several commands share, and how their texts are read."""

import functools
import inspect
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from typer import Argument, CallbackParam, Option

from pointdep.core.critics import CRITICS
from pointdep.core.methods import METHODS, WITHOUT_NETWORKS
from pointdep.data.files import FORMATS
from pointdep.errors import InputError, printable, require_whole

_NETWORKS = " ".join(METHODS)
_MOST_SHOWN = 100  # columns of a side
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
_OF_SIDE = "Columns of {} in a table, comma separated, or a key of .npz."
XColumns = Annotated[str | None, Option(help=_OF_SIDE.format("x"))]
YColumns = Annotated[str | None, Option(help=_OF_SIDE.format("y"))]
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
SAVED_WITHOUT_NETWORKS = ("counting", "ulsif", "likelihood", "cca")
_SAVED = f"{_NETWORKS}; or, without networks, {' '.join(SAVED_WITHOUT_NETWORKS)}. {_OWN}"
SavedMethodName = Annotated[str, Option(*_HOW, callback=from_here, help=_SAVED)]
CriticName = Annotated[
    str,
    Option(
        callback=from_here,
        help=f"{', '.join(CRITICS)}. auto: the closed form for Gaussian pairs, and a network for "
        f"what it misses; the others: a network alone. {_OWN}",
    ),
]
Folds = Annotated[int, Option(help="Models trained; each scores the rows it did not see.")]
Seed = Annotated[int, Option(callback=check_seed, help="The same seed gives the same numbers.")]
Device = Annotated[str, Option(help="auto, cpu, cuda or mps.")]
Confidence = Annotated[float, Option(callback=check_confidence, help="Confidence of the interval.")]
ModelFolder = Annotated[str, Argument(help="Folder written by pointdep fit.")]
SavedModel = Annotated[Path, Option("--output", "-o", help="Folder to save the model in.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object, for programs.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress on standard error.")]
SHARED = {"seed": Seed, "device": Device, "json": Json, "quiet": Quiet}


# Options by their docstrings.

_EXPLAINED = re.compile(r"^(\w+): (.+?)(?: \[([^]]+)\])?$")
Given = dict[str, Any]
Told = dict[str, tuple[str, str]]
"""Name of an option -> its help, and what is shown as its default if that is decided elsewhere."""
_DEFAULTS: Given = {"seed": 0, "device": "auto", "checkpoint_every": 2.0}
_DEFAULTS |= dict.fromkeys(("json", "quiet", "quick", "merge", "download"), False)


def told_options(command: Callable[..., object]) -> tuple[str, Told]:
    """A docstring without its section "Options", and what that says."""
    text, _, section = inspect.cleandoc(command.__doc__ or "").partition("\n\nOptions\n-------\n")
    lines = (" ".join(line.split()) for line in re.split(r"\n(?=\S)", section) if line)
    return text, {
        name: (how, shown) for line in lines for name, how, shown in _EXPLAINED.findall(line)
    }


def option(name: str, kind: Any, default: Any, how: str, shown: str) -> Any:
    """The annotation of an option; kind: its type, or an annotation without help.

    Switches have no --no- form, a name of one letter is a short option, and --output is -o too.
    """
    names = [f"-{name}"] if len(name) == 1 else []
    if default is False or name == "output":
        names = [f"--{name.replace('_', '-')}", *(["-o"] if name == "output" else [])]
    about: Any = Option(*names)
    if hasattr(kind, "__metadata__"):
        kind, about = kind.__origin__, copy(kind.__metadata__[0])
    about.help, about.show_default = how, shown or about.show_default
    return Annotated[kind | None if default is None else kind, about]


def explained(command: Callable[..., None]) -> Callable[..., None]:
    """Let typer show what the section "Options" of the docstring says of each parameter.

    A text in [] at the end is shown as the default.
    """
    command.__doc__, told = told_options(command)
    shown: dict[str, tuple[Any, Any]] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        kind, default = parameter.annotation, parameter.default
        kind = option(name, kind, default, *told[name]) if name in told else kind
        shown[name] = kind, default
    show(command, shown)
    return command


def takes(
    kinds: Mapping[str, Any], *shared: Callable[..., None] | Mapping[str, Any], **defaults: Any
) -> Callable[[Callable[[Given], None]], Callable[..., None]]:
    """Give a command, as one mapping, the options that its docstring explains.

    kinds: their types, by name. shared: functions whose docstrings explain further ones, and
    tables of annotations. Options that have no default are None unless they are given.
    """
    defaults = {**_DEFAULTS, **defaults}

    def decorate(command: Callable[[Given], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def spread(**given: Any) -> None:
            command(given)

        table: Given = {}
        for more in (command, *shared):
            if isinstance(more, Mapping):
                table |= more
                continue
            for name, how in told_options(more)[1].items():
                table[name] = option(name, kinds[name], defaults.get(name), *how)
        spread.__doc__ = told_options(command)[0]
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


def groups_of_files(x: Any, y: Any) -> Any:
    """The groups of rows that name the same picture or sound; None if all are different."""
    from pointdep.data.raw_files import group_by_file

    for side in (x, y):
        groups = group_by_file(side)
        if groups is not None:
            count = f"{len(set(groups))} in {len(groups)} rows"
            print(f"rows of one {side.kind} are one group: {count}", file=sys.stderr)
            return groups
    return None


def parse_options(pairs: list[str] | None, option: str = "--method-option") -> Given | None:
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


def _parsed(parse: Callable[..., Any]) -> Any:
    """The annotation of an option whose text is a list; parse: option and text -> a tuple."""

    def callback(option: CallbackParam, text: str | None) -> Any:
        return None if text is None else parse(option.opts[0], text)

    return Annotated[str | None, Option(callback=callback)]


def _parse_layers(option: str, text: str) -> tuple[int, ...]:
    parsed = parse_numbers(option, text, "whole numbers, as 64,64")
    for width in parsed:
        require_whole(option, width)
    return parsed


KINDS: dict[str, Any] = {
    **dict.fromkeys(("batch_size", "depth", "dim", "draws", "embedding_dim", "epochs"), int),
    **dict.fromkeys(("evaluate_every", "folds", "iterations", "seeds", "test_words"), int),
    **dict.fromkeys(("together", "width"), int),
    **dict.fromkeys(("learning_rate", "mi", "minutes"), float),
    **dict.fromkeys(("activation", "critic", "dataset", "model", "monitor", "objective"), str),
    **dict.fromkeys(("part", "precision"), str),
    **dict.fromkeys(("audio", "data", "output", "text"), Path),
    **dict.fromkeys(("download", "merge", "quick"), bool),
    **dict.fromkeys(("methods", "objectives", "tasks"), _parsed(parse_names)),
    "rows": _parsed(parse_numbers),
    "hidden": _parsed(_parse_layers),
    "loss_option": list[str],
    "limit": Annotated[int | None, Option(min=2)],
    "pd_rows": Annotated[int | None, Option(min=0)],
    "checkpoint_every": Annotated[float, Option(min=0.0)],
    "compile_networks": Annotated[bool | None, Option("--compile/--no-compile")],
}
"""Types of the options of `pretrain` and `reproduce`, whose commands take one mapping."""


def parse_sides(text: str | None) -> tuple[bool | None, bool | None]:
    """Which sides are categories: "x" -> (True, None); None leaves it to their types."""
    if text not in (None, "x", "y", "both", "none"):
        raise InputError(f"--discrete {text!r}: choose x, y, both or none")
    if text == "none":
        return False, False
    return text in ("x", "both") or None, text in ("y", "both") or None


_OF_NETWORKS = (
    *("critic", "hidden", "max_epochs", "weight_decay", "negatives", "reference_size"),
    *("stream", "curve", "effort", "threads"),
)


@dataclass(frozen=True)
class Settings:
    """Which rows to read, and how to fit them.

    Options
    -------
    x_encoder: Encoder of the texts, pictures or sounds of x: a model or folder of
        sentence-transformers, open_clip or transformers, or an encoder of pointdep pretrain.
        [built in]
    y_encoder: The same for y. [built in]
    discrete: Sides that are categories: x, y, both or none; by default, by type.
    missing: What missing values are: indicator, a state of their own; drop leaves such rows out;
        error refuses them.
    show_columns: Print on standard error how each column was read.
    method_option: Option of the method as NAME=VALUE, e.g. eta=2.
    hidden: Widths of the layers, as 256,64, or auto.
    max_epochs: Limit on the epochs.
    weight_decay: Of the optimiser: pulls weights towards zero.
    negatives: Counter-examples per row and step, or auto.
    reference_size: Rows of y that cpc keeps to normalise by.
    stream: Read rows as they are needed, or hold them in memory. [hold up to 2^27 numbers]
    curve: Also fit a quarter and half of the rows, to see whether more rows would help. [if the
        rows are held in memory]
    effort: quick (no networks), default, or high (twice as many networks, and longer).
    threads: Threads of the fit. [one, or more where they help]
    """

    x_columns: XColumns = None
    y_columns: YColumns = None
    groups: Groups = None
    group_column: GroupColumn = None
    x_encoder: str | None = None
    y_encoder: str | None = None
    discrete: str | None = None
    missing: str = "indicator"
    show_columns: bool = False
    method_option: list[str] | None = None
    critic: CriticName = "auto"
    hidden: str = "auto"
    folds: Folds = 5
    max_epochs: int = 200
    weight_decay: float = 0.0
    negatives: str = "auto"
    reference_size: int = 1024
    stream: bool | None = None
    curve: bool | None = None
    effort: str = "default"
    threads: int | None = None
    confidence: Confidence = 0.95
    seed: Seed = 0
    device: Device = "auto"

    def read(self, files: list[Path]) -> tuple[Any, Any, Any]:
        """x, y, and the groups of the rows or None."""
        from pointdep.data.readers import read_pairs

        how: dict[str, Any] = {"x_columns": self.x_columns, "y_columns": self.y_columns}
        x, y = read_pairs(files, **how, encoders=(self.x_encoder, self.y_encoder))
        if self.x_encoder is not None and self.x_encoder == self.y_encoder:
            print(
                "both sides come from one model: pointdep calibrate, with the same files and "
                "encoders, turns its own scores into PMI",
                file=sys.stderr,
            )
        if self.show_columns:
            self._tell(x, y)
        groups = read_groups(self.groups, self.group_column, files)
        return x, y, groups_of_files(x, y) if groups is None else groups

    def _tell(self, x: Any, y: Any) -> None:
        from pointdep.data.row_source import RowSource
        from pointdep.data.sides import SideEncoder, as_side, as_source

        for name, values, discrete in zip("XY", (x, y), parse_sides(self.discrete), strict=True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the fit says the same again
                # Of tables in memory the gaps are counted, of larger data nothing is read.
                read = as_side if hasattr(values, "columns") else as_source
                side = read(values, name, discrete=discrete, missing=self.missing)
                if isinstance(side, RowSource):
                    told = [(column, "number") for column in side.names]
                else:
                    told = SideEncoder.fit(side, name, self.missing).described()
            print_columns(name, told)

    def networks(self, method: str, *, quiet: bool, checkpoint: Path | None = None) -> Any:
        """The estimator with networks."""
        from pointdep.estimators.pointwise import PointwiseDependency

        given = {name: getattr(self, name) for name in _OF_NETWORKS}
        given["hidden"] = parse_widths(self.hidden)
        given["negatives"] = parse_count(self.negatives)
        common = self._common(method, quiet)
        return PointwiseDependency(device=self.device, checkpoint=checkpoint, **given, **common)

    def classical(self, method: str, *, quiet: bool) -> Any:
        """The estimator without networks; options that are about networks are refused."""
        from pointdep.estimators.classical.estimator import ClassicalDependency

        changed = {f.name for f in fields(self) if getattr(self, f.name) != f.default}
        refused = [name for name in _OF_NETWORKS if name in changed]
        if self.device not in ("auto", "cpu"):
            refused.append("device")
        refuse_for_classical(method, refused)
        return ClassicalDependency(**self._common(method, quiet))

    def _common(self, method: str, quiet: bool) -> dict[str, Any]:
        discrete_x, discrete_y = parse_sides(self.discrete)
        return {
            "method": method,
            "method_options": parse_options(self.method_option),
            "folds": self.folds,
            "random_state": self.seed,
            "discrete_x": discrete_x,
            "discrete_y": discrete_y,
            "missing": self.missing,
            "progress": not quiet,
        }


def print_columns(side: str, told: Sequence[tuple[str, str]]) -> None:
    """Say on standard error how each column of a side was read; told: names, and how."""
    for name, how in told[:_MOST_SHOWN]:
        print(printable(f"{side} {name}: {how}"), file=sys.stderr)
    if len(told) > _MOST_SHOWN:
        print(f"{side}: {len(told) - _MOST_SHOWN} more columns", file=sys.stderr)


def print_columns_of(fitted: Any, wanted: bool) -> None:
    """Say how a fitted model reads both sides, if that is wanted."""
    for side in "xy" if wanted else "":
        print_columns(side.upper(), getattr(fitted, f"encoder_{side}_").described())


def refuse_for_classical(method: str, names: list[str]) -> None:
    """InputError where there are names: of options that mean nothing without networks."""
    if names:
        listed = ", ".join("--" + name.replace("_", "-") for name in names)
        raise InputError(f"--method {method} trains no networks: leave out {listed}")


def takes_settings(command: Callable[..., None], without: Sequence[str] = ()) -> Callable[..., Any]:
    """Show typer the parameter `settings` of a command as one option for each of its fields.

    without: fields that mean nothing to the command, and keep their defaults.
    """
    hints, told = get_type_hints(Settings, include_extras=True), told_options(Settings)[1]
    own = {field.name: (hints[field.name], field.default) for field in fields(Settings)}
    for name, how in told.items():
        own[name] = option(name, *own[name], *how), own[name][1]
    own = {name: how for name, how in own.items() if name not in without}
    shown: dict[str, tuple[Any, Any]] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        shown |= own if name == "settings" else {name: (parameter.annotation, parameter.default)}

    @functools.wraps(command)
    def spread(**values: Any) -> None:
        settings = Settings(**{name: values.pop(name) for name in own})
        command(**values, settings=settings)

    show(spread, shown)
    return spread
