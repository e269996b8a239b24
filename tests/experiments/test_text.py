"""Tables as text."""

from __future__ import annotations

import pytest

from pointdep.experiments.reports import aligned, interval, markdown, number

ROWS = [["name", "|error|"], ["a", "0.5"], ["longer", ""]]


def test_aligned():
    assert aligned(ROWS) == "name    |error|\na           0.5\nlonger"


def test_markdown():
    assert markdown(ROWS) == "| name | \\|error\\| |\n| --- | --- |\n| a | 0.5 |\n| longer |  |"


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (-0.0512, "-0.05"), (999.994, "999.99"), (2055.0, "2.1e+03"), (-1e300, "-1.0e+300")],
)
def test_number(value, text):
    assert number(value) == text


def test_interval():
    assert interval(-0.061, 2e5) == "[-0.06, 2.0e+05]"
    assert interval(None, 1.0) == "[-, 1.00]"
    assert interval(None, None) == ""
