"""Table 1, beside the paper's own."""

import re

import pytest
import torch

from pointdep.core.methods import METHODS, PAPER_METHODS, get_method
from pointdep.experiments.table1 import NOTES, markdown_table, table, text_table, write_markdown
from refusals import refused

# Table 1 as printed: the numbers of the equations of learning and of inference.
NUMBERS = {
    "cpc": ([], []),
    "nwj": ([], []),
    "js": ([1], []),
    "dv": ([], []),
    "smile": ([1], []),
    "variational": ([1], [7]),
    "pc": ([4], [7, 5]),
    "dm1": ([2], [7]),
    "dm2": ([3], [7]),
    "drf": ([6], [7]),
}


def numbers(text):
    return [int(found) for found in re.findall(r"Eq\. (\d+)", text)]


def test_the_equations_are_those_the_paper_names():
    assert {r["key"]: (numbers(r["learning"]), numbers(r["inference"])) for r in table()} == NUMBERS
    assert [row["group"] for row in table()] == ["baselines"] * 5 + ["the paper's own"] * 5
    assert [row["learning"] for row in table()] == [METHODS[key].learning for key in PAPER_METHODS]
    # What row and note say, measured: E_J[s], and 1/(2 eta) less for those who call it.
    (row,) = [row for row in table() if row["key"] == "dm2"]
    assert row["inference"] == "E_J[s] (Eq. 7)"
    scores = torch.randn(8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    printed = get_method("dm2", {"corrected": False, "eta": 2.0}).inference(scores).item()
    called = get_method("dm2", {"eta": 2.0}).inference(scores).item()
    assert printed == pytest.approx(scores.diagonal().mean().item())
    assert printed - called == pytest.approx(1 / (2 * 2.0))
    (note,) = [note for note in NOTES if note.startswith("dm2")]
    assert note.endswith("the estimator that users call takes 1/(2 eta) off.")


def test_text_and_markdown(tmp_path):
    lines = text_table().splitlines()
    assert max(map(len, lines)) <= 100
    for row in table():
        at = next(k for k, line in enumerate(lines) if line.split()[:1] == [row["key"]])
        assert lines[at].endswith(row["name"])
        assert lines[at + 1].split(maxsplit=1) == ["learning", row["learning"]]
        assert lines[at + 2].split(maxsplit=1) == ["inference", row["inference"]]
    assert " ".join(NOTES[1].split()) in " ".join(text_table().split())
    path = tmp_path / "table1.md"
    write_markdown(path)
    assert path.read_text("utf-8") == markdown_table()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in markdown_table().splitlines()
        if line.startswith("| `")
    ]
    assert rows == [[f"`{r['key']}`", r["name"], r["learning"], r["inference"]] for r in table()]
    refused("is a folder", write_markdown, tmp_path)
    refused("does not exist", write_markdown, tmp_path / "no" / "table1.md")
    message = r"table1.json would hold Markdown: name it \.md"
    refused(message, write_markdown, tmp_path / "table1.json")
