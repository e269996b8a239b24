"""Run commands in this process, on small data, in a folder of their own."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pointdep import PointwiseDependency
from pointdep.cli.app import run
from refusals import quietly

JSON_PAGE = Path(__file__).parents[2] / "docs" / "json.md"


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    def json(self):
        """The one object on standard output; anything beside it makes this fail."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out, parse_constant=pytest.fail)


@pytest.fixture(scope="session")
def pairs():
    """x: (200, 2), y: (200, 3). Sixty-fourths survive every file format to the last bit."""
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 2))
    y = np.column_stack([x, x.sum(1)]) + random.normal(size=(200, 3))
    return np.round(64 * x) / 64, np.round(64 * y) / 64


@pytest.fixture
def folder(tmp_path, monkeypatch, pairs):
    """The working folder, with x.npy and y.npy in it."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", pairs[0])
    np.save("y.npy", pairs[1])
    return tmp_path


@pytest.fixture
def pointdep(folder, capsys):
    """Call it as the command, in strings of words: pointdep("mi x.npy y.npy --folds", 3)."""

    def call(*arguments):
        capsys.readouterr()
        code, captured = run(" ".join(map(str, arguments)).split()), capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def quick(pointdep):
    """As pointdep, for commands that fit: with options that make it take no time."""
    fast = "--hidden 16 --folds 2 --max-epochs 3 --quiet"

    def call(line, *arguments):
        command, _, rest = line.partition(" ")
        return pointdep(command, fast, rest, *arguments)

    return call


@pytest.fixture
def like_quick():
    """The estimator that `quick` describes."""

    def make(**options):
        common = {"hidden": (16,), "folds": 2, "max_epochs": 3, "progress": False}
        return PointwiseDependency(**common, random_state=0, **options)

    return make


@pytest.fixture
def refused(folder, pointdep):
    """The command ends with code 2, one line that matches on standard error, and no file more."""

    def check(message, *arguments):
        before, outcome = sorted(folder.rglob("*")), pointdep(*arguments)
        assert (outcome.code, outcome.out) == (2, ""), outcome
        assert outcome.err.startswith("pointdep: ")
        assert outcome.err.count("\n") == 1, outcome.err
        assert re.search(message, outcome.err), outcome.err
        assert sorted(folder.rglob("*")) == before

    return check


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory, pairs):
    """A folder with a model of the pairs."""
    place = tmp_path_factory.mktemp("saved") / "model"
    options = {"hidden": (16,), "folds": 2, "max_epochs": 10, "progress": False}
    with quietly():
        PointwiseDependency(**options, random_state=0).fit(*pairs).save(place)
    return place


@pytest.fixture(scope="session")
def check_json():
    """Check an output of --json against the tables of docs/json.md: every key, and its type."""
    tables = {}  # section: key: type
    for line in JSON_PAGE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            section = tables.setdefault(line[3:], {})
        elif line.startswith("| `"):
            key, kind, meaning = (cell.strip() for cell in line.strip("|").split("|"))
            assert meaning
            assert key.strip("`") not in section
            section[key.strip("`")] = kind

    def check(command, content):
        table = {**tables["Every command"], **tables[f"`{command}`"]}
        if command in ("mi", "fit", "calibrate", "demo", "audit"):
            table |= tables["The estimate: `mi`, `fit`, `calibrate`, `demo`, `audit`"]
        found = dict(flatten(content))
        assert not found.keys() - table.keys(), "not documented"
        for key, kind in table.items():
            owner = key.rpartition("[].")[0] or key.rpartition(".")[0]
            if owner and found.get(owner) in ([], None):
                continue
            assert key in found, f"documented but not there: {key}"
            assert any(is_a(found[key], one) for one in kind.split(" or ")), (key, kind)

    return check


def flatten(content, prefix=""):
    for key, value in content.items():
        yield prefix + key, value
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for item in value:
                yield from flatten(item, f"{prefix}{key}[].")


def is_a(value, kind):
    types = {"string": str, "number": float, "integer": int, "boolean": bool, "object": dict}
    if kind.startswith("list of "):
        inner = kind.removeprefix("list of ").rstrip("s")
        return isinstance(value, list) and all(is_a(item, inner) for item in value)
    return value is None if kind == "null" else type(value) is types[kind]
