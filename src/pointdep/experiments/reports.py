"""What the experiments share: checks of their settings, and the folder that they write."""

from __future__ import annotations

import json
import math
import platform
import shlex
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

import pointdep
from pointdep.data.atomic import whole_file
from pointdep.data.writers import write_table
from pointdep.errors import InputError, require_known, require_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from pointdep.fitting.sampler import StreamEngine

Line = dict[str, Any]
"""A line of a table, as it is written: None where a number is not known."""
Floats = NDArray[np.float64]

# The paper's sentences and settings, and the longer texts of our reports.
_PAPER = resources.files("pointdep.experiments") / "paper.json"
PAPER: dict[str, Any] = json.loads(_PAPER.read_text("utf-8"))
TEXTS: dict[str, Any] = PAPER["texts"]
WIDTH = 100
"""Columns of what is printed in a terminal."""
# Okabe and Ito's colours, which the colour-blind can tell apart, and markers for print in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A7F00")
MARKERS = "osD^vPX*<>"
FORMATS = ("png", "svg", "pdf")
_DPI = 150
# With a date, the same figure would give another file each time.
_METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
_RESULTS = ("figure1.json", "results.json")  # where commands write how results were made


def check_settings(
    settings: object,
    *,
    known: Mapping[str, Collection[str]] | None = None,
    distinct: Sequence[str] = (),
    least: Mapping[str, int] | None = None,
    positive: Sequence[str] = (),
) -> None:
    """Refuse settings of a frozen dataclass that name nothing known, or are empty or too small.

    known: the names that a setting may have. distinct: tuples of which repeated values are dropped.
    least: how small a whole number, or each of a tuple, may be. positive: real numbers.
    """
    for part, names in (known or {}).items():
        for name in _values(settings, part):
            require_known(part.removesuffix("s"), name, names)
    for part in distinct:
        object.__setattr__(settings, part, tuple(dict.fromkeys(_values(settings, part))))
    for part, fewest in (least or {}).items():
        for value in _values(settings, part):
            require_whole(part, value, least=fewest)
    for part in positive:
        value = getattr(settings, part)
        if not 0 < value < math.inf:
            raise InputError(f"{part}={value!r} must be positive and finite")


def _values(settings: object, part: str) -> tuple[Any, ...]:
    values = getattr(settings, part)
    if values == ():
        raise InputError(f"{part} must name at least one")
    return tuple(values) if isinstance(values, tuple | list) else (values,)


def departures(settings: object, paper: object, names: Iterable[str], comma: str) -> list[str]:
    """ "batch size 32, not 128" for each of these settings that is not the paper's."""

    def shown(value: object) -> str:
        return comma.join(map(str, value)) if isinstance(value, tuple) else str(value)

    return [
        f"{name.replace('_', ' ')} {shown(own)}, not {shown(getattr(paper, name))}"
        for name in names
        if (own := getattr(settings, name)) != getattr(paper, name)
    ]


def seconds_per_step(engine: StreamEngine) -> float:
    """The shortest of five steps, or of those that fit in three seconds; the first is not timed."""
    engine.run(1)
    times: list[float] = []
    while len(times) < 5 and sum(times) < 3.0:
        times.append(engine.run(1).train_seconds)
    return min(times)


def prepare_folder(folder: Path, command: str | None = None) -> None:
    """Create the folder, or refuse it before anything is run.

    command: the command line that will fill it; results of another one are refused.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: results are written as a folder")
    if not folder.resolve().parent.is_dir():
        raise InputError(f"cannot write {folder}: the folder above it does not exist")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from None
    for summary in (folder / name for name in _RESULTS):
        if command is None or not summary.exists():
            continue
        try:
            before = json.loads(summary.read_text("utf-8"))["command"]
        except (OSError, ValueError, KeyError, TypeError):
            before = "something else"
        if before != command:
            fault = f"{folder} holds the results of another run ({before})"
            raise InputError(f"{fault}: choose another --output, or remove it")


def command_line(*words: str, **options: Any) -> str:
    """The pointdep command with these options, except those that are None."""
    said = ["pointdep", *words]
    for name, value in options.items():
        if value is not None:
            shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            said += [f"--{name.replace('_', '-')}", shown]
    return shlex.join(said)


def environment(device: str) -> dict[str, Any]:
    """What results depend on besides their settings: versions, device, threads."""
    import torch

    on_gpu = device.startswith("cuda")
    own = {"pointdep": pointdep.__version__, "python": platform.python_version()}
    others = {name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")}
    return {
        "versions": own | others,
        "device": torch.cuda.get_device_name(device) if on_gpu else platform.machine(),
        "threads": torch.get_num_threads(),
    }


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write strict JSON, whole or not at all."""
    with whole_file(path) as file:
        file.write((json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def write_results(folder: Path, settings: Any, device: str, content: Mapping[str, Any]) -> None:
    """results.json: the command, what it ran on, its settings, and what was found."""
    made = {"command": settings.command, **environment(device), "settings": asdict(settings)}
    write_json(folder / "results.json", {**made, **content})


def write_lines(path: Path, lines: Sequence[Line], names: Sequence[str] | None = None) -> None:
    """Write a CSV file with these columns, or those of the first line; None is an empty cell."""
    columns = lines[0] if names is None else names
    write_table(path, {name: np.array([line[name] for line in lines], object) for name in columns})


def records(table: DataFrame) -> list[Line]:
    """The lines of a table; None where a number is not finite."""
    known = table.replace([math.inf, -math.inf], math.nan).astype(object)
    return cast("list[Line]", known.where(known.notna(), None).to_dict("records"))


def aligned(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """The rows as columns for a terminal; left: the columns that are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            text.ljust(width) if position in left else text.rjust(width)
            for position, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def rows_of(lines: Iterable[Line], columns: Mapping[str, tuple[str, str]]) -> list[list[str]]:
    """A header and a row per line; columns: the heading and format of each, "-" for the unknown."""
    rows = [[head for head, _ in columns.values()]]
    for line in lines:
        cells = ((line[name], how) for name, (_, how) in columns.items())
        rows.append(["-" if value is None else format(value, how) for value, how in cells])
    return rows


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """The rows as a Markdown table, the first one as its header; bars in cells are escaped."""
    escaped = [[text.replace("|", "\\|") for text in row] for row in rows]
    rule = ["---"] * len(rows[0])
    return "\n".join(f"| {' | '.join(row)} |" for row in (escaped[0], rule, *escaped[1:]))


def filled(text: str, first: str = "", rest: str = "") -> str:
    """The text in lines for a terminal; first, rest: what the first and the other lines begin with.

    Hyphenated names and negative numbers stay whole.
    """
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )


def number(value: float) -> str:
    """A short form for any size: a count, two decimals, or a power of ten."""
    if isinstance(value, int):
        return str(value)
    return f"{value:.2f}" if abs(value) < 1000 else f"{value:.1e}"


def interval(low: float | None, high: float | None) -> str:
    """ "[-0.06, -0.04]", with a dash for an unknown end; empty if both are unknown."""
    if low is None and high is None:
        return ""
    return "[{}, {}]".format(*("-" if end is None else number(end) for end in (low, high)))


@contextmanager
def style() -> Iterator[None]:
    """The text sizes of our figures; also decorates the function that draws one."""
    import matplotlib as mpl

    # Without a salt, the names inside an SVG would differ each time.
    with mpl.rc_context({"svg.hashsalt": "pointdep", "font.size": 9}):
        yield


def looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """A colour and a marker for each of the names."""
    return {
        name: {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)]}
        for k, name in enumerate(names)
    }


def log_log(axis: Axes) -> None:
    """Logarithmic axes with plain numbers, and a faint grid."""
    from matplotlib.ticker import LogLocator

    axis.set_xscale("log")
    axis.set_yscale("log")
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(LogLocator(subs=(1, 2, 5)))
        side.set_major_formatter("{x:g}")
        side.set_minor_formatter("")
    axis.grid(visible=True, color="0.92", linewidth=0.6)
    axis.set_axisbelow(True)


def save(figure: Figure, folder: Path, name: str, formats: Sequence[str] = FORMATS) -> None:
    """Write `name.format` for each format; the same figure gives the same files."""
    with style():
        for suffix in formats:
            figure.savefig(folder / f"{name}.{suffix}", dpi=_DPI, metadata=_METADATA.get(suffix))
