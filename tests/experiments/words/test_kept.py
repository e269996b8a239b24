"""The results in docs/: the page says what was measured, and the verdicts are those of today."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pointdep.experiments.words.settings import Figure3, Table2

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "reproduce.md").read_text("utf-8")
FILES = ("--data", "words.npz")


def kept(name):
    return json.loads((DOCS / "words" / name / "results.json").read_text("utf-8"))


@pytest.mark.parametrize("settings", [Table2(files=FILES), Figure3(files=FILES)])
def test_they_are_of_the_papers_settings(settings):
    name = type(settings).__name__.lower()
    assert kept(name)["command"] == settings.command
    assert kept(name)["words"] == 20_000


def test_the_table_of_figure3():
    names = {"in_sample": "in sample", "out_of_sample": "out of sample", "test": "test words"}
    for line in kept("figure3")["pmi"]:
        numbers = f"{line['mean']:.2f} | {line['sd']:.2f} | {100 * line['negative_share']:.2f} %"
        assert f"\n| {names[line['of']]} | {numbers} |" in PAGE


def test_the_table_of_table2():
    rows = dict(re.findall(r"^\| `(pc|drf|drf_relative)` \| (\d.*) \|$", PAGE, re.M))
    for line in kept("table2")["matching"]:
        shares = [100 * line[name] for name in ("accuracy", "low", "high", "random_accuracy")]
        said = "{:.2f} % | {:.2f} to {:.2f} | {:.2f} %".format(*shares)
        assert rows[line["method"]].startswith(said)


@pytest.mark.parametrize("name", ["table2", "figure3"])
def test_every_claim_is_on_its_page(name):
    page = (DOCS / "words" / name / "claims.md").read_text("utf-8")
    for claim in kept(name)["claims"]:
        assert f"## {claim['key']}: {claim['verdict']}\n" in page
    counts = [claim["verdict"] for claim in kept(name)["claims"]]
    assert f"Of {len(counts)} claims {counts.count('holds')} hold" in page
