"""The commands and what happens when they fail. Heavy packages are imported inside the commands."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

import typer

import pointdep
from pointdep.cli import demo, fit, mi, score
from pointdep.errors import PointdepError

app = typer.Typer(
    name="pointdep",
    help="How much do x and y belong together? Mutual information and PMI of paired data.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(name="demo")(demo.demo)
app.command(name="mi")(mi.mi)
app.command(name="fit")(fit.fit)
app.command(name="score")(score.score)


def _version(value: bool) -> None:
    if value:
        print(f"pointdep {pointdep.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and leave."
    ),
) -> None:
    """How much do x and y belong together? Mutual information and PMI of paired data."""
    del version


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code. A user's error is one line and code 2."""
    warnings.showwarning = _show_warning
    try:
        code = app(args=list(arguments), prog_name="pointdep", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except PointdepError as error:
        return _fail(str(error))
    except (KeyboardInterrupt, typer.Abort):
        return _fail(
            "interrupted; nothing was written (with fit --checkpoint FILE the same command goes on "
            "from where it was)",
            code=130,
        )
    except BrokenPipeError:
        # The reader of a pipe went away, as `head` does: not an error. Python would complain once
        # more when it flushes at exit, so standard output is pointed elsewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        # The parser's own complaints; which class they are depends on the version of typer.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        text = message()
        return _fail(f"{text} (see pointdep --help)") if text else getattr(error, "exit_code", 2)


def _fail(message: str, code: int = 2) -> int:
    print("pointdep: " + " ".join(message.split()), file=sys.stderr)
    return code


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: str | None = None,
) -> None:
    del category, filename, lineno, file, line
    print("warning: " + " ".join(str(message).split()), file=sys.stderr)
