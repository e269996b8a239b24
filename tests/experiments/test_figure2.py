"""Verdicts follow the rules: differences against scipy's, and sentences on curves made up."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from pointdep.contrastive import Settings
from pointdep.contrastive.pretraining.recipes import make_recipe
from pointdep.experiments.figure2 import (
    PAR,
    SEED_SD,
    Evidence,
    difference,
    judge_claims,
    summarise,
)
from pointdep.experiments.reports import PAPER
from pointdep.experiments.representations import MAIN, PARTS, Experiment

from .representation_samples import PIXELS, curve

SENTENCES = PAPER["claims"]["figure2"]
MANY = replace(PIXELS, test=10**6)  # images, so that small differences can be told
SHARES = st.lists(st.floats(0.01, 0.99), min_size=2, max_size=8)
Z = stats.norm.ppf(0.975)


def half(found):
    return (found.high - found.low) / 2


def equal(share, seeds):
    return dict.fromkeys(range(seeds), share)


class TestDifferences:
    @given(SHARES, st.integers(0, 2**32 - 1))
    def test_students_interval(self, values, seed):
        """With test images without end, what differs between seeds is left."""
        other = np.random.default_rng(seed).uniform(0, 1, len(values))
        for against in (other, np.full(len(values), 0.4)):
            ours = difference(dict(enumerate(values)), dict(enumerate(against)), 10**15)
            if np.ptp(np.array(values) - against) > 1e-6:
                paired = stats.ttest_rel(100 * np.array(values), 100 * against)
                theirs = tuple(paired.confidence_interval(0.95))
                assert (ours.low, ours.high) == pytest.approx(theirs, abs=1e-5)

    @pytest.mark.parametrize("seeds", [1, 2, 10])
    @pytest.mark.parametrize("runs", [1, 2])
    def test_the_error_of_the_images_is_always_there(self, seeds, runs):
        """Seeds that all differ by the same do not make a difference certain."""
        found = difference(equal(0.9, seeds), equal(0.89, seeds), 10_000, runs)
        guess = runs * SEED_SD**2 if seeds == 1 else 0.0
        expected = Z * math.sqrt(100**2 * 0.01 * 0.99 / 10_000 + guess)
        assert half(found) == pytest.approx(expected, rel=1e-6)

    def test_the_least_error_of_a_difference(self):
        """So many images more are right of one: as by McNemar, where no other is judged apart."""
        apart = np.zeros(10_000)
        apart[:50] = 1.0
        found = difference(equal(0.905, 3), equal(0.9, 3), 10_000)
        assert half(found) == pytest.approx(Z * 100 * apart.std() / math.sqrt(10_000), rel=1e-6)
        same = difference(equal(0.9, 3), equal(0.9, 3), 10_000)
        assert (same.low, same.high) == (0.0, 0.0)

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
        assert half(found) / Z == pytest.approx(drawn.std(), rel=0.01)

    def test_a_run_that_diverged_has_the_accuracy_of_chance(self):
        curves = [curve("dm1", 0, 0.5, None), curve("dm1", 1, 0.5, 0.6), curve("dm1", 2)]
        finals = Evidence(Experiment("shallow"), curves, PIXELS).finals("dm1")
        assert finals == {0: 0.1, 1: 0.6, 2: 0.1}
        (line,) = summarise(curves, Experiment("shallow"))
        assert [line[k] for k in ("runs", "diverged", "mean", "sd")] == [3, 2, 0.6, None]


NEAR = np.array([0.0, 0.0005, -0.0005, 0.0002])  # of four seeds
NONE = [None] * 4
HOLDS, NOT, OPEN = "holds", "does not hold", "cannot tell"


def up(share):
    return list(share + NEAR)


def down(share):
    return list(share - NEAR)


def verdicts(part, dataset=None, pixels=MANY, **shares):
    """shares: of each objective, one per seed."""
    curves = [
        curve(objective, seed, 0.5, value)
        for objective, values in shares.items()
        for seed, value in enumerate(values)
    ]
    claims = judge_claims(Experiment(part, dataset), curves, pixels)
    return {claim.key: claim.verdict for claim in claims}


class TestSentences:
    @pytest.mark.parametrize(("cpc", "verdict"), [(0.85, HOLDS), (0.88, NOT), (0.87, OPEN)])
    def test_the_best_is_above_both(self, cpc, verdict):
        found = verdicts("shallow", cpc=up(cpc), pcc=up(0.84), drfc=down(0.87))
        assert found["a"] == verdict
        assert verdicts("deep", cpc=up(cpc), drfc=down(0.89))["a"] == OPEN  # PCC was not run

    @pytest.mark.parametrize(
        ("part", "dataset", "pcc_is_above"),
        [("shallow", "cifar10", True), ("shallow", "mnist", False), ("deep", "cifar10", False)],
    )
    def test_pcc_and_cpc_change_places(self, part, dataset, pcc_is_above):
        better = verdicts(part, dataset, cpc=up(0.85), pcc=down(0.86))["b"]
        worse = verdicts(part, dataset, cpc=up(0.86), pcc=down(0.85))["b"]
        assert (better, worse) == ((HOLDS, NOT) if pcc_is_above else (NOT, HOLDS))

    def test_on_a_par(self):
        close = verdicts("simclr", cpc=up(0.9), pcc=up(0.898), drfc=up(0.898))
        assert (close["c"], close["f1"], close["f2"]) == (HOLDS, NOT, HOLDS)
        far = verdicts("simclr", cpc=up(0.9), pcc=down(0.88), drfc=down(0.91))
        assert (far["c"], far["f1"], far["f2"]) == (NOT, HOLDS, HOLDS)

    def test_without_a_common_seed_it_cannot_be_told(self):
        curves = [curve("cpc", 0, 0.9), curve("drfc", 1, 0.95)]
        claims = {c.key: c for c in judge_claims(Experiment("simclr"), curves, MANY)}
        assert claims["f1"].verdict == OPEN
        assert "no seed in common" in claims["f1"].because

    def test_density_matching(self):
        good = {"cpc": up(0.85), "pcc": up(0.84), "drfc": up(0.87)}
        assert verdicts("shallow", **good, dm1=down(0.8), dm2=NONE)["d"] == HOLDS
        assert verdicts("shallow", **good, dm1=down(0.845), dm2=down(0.8))["d"] == NOT
        found = verdicts("shallow", **good, dm1=down(0.8))
        assert found["d"] == found["e"] == OPEN

    def test_small_differences_drown_in_few_test_images(self):
        near = {"cpc": up(0.9), "pcc": up(0.899), "drfc": down(0.904)}
        for images, verdict in ((1_000, OPEN), (10**6, HOLDS)):
            found = verdicts("simclr", pixels=replace(PIXELS, test=images), **near)
            assert found["f1"] == found["f2"] == verdict

    @pytest.mark.parametrize("part", PARTS)
    def test_variational_is_pcc(self, part):
        """Equal results contradict a lower one, and of 10,000 images too."""
        for shift, verdict in ((0, NOT), (0.001, NOT), (-0.001, NOT), (-0.02, HOLDS), (0.02, NOT)):
            shares = {"pcc": up(0.85), "variational": up(0.85 + shift)}
            assert verdicts(part, pixels=PIXELS, **shares)["e"] == verdict
        for pcc, variational, verdict in (
            (up(0.85), [0.84, 0.86, 0.85, 0.855], OPEN),
            (up(0.85), NONE, HOLDS),
            (NONE, NONE, OPEN),
            (up(0.85), [0.85], OPEN),
        ):
            assert verdicts(part, pixels=PIXELS, pcc=pcc, variational=variational)["e"] == verdict

    @pytest.mark.parametrize("part", PARTS)
    def test_where_all_diverged_nothing_is_on_a_par(self, part):
        good, at_chance = up(0.9), up(0.1)
        for shares, verdict in (
            ((NONE, NONE, NONE), OPEN),
            ((NONE, good, good), OPEN),
            ((good, NONE, good), NOT),
            ((good, good, NONE), NOT),
            ((at_chance, at_chance, at_chance), OPEN),
            ((good, good, good), HOLDS),
        ):
            assert verdicts(part, **dict(zip(MAIN, shares, strict=True)))["c"] == verdict
        assert verdicts(part, pcc=at_chance, drfc=good)["c"] == OPEN

    @pytest.mark.parametrize(("pcc", "verdict"), [(0.84, HOLDS), (0.79, NOT), (0.8, OPEN)])
    def test_pixels(self, pcc, verdict):
        assert verdicts("deep", cpc=up(0.85), pcc=up(pcc), drfc=up(0.87))["g"] == verdict

    def test_one_seed_tells_large_differences_alone(self):
        near = verdicts("simclr", cpc=[0.9], pcc=[0.89], drfc=[0.905])
        far = verdicts("simclr", cpc=[0.9], pcc=[0.87], drfc=[0.93])
        assert near["f1"] == near["f2"] == OPEN
        assert far["f1"] == far["f2"] == HOLDS

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
            expected = HOLDS if all(ends[k][0] > limits[k] for k in ends) else OPEN
            if any(ends[k][1] < limits[k] for k in ends):
                expected = NOT
            if claim.key == "c" and ends["CPC less pixels"][0] < 0:
                expected = OPEN
            if claim.key == "e":
                low, high = ends["PCC less Variational"]
                within = low > -PAR and high < PAR
                expected = NOT if high < 0 or within else HOLDS if low > 0 else OPEN
                expected = OPEN if ends["PCC less pixels"][0] < 0 else expected
            assert claim.verdict == expected

    @pytest.mark.parametrize(
        ("part", "dataset", "here"),
        [
            ("shallow", "mnist", "[here: Figure 2, shallow, MNIST]"),
            ("deep", "cifar10", "[here: Figure 2, deep, CIFAR-10]"),
            ("simclr", "digits", "[here: SimCLR, 8 x 8 digits]"),
        ],
    )
    def test_sentences_about_several_experiments_say_which_is_judged(self, part, dataset, here):
        curves = [curve(o, 0, 0.9) for o in MAIN]
        claims = judge_claims(Experiment(part, dataset), curves, PIXELS)
        marked = [claim.key for claim in claims if claim.quote.endswith(here)]
        assert marked == [key for key in ("b", "f1", "f2") if key in {c.key for c in claims}]
        assert not any("{" in claim.quote for claim in claims)

    def test_in_the_deep_experiment_cpc_trains_otherwise(self):
        """What the rule says of batch norm and clipping is what the model does."""
        models = {
            o: make_recipe(Settings("amdim", (o,), width=4, depth=1), (3, 32, 32), 10)
            for o in ("cpc", "pcc", "dm1", "variational")
        }
        normed = {
            o: isinstance(model.encoder.head_five.bn_hidden, torch.nn.BatchNorm2d)
            for o, model in models.items()
        }
        clipped = {o: model.clips_gradient(1000) for o, model in models.items()}
        assert normed == clipped == {"cpc": False, "pcc": True, "dm1": True, "variational": True}
        rules = {part: s["rule"] for s in SENTENCES for part in s["parts"] if s["key"] == "d"}
        assert ["batch norm" in rules[part] for part in PARTS] == [False, True, False]

    def test_the_papers_numbers_stand_beside(self):
        curves = [curve(o, 0, 0.9) for o in MAIN]
        claims = {c.key: c for c in judge_claims(Experiment("simclr"), curves, PIXELS)}
        assert claims["f1"].findings[0].paper == pytest.approx(91.51 - 91.04)
        assert claims["f2"].findings[0].paper == pytest.approx(91.04 - 88.69)
        other = judge_claims(Experiment("simclr", dataset="digits"), curves, PIXELS)
        assert all(finding.paper is None for claim in other for finding in claim.findings)

    def test_each_part_has_its_sentences(self):
        keys = {part: [s["key"] for s in SENTENCES if part in s["parts"]] for part in PARTS}
        assert keys["shallow"] == ["a", "b", "c", "d", "e", "g"]
        assert keys["deep"] == ["a", "b", "c", "d", "e", "f1", "f2", "g"]
        assert keys["simclr"] == ["c", "d", "e", "f1", "f2", "g"]
