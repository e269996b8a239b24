"""The front of the package: its names, its version, and what importing it costs."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import inspect
import subprocess
import sys

import numpy as np
import pytest

import pointdep
from pointdep import errors

HEAVY = ("torch", "sklearn", "pandas", "numpy", "scipy", "pyarrow", "safetensors")


def python(*arguments, **options):
    """What a Python of its own prints."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


def imported_by(code):
    """Which heavy packages a fresh Python holds after running the code."""
    report = f"import sys; print('\\n', *[m for m in {HEAVY!r} if m in sys.modules])"
    return set(python("-c", f"{code}\n{report}").splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import pointdep; pointdep.__version__; dir(pointdep)",
        "from pointdep.cli.app import run; assert run(['--help']) == 0",
        "from pointdep.cli.app import run; assert run(['mi', '--help']) == 0",
        "from pointdep.cli.app import run; assert run(['--version']) == 0",
        "from pointdep.cli.app import run; assert run(['mi', 'x.npy', '--confidence', '2']) == 2",
    ],
)
def test_nothing_heavy_is_imported(code):
    assert imported_by(code) == set()


def test_names_are_imported_when_used():
    code = """
import sys
from pointdep.objectives import pc
assert "torch" in sys.modules
assert not {"sklearn", "pandas"} & set(sys.modules)
from pointdep import PointwiseDependency
from pointdep import from_embeddings, from_logits
"""
    assert {"torch", "sklearn"} <= imported_by(code)


def test_every_name_is_there():
    assert dir(pointdep) == sorted(pointdep.__all__)
    for name, home in pointdep._HOME.items():
        module = importlib.import_module(home)
        assert getattr(pointdep, name) is getattr(module, name, module)
    assert set(pointdep._HOME) | {"__version__"} == set(pointdep.__all__)
    met = {name for name, value in vars(errors).items() if inspect.isclass(value)
           and value.__module__ == errors.__name__ and issubclass(value, Exception)}  # fmt: skip
    assert met <= set(pointdep.__all__)


def test_star_import():
    names = {}
    exec("from pointdep import *", names)
    assert set(pointdep.__all__) <= set(names)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'pointdep' has no attribute 'nothing'"):
        _ = pointdep.nothing
    assert not hasattr(pointdep, "fit")


def test_objectives_are_at_hand():
    from pointdep import objectives
    from pointdep.core import objectives as core
    from pointdep.objectives import pc

    assert pc is objectives.pc
    assert objectives.__all__ == core.__all__
    assert all(getattr(objectives, name) is getattr(core, name) for name in core.__all__)


def test_version():
    assert importlib.metadata.version("pointdep") == pointdep.__version__
    assert python("-m", "pointdep", "--version") == f"pointdep {pointdep.__version__}\n"
    entries = importlib.metadata.entry_points(group="console_scripts", name="pointdep")
    from pointdep.cli import main

    assert [entry.load() for entry in entries] == [main]


def test_examples_in_docstrings():
    from pointdep.core import objectives

    tried = doctest.testmod(objectives)
    assert tried.attempted >= 4
    assert tried.failed == 0


def test_one_estimate_imports_what_it_needs(tmp_path):
    x = np.random.default_rng(0).normal(size=(80, 2))
    np.save(tmp_path / "x.npy", x)
    code = (
        "import sys; from pointdep.cli.app import run; "
        "run(['mi', 'x.npy', 'x.npy', '-q', '--max-epochs', '1', '--json']); "
        "print(len([m for m in sys.modules if m.split('.')[0] == 'pointdep']))"
    )
    assert int(python("-c", code, cwd=tmp_path).splitlines()[-1]) <= 90
