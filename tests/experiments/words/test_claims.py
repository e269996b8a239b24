"""Verdicts on outcomes of which one knows what is true."""

from __future__ import annotations

import numpy as np
import pytest

from pointdep.experiments.words.claims import Finding, every
from pointdep.experiments.words.claims_figure3 import judge_figure3, within
from pointdep.experiments.words.claims_table2 import judge_table2
from pointdep.experiments.words.numbers import Measured

from .synthetic import make_matched, make_matching, make_pmi

RIGHT = [4.0, -1.0, -2.0, -3.0, -4.0]
SECOND = [-1.0, -0.5, -2.0, -3.0, -4.0]
THIRD = [-3.0, -0.5, -2.0, -5.0, -4.0]
POSITIVE_OTHER = [4.0, 1.0, -2.0, -3.0, -4.0]


def trials(*kinds):
    """(n, 5) of pairs (how often, row)."""
    return np.concatenate([np.tile(row, (count, 1)) for count, row in kinds])


def verdicts(claims):
    return {claim.key: claim.verdict for claim in claims}


class TestTable2:
    def test_the_papers_numbers_hold(self):
        pc = make_matching(trials((4812, RIGHT), (188, SECOND)))
        drf = make_matching(trials((4613, RIGHT), (387, SECOND)), "drf_relative")
        found = verdicts(judge_table2(make_matched(pc, drf)))
        assert found.pop("d") == "cannot tell"  # so by its own words
        assert set(found.values()) == {"holds"}
        assert list(found) == ["a", "b", "ab", "c", "e", "f", "g", "h"]

    def test_one_failure_in_third_place_refutes_all_of_them(self):
        pc = make_matching(trials((4811, RIGHT), (188, SECOND), (1, THIRD)))
        claims = judge_table2(make_matched(pc))
        assert verdicts(claims)["e"] == "does not hold"
        told = next(claim for claim in claims if claim.key == "e").findings
        assert [finding.value for finding in told[1:]] == [188, 1, 0, 0]
        assert told[0].value == pytest.approx(188 / 189)

    def test_without_failures_nothing_is_said_of_them(self):
        assert verdicts(judge_table2(make_matched(make_matching(trials((60, RIGHT))))))["e"] == (
            "cannot tell"
        )

    @pytest.mark.parametrize(
        ("others", "verdict"),
        [(0, "holds"), (10, "holds"), (40, "cannot tell"), (300, "does not hold")],
    )
    def test_only_the_right_ones_are_positive(self, others, verdict):
        pc = make_matching(trials((4000 - others, RIGHT), (others, POSITIVE_OTHER)))
        claims = judge_table2(make_matched(pc))
        assert verdicts(claims)["f"] == verdict
        told = next(claim for claim in claims if claim.key == "f").findings
        assert told[0].value == pytest.approx(others / (4000 + others))
        assert told[1].value == pytest.approx(1 - others / 4000)

    def test_a_failure_with_positive_pmi_counts_against_it(self):
        failure = [1.0, 2.0, -2.0, -3.0, -4.0]
        claims = judge_table2(make_matched(make_matching(trials((50, RIGHT), (50, failure)))))
        assert verdicts(claims)["f"] == "does not hold"
        told = next(claim for claim in claims if claim.key == "f").findings
        assert told[0].value == pytest.approx(100 / 150)  # both of each failure are positive

    def test_chance_does_not_generalise(self):
        pc = make_matching(trials((200, RIGHT), (800, SECOND)))
        found = verdicts(judge_table2(make_matched(pc)))
        assert found["h"] == "cannot tell"
        assert found["g"] == "cannot tell"  # a mean of zero
        assert found["a"] == "does not hold"
        worse = make_matching(trials((100, RIGHT), (900, SECOND)))
        assert verdicts(judge_table2(make_matched(worse)))["h"] == "does not hold"
        assert verdicts(judge_table2(make_matched(worse)))["g"] == "does not hold"

    def test_the_better_of_two_on_the_same_trials(self):
        pc = make_matching(trials((500, SECOND), (500, RIGHT)))
        drf = make_matching(trials((450, SECOND), (550, RIGHT)), "drf")
        other = make_matching(trials((560, SECOND), (440, RIGHT)), "drf_relative")
        assert verdicts(judge_table2(make_matched(pc, other)))["ab"] == "holds"
        assert verdicts(judge_table2(make_matched(pc, drf)))["ab"] == "does not hold"
        assert verdicts(judge_table2(make_matched(pc, drf, other)))["ab"] == "does not hold"
        assert "ab" not in verdicts(judge_table2(make_matched(pc)))
        assert list(verdicts(judge_table2(make_matched(drf)))) == ["b"]


class TestFigure3:
    def test_gaussian(self):
        random = np.random.default_rng(0)
        normal = 8 + 2 * random.normal(size=4000)
        found = verdicts(judge_figure3(make_pmi(normal)))
        assert found["i"] == "holds"
        assert found["j"] == "holds"
        assert found["k"] == "holds"
        for other in (random.exponential(size=4000), random.standard_t(3, size=4000)):
            assert verdicts(judge_figure3(make_pmi(other)))["i"] == "does not hold"

    def test_the_out_of_sample_shape_does_not_decide(self):
        random = np.random.default_rng(0)
        seen, unseen = random.normal(size=4000), random.exponential(size=4000)
        claims = judge_figure3(make_pmi(seen, unseen))
        first = claims[0]
        assert first.verdict == "holds"
        assert [finding.supports for finding in first.findings[:3]] == [True] * 3
        assert False in [finding.supports for finding in first.findings[3:]]

    @pytest.mark.parametrize(
        ("unseen", "verdict"), [(7.5, "holds"), (6.5, "does not hold"), (-3.0, "does not hold")]
    )
    def test_a_mean_that_only_the_seen_words_have_is_no_mi(self, unseen, verdict):
        random = np.random.default_rng(0)
        noise = random.normal(size=1000)
        claims = judge_figure3(make_pmi(8 + noise, unseen + noise))
        assert verdicts(claims)["j"] == verdict
        assert verdicts(claims)["k"] == "holds"

    def test_share_below_zero(self):
        values = np.ones(20_000)
        values[:90] = -1
        values += 1e-3 * np.random.default_rng(0).normal(size=20_000)
        assert verdicts(judge_figure3(make_pmi(values)))["l"] == "holds"  # 0.45 %
        values[:300] = -1
        claims = judge_figure3(make_pmi(values))
        assert verdicts(claims)["l"] == "does not hold"
        assert claims[3].findings[0].value == pytest.approx(0.015)

    def test_endings(self):
        """In `make_words` a quarter of the words end in each of ly, s, ing and a."""
        random = np.random.default_rng(0)
        values = 1 + 0.1 * random.normal(size=2000)
        common = values.copy()
        common[np.arange(2000) % 4 < 2] *= np.where(random.random(1000) < 0.2, -1, 1)
        assert verdicts(judge_figure3(make_pmi(common)))["m"] == "holds"
        rare = values.copy()
        rare[np.arange(2000) % 4 > 1] *= np.where(random.random(1000) < 0.2, -1, 1)
        assert verdicts(judge_figure3(make_pmi(rare)))["m"] == "does not hold"
        few = values.copy()
        few[:4] = -1
        assert verdicts(judge_figure3(make_pmi(few)))["m"] == "cannot tell"
        assert verdicts(judge_figure3(make_pmi(few)))["n"] == "cannot tell"
        assert verdicts(judge_figure3(make_pmi(values)))["n"] == "cannot tell"

    def test_flagged_words_are_low_for_networks_that_did_not_see_them(self):
        random = np.random.default_rng(0)
        seen = random.normal(1, 1, size=1000)
        assert verdicts(judge_figure3(make_pmi(seen, seen + random.normal(size=1000))))["n"] == (
            "holds"
        )
        assert verdicts(judge_figure3(make_pmi(seen, -seen)))["n"] == "does not hold"


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [(-0.4, 0.4, True), (0.4, 0.6, None), (0.6, 0.7, False), (-0.9, -0.6, False), (-1, 1, None)],
)
def test_within(low, high, answer):
    assert within(Measured((low + high) / 2, low, high, 10), 0.5) is answer


def test_every():
    assert every([True, True]) is True
    assert every([True, None]) is None
    assert every([None, False]) is False
    assert every([]) is None


def test_a_finding_in_words():
    assert Finding("", 0.5737, 0.558, 0.589, percent=True).text == "57.37 % (55.80 to 58.90)"
    assert Finding("", 2.5337).text == "2.53"
    assert Finding("", None).text == "nothing to measure"
