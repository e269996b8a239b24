"""The sentence, the cards and the bars."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointdep.auditing.report.words import cards, finding, histogram, percent, share_in_words
from pointdep.auditing.result import Contamination

from .helpers import make_audit, some_pmi


def test_the_finding():
    found = make_audit(some_pmi(2000), suspects=37)
    assert finding(found) == (
        "37 of 2,000 pairs are suspects: about 10% of these, or fewer, are expected to be right."
    )
    assert finding(make_audit([0.0, 1.0], suspects=1)).startswith("1 of 2 pairs is a suspect: ")
    assert finding(make_audit([0.0, 1.0], suspects=0)).startswith("None of the 2 pairs")


def test_the_cards():
    found = make_audit([-2.0, -0.5, 1.0, 3.0])
    values = {card["name"]: card["value"] for card in cards(found)}
    assert values == {
        "Mutual information": "1.500 nats",
        "Rows": "4",
        "Suspects": "1",
        "PMI below zero": "2",
        "Chance pairs": "3.2%",
    }
    note = cards(found)[0]["note"]
    assert note == "95% interval 1.460 to 1.540 nats; 2.164 bits (2.106 to 2.222)"


def test_where_the_share_comes_from():
    assert share_in_words(Contamination(0.1, given=True)).endswith("as given")
    estimated = share_in_words(Contamination(0.1, given=False, stderr=0.012))
    assert "± 1.2%, an upper bound" in estimated


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0%"), (0.1, "10%"), (0.032, "3.2%"), (0.05, "5%"), (0.00042, "0.042%"), (1, "100%")],
)
def test_percent(share, text):
    assert percent(share) == text


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=200))
def test_every_value_is_in_a_bar_on_its_side_of_zero(values):
    found = histogram(values)
    edges, counts = np.array(found["edges"]), np.array(found["counts"])
    assert len(edges) == len(counts) + 1
    assert (np.diff(edges) > 0).all()
    assert counts.sum() == len(values)
    if edges[0] < 0 < edges[-1]:
        assert 0 in edges
        assert counts[edges[1:] <= 0].sum() == sum(value < 0 for value in values)


def test_bars_against_a_loop():
    values = some_pmi(500)
    found = histogram(values)
    edges = found["edges"]
    for low, high, count in zip(edges[:-2], edges[1:-1], found["counts"], strict=False):
        assert count == sum(low <= value < high for value in values)
    assert 60 <= len(found["counts"]) <= 100


def test_outliers_do_not_squash_the_bars():
    values = np.append(np.linspace(-1, 1, 999), 1e5)
    found = histogram(values)
    assert found["edges"][-1] < 10
    assert sum(found["counts"]) == 1000
    assert histogram([np.nan, np.inf]) == {"edges": [], "counts": []}
