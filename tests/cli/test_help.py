"""`--help` and `--version`."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import pytest
import typer

import pointdep as package
from pointdep import CLASSICAL, METHODS
from pointdep.cli import options
from pointdep.contrastive.pretraining.protocols import OBJECTIVES
from pointdep.core.critics import CRITICS
from pointdep.data.files import FORMATS

COMMANDS = ["demo", "mi", "rank", "fit", "calibrate", "score", "retrieve", "audit", "embed"]
COMMANDS += ["plan", "pretrain", "bench", "reproduce"]
REPRODUCED = ["table1", "figure1", "theorem1", "figure2", "simclr", "table2", "figure3"]
WITH_OPTIONS = [*((name,) for name in COMMANDS[:-1]), *(("reproduce", name) for name in REPRODUCED)]


@pytest.mark.parametrize(("words", "named"), [((), COMMANDS), (("reproduce",), REPRODUCED)])
def test_without_arguments_is_help(pointdep, words, named):
    outcome = pointdep(*words)
    assert outcome == pointdep(*words, "--help") == pointdep(*words, "-h")
    assert (outcome.code, outcome.err) == (0, "")
    assert re.findall(r"^  (\w+)  +\S", outcome.out.split("Commands:")[1], re.M) == named
    assert pointdep("--version").out == f"pointdep {package.__version__}\n"


@pytest.mark.parametrize("command", WITH_OPTIONS, ids=" ".join)
def test_every_option_says_what_it_does(pointdep, command):
    outcome = pointdep(*command, "--help")
    assert outcome.code == 0
    listed = outcome.out.split("Options:")[1].splitlines()
    # Beside a long option there is no room: its help begins on the line below.
    options = [pair for pair in pairwise([*listed, ""]) if re.match("  -", pair[0])]
    assert len(options) >= 3
    for line, below in options:
        beside = re.search(r"\S  +\S", line.strip())
        assert beside or re.match(r" {20,}\S", below), f"no help: {line}"


@pytest.mark.parametrize("command", ["mi", "fit"])
def test_the_names_in_help_are_those_there_are(pointdep, command):
    text = " ".join(pointdep(command, "--help").out.split())
    methods = re.search(r"--method \S+ ([a-z0-9_ ]+)(?:; or, without networks, ([a-z ]+))?\.", text)
    assert set(methods.group(1).split()) == set(METHODS)
    classical = {key for key, method in CLASSICAL.items() if method.estimates}
    saved = classical - {"ksg"}  # which fits nothing
    assert set((methods.group(2) or "").split()) == (classical if command == "mi" else saved)
    critics = re.search(r"--critic \S+ ([a-z, ]+)\.", text)
    assert set(re.findall(r"\w+", critics.group(1))) - {"or"} == set(CRITICS)
    assert all(suffix in text for suffix in FORMATS)


def test_names_that_docstrings_list_are_those_there_are(pointdep):
    score, pretrain = (
        " ".join(pointdep(name, "--help").out.split()) for name in ("score", "pretrain")
    )
    assert all(suffix in score for suffix in FORMATS)
    assert f"--objective <str> {', '.join(OBJECTIVES)}; several" in pretrain


def declared(command):
    """name -> names on the command line, help, default and what is shown for it, as typer sees."""
    app = typer.Typer(add_completion=False)
    app.command()(command)
    made = typer.main.get_command(app)
    told = {p.name: (p.opts, getattr(p, "help", None), p.default, p) for p in made.params}
    return made.help, {name: (*how[:3], how[3].show_default) for name, how in told.items()}


def test_the_docstring_of_a_command_explains_its_parameters():
    @options.explained
    def command(
        place: Annotated[Path, typer.Argument(metavar="PLACE")],
        k: int | None = None,
        output: Path | None = None,
        as_is: bool = False,
        share: Annotated[float, typer.Option(min=0)] = 0.5,
        seed: options.Seed = 3,
    ) -> None:
        """What it does.

        Options
        -------
        place: Where [in words] it is.
        k: How many,
            in two lines. [ten]
        output: File to write.
        as_is: Leave it alone.
        share: Of the rows, from 0: a part.
        """

    said, told = declared(command)
    assert said == "What it does."
    assert told["k"] == (["-k"], "How many, in two lines.", None, "ten")
    assert told["output"][:3] == (["--output", "-o"], "File to write.", None)
    assert told["as_is"][:3] == (["--as-is"], "Leave it alone.", False)
    assert told["share"][:3] == (["--share"], "Of the rows, from 0: a part.", 0.5)
    assert told["place"][1] == "Where [in words] it is."
    assert told["seed"][:3] == (["--seed"], "The same seed gives the same numbers.", 3)


def test_a_command_of_one_mapping_takes_what_docstrings_explain():
    def shared():
        """Not a command.

        Options
        -------
        hidden: Layers. [64,64]
        quick: Less.
        """

    found = {}

    @options.takes(options.KINDS, shared, {"json": options.Json}, epochs=7)
    def command(given):
        """What it does.

        Options
        -------
        epochs: Passes.
        """
        found.update(given)

    said, told = declared(command)
    assert (said, list(told)) == ("What it does.", ["epochs", "hidden", "quick", "json"])
    assert told["hidden"] == (["--hidden"], "Layers.", None, "64,64")
    assert told["quick"][:3] == (["--quick"], "Less.", False)
    app = typer.Typer(add_completion=False)
    app.command()(command)
    app(["--hidden", "8,4"], standalone_mode=False)
    assert found == {"epochs": 7, "hidden": (8, 4), "quick": False, "json": False}
    with pytest.raises(package.InputError, match="--hidden 'a'"):
        app(["--hidden", "a"], standalone_mode=False)
