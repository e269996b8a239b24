"""Verdicts follow the rules: differences beside scipy's, and sentences on curves made up."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from pointdep.experiments.representations.claims import PAR, STATEMENTS, judge_claims
from pointdep.experiments.representations.settings import PARTS, Experiment
from pointdep.experiments.representations.summary import (
    SEED_SD,
    above_fixed,
    difference,
    finals_of,
    summarise,
)

from .synthetic import PIXELS, curve

SHARES = st.lists(st.floats(0.01, 0.99), min_size=2, max_size=8)


def finals(values):
    return dict(enumerate(values))


def verdicts(part, dataset=None, **shares):
    """shares: of each objective, one a seed."""
    curves = [
        curve(objective, seed, 0.5, value)
        for objective, values in shares.items()
        for seed, value in enumerate(values)
    ]
    claims = judge_claims(Experiment(part, dataset), curves, PIXELS)
    return {claim.key: claim.verdict for claim in claims}


class TestDifferences:
    @given(SHARES, st.integers(0, 2**32 - 1))
    def test_students_interval(self, values, seed):
        other = np.random.default_rng(seed).uniform(0, 1, len(values))
        ours = difference(finals(values), finals(other), 10_000)
        theirs = stats.ttest_rel(100 * np.array(values), 100 * other).confidence_interval(0.95)
        assert (ours.low, ours.high) == pytest.approx(tuple(theirs), abs=1e-6)
        ours = above_fixed(finals(values), 0.4, 10_000)
        theirs = stats.ttest_1samp(100 * np.array(values) - 40, 0).confidence_interval(0.95)
        assert (ours.low, ours.high) == pytest.approx(tuple(theirs), abs=1e-6)

    def test_seeds_that_both_have(self):
        found = difference({0: 0.5, 1: 0.6, 7: 0.9}, {1: 0.5, 0: 0.5, 3: 0.0}, 10_000)
        assert (found.value, found.n) == (pytest.approx(5.0), 2)
        assert difference({0: 0.5}, {1: 0.5}, 10_000) is None

    def test_one_seed_by_simulation(self):
        """The interval is that of two accuracies, each with the error of its seed and images."""
        random, test = np.random.default_rng(0), 2_000
        drawn = [
            100 * random.binomial(test, share, 200_000) / test
            + SEED_SD * random.standard_normal(200_000)
            for share in (0.9, 0.8)
        ]
        found = difference({0: 0.9}, {0: 0.8}, test)
        spread = (found.high - found.low) / 2 / stats.norm.ppf(0.975)
        assert spread == pytest.approx((drawn[0] - drawn[1]).std(), rel=0.01)

    def test_a_run_that_diverged_has_the_accuracy_of_chance(self):
        curves = [curve("dm1", 0, 0.5, None), curve("dm1", 1, 0.5, 0.6), curve("dm1", 2)]
        assert finals_of(curves, "dm1", 0.1) == {0: 0.1, 1: 0.6, 2: 0.1}
        (line,) = summarise(curves, Experiment("shallow"))
        assert (line.runs, line.diverged, line.mean, line.sd) == (3, 2, 0.6, None)


NEAR = (0.0, 0.0005, -0.0005, 0.0002)  # of four seeds


def around(share):
    return [share + shift for shift in NEAR]


def shifted(share):
    return [share - shift for shift in NEAR]


class TestSentences:
    def test_the_best_is_above_both(self):
        best = verdicts("shallow", cpc=around(0.85), pcc=around(0.84), drfc=shifted(0.87))
        assert best["a"] == "holds"
        below_one = verdicts("shallow", cpc=around(0.88), pcc=around(0.84), drfc=shifted(0.87))
        assert below_one["a"] == "does not hold"
        like_one = verdicts("shallow", cpc=around(0.87), pcc=around(0.84), drfc=shifted(0.87))
        assert like_one["a"] == "cannot tell"
        assert verdicts("deep", cpc=around(0.85), drfc=shifted(0.87))["a"] == "cannot tell"

    def test_pcc_and_cpc_change_places(self):
        shares = {"cpc": around(0.85), "pcc": shifted(0.86)}
        assert verdicts("shallow", "cifar10", **shares)["b"] == "holds"
        assert verdicts("shallow", "mnist", **shares)["b"] == "does not hold"
        assert verdicts("deep", "cifar10", **shares)["b"] == "does not hold"
        shares = {"cpc": shares["pcc"], "pcc": shares["cpc"]}
        assert verdicts("shallow", "cifar10", **shares)["b"] == "does not hold"
        assert verdicts("shallow", "mnist", **shares)["b"] == "holds"

    def test_on_a_par(self):
        close = verdicts("simclr", cpc=around(0.9), pcc=around(0.898), drfc=around(0.898))
        assert close["f2"] == close["c"] == "holds"
        assert close["f1"] == "does not hold"
        far = verdicts("simclr", cpc=around(0.9), pcc=shifted(0.88), drfc=shifted(0.91))
        assert far["c"] == "does not hold"
        assert far["f1"] == far["f2"] == "holds"

    def test_density_matching(self):
        good = {"cpc": around(0.85), "pcc": around(0.84), "drfc": around(0.87)}
        found = verdicts("shallow", **good, dm1=shifted(0.8), dm2=[None] * 4)
        assert found["d"] == "holds"
        found = verdicts("shallow", **good, dm1=shifted(0.845), dm2=shifted(0.8))
        assert found["d"] == "does not hold"
        assert verdicts("shallow", **good, dm1=shifted(0.8))["d"] == "cannot tell"
        assert verdicts("shallow", **good)["e"] == "cannot tell"
        assert verdicts("shallow", **good, variational=good["pcc"])["e"] == "cannot tell"

    def test_pixels(self):
        three = {"cpc": around(0.85), "pcc": around(0.84), "drfc": around(0.87)}
        assert verdicts("shallow", **three)["g"] == "holds"
        assert verdicts("shallow", **{**three, "pcc": around(0.79)})["g"] == "does not hold"
        assert verdicts("shallow", **{**three, "pcc": around(0.8)})["g"] == "cannot tell"

    def test_one_seed_tells_large_differences_alone(self):
        near = verdicts("simclr", cpc=[0.9], pcc=[0.89], drfc=[0.905])
        assert near["f1"] == near["f2"] == "cannot tell"
        far = verdicts("simclr", cpc=[0.9], pcc=[0.87], drfc=[0.93])
        assert far["f1"] == far["f2"] == "holds"

    @given(SHARES, st.integers(0, 2**32 - 1), st.sampled_from(list(PARTS)))
    def test_verdict_and_interval(self, values, seed, part):
        """Of every sentence: holds, where all its intervals are above; not, where one is below."""
        random = np.random.default_rng(seed)
        names = ("cpc", "pcc", "drfc", "dm1", "dm2", "variational")
        shares = {name: random.permutation(values) for name in names}
        curves = [
            curve(name, k, float(share)) for name in names for k, share in enumerate(shares[name])
        ]
        for claim in judge_claims(Experiment(part), curves, PIXELS):
            limit = -PAR if claim.key == "c" else 0.0
            lows = [finding.low for finding in claim.findings]
            highs = [finding.high for finding in claim.findings]
            assume(all(not math.isclose(end, limit, abs_tol=1e-9) for end in lows + highs))
            expected = "holds" if min(lows) > limit else "cannot tell"
            expected = "does not hold" if min(highs) < limit else expected
            assert claim.verdict == expected

    @given(st.permutations(["cpc", "pcc", "drfc"]))
    def test_nothing_run_tells_nothing(self, order):
        for count in range(3):
            shares = {name: [0.5, 0.7] for name in order[:count]}
            assert "cannot tell" in verdicts("deep", **shares)["a"]

    def test_the_paper_s_numbers_stand_beside(self):
        curves = [curve(o, 0, 0.9) for o in ("cpc", "pcc", "drfc")]
        claims = {c.key: c for c in judge_claims(Experiment("simclr"), curves, PIXELS)}
        assert claims["f1"].findings[0].paper == pytest.approx(91.51 - 91.04)
        assert claims["f2"].findings[0].paper == pytest.approx(91.04 - 88.69)
        other = judge_claims(Experiment("simclr", dataset="digits"), curves, PIXELS)
        assert all(finding.paper is None for claim in other for finding in claim.findings)


def test_each_part_has_its_sentences():
    keys = {part: [s.key for s in STATEMENTS if part in s.parts] for part in PARTS}
    assert keys["shallow"] == ["a", "b", "c", "d", "e", "g"]
    assert keys["deep"] == ["a", "b", "c", "d", "e", "f1", "f2", "g"]
    assert keys["simclr"] == ["c", "d", "e", "f1", "f2", "g"]
