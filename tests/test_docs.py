"""What README.md and docs/*.md say is run, file by file, in the order it stands there.

Python blocks of a file share one namespace, and commands one folder with them, so that a block may
write the file that a later command reads. x.npy and y.npy, with which examples begin, are there.
"""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from pointdep import CLASSICAL, METHODS
from pointdep.cli.app import run
from pointdep.core.methods import PAPER_METHODS
from pointdep.errors import MEANINGS
from pointdep.inference.verdicts import FAULTS

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(python|console)\b[^\n]*\n(.*?)^```", re.M | re.S)
TEXTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
PAGES = [page for page in TEXTS if BLOCK.search(page.read_text("utf-8"))]
TESTED_ELSEWHERE = ("demo", "plan")  # half a minute each: tests/cli/test_{demo,plan}.py
OPTIONAL = ("open_clip", "sentence_transformers")  # blocks that import them run where they are


def blocks(text):
    """(language, code, number of its first line) of each fenced block."""
    for found in BLOCK.finditer(text):
        yield found.group(1), found.group(2), text.count("\n", 0, found.start(2)) + 1


def commands(console):
    """The command lines of ours after a prompt, continued ones joined."""
    return re.findall(r"^\$ (pointdep(?: .*)?)$", re.sub(r"\\\n(?:> )?\s*", "", console), re.M)


def run_command(command):
    """Run it in this process, or by a shell when it needs one; AssertionError when it fails."""
    words = shlex.split(command, comments=True)
    if words[1:2] and words[1] in TESTED_ELSEWHERE:
        return
    if re.search(r"[|<>;&*$`]", command):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        script = ["bash", "-c", f"set -o pipefail; {command}"]
        ended = subprocess.run(script, env={**os.environ, "PATH": path}, check=False)
        assert ended.returncode == 0, command
    else:
        assert run(words[1:]) == 0, command


def needs(code):
    """Which of the optional packages a block imports."""
    return [name for name in OPTIONAL if re.search(rf"^(import|from) {name}\b", code, re.M)]


def follow(page, text):
    """Do what the page says."""
    namespace = {"__name__": "__main__"}
    for language, code, line in blocks(text):
        if language == "python" and any(find_spec(name) is None for name in needs(code)):
            continue
        if language == "python":
            # Empty lines before it, so that a traceback names the line of the page.
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)
        else:
            for command in commands(code):
                run_command(command)


@pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 1))
    np.save("x.npy", x)
    np.save("y.npy", x + random.normal(size=(200, 1)))
    follow(page, page.read_text("utf-8"))


@pytest.mark.parametrize("name", OPTIONAL)
def test_an_optional_package(name):
    pages = [p for p in PAGES if any(name in needs(c) for _, c, _ in blocks(p.read_text("utf-8")))]
    assert pages
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed: its block of {pages[0].name} was left out")


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+)", page.read_text("utf-8"))
    assert not [t for t in targets if "://" not in t and not (page.parent / t).exists()]


PAGE = """
```python
import numpy as np
x = np.random.default_rng(0).normal(size=(60, 1))
```
Text.
```python
np.save("x.npy", x)
```
```console
$ ls /nowhere
$ pointdep mi x.npy x.npy --hidden 8 --folds 2 \\
    --max-epochs 1 --quiet  # a comment
output
$ pointdep --version | grep -q pointdep
$ pointdep demo
```
"""


class TestThisTest:
    """A page that does not work is noticed."""

    @pytest.fixture(autouse=True)
    def place(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

    def test_a_page_that_works(self, tmp_path, capfd):
        follow("page", PAGE)
        assert (tmp_path / "x.npy").exists()
        assert capfd.readouterr().out.startswith("mutual information  ")

    @pytest.mark.parametrize(
        ("right", "wrong", "error"),
        [
            ("np.save", "np.sav", AttributeError),
            ("mi x.npy x.npy", "mi x.npy y.npy", AssertionError),
            ("mi x.npy", "mo x.npy", AssertionError),
            ("grep -q pointdep", "grep -q nothing", AssertionError),
        ],
    )
    def test_a_page_that_does_not(self, right, wrong, error):
        assert right in PAGE
        with pytest.raises(error) as caught:
            follow("page", PAGE.replace(right, wrong))
        if error is AttributeError:
            code = [e for e in caught.traceback if e.frame.code.raw.co_filename == "page"]
            assert PAGE.splitlines()[code[0].lineno].startswith("np.save")

    def test_a_block_that_needs_what_is_not_here(self, monkeypatch):
        monkeypatch.setattr(sys.modules[__name__], "OPTIONAL", ("no_such_package",))
        page = "```python\nimport no_such_package\nraise AssertionError\n```\n"
        follow("page", page)
        with pytest.raises(ModuleNotFoundError):
            follow("page", page.replace("no_such", "no_other"))


def test_tables_of_methods_and_critics():
    """`python docs/site/tables.py` writes them."""
    tables = runpy.run_path(str(ROOT / "docs/site/tables.py"))
    text = tables["PAGE"].read_text("utf-8")
    assert tables["filled"](text) == text


def test_the_table_of_methods_is_the_benchmark():
    measured = json.loads((ROOT / "benchmarks/results/gaussians.json").read_text())
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    table = {key: rest.split(" | ") for key, rest in rows if key in METHODS}
    assert set(table) == set(PAPER_METHODS)
    for found in measured["results"]:
        name, error, rmse, correlation = table[found["method"]]
        assert (name, float(error)) == (METHODS[found["method"]].name, round(found["error"], 2))
        assert float(rmse) == round(found["pmi_rmse"], 2)
        assert float(correlation) == round(found["pmi_correlation"], 2)


def test_the_tables_of_adapters_are_the_benchmarks():
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
    found = json.loads((ROOT / "benchmarks/results/adapters_coverage.json").read_text())
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
