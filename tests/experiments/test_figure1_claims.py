"""Numbers with their noise, and every verdict of every claim by a run that is made for it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pointdep.core.methods import PAPER_METHODS
from pointdep.experiments.figure1_claims import JUDGES, Estimate, Evidence, judge_figure1

from .figure1_curves import REFERENCE, blow_up, make_curves

GROWING, FALLING = (-0.1, -0.2, -0.3, -0.4, -0.5), (-0.5, -0.4, -0.3, -0.2, -0.1)
RISING, SINKING, LEVEL = (0.1, 0.2, 0.3, 0.4, 0.5), (0.5, 0.4, 0.3, 0.2, 0.1), (0.3,) * 5
OTHERS = PAPER_METHODS[1:]
DOCS = Path(__file__).parents[2] / "docs"


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
TWO = {"methods": ("pc", "cpc")}
QUIET = dict.fromkeys(("nwj", "js"), (GROWING, RISING))
REACHED = 0.9 * np.log(128)

# For each claim: a run where it holds, one where it does not, and ones that cannot tell, as the
# shapes or as the settings that differ from the reference.
CASES = {
    "a": ({}, bias(FALLING, *OTHERS), [TWO, SAME_BIAS | bias(LEVEL, *OTHERS)]),
    "b": ({}, sd(SINKING, *OTHERS), [TWO, SAME_NOISE]),
    "ab": ({}, bias(FALLING, *OTHERS[:6]), [TWO, SAME_NOISE, bias(LEVEL, *OTHERS[:6])]),
    "c1": (
        {},
        bias((-0.16, -0.70, -1.83, -3.39, -6.00), "cpc"),
        [{"levels": (2.0, 4.0)}, {"methods": ("pc",)}, bias((-9,) * 4 + (-10 + REACHED,), "cpc")],
    ),
    "c2": ({}, sd(RISING, "cpc"), [sd(LEVEL, "cpc"), {"levels": (2.0,)}, {"methods": ("pc",)}]),
    "c3": (QUIET | bias(GROWING, "dm2"), QUIET, [QUIET | bias(LEVEL, "dm2"), {"methods": ("pc",)}]),
    "d": (
        by_task(-0.9, 0.3, *NO_DV) | by_task(0.3, 0.9, "dv"),
        by_task(-0.9, 0.3, *PAPER_METHODS),
        [{}, {"tasks": ("gaussian",)}, by_task(-0.9, 0.3, *NO_DV)],
    ),
    "e": ({}, sd((0.01,) * 5, "drf"), [sd(REFERENCE["cpc"][1], "drf"), TWO]),
    "f": (
        sd(LEVEL, "nwj", "js"),
        bias(FALLING, "cpc") | bias(GROWING, "drf") | sd(LEVEL, "nwj", "js"),
        [SAME_BIAS, {"methods": ("cpc", "pc", "drf")}],
    ),
    "g1": ({}, bias(REFERENCE["cpc"][0], "pc"), [TWO]),
    "g2": ({}, sd((0.01,) * 5, "dm2"), [SAME_NOISE, TWO]),
    "h": ({}, sd((0.9,) * 5, "pc"), [sd(REFERENCE["drf"][1], "dm2"), {"methods": ("pc", "drf")}]),
    "i1": ({}, sd((0.1,) * 5, "dv"), [SAME_NOISE, {"methods": ("nwj", "js", "dv")}]),
    "i2": (SAME_NOISE, bias((0.01,) * 5, "dv"), [SAME_BIAS, {"methods": ("dv", "pc")}]),
    "j": ({}, sd((0.1,) * 5, "js"), [sd(REFERENCE["smile"][1], "js"), {"methods": ("js",)}]),
    "k1": (sd(LEVEL, "dm1"), sd((9.0,) * 5, "pc"), [SAME_NOISE, {"methods": ("pc", "drf")}]),
    "k2": (
        SAME_NOISE | bias(GROWING, "dm1", "drf"),
        SAME_NOISE | bias((5.0,) * 5, "pc"),
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
ANSWERS = ("holds", "does not hold", "cannot tell")
VERDICTS = [
    (key, verdict, change)
    for key, (holds, fails, unclear) in CASES.items()
    for verdict, changes in zip(ANSWERS, ([holds], [fails], unclear), strict=True)
    for change in changes
    if change is not None
]


def judged(curves):
    return {claim.key: claim for claim in judge_figure1(curves)}


@pytest.mark.parametrize(("key", "verdict", "change"), VERDICTS)
def test_verdicts(key, verdict, change):
    settings = change and change.keys() <= {"methods", "levels", "tasks"}
    claim = judged(make_curves(**change) if settings else make_curves(change))[key]
    assert claim.verdict == verdict, claim.because
    if verdict == "cannot tell":
        # It says why.
        reasons = "not run", "within the noise", "cannot tell from", "all values finite"
        assert any(reason in claim.because for reason in reasons)


def test_every_claim_has_its_runs_and_is_as_in_the_documentation():
    assert list(CASES) == list(JUDGES)
    # The same curves are asked, by the same rules, as of the stored run of the paper's figure.
    kept = json.loads((DOCS / "figure1" / "figure1.json").read_text("utf-8"))["claims"]
    for claim, stored in zip(judge_figure1(make_curves()), kept, strict=True):
        told = claim.key, claim.source, claim.quote, claim.rule, claim.quantity
        assert told == tuple(stored[k] for k in ("key", "source", "quote", "rule", "quantity"))
        assert [f.about for f in claim.findings] == [f["about"] for f in stored["findings"]]


def test_because_and_a_slope_near_one():
    claims = judged(make_curves(tasks=("cubic",)))
    assert claims["f"].because == "1 of 1 say so (7)"
    assert claims["g2"].because.startswith("6 of 6 say so (2.")
    assert claims["b"].because.startswith("9 of 10 say so; against it: cpc, cubic -0.17 [-0.1")
    assert claims["d"].because.startswith("0 of 10 say so; not run: the gaussian task")
    assert "open: cpc against nwj, cubic (within the noise)" in claims["n1"].because
    claim = judged(blow_up(make_curves(tasks=("cubic",)), "dv", "cubic", after=0.5))["o"]
    assert claim.verdict == "holds"
    assert claim.because.endswith("not over all levels: dv against smile, cubic")
    assert [f.levels for f in claim.findings] == [(), (), (2.0, 4.0)]
    claims = judged(make_curves(iterations=20))
    assert {claim.verdict for claim in claims.values()} == {"cannot tell"}
    assert claims["e"].because.startswith("0 of 18 say so; open: nwj against cpc")
    assert claims["e"].because.endswith("drf against cpc, cubic (too few iterations)")
    assert not any("not finite" in claim.because for claim in claims.values())
    # A slope near one, of the claim Omega(e^MI).
    for slope, verdict in ((0.8, "does not hold"), (1.0, "cannot tell"), (1.2, "holds")):
        sds = tuple(0.1 * np.exp(slope * np.array([2, 4, 6, 8, 10]) / 2))
        claim = judged(make_curves(sd(sds, "nwj")))["l1"]
        assert claim.verdict == verdict
        assert [finding.value for finding in claim.findings] == pytest.approx([slope] * 2, abs=1e-3)


class TestBlowUps:
    def test_of_everything_and_at_the_top(self):
        curves = make_curves()
        for method in PAPER_METHODS:
            for task in ("gaussian", "cubic"):
                curves = blow_up(curves, method, task)
        for claim in judge_figure1(curves):
            assert claim.verdict == "cannot tell"
            assert "not finite" in claim.because or "cannot tell from" in claim.because
        # At the top they do not flatter, and enormous values are a bias.
        assert judged(make_curves())["g1"].verdict == "holds"
        lost = judged(blow_up(make_curves(), "smile", after=0.9))["g1"]
        assert lost.verdict == "cannot tell"
        assert "smile, gaussian blew up" in lost.because
        enormous = judged(blow_up(make_curves(), "dm1", after=0.9, value=-1e30))["g1"]
        assert enormous.verdict == "does not hold"
        assert "cpc against dm1, gaussian 0.00 [0.00, 0.00]" in enormous.because

    def test_of_the_js_objective(self):
        even = make_curves(SAME_NOISE)
        js = blow_up(blow_up(even, "variational", after=0.9), "smile", "cubic", after=0.5)
        claim = judged(js)["m"]
        assert claim.verdict == "holds"
        assert claim.findings[0].note == "not finite, values: variational 100"
        for lost in (even, blow_up(even, "variational", after=0.9), blow_up(js, "pc", after=0.9)):
            assert judged(lost)["m"].verdict == "cannot tell"  # on one task, or PC as well
        # An overflow where JS infers is none of its objective.
        overflow = judged(blow_up(even, "js", value=-np.inf))["m"].findings
        assert [finding.supports for finding in overflow] == [None, None]
        assert [finding.value for finding in overflow] == pytest.approx([1.0] * 2, abs=1e-3)


class TestClaims:
    def test_cpc(self):
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
        # It is an exception where either falls.
        for *shape, grow in ((GROWING, SINKING, 1), (FALLING, RISING, 1), (FALLING, SINKING, 0)):
            claim = judged(make_curves({"cpc": shape}))["c2"]
            assert (claim.verdict, claim.because) == ("holds", f"2 of 2 say so ({grow})")

    def test_both_grow_on_a_curve_and_seeds_that_differ(self):
        claims = judged(make_curves(tasks=("cubic",)))
        found = {finding.about: finding for finding in claims["ab"].findings}
        assert (found["pc, cubic"].supports, found["pc, cubic"].value) == (True, 2)
        assert (found["dm2, cubic"].supports, found["dm2, cubic"].value) == (False, 1)
        one, other = (next(f for f in claims[k].findings if f.about == "dm2, cubic") for k in "ab")
        assert found["dm2, cubic"].note == (
            f"|bias| {one.value:.2f} [{one.low:.2f}, {one.high:.2f}]; "
            f"log sd {other.value:.2f} [{other.low:.2f}, {other.high:.2f}]"
        )
        # Most have larger bias and most larger variance, and yet not most have both.
        apart = judged(make_curves(bias(FALLING, *OTHERS[:3]) | sd(SINKING, *OTHERS[3:6])))
        assert [apart[k].verdict for k in ("a", "b", "ab")] == ["holds", "holds", "does not hold"]
        shapes = {"rpc": ((9.0,) * 5, (0.001,) * 5)}
        more = make_curves(shapes, methods=(*PAPER_METHODS, "rpc"), **GAUSSIAN)
        without = judge_figure1(make_curves(**GAUSSIAN))
        assert [c.verdict for c in judge_figure1(more)] == [c.verdict for c in without]
        curves = make_curves(seeds=2)
        assert judged(curves)["g1"].verdict == "holds"
        column = [(c.method, c.task, c.seed) for c in curves.cells].index(("cpc", "gaussian", 1))
        curves.values[:, column] += 1.0
        assert judged(curves)["g1"].verdict == "cannot tell"


def test_difference_of_estimates():
    """It has Welch's interval, where both have one."""
    rng = np.random.default_rng(0)
    one, other = rng.normal(1.0, 1.0, 4), rng.normal(0.0, 3.0, 9)
    made = [Estimate(v.mean(), v.std(ddof=1) / math.sqrt(len(v)), len(v) - 1) for v in (one, other)]
    expected = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    found = made[0].minus(made[1]).measured()
    assert (found.low, found.high) == pytest.approx(tuple(expected))
    clear = Estimate(1.0, 0.1, 19)
    without = Estimate(1.0, math.inf, math.inf, "one seed left")
    assert without.measured().above() is clear.minus(without).measured().above() is None
    assert clear.minus(without).why == without.minus(clear).why == "one seed left"
    assert clear.minus(clear).why == ""
    assert Estimate(1.0, 0.0, 1).minus(Estimate(0.0, 0.0, 1)).measured().above() is True


CPC, PC, DV, DM2 = ((name, "gaussian") for name in ("cpc", "pc", "dv", "dm2"))
GAUSSIAN = {"tasks": ("gaussian",)}


def evidence_of(shapes=None, **settings):
    return Evidence(make_curves(shapes, **GAUSSIAN, **settings))


class TestEvidence:
    def test_ratios(self):
        for seeds in (1, 3):
            evidence = evidence_of(seeds=seeds)
            ratio = (0.16 + 0.70 + 1.83 + 3.39 + 5.23) / (0.43 + 0.34 + 0.16 + 0.09 + 0.17)  # 9.5
            for times, supports in ((1.0, True), (2.0, True), (8.0, True), (12.0, False)):
                found = evidence.larger("log bias", CPC, DM2, times=times)
                assert found.value == pytest.approx(ratio, rel=1e-4)
                assert found.low < found.value < found.high
                assert found.supports is supports
        found = evidence_of().larger("spread", ("dm1", "gaussian"), PC)
        sds = [np.log(REFERENCE[method][1]).mean() for method in ("dm1", "pc")]
        assert found.value == pytest.approx(math.exp(sds[0] - sds[1]), rel=1e-4)
        assert 1 < found.low < found.value < found.high
        constant = evidence_of({"cpc": ((-1.0,) * 5, (0.0,) * 5)})
        assert constant.larger("spread", PC, CPC).supports is True

    def test_slope_is_least_squares(self):
        evidence, levels = evidence_of(), (2, 4, 6, 8, 10)
        found = evidence.trend("bias", DM2)
        expected = stats.linregress(levels, np.abs(REFERENCE["dm2"][0])).slope
        assert found.value == pytest.approx(expected, abs=1e-5)
        assert found.supports is False
        variance = evidence.trend("spread", ("nwj", "gaussian"), above=1.0, times=2.0)
        expected = stats.linregress(levels, 2 * np.log(REFERENCE["nwj"][1])).slope
        assert variance.value == pytest.approx(expected, rel=1e-4)
        assert variance.levels == ()
        found = evidence_of().trend("spread", DV, times=2.0, highest=3)
        expected = stats.linregress((6, 8, 10), 2 * np.log(REFERENCE["dv"][1][2:])).slope
        assert found.value == pytest.approx(expected, rel=1e-4)
        assert found.levels == ()  # all that it should be over
        lost = Evidence(blow_up(make_curves(**GAUSSIAN), "dv", after=0.9))
        found = lost.trend("spread", DV, highest=3)
        assert (found.value, found.supports, found.note) == (None, None, "not finite")
        assert lost.trend("spread", DV).levels == (2.0, 4.0, 6.0, 8.0)
        few = evidence_of(levels=(2.0, 4.0))
        assert few.trend("spread", DV, highest=3).missing == ("3 levels",)

    def test_error_and_freedom(self):
        curves = make_curves(methods=("pc",), seeds=3, **GAUSSIAN)
        shifts = (0.0, 0.2, 0.7)
        for column, shift in enumerate(shifts):
            curves.values[:, column] -= shift
        found = Evidence(curves).estimate("bias", PC, {2.0: 1.0})
        assert found.value == pytest.approx(0.09 + 0.3, abs=1e-5)
        assert found.stderr == pytest.approx(np.std(shifts, ddof=1) / math.sqrt(3), rel=1e-4)
        assert found.freedom == 2
        # One less than the batch means, of two values at least, of the shortest half.
        for iterations, freedom in ((100, 4), (140, 6), (143, 6), (2000, 19)):
            evidence = evidence_of(methods=("pc",), iterations=iterations)
            weights = dict.fromkeys(evidence.settings.levels, 0.2)
            for quantity in ("bias", "log bias", "spread"):
                assert evidence.estimate(quantity, PC, weights).freedom == freedom

    def test_seeds_that_blew_up(self):
        evidence = Evidence(blow_up(make_curves(seeds=2, **GAUSSIAN), "dv", after=0.9, seeds=(1,)))
        found = evidence.estimate("bias", DV, {10.0: 1.0})
        assert (found.stderr, found.why) == (math.inf, "one seed left")
        compared = evidence.larger("bias", DV, DM2)
        assert compared.value > 0.5
        assert (compared.supports, compared.note) == (None, "one seed left")
        assert (compared.low, compared.high) == (None, None)
        # Each level has two seeds of three, and only one has both levels.
        three = make_curves(methods=("pc",), seeds=3, **GAUSSIAN)
        three.values[:200, 0] = three.values[-200:, 1] = np.nan
        found = Evidence(three).estimate("bias", PC, {2.0: 0.5, 10.0: 0.5})
        assert found.why == "one seed left"
        curves = make_curves(methods=("pc", "dv"), seeds=3, **GAUSSIAN)
        once = Evidence(blow_up(curves, "dv", after=0.5, seeds=(1,)))
        assert once.levels_of(DV) == (2.0, 4.0, 6.0, 8.0, 10.0)
        assert once.estimate("bias", DV, {10.0: 1.0}).freedom == 1
        assert Evidence(blow_up(curves, "dv", after=0.5, seeds=(1, 2))).levels_of(DV) == (2.0, 4.0)

    def test_levels_that_blew_up_or_are_not_there(self):
        evidence = Evidence(blow_up(make_curves(**GAUSSIAN), "dv", after=0.7))
        assert evidence.levels_of(DV, PC) == (2.0, 4.0, 6.0)
        found = evidence.larger("bias", DV, PC)
        assert found.value == pytest.approx((1.12 - 0.51) / 3, abs=1e-5)
        assert (found.supports, found.note, found.levels) == (True, "", (2.0, 4.0, 6.0))
        # What blew up is never the better.
        evidence = Evidence(blow_up(make_curves(**GAUSSIAN), "pc", after=0.7))
        found = evidence.larger("bias", CPC, PC)
        assert found.value > 0.5
        assert found.low > 0
        assert found.supports is None
        assert (found.note, found.levels) == ("pc, gaussian blew up", (2.0, 4.0, 6.0))
        assert evidence.larger("bias", PC, CPC).supports is None
        falling = blow_up(make_curves(**GAUSSIAN), "dm2", after=0.9)
        assert Evidence(falling).trend("bias", DM2).supports is None
        evidence = Evidence(blow_up(make_curves(methods=("pc", "dv"), **GAUSSIAN), "dv"))
        absent = evidence.larger("bias", ("js", "gaussian"), ("pc", "cubic"))
        assert (absent.value, absent.supports) == (None, None)
        assert absent.missing == ("js", "the cubic task")
        lost = evidence.larger("bias", DV, PC)
        assert (lost.supports, lost.note, lost.missing) == (None, "not finite", ())
        alone = evidence_of(methods=("pc",), levels=(2.0,))
        assert alone.trend("bias", PC).missing == ("2 levels",)
