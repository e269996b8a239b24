"""The commands and what happens when they fail. Heavy packages are imported inside the commands."""

import functools
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

import pointdep
from pointdep.cli import options
from pointdep.data.files import SHARD_SUFFIXES
from pointdep.errors import InputError, PointdepError, PointdepWarning, one_line
from pointdep.fitting.rendezvous import process_count

_RUNS_KEPT = "finished runs are kept, and the same command goes on from where training was"
_KEPT = {
    "fit": "no model was written (with --checkpoint FILE the same command goes on where it was)",
    "pretrain": "the same command goes on from where training was",
    **dict.fromkeys(("figure2", "simclr"), _RUNS_KEPT),
    "score": "with -o FOLDER/ finished shards are kept, and the same command does the others",
    "bench": "with -o FOLDER finished runs are kept, and the same command goes on from them",
}
_NOTHING_KEPT = "no result was written"
_SHARING = ("fit", "pretrain")
# What the library calls an option in its warnings, and how it is written here.
_WRITTEN = (
    (r"\bmax_epochs\b", "--max-epochs"),
    (r"\bgroups=(?!\w)", "--groups"),
    (r"\boverwrite=True", "--overwrite"),
    (r"\bmissing='(\w+)'", r"--missing \1"),
    (r"\bmissing=(?!\w)", "--missing"),
    (r"\bmethod='(\w+)'", r"--method \1"),
)


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does: what is unfinished is put away."""


class _EndedError(Exception):
    """Ctrl-C or a closed pipe in a command, which typer would answer differently by its version.

    Its message is what the command leaves behind.
    """


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def guarded(*args: object, **kwargs: object) -> None:
        try:
            _require_sharing(command.__name__)
            _require_apart(kwargs)
            command(*args, **kwargs)
            sys.stdout.flush()
        except (KeyboardInterrupt, BrokenPipeError) as error:
            raise _EndedError(_left(command.__name__, kwargs.get("checkpoint"))) from error

    return guarded


def _left(command: str, checkpoint: object) -> str:
    """What an interrupted command leaves behind, in words."""
    if checkpoint is None:
        return _KEPT.get(command, _NOTHING_KEPT)
    if Path(str(checkpoint)).exists():
        return f"training is kept in {checkpoint}: run the same command again to go on from there"
    return f"{_NOTHING_KEPT}, nor anything in {checkpoint} yet: the same command starts anew"


def _require_sharing(command: str) -> None:
    """Refuse torchrun for a command that every process would do as a whole."""
    if command in _SHARING or process_count() == 1:
        return
    if os.environ.get("RANK", "0") != "0":
        raise typer.Exit(2)  # the first process tells it
    raise InputError(
        f"torchrun: its {process_count()} processes would each do all of pointdep {command}: "
        f"start it without torchrun (only {' and '.join(_SHARING)} share their work)"
    )


# The other arguments name what is read.
_OUTPUTS = (
    "output",
    "oof",
    "table",
    "kept",
    "check_plot",
    "curve_plot",
    "checkpoint",
    "save_index",
    "plot",
    "pairs",
)


_TEXTS = ("model", "files", "show_x", "show_y")  # which are files or folders, told as texts


def _require_apart(given: Mapping[str, object]) -> None:
    """Refuse an output that is an input or another output, under whatever name it is given."""
    places = {
        "-o" if name == "output" else "--" + name.replace("_", "-"): Path(value)
        for name in _OUTPUTS
        if isinstance(value := given.get(name), str | Path) and "://" not in str(value)
    }
    for option, place in places.items():
        for other, second in places.items():
            if other != option and second.resolve() == place.resolve():
                raise InputError(f"{option} and {other} are one file, {place}: give each its own")
        for name, value in given.items():
            for read in value if isinstance(value, list) else [value]:
                known = isinstance(read, Path) or (name in _TEXTS and isinstance(read, str))
                if name not in _OUTPUTS and known and _is_read(str(read), place):
                    overwritten = f"would overwrite {read}, which the command reads"
                    raise InputError(f"{option} {place} {overwritten}: give another name")


def _is_read(read: str, place: Path) -> bool:
    """Whether a place is a file or folder that is read, or a shard of such a folder."""
    for path in (Path(read), Path(read.rpartition(":")[0] or read)):  # FILE:COLUMN too
        try:
            inside = place.is_file() and path.is_dir() and place.suffix.lower() in SHARD_SUFFIXES
            if path.samefile(place) or (inside and path.samefile(place.resolve().parent)):
                return True
        except (OSError, ValueError):
            continue  # one of them is not there, or is no path but another argument
    return False


app = typer.Typer(
    name="pointdep",
    help="How much do x and y belong together? Mutual information and PMI of paired data.",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Each is in a module of its own name.
_ALL = (
    "demo",
    "mi",
    "rank",
    "fit",
    "calibrate",
    "score",
    "retrieve",
    "audit",
    "embed",
    "plan",
    "pretrain",
    "bench",
)
_PAPER = "reproduce"
_LOADED: set[str] = set()


def load_commands(words: Sequence[str] = ()) -> typer.Typer:
    """The app with the command that is called first, or with all if none of these is.

    The modules of the others would take most of the time that a short command takes.
    """
    first = next((word for word in words if not word.startswith("-")), "")
    wanted = {first} if first in (*_ALL, _PAPER) else {*_ALL, _PAPER}
    for name in sorted(wanted - _LOADED):
        _LOADED.add(name)
        module = importlib.import_module(f"pointdep.cli.{name}")
        if name == _PAPER:
            _add_paper(module.COMMANDS)
        else:
            app.command(name=name)(_guarded(getattr(module, name)))
    app.registered_commands.sort(key=lambda one: _ALL.index(str(one.name)))
    return app


def _add_paper(commands: Sequence[Callable[..., None]]) -> None:
    paper = typer.Typer(rich_markup_mode=None)
    for command in commands:
        paper.command(name=command.__name__)(_guarded(command))
    app.add_typer(paper, name=_PAPER)

    @paper.callback(invoke_without_command=True)
    def figures(context: typer.Context) -> None:
        """Figures and tables of the paper, run again."""
        if context.invoked_subcommand is None:
            print(context.get_help())


def _version(value: bool) -> None:
    if value:
        print(f"pointdep {pointdep.__version__}")
        raise typer.Exit


_Version = Annotated[
    bool, Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
]
_Modules = Annotated[
    list[str] | None,
    Option("--import", metavar="MODULE", help="Import a module with methods or critics of yours."),
]


@app.callback()
def _common(version: _Version = False, modules: _Modules = None) -> None:
    """How much do x and y belong together? Mutual information and PMI of paired data."""
    del version
    for module in modules or []:
        options.from_here(f"{module}:")
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise InputError(f"--import {module}: {error}") from None


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code. A user's error is one line and code 2."""
    with _ends_on_sigterm(), warnings.catch_warnings():
        warnings.showwarning = _show_warning
        warnings.simplefilter("always", PointdepWarning)  # they are part of the answer
        return _run(list(arguments) or ["--help"])


@contextmanager
def _ends_on_sigterm() -> Iterator[None]:
    """Make SIGTERM an exception; a second one takes effect at once."""

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise _TerminatedError

    if threading.current_thread() is not threading.main_thread():  # others cannot
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(arguments: list[str]) -> int:
    try:
        code = load_commands(arguments)(args=arguments, prog_name="pointdep", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except PointdepError as error:
        return _fail(options.as_written(str(error), _WRITTEN))
    except (_EndedError, KeyboardInterrupt, typer.Abort) as ended:
        if isinstance(ended.__cause__, BrokenPipeError):
            # The reader went away, as `head` does: not an error. Python would complain once more
            # when it flushes at exit, so standard output is pointed elsewhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        left = str(ended) if isinstance(ended, _EndedError) else _NOTHING_KEPT
        by_term = isinstance(ended.__cause__ or ended, _TerminatedError)
        how, code = ("terminated", 143) if by_term else ("interrupted", 130)
        return _fail(f"{how}; {left}", code)
    except OSError as error:
        # Readers and writers say it better; this is what they did not foresee, as a full disk.
        named = f"{error.filename}: " if error.filename else ""
        return _fail(f"{named}{error.strerror or error}")
    except Exception as error:
        # The parser's own complaints; which class they are depends on the version of typer.
        message = getattr(error, "format_message", None)
        command = getattr(getattr(error, "ctx", None), "command_path", "pointdep")
        told = f"{message()} (see {command} --help)" if message else _no_memory(error)
        return _fail(told)


def _no_memory(error: Exception) -> str:
    """That there is no more memory; any other error is ours, and goes on as a traceback."""
    said = str(error).partition("\n")[0]
    of_torch = isinstance(error, RuntimeError) and "alloc" in said and "memory" in said
    if not isinstance(error, MemoryError) and not of_torch:
        raise error
    return f"there is not enough memory{': ' if said else ''}{said} (see docs/large.md)"


def _fail(message: str, code: int = 2) -> int:
    if _speaks():
        print("pointdep: " + one_line(message), file=sys.stderr)
    return code


def _speaks() -> bool:
    """Whether this process prints: of those that have joined for a fit, the first alone."""
    dist: Any = sys.modules.get("torch.distributed")
    return not (dist and dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    if _speaks():
        text = options.as_written(one_line(str(message)), _WRITTEN)
        print(f"warning: {text}", file=sys.stderr)
