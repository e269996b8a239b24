"""The README's table of methods says what the checked-in benchmark measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pointdep import METHODS
from pointdep.core.methods import PAPER_METHODS

ROOT = Path(__file__).parent.parent


def test_the_table_of_methods_is_the_benchmark() -> None:
    measured = json.loads((ROOT / "benchmarks/results/gaussians.json").read_text())
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    table = {key: rest.split(" | ") for key, rest in rows if key in METHODS}
    assert set(table) == set(PAPER_METHODS)
    for found in measured["results"]:
        name, error, rmse, correlation = table[found["method"]]
        assert name == METHODS[found["method"]].name
        assert float(error) == round(found["error"], 2)
        assert float(rmse) == round(found["pmi_rmse"], 2)
        assert float(correlation) == round(found["pmi_correlation"], 2)


def test_every_other_method_is_named() -> None:
    readme = (ROOT / "README.md").read_text()
    assert all(f"`{key}`" in readme for key in METHODS)
