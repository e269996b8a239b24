"""Tables as text."""

from __future__ import annotations

from pointdep.experiments.text import aligned, markdown

ROWS = [["name", "|error|"], ["a", "0.5"], ["longer", ""]]


def test_aligned():
    assert aligned(ROWS) == "name    |error|\na           0.5\nlonger"


def test_markdown():
    assert markdown(ROWS) == "| name | \\|error\\| |\n| --- | --- |\n| a | 0.5 |\n| longer |  |"
