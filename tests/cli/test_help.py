"""`--help` and `--version`."""

import re
from itertools import pairwise

import pytest

import pointdep as package
from pointdep import CLASSICAL, METHODS
from pointdep.core.critics import CRITICS
from pointdep.data.files import FORMATS

COMMANDS = ["demo", "mi", "fit", "calibrate", "score", "retrieve", "audit", "plan", "pretrain"]
COMMANDS += ["bench", "reproduce"]
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
    assert set((methods.group(2) or "").split()) == (classical if command == "mi" else set())
    critics = re.search(r"--critic \S+ ([a-z, ]+)\.", text)
    assert set(re.findall(r"\w+", critics.group(1))) - {"or"} == set(CRITICS)
    assert all(suffix in text for suffix in FORMATS)
