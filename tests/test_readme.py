"""The tables of the README and of docs/: what was measured, and all that there is."""

import json
import re
from pathlib import Path

import pytest

from pointdep import CLASSICAL, METHODS
from pointdep.core.methods import PAPER_METHODS
from pointdep.errors import MEANINGS
from pointdep.inference.verdicts import FAULTS

ROOT = Path(__file__).parent.parent


def test_the_table_of_methods_is_the_benchmark():
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


def test_the_table_of_adapters_is_the_benchmark():
    found = json.loads((ROOT / "benchmarks/results/adapters.json").read_text())["summary"]
    text = (ROOT / "docs/adapters.md").read_text()
    for mi, of in found.items():
        own = [f"{of[name]:.2f}" for name in ("pc", "pc_calibrated")]
        others = [of[name] for name in ("sigmoid", "softmax", "softmax_one_sided")]
        assert all(one["met"] for one in others)
        cells = [*own, *(f"{one['pmi_rmse']:.2f} ({one['mi']:.2f})" for one in others)]
        assert f"| {' | '.join([mi, *cells])} |" in text
    two, six = found.values()
    raw = [
        [of[name]["raw_logit_rmse"] for of in (two, six)]
        for name in ("softmax_one_sided", "sigmoid", "softmax")
    ]
    flat = " ".join(text.split())
    for a, b in [(two["pc_five_folds"], six["pc_five_folds"]), *raw]:
        assert f"{a:.2f} and {b:.2f}" in flat


def test_the_coverage_of_adapters_is_the_benchmark():
    found = json.loads((ROOT / "benchmarks/results/adapters_coverage.json").read_text())
    text = (ROOT / "docs/adapters.md").read_text()
    for name, of in found["summary"].items():
        errors = [f"{of[key]:.3f}" for key in ("spread", "stderr", "stderr_of_the_rows_alone")]
        row = [name, f"{of['rows']}", f"{100 * of['coverage']:.0f} %", *errors]
        assert f"| {' | '.join(row)} |" in text
        assert of["coverage"] > 0.88


VERDICTS = ("none", "cannot_tell", *FAULTS)


@pytest.mark.parametrize(
    ("page", "in_rows", "anywhere"),
    [
        ("README.md", MEANINGS, (*METHODS, *CLASSICAL)),
        ("docs/choosing.md", MEANINGS, CLASSICAL),
        ("docs/check.md", VERDICTS, ()),
    ],
)
def test_every_name_is_explained(page, in_rows, anywhere):
    text = (ROOT / page).read_text()
    rows = " ".join(re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE))
    assert all(f"`{name}`" in rows for name in in_rows)
    assert all(f"`{name}`" in text for name in anywhere)
