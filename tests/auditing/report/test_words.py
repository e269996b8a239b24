"""The sentence, the cards and the bars."""

import html
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointdep.auditing.report import wording
from pointdep.auditing.report.page import render
from pointdep.auditing.report.wording import caveat, finding, histogram, outer_bars, share_in_words
from pointdep.auditing.result import Contamination

from .helpers import gaussian_check, make_audit, some_pmi


def test_the_finding():
    found = make_audit(some_pmi(2000), suspects=37)
    said = "37 of 2,000 pairs are suspects: about 29% of these are expected to be right."
    assert finding(found) == said
    assert f"{found.suspects['q_value'].max():.2f}" == "0.29"
    sure = make_audit([-20.0, -19.0, 3.0], suspects=2)
    assert finding(sure).endswith(": under 0.1% of these are expected to be right.")
    assert finding(make_audit([0.0, 1.0], suspects=1)).startswith("1 of 2 pairs is a suspect: ")
    assert finding(make_audit([0.0, 1.0], suspects=0)).startswith("None of the 2 pairs")


def test_the_cards():
    found = make_audit([-2.0, -0.5, 1.0, 3.0])

    def cards(audit):
        card = r'name">(.*?)</span> <strong>(.*?)</strong> <span class="note">(.*?)<'
        return re.findall(card, html.unescape(render(audit)))

    assert cards(found)[:4] == [
        (
            "Mutual information",
            "1.500 nats",
            "95% interval 1.460 to 1.540 nats; 2.164 bits (2.106 to 2.222)",
        ),
        ("Rows", "4", "5 folds, method pc"),
        ("Suspects", "1", "25% of the rows, at a false discovery rate of 10%"),
        ("PMI below zero", "2", "50% of the rows: together less often than chance"),
    ]
    assert [card[:2] for card in cards(found)[4:]] == [("Chance pairs", "3.2%")]
    named = replace(found, answered="closed form alone")
    assert cards(named)[1][2] == "5 folds, method pc, closed form alone"
    squared = replace(found.mutual_information, estimates="squared-loss mutual information")
    told = ("Squared-loss mutual information", "1.500", "95% interval 1.460 to 1.540")
    assert cards(replace(found, mutual_information=squared))[0] == told


def test_only_a_check_that_does_not_pass_wants_a_word():
    assert caveat(make_audit([-2.0, 1.0], check=gaussian_check())) == ""
    for check in (gaussian_check(wrong=2.0), gaussian_check(rows=20)):
        assert not check.passed
        said = caveat(make_audit([-2.0, 1.0], check=check))
        assert said.startswith("Suspects are judged by counting mismatched pairs, so")
        assert caveat(make_audit([-2.0, 1.0], check=check, suspects=0)) == ""


def test_numbers_and_shares_in_words():
    values = {0: "<0.001", 0.0009: "<0.001", 0.001: "0.001", 0.25: "0.250", None: "-"}
    assert {value: wording.probability(value) for value in values} == values
    shares = {0: "0%", 0.1: "10%", 0.032: "3.2%", 0.05: "5%", 0.00042: "0.042%", 1: "100%"}
    assert {share: wording.percent(share) for share in shares} == shares
    assert share_in_words(Contamination(0.1, given=True)).endswith("as given")
    estimated = share_in_words(Contamination(0.1, given=False, stderr=0.012))
    assert "by chance ± 1.2%; too high where some right pairs look like" in estimated


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=200))
def test_every_value_is_in_a_bar_on_its_side_of_zero(values):
    found = histogram(values)
    edges, counts = np.array(found["edges"]), np.array(found["counts"])
    assert len(edges) == len(counts) + 1
    assert (np.diff(edges) > 0).all()
    assert counts.sum() == len(values)
    low, high = edges[0], edges[-1]
    assert found["beyond"] == [sum(v < low for v in values), sum(v > high for v in values)]
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
    assert histogram([np.nan, np.inf]) == {"edges": [], "counts": [], "beyond": [0, 0]}
    found = histogram([1.0] * 90 + [-4.0] * 10)
    assert found["edges"][0] <= -4.0
    assert (found["beyond"], sum(found["counts"])) == ([0, 0], 100)


def test_outliers_do_not_squash_the_bars():
    found = histogram(np.append(np.linspace(-1, 1, 999), 1e5))
    assert found["edges"][-1] < 10
    assert (found["beyond"], sum(found["counts"])) == ([0, 1], 1000)
    # Nor does a twentieth of the rows.
    random = np.random.default_rng(0)
    values = np.append(random.normal(3, 1, 570), random.normal(-50, 3, 30))
    found = histogram(values)
    edges, counts = np.array(found["edges"]), np.array(found["counts"])
    assert -8 < edges[0] < -3
    assert edges[-1] == pytest.approx(values.max(), abs=0.2)
    assert (counts > 0).sum() > 30
    assert counts[0] == 30
    assert outer_bars(found) == [f"30 rows below {edges[0]:.1f} are in the first bar."]
    one = {"edges": [-20.0, 0.0, 7.0], "beyond": [1, 1234]}
    said = ["1 row below -20.0 is in the first bar.", "1,234 rows above 7.0 are in the last bar."]
    assert outer_bars(one) == said
    assert outer_bars(histogram([])) == outer_bars(histogram([0.0, 1.0])) == []
