"""Every verdict of every claim, each reached by a run that is made for it."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from pointdep.core.methods import PAPER_METHODS
from pointdep.experiments.figure1_claims import STATEMENTS, judge_figure1

from .figure1_curves import REFERENCE, blow_up, make_curves

GROWING, FALLING = (-0.1, -0.2, -0.3, -0.4, -0.5), (-0.5, -0.4, -0.3, -0.2, -0.1)
RISING, SINKING, LEVEL = (0.1, 0.2, 0.3, 0.4, 0.5), (0.5, 0.4, 0.3, 0.2, 0.1), (0.3,) * 5
OTHERS = PAPER_METHODS[1:]


def bias(values, *methods):
    """Shapes in which these methods have the bias, and their own standard deviation."""
    return {method: (values, REFERENCE[method][1]) for method in methods}


def sd(values, *methods):
    """Shapes in which these methods have the standard deviation, and their own bias."""
    return {method: (REFERENCE[method][0], values) for method in methods}


def by_task(gaussian, cubic, *methods):
    """Shapes in which the bias is that of the task, at every level."""
    return {
        (method, task): ((value,) * 5, LEVEL)
        for method in methods
        for task, value in (("gaussian", gaussian), ("cubic", cubic))
    }


NO_DV = tuple(method for method in PAPER_METHODS if method != "dv")
SAME_NOISE = sd(LEVEL, *PAPER_METHODS)
SAME_BIAS = dict.fromkeys(PAPER_METHODS, (FALLING, LEVEL))
QUIET = dict.fromkeys(("nwj", "js"), (GROWING, RISING))
REACHED = 0.9 * np.log(128)

# For each claim: a run where it holds, one where it does not, and ones that cannot tell, as the
# shapes or as the settings that differ from the reference.
CASES = {
    "a": (
        {},
        bias(FALLING, *OTHERS),
        [{"methods": ("pc", "cpc")}, SAME_BIAS | bias(LEVEL, *OTHERS)],
    ),
    "b": ({}, sd(SINKING, *OTHERS), [{"methods": ("pc", "cpc")}, SAME_NOISE]),
    "ab": (
        {},
        bias(FALLING, *OTHERS[:6]),
        [{"methods": ("pc", "cpc")}, SAME_NOISE, bias(LEVEL, *OTHERS[:6])],
    ),
    "c1": (
        {},
        bias((-0.16, -0.70, -1.83, -3.39, -6.00), "cpc"),
        [{"levels": (2.0, 4.0)}, {"methods": ("pc",)}, bias((-9,) * 4 + (-10 + REACHED,), "cpc")],
    ),
    "c2": ({}, sd(RISING, "cpc"), [sd(LEVEL, "cpc"), {"levels": (2.0,)}, {"methods": ("pc",)}]),
    "c3": (
        QUIET | bias(GROWING, "dm2"),
        QUIET,
        [QUIET | bias(LEVEL, "dm2"), {"methods": ("pc",)}],
    ),
    "d": (
        by_task(-0.9, 0.3, *NO_DV) | by_task(0.3, 0.9, "dv"),
        by_task(-0.9, 0.3, *PAPER_METHODS),
        [{}, {"tasks": ("gaussian",)}, by_task(-0.9, 0.3, *NO_DV)],
    ),
    "e": ({}, sd((0.01,) * 5, "drf"), [sd(REFERENCE["cpc"][1], "drf"), {"methods": ("cpc", "pc")}]),
    "f": (
        sd(LEVEL, "nwj", "js"),
        bias(FALLING, "cpc") | bias(GROWING, "drf") | sd(LEVEL, "nwj", "js"),
        [SAME_BIAS, {"methods": ("cpc", "pc", "drf")}],
    ),
    "g1": ({}, bias(REFERENCE["cpc"][0], "pc"), [{"methods": ("cpc", "pc")}]),
    "g2": ({}, sd((0.01,) * 5, "dm2"), [SAME_NOISE, {"methods": ("cpc", "pc")}]),
    "h": ({}, sd((0.9,) * 5, "pc"), [sd(REFERENCE["drf"][1], "dm2"), {"methods": ("pc", "drf")}]),
    "i1": ({}, sd((0.1,) * 5, "dv"), [SAME_NOISE, {"methods": ("nwj", "js", "dv")}]),
    "i2": (
        sd(LEVEL, *PAPER_METHODS),
        bias((0.01,) * 5, "dv"),
        [SAME_BIAS, {"methods": ("dv", "pc")}],
    ),
    "j": ({}, sd((0.1,) * 5, "js"), [sd(REFERENCE["smile"][1], "js"), {"methods": ("js",)}]),
    "k1": (sd(LEVEL, "dm1"), sd((9.0,) * 5, "pc"), [SAME_NOISE, {"methods": ("pc", "drf")}]),
    "k2": (
        sd(LEVEL, *PAPER_METHODS) | bias(GROWING, "dm1", "drf"),
        sd(LEVEL, *PAPER_METHODS) | bias((5.0,) * 5, "pc"),
        [SAME_BIAS, {"methods": ("pc", "drf")}],
    ),
    "l1": ({}, sd(RISING, "nwj"), [{"methods": ("pc",)}, {"levels": (8.0, 10.0)}]),
    "l2": (sd(REFERENCE["nwj"][1], "dv"), {}, [{"methods": ("pc",)}]),
    "l3": ({}, sd(RISING, "js"), [{"methods": ("pc",)}]),
    # What makes it hold are blow-ups, below; nothing refutes it.
    "m": (None, None, [{}, sd((0.1,) * 5, "variational"), {"methods": ("variational",)}]),
    "n1": (QUIET, {"nwj": ((9.0,) * 5, LEVEL)}, [{}, {"methods": ("nwj",)}]),
    "n2": ({}, bias((9.0,) * 5, "dv"), [SAME_BIAS, {"methods": ("dv",)}]),
    "o": ({}, sd((0.1,) * 5, "dv"), [SAME_NOISE, {"methods": ("smile",)}]),
    "p": ({}, bias(GROWING, "dm2"), [sd((3.0,) * 5, "dm2"), {"methods": ("dm2", "pc")}]),
}
SETTINGS = {"methods", "levels", "tasks"}
VERDICTS = [
    (key, verdict, change)
    for key, (holds, fails, unclear) in CASES.items()
    for verdict, change in [
        ("holds", holds),
        ("does not hold", fails),
        *(("cannot tell", change) for change in unclear),
    ]
    if change is not None
]


def judged(curves):
    return {claim.key: claim for claim in judge_figure1(curves)}


@pytest.mark.parametrize(("key", "verdict", "change"), VERDICTS)
def test_verdicts(key, verdict, change):
    if change.keys() <= SETTINGS and change:
        curves = make_curves(**change)
    else:
        curves = make_curves(change)
    claim = judged(curves)[key]
    assert claim.verdict == verdict, claim.because
    if verdict == "cannot tell":
        # It says why.
        reasons = "not run", "within the noise", "cannot tell from", "all values finite"
        assert any(reason in claim.because for reason in reasons)


def test_every_claim_has_its_runs():
    assert list(CASES) == [statement.key for statement in STATEMENTS]


ALONE = {
    **dict.fromkeys(("a", "b", "ab"), PAPER_METHODS),
    **dict.fromkeys(("c2", "f"), ("cpc",)),
    **dict.fromkeys(("i1", "i2"), ("nwj", "js", "dv")),
    **dict.fromkeys(("k1", "k2"), ("variational", "pc", "dm1", "dm2", "drf")),
    **{"l1": ("nwj",), "l2": ("dv",), "l3": ("js",)},
}
SIX = ("smile", "variational", "pc", "dm1", "dm2", "drf")
PAIRS = {
    "e": [(other, "cpc") for other in OTHERS],
    "g1": [("cpc", other) for other in SIX],
    "g2": [(other, "cpc") for other in SIX],
    "h": [(one, b) for one in ("smile", "variational", "dm1", "dm2") for b in ("pc", "drf")],
    "j": [("js", "variational"), ("js", "smile")],
    "m": [("variational", "pc")],
    "n1": [("cpc", "nwj")],
    "n2": [("cpc", "dv")],
    "o": [("nwj", "smile"), ("js", "smile"), ("dv", "smile")],
    "p": [("dm2", "dm1")],
}


def test_who_is_asked():
    claims = judged(make_curves(tasks=("cubic",)))
    for key, methods in ALONE.items():
        assert [f.about for f in claims[key].findings] == [f"{m}, cubic" for m in methods], key
    for key, pairs in PAIRS.items():
        expected = [f"{one} against {other}, cubic" for one, other in pairs]
        assert [f.about for f in claims[key].findings] == expected, key
    assert [f.about for f in claims["c1"].findings] == ["cpc, cubic beside log(128) = 4.85"]
    growing = [f"{method}, cubic, {name}" for name in ("|bias|", "log sd") for method in OTHERS]
    assert [f.about for f in claims["c3"].findings] == growing
    assert ALONE.keys() | PAIRS.keys() | {"c1", "c3", "d"} == CASES.keys()
    about_tasks = [finding.about for finding in claims["d"].findings]
    assert about_tasks[2:4] == ["js, gaussian against cubic", "dv, cubic against gaussian"]


class TestBecause:
    def test_for_against_and_missing(self):
        claims = judged(make_curves(tasks=("cubic",)))
        assert claims["f"].because == "1 of 1 say so (7)"
        assert claims["g2"].because.startswith("6 of 6 say so (2.")
        assert claims["b"].because.startswith("9 of 10 say so; against it: cpc, cubic -0.17 [-0.1")
        assert claims["d"].because.startswith("0 of 10 say so; not run: the gaussian task")
        assert "open: cpc against nwj, cubic (within the noise)" in claims["n1"].because

    def test_part_of_the_levels(self):
        curves = blow_up(make_curves(tasks=("cubic",)), "dv", "cubic", after=0.5)
        claim = judged(curves)["o"]
        assert claim.verdict == "holds"
        assert claim.because.endswith("not over all levels: dv against smile, cubic")
        assert [f.levels for f in claim.findings] == [(), (), (2.0, 4.0)]

    def test_too_few_iterations(self):
        claims = judged(make_curves(iterations=20))
        assert {claim.verdict for claim in claims.values()} == {"cannot tell"}
        assert claims["e"].because.startswith("0 of 18 say so; open: nwj against cpc")
        assert claims["e"].because.endswith("drf against cpc, cubic (too few iterations)")
        assert not any("not finite" in claim.because for claim in claims.values())


class TestSlopeOfOne:
    """The claim Omega(e^MI), near a slope of one."""

    @pytest.mark.parametrize(
        ("slope", "verdict"), [(0.8, "does not hold"), (1.0, "cannot tell"), (1.2, "holds")]
    )
    def test_verdict(self, slope, verdict):
        sds = tuple(0.1 * np.exp(slope * np.array([2, 4, 6, 8, 10]) / 2))
        claim = judged(make_curves(sd(sds, "nwj")))["l1"]
        assert claim.verdict == verdict
        assert [finding.value for finding in claim.findings] == pytest.approx([slope] * 2, abs=1e-3)

    def test_what_dominates_at_low_values_does_not_refute_it(self):
        """The variance of E_J[s], which grows with MI, and that of E_M[e^s], like e^(1.5 MI)."""
        levels = np.array([2, 4, 6, 8, 10])
        variances = levels / 16 + np.expm1(1.5 * levels) / 3e4
        assert np.polyfit(levels, np.log(variances), 1)[0] < 0.9  # over all levels
        claim = judged(make_curves(sd(tuple(np.sqrt(variances)), "nwj")))["l1"]
        assert claim.verdict == "holds"

    def test_a_level_that_blew_up_leaves_too_few(self):
        claim = judged(blow_up(make_curves(), "nwj", after=0.9))["l1"]
        assert claim.verdict == "cannot tell"
        assert "open: nwj, gaussian (not finite)" in claim.because


class TestBlowUps:
    def test_of_everything_says_nothing(self):
        curves = make_curves()
        for method in PAPER_METHODS:
            for task in ("gaussian", "cubic"):
                curves = blow_up(curves, method, task)
        for claim in judge_figure1(curves):
            assert claim.verdict == "cannot tell"
            assert "not finite" in claim.because or "cannot tell from" in claim.because

    def test_of_the_js_objective(self):
        even = make_curves(SAME_NOISE)
        assert judged(even)["m"].verdict == "cannot tell"
        js = blow_up(blow_up(even, "variational", after=0.9), "smile", "cubic", after=0.5)
        claim = judged(js)["m"]
        assert claim.verdict == "holds"
        assert claim.findings[0].note == "not finite, values: variational 100"
        for lost in (blow_up(even, "variational", after=0.9), blow_up(js, "pc", after=0.9)):
            assert judged(lost)["m"].verdict == "cannot tell"  # on one task, or PC as well
        # An overflow where JS infers is none of its objective.
        overflow = judged(blow_up(even, "js", value=-np.inf))["m"]
        assert [finding.supports for finding in overflow.findings] == [None, None]
        assert [finding.value for finding in overflow.findings] == pytest.approx(
            [1.0] * 2, abs=1e-3
        )

    def test_at_the_top_does_not_flatter(self):
        calm = judged(make_curves())["g1"]
        lost = judged(blow_up(make_curves(), "smile", after=0.9))["g1"]
        assert (calm.verdict, lost.verdict) == ("holds", "cannot tell")
        assert "smile, gaussian blew up" in lost.because

    def test_enormous_values_are_a_bias(self):
        claim = judged(blow_up(make_curves(), "dm1", after=0.9, value=-1e30))["g1"]
        assert claim.verdict == "does not hold"
        assert "cpc against dm1, gaussian 0.00 [0.00, 0.00]" in claim.because


class TestClaims:
    @pytest.mark.parametrize("noisier", ["variational", "smile"])
    def test_js_is_set_against_both_that_learn_the_same(self, noisier):
        assert judged(make_curves(sd((40.0,) * 5, noisier)))["j"].verdict == "does not hold"

    def test_half_a_nat(self):
        claim = judged(make_curves())["p"]
        assert claim.source == "pointdep"
        assert [finding.value for finding in claim.findings] == pytest.approx([0.51] * 2, abs=1e-5)

    def test_ceiling(self):
        claim = judged(make_curves())["c1"]
        for finding in claim.findings:
            assert finding.value == pytest.approx(10 - 5.23, abs=1e-5)
            assert finding.low < finding.value < finding.high < np.log(128)
        assert claim.because == "2 of 2 say so (4.77)"
        larger_batch = judged(make_curves(batch_size=100_000))["c1"]
        assert larger_batch.verdict == "cannot tell"
        assert "a level above 11.51" in larger_batch.because
        # Below the bound at the top and above it on the way.
        beyond = bias((-0.16, -0.70, -0.70, -3.39, -5.23), "cpc")
        assert judged(make_curves(beyond))["c1"].verdict == "does not hold"

    @pytest.mark.parametrize(
        ("shape", "grow"),
        [((GROWING, SINKING), 1), ((FALLING, RISING), 1), ((FALLING, SINKING), 0)],
    )
    def test_cpc_is_an_exception_where_either_falls(self, shape, grow):
        claim = judged(make_curves({"cpc": shape}))["c2"]
        assert claim.verdict == "holds"
        assert claim.because == f"2 of 2 say so ({grow})"

    def test_both_grow_on_a_curve(self):
        claims = judged(make_curves(tasks=("cubic",)))
        found = {finding.about: finding for finding in claims["ab"].findings}
        assert found["pc, cubic"].supports is True
        assert found["pc, cubic"].value == 2
        assert (found["dm2, cubic"].supports, found["dm2, cubic"].value) == (False, 1)
        bias_slope, sd_slope = (
            next(f for f in claims[key].findings if f.about == "dm2, cubic") for key in ("a", "b")
        )
        assert found["dm2, cubic"].note == (
            f"|bias| {bias_slope.value:.2f} [{bias_slope.low:.2f}, {bias_slope.high:.2f}]; "
            f"log sd {sd_slope.value:.2f} [{sd_slope.low:.2f}, {sd_slope.high:.2f}]"
        )
        # Most have larger bias and most larger variance, and yet not most have both.
        apart = bias(FALLING, *OTHERS[:3]) | sd(SINKING, *OTHERS[3:6])
        claims = judged(make_curves(apart))
        assert [claims[key].verdict for key in ("a", "b", "ab")] == [
            *("holds", "holds", "does not hold")
        ]

    def test_one_task_is_enough_for_what_is_not_about_tasks(self):
        verdicts = {key: claim.verdict for key, claim in judged(make_curves()).items()}
        alone = judged(make_curves(tasks=("cubic",)))
        assert {key: claim.verdict for key, claim in alone.items()} == verdicts

    def test_methods_that_are_not_the_papers(self):
        shapes = {"rpc": ((9.0,) * 5, (0.001,) * 5)}
        methods = (*PAPER_METHODS, "rpc")
        with_more = judge_figure1(make_curves(shapes, methods=methods, tasks=("gaussian",)))
        without = judge_figure1(make_curves(tasks=("gaussian",)))
        assert [c.verdict for c in with_more] == [c.verdict for c in without]

    def test_two_seeds_that_differ_tell_little(self):
        curves = make_curves(seeds=2)
        assert judged(curves)["g1"].verdict == "holds"
        column = [(c.method, c.task, c.seed) for c in curves.cells].index(("cpc", "gaussian", 1))
        curves.values[:, column] += 1.0
        assert judged(curves)["g1"].verdict == "cannot tell"

    def test_json(self):
        curves = blow_up(make_curves(iterations=20), "nwj", value=np.inf)
        for claim in judge_figure1(curves):
            json.dumps(asdict(claim), allow_nan=False)
            assert claim.rule
            assert claim.findings
