"""The package: its names, its version, what importing it costs, and what a release agrees on."""

import doctest
import importlib
import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import yaml

import pointdep
from pointdep import PointwiseDependency, audit, errors
from pointdep.errors import DataWarning, FitWarning
from refusals import quietly, refused

HEAVY = ("torch", "sklearn", "pandas", "numpy", "scipy", "pyarrow", "safetensors")


def python(*arguments, **options):
    """What a Python of its own prints."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


def imported_by(code):
    """Which heavy packages a fresh Python holds after running the code."""
    report = f"import sys; print('\\n', *[m for m in {HEAVY!r} if m in sys.modules])"
    return set(python("-c", f"{code}\n{report}").splitlines()[-1].split())


def test_names_are_imported_when_used():
    asked = {("--help",): 0, ("mi", "--help"): 0, ("--version",): 0}
    asked["mi", "x.npy", "--confidence", "2"] = 2
    code = "import pointdep; pointdep.__version__; dir(pointdep)\n"
    code += "from pointdep.cli.app import run\n"
    code += "".join(f"assert run({[*words]}) == {ends}\n" for words, ends in asked.items())
    assert imported_by(code) == set()
    code = """
import sys
from pointdep.objectives import pc
assert "torch" in sys.modules
assert not {"sklearn", "pandas"} & set(sys.modules)
from pointdep import PointwiseDependency
from pointdep import from_embeddings, from_logits
"""
    assert {"torch", "sklearn"} <= imported_by(code)


def test_every_name_is_there_and_no_other():
    assert dir(pointdep) == sorted(pointdep.__all__)
    for name, home in pointdep._HOME.items():
        module = importlib.import_module(home)
        assert getattr(pointdep, name) is getattr(module, name, module)
    assert set(pointdep._HOME) | {"__version__"} == set(pointdep.__all__)
    met = {name for name, value in vars(errors).items() if inspect.isclass(value)
           and value.__module__ == errors.__name__ and issubclass(value, Exception)}  # fmt: skip
    assert met <= set(pointdep.__all__)
    names = {}
    exec("from pointdep import *", names)
    assert set(pointdep.__all__) <= set(names)
    with pytest.raises(AttributeError, match="module 'pointdep' has no attribute 'nothing'"):
        _ = pointdep.nothing
    assert not hasattr(pointdep, "fit")
    from pointdep import objectives
    from pointdep.core import objectives as core
    from pointdep.objectives import pc

    assert pc is objectives.pc
    assert objectives.__all__ == core.__all__
    assert all(getattr(objectives, name) is getattr(core, name) for name in core.__all__)


def test_version_and_examples_in_docstrings():
    assert importlib.metadata.version("pointdep") == pointdep.__version__
    assert python("-m", "pointdep", "--version") == f"pointdep {pointdep.__version__}\n"
    entries = importlib.metadata.entry_points(group="console_scripts", name="pointdep")
    from pointdep.cli import main

    assert [entry.load() for entry in entries] == [main]
    from pointdep.core import objectives

    tried = doctest.testmod(objectives)
    assert tried.attempted >= 4
    assert tried.failed == 0


def test_one_estimate_imports_what_it_needs(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(80, 2)))
    code = (
        "import sys; from pointdep.cli.app import run; "
        "run(['mi', 'x.npy', 'x.npy', '-q', '--max-epochs', '1', '--json']); "
        "print(len([m for m in sys.modules if m.split('.')[0] == 'pointdep']))"
    )
    assert int(python("-c", code, cwd=tmp_path).splitlines()[-1]) <= 90


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_versions_are_one_and_the_oldest_and_the_paper_is_cited():
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "pointdep.__version__"}
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert str(cited["version"]) == pointdep.__version__
    assert f"## {pointdep.__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(cited)
    paper = cited["preferred-citation"]
    assert paper["title"] == "Neural Methods for Point-wise Dependency Estimation"
    authors = "Tsai Zhao Yamada Morency Salakhutdinov"
    assert " ".join(author["family-names"] for author in paper["authors"]) == authors
    lines = (ROOT / "constraints-oldest.txt").read_text("utf-8").splitlines()
    oldest = dict(line.split("==") for line in lines if not line.startswith("#"))
    extras = PROJECT["project"]["optional-dependencies"]
    promised = [*PROJECT["project"]["dependencies"], *extras["distributed"], *extras["pretrain"]]
    lowest = dict(found.groups() for text in promised if (found := LOWEST.match(text)))
    lowest.pop("torch")  # pinned in constraints.txt
    trimmed = [{n: re.sub(r"(\.0)+$", "", v) for n, v in v.items()} for v in (oldest, lowest)]
    assert trimmed[0] == trimmed[1]


LOWEST = re.compile(r"([a-z0-9-]+)(?:\[.*\])?>=([\d.]+)")


def test_make_targets_rooms_files_and_versions_of_python():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    told = re.findall(r"`make ([a-z-]+)`", (ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    assert len(told) > 6
    for target in told:
        assert re.search(rf"^{target}:", makefile, re.M), target
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## The rooms")[1]
    rows = re.findall(r"^\| (`[^|]+) \|(.*)", page.split("## Habits")[0], re.M)
    layers = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    rooms = [layer.removeprefix("pointdep.") for layer in reversed(layers)]
    assert [name for row, _ in rows for name in re.findall(r"`([a-z]+)`", row)] == rooms
    # Nor does a row speak of rooms that stand elsewhere.
    assert not {name for _, what in rows for name in re.findall(r"`([a-z]+)`", what)} & set(rooms)
    for pattern in PROJECT["tool"]["setuptools"]["package-data"]["pointdep"]:
        assert list((ROOT / "src/pointdep").glob(pattern)), pattern
    least = PROJECT["project"]["requires-python"].removeprefix(">=")
    named = [
        line.removeprefix("Programming Language :: Python :: ")
        for line in PROJECT["project"]["classifiers"]
        if re.match(r"Programming Language :: Python :: 3\.\d+$", line)
    ]
    assert named[0] == least
    first = int(least.split(".")[1])
    assert named == [f"3.{first + k}" for k in range(len(named))]
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in named


@pytest.mark.parametrize(
    ("typed", "wanted"), [("pointdep au", "audit"), ("pointdep audit --tab", "--table")]
)
def test_a_shell_completes_what_is_typed(typed, wanted):
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    asked = {**os.environ, **asked, "_POINTDEP_COMPLETE": "complete_bash"}
    assert wanted in python("-m", "pointdep", env=asked).split()


random = np.random.default_rng(0)
X = random.normal(size=(60, 4))
Y = X[:, :3] + 0.5 * random.normal(size=(60, 3))
QUICK = {"hidden": (4,), "folds": 2, "max_epochs": 1, "random_state": 0, "progress": False}


@pytest.fixture(scope="module")
def model():
    with quietly():
        return PointwiseDependency(**QUICK).fit(X, Y)


@pytest.mark.parametrize(
    ("call", "category"),
    [
        (lambda _: PointwiseDependency(**QUICK).fit(X, Y), FitWarning),
        (lambda _: audit(X, random.permutation(Y), model=PointwiseDependency(**QUICK)), None),
        (lambda model: model.pmi(100 * X, Y), DataWarning),
    ],
)
def test_warnings_point_at_the_line_of_the_user(model, call, category):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(model)
    ours = {one.category for one in caught if issubclass(one.category, UserWarning)}
    assert ours == ({category} if category else {DataWarning, FitWarning})
    assert {one.filename for one in caught if one.category in ours} == {__file__}


@pytest.mark.parametrize("ask", ["pmi", "pd", "pmi_matrix", "retrieve"])
def test_one_row_given_as_a_vector(model, ask):
    refused(r"X has 1 features.*one row as X\[:1\], not X\[0", getattr(model, ask), X[0], Y[0])
    refused(r"expecting 4 features as input$", getattr(model, ask), X[:, :2], Y)


def test_an_option_of_the_model_given_to_audit():
    with pytest.raises(TypeError, match=r"no option 'hidden': give model=.*\(hidden=\(16,\)\)$"):
        audit(X, Y, hidden=(16,))
    with pytest.raises(TypeError, match=r"audit has no option 'colour'$"):
        audit(X, Y, colour=1)
