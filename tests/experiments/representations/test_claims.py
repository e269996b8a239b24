"""Verdicts follow the rules: differences beside scipy's, and sentences on curves made up."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from pointdep.contrastive.pretraining.deep import AMDIM
from pointdep.experiments.representations.claims import STATEMENTS, judge_claims
from pointdep.experiments.representations.evidence import PAR
from pointdep.experiments.representations.settings import PARTS, Experiment
from pointdep.experiments.representations.summary import (
    SEED_SD,
    above_fixed,
    difference,
    finals_of,
    summarise,
)

from .synthetic import PIXELS, curve

MANY = replace(PIXELS, test=10**6)  # images, so that small differences can be told
SHARES = st.lists(st.floats(0.01, 0.99), min_size=2, max_size=8)


def finals(values):
    return dict(enumerate(values))


def verdicts(part, dataset=None, pixels=MANY, **shares):
    """shares: of each objective, one a seed."""
    curves = [
        curve(objective, seed, 0.5, value)
        for objective, values in shares.items()
        for seed, value in enumerate(values)
    ]
    claims = judge_claims(Experiment(part, dataset), curves, pixels)
    return {claim.key: claim.verdict for claim in claims}


class TestDifferences:
    @given(SHARES, st.integers(0, 2**32 - 1))
    def test_students_interval(self, values, seed):
        """Of test images without end: what differs between seeds is left."""
        other = np.random.default_rng(seed).uniform(0, 1, len(values))
        ours = difference(finals(values), finals(other), 10**15)
        theirs = stats.ttest_rel(100 * np.array(values), 100 * other).confidence_interval(0.95)
        assert (ours.low, ours.high) == pytest.approx(tuple(theirs), abs=1e-5)
        ours = above_fixed(finals(values), 0.4, 10**15)
        theirs = stats.ttest_1samp(100 * np.array(values) - 40, 0).confidence_interval(0.95)
        assert (ours.low, ours.high) == pytest.approx(tuple(theirs), abs=1e-5)

    @pytest.mark.parametrize("seeds", [1, 2, 10])
    def test_the_error_of_the_images_is_always_there(self, seeds):
        """Seeds that all differ by the same do not make a difference certain."""
        test = 10_000
        found = difference(
            dict.fromkeys(range(seeds), 0.9), dict.fromkeys(range(seeds), 0.89), test
        )
        alone = 100 * math.sqrt(0.01 * 0.99 / test)
        guess = 2 * SEED_SD**2 if seeds == 1 else 0.0
        expected = stats.norm.ppf(0.975) * math.sqrt(alone**2 + guess)
        assert (found.high - found.low) / 2 == pytest.approx(expected, rel=1e-6)
        found = above_fixed(dict.fromkeys(range(seeds), 0.9), 0.89, test)
        expected = stats.norm.ppf(0.975) * math.sqrt(alone**2 + guess / 2)
        assert (found.high - found.low) / 2 == pytest.approx(expected, rel=1e-6)

    def test_the_least_error_of_a_difference(self):
        """So many images more are right of one: as by McNemar, where no other is judged apart."""
        one, other = dict.fromkeys(range(3), 0.905), dict.fromkeys(range(3), 0.9)
        found = difference(one, other, 10_000)
        apart = np.zeros(10_000)
        apart[:50] = 1.0
        assert (found.high - found.low) / 2 == pytest.approx(
            1.959964 * 100 * apart.std() / math.sqrt(10_000), rel=1e-6
        )
        equal = difference(one, one, 10_000)
        assert (equal.low, equal.high) == (0.0, 0.0)

    def test_seeds_that_both_have(self):
        found = difference({0: 0.5, 1: 0.6, 7: 0.9}, {1: 0.5, 0: 0.5, 3: 0.0}, 10_000)
        assert (found.value, found.n) == (pytest.approx(5.0), 2)
        assert difference({0: 0.5}, {1: 0.5}, 10_000) is None

    def test_one_seed_by_simulation(self):
        """What one gets right beyond the other differs by images; each run by its seed."""
        random, test, draws = np.random.default_rng(0), 2_000, 200_000
        seeds = SEED_SD * random.standard_normal((2, draws))
        drawn = 100 * random.binomial(test, 0.1, draws) / test + seeds[0] - seeds[1]
        found = difference({0: 0.9}, {0: 0.8}, test)
        spread = (found.high - found.low) / 2 / stats.norm.ppf(0.975)
        assert spread == pytest.approx(drawn.std(), rel=0.01)

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

    def test_small_differences_drown_in_few_test_images(self):
        near = {"cpc": around(0.9), "pcc": around(0.899), "drfc": shifted(0.904)}
        few = verdicts("simclr", pixels=replace(PIXELS, test=1_000), **near)
        assert few["f1"] == few["f2"] == "cannot tell"
        many = verdicts("simclr", **near)
        assert many["f1"] == many["f2"] == "holds"

    @pytest.mark.parametrize("part", PARTS)
    def test_variational_is_pcc(self, part):
        """Equal results contradict a lower one, and of 10,000 images too."""
        pcc = around(0.85)

        def found(variational, **others):
            return verdicts(part, pixels=PIXELS, **{"pcc": pcc, **others}, variational=variational)

        assert found(pcc)["e"] == "does not hold"
        assert found([share + 0.001 for share in pcc])["e"] == "does not hold"
        assert found([share - 0.001 for share in pcc])["e"] == "does not hold"
        assert found([share - 0.02 for share in pcc])["e"] == "holds"
        assert found([share + 0.02 for share in pcc])["e"] == "does not hold"
        assert found([0.84, 0.86, 0.85, 0.855])["e"] == "cannot tell"
        assert found([None] * 4)["e"] == "holds"
        assert found([None] * 4, pcc=[None] * 4)["e"] == "cannot tell"
        assert found(pcc[:1])["e"] == "cannot tell"

    @pytest.mark.parametrize("part", PARTS)
    def test_where_all_diverged_nothing_is_on_a_par(self, part):
        none, good = [None] * 4, around(0.9)
        assert verdicts(part, cpc=none, pcc=none, drfc=none)["c"] == "cannot tell"
        assert verdicts(part, cpc=none, pcc=good, drfc=good)["c"] == "cannot tell"
        assert verdicts(part, cpc=good, pcc=none, drfc=good)["c"] == "does not hold"
        assert verdicts(part, cpc=good, pcc=good, drfc=none)["c"] == "does not hold"
        at_chance = around(0.1)
        assert verdicts(part, cpc=at_chance, pcc=at_chance, drfc=at_chance)["c"] == "cannot tell"
        assert verdicts(part, cpc=good, pcc=good, drfc=good)["c"] == "holds"
        assert verdicts(part, pcc=at_chance, drfc=good)["c"] == "cannot tell"

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
            ends = {f.about.split(",")[0]: (f.low, f.high) for f in claim.findings}
            limits = {about: -PAR if claim.key == "c" and "pixels" not in about else 0.0
                      for about in ends}  # fmt: skip
            for about, both in ends.items():
                for limit in (limits[about], -PAR, PAR):
                    assume(all(not math.isclose(end, limit, abs_tol=1e-9) for end in both))
            expected = "holds" if all(ends[k][0] > limits[k] for k in ends) else "cannot tell"
            if any(ends[k][1] < limits[k] for k in ends):
                expected = "does not hold"
            if claim.key == "c" and ends["CPC less pixels"][0] < 0:
                expected = "cannot tell"
            if claim.key == "e":
                low, high = ends["PCC less Variational"]
                within = low > -PAR and high < PAR
                expected = "holds" if low > 0 else "cannot tell"
                expected = "does not hold" if high < 0 or within else expected
                expected = "cannot tell" if ends["PCC less pixels"][0] < 0 else expected
            assert claim.verdict == expected

    @given(st.permutations(["cpc", "pcc", "drfc"]))
    def test_nothing_run_tells_nothing(self, order):
        for count in range(3):
            shares = {name: [0.5, 0.7] for name in order[:count]}
            assert "cannot tell" in verdicts("deep", **shares)["a"]

    @pytest.mark.parametrize(
        ("part", "dataset", "here"),
        [
            ("shallow", "mnist", "[here: Figure 2, shallow, MNIST]"),
            ("deep", "cifar10", "[here: Figure 2, deep, CIFAR-10]"),
            ("simclr", "digits", "[here: SimCLR, 8 x 8 digits]"),
        ],
    )
    def test_sentences_about_several_experiments_say_which_is_judged(self, part, dataset, here):
        curves = [curve(o, 0, 0.9) for o in ("cpc", "pcc", "drfc")]
        claims = judge_claims(Experiment(part, dataset), curves, PIXELS)
        marked = [claim.key for claim in claims if claim.quote.endswith(here)]
        assert marked == [key for key in ("b", "f1", "f2") if key in {c.key for c in claims}]
        assert not any("{" in claim.quote for claim in claims)

    def test_in_the_deep_experiment_cpc_trains_otherwise(self):
        """What the rule says of batch norm and clipping is what the model does."""
        models = {o: AMDIM(o, 10, ndf=4, depth=1) for o in ("cpc", "pcc", "dm1", "variational")}
        normed = {
            o: isinstance(model.encoder.head_five.bn_hidden, torch.nn.BatchNorm2d)
            for o, model in models.items()
        }
        clipped = {o: model.clips_gradient(1000) for o, model in models.items()}
        assert normed == clipped == {"cpc": False, "pcc": True, "dm1": True, "variational": True}
        rules = {s.key: s.rule for s in STATEMENTS if "deep" in s.parts}
        assert "CPC alone trains without batch norm in its blocks" in rules["d"]
        others = {s.key: s.rule for s in STATEMENTS if "shallow" in s.parts}
        assert "batch norm" not in others["d"]

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
