"""The front of the package: its names, its version, and what importing it costs."""

from __future__ import annotations

import doctest
import importlib.metadata
import inspect
import subprocess
import sys

import numpy as np
import pytest

import pointdep

HEAVY = ("torch", "sklearn", "pandas", "numpy", "scipy", "pyarrow", "safetensors")


def imported_by(code):
    """Which heavy packages a fresh Python holds after running the code."""
    report = f"import sys; print('\\n', *[m for m in {HEAVY!r} if m in sys.modules])"
    ended = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return set(ended.stdout.splitlines()[-1].split())


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
    assert set(pointdep.__all__) <= set(dir(pointdep))
    for name in pointdep.__all__:
        assert getattr(pointdep, name) is not None
    from pointdep.core import methods, objectives
    from pointdep.estimators.calibrated import CalibratedDependency, from_logits
    from pointdep.estimators.classical.catalogue import CLASSICAL
    from pointdep.estimators.classical.estimator import ClassicalDependency
    from pointdep.estimators.conditional import ConditionalDependency
    from pointdep.estimators.pointwise import PointwiseDependency
    from pointdep.inference.mutual_information import MIEstimate

    assert pointdep.PointwiseDependency is PointwiseDependency
    assert pointdep.MIEstimate is MIEstimate
    assert pointdep.ClassicalDependency is ClassicalDependency
    assert pointdep.CLASSICAL is CLASSICAL
    assert pointdep.CalibratedDependency is CalibratedDependency
    assert pointdep.from_logits is from_logits
    assert pointdep.ConditionalDependency is ConditionalDependency
    assert pointdep.METHODS is methods.METHODS
    assert pointdep.Method is methods.Method
    assert pointdep.objectives.pc is objectives.pc


def test_what_a_user_meets_is_at_hand():
    from pointdep import errors
    from pointdep.inference.checks import RatioCheck

    assert pointdep.RatioCheck is RatioCheck
    for name in ("PointdepWarning", "DivergedError", "ModelFileError"):
        assert getattr(pointdep, name) is getattr(errors, name)
    met = {name for name, value in vars(errors).items() if inspect.isclass(value)
           and value.__module__ == errors.__name__ and issubclass(value, Exception)}  # fmt: skip
    assert met <= set(pointdep.__all__)


def test_only_names_for_users_are_listed():
    assert dir(pointdep) == sorted(pointdep.__all__)


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
    ended = subprocess.run(
        [sys.executable, "-m", "pointdep", "--version"], capture_output=True, text=True, check=True
    )
    assert ended.stdout == f"pointdep {pointdep.__version__}\n"


def test_the_installed_command_is_the_module():
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
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert int(told.stdout.splitlines()[-1]) <= 90
