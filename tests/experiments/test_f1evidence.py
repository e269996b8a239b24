"""Numbers with their noise, and what may be concluded from them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from pointdep.experiments.claims import every, most
from pointdep.experiments.figure1_claims import Estimate, Evidence

from .figure1_curves import REFERENCE, blow_up, make_curves

GAUSSIAN = {"tasks": ("gaussian",)}


class TestMeasured:
    def test_difference_is_welch(self):
        rng = np.random.default_rng(0)
        one, other = rng.normal(1.0, 1.0, 4), rng.normal(0.0, 3.0, 9)
        made = [
            Estimate(values.mean(), values.std(ddof=1) / math.sqrt(len(values)), len(values) - 1)
            for values in (one, other)
        ]
        expected = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
        assert made[0].minus(made[1]).measured() == pytest.approx(tuple(expected))

    def test_sides(self):
        clear = Estimate(1.0, 0.1, 19)
        assert clear.measured().above() is True
        assert clear.measured().above(2.0) is False
        assert clear.measured().above(1.1) is None
        assert Estimate(9.0, math.inf, 1).measured().above() is None
        assert Estimate(1.0, 0.0, 1).minus(Estimate(0.0, 0.0, 1)).measured().above() is True
        assert clear.minus(Estimate(0.0, math.inf, 1)).measured().above() is None

    def test_why_there_is_no_interval(self):
        without = Estimate(1.0, math.inf, math.inf, "one seed left")
        clear = Estimate(1.0, 0.1, 19)
        made = without.times(2.0).plus(1.0)
        assert (made.value, made.why) == (3.0, "one seed left")
        assert clear.minus(without).why == without.minus(clear).why == "one seed left"
        assert clear.minus(clear).why == ""


class TestLogic:
    @pytest.mark.parametrize(
        ("answers", "all_true", "mostly"),
        [
            ([True, True], True, True),
            ([True, True, False], False, True),
            ([True, None, False], False, None),
            ([True, True, None], None, True),
            ([True, False], False, False),
            ([None, False, False], False, False),
            ([None, None], None, None),
            ([], None, None),
        ],
    )
    def test_three_values(self, answers, all_true, mostly):
        assert every(answers) is all_true
        assert most(answers) is mostly


class TestEvidence:
    def test_mean_over_levels(self):
        evidence = Evidence(make_curves(**GAUSSIAN))
        found = evidence.larger("bias", ("cpc", "gaussian"), ("dm2", "gaussian"))
        assert found.value == pytest.approx(11.31 / 5 - 1.19 / 5, abs=1e-5)
        assert found.low < found.value < found.high
        assert found.supports is True

    @pytest.mark.parametrize("seeds", [1, 3])
    def test_ratio_of_mean_bias(self, seeds):
        evidence = Evidence(make_curves(seeds=seeds, **GAUSSIAN))
        pair = ("cpc", "gaussian"), ("dm2", "gaussian")
        ratio = (0.16 + 0.70 + 1.83 + 3.39 + 5.23) / (0.43 + 0.34 + 0.16 + 0.09 + 0.17)  # 9.5
        for times, supports in ((1.0, True), (2.0, True), (8.0, True), (12.0, False)):
            found = evidence.larger("log bias", *pair, times=times)
            assert found.value == pytest.approx(ratio, rel=1e-4)
            assert found.low < found.value < found.high
            assert found.supports is supports

    def test_error_of_a_ratio(self):
        """By the delta method with one seed: that of the mean over the mean."""
        evidence = Evidence(make_curves(methods=("pc",), **GAUSSIAN))
        weights = {2.0: 0.5, 4.0: 0.5}
        mean, log = (
            evidence.estimate(q, ("pc", "gaussian"), weights) for q in ("bias", "log bias")
        )
        assert log.value == pytest.approx(math.log(mean.value))
        assert log.stderr == pytest.approx(mean.stderr / mean.value)

    @pytest.mark.parametrize("quantity", ["spread", "bias", "signed bias"])
    def test_times_is_for_a_ratio_of_bias_alone(self, quantity):
        evidence = Evidence(make_curves(**GAUSSIAN))
        with pytest.raises(ValueError, match=f"not for '{quantity}'"):
            evidence.larger(quantity, ("cpc", "gaussian"), ("pc", "gaussian"), times=2.0)

    def test_ratio_of_standard_deviations(self):
        evidence = Evidence(make_curves(**GAUSSIAN))
        found = evidence.larger("spread", ("dm1", "gaussian"), ("pc", "gaussian"))
        sds = [np.log(REFERENCE[method][1]).mean() for method in ("dm1", "pc")]
        assert found.value == pytest.approx(math.exp(sds[0] - sds[1]), rel=1e-4)
        assert 1 < found.low < found.value < found.high

    def test_slope_is_least_squares(self):
        evidence = Evidence(make_curves(**GAUSSIAN))
        levels = (2, 4, 6, 8, 10)
        found = evidence.trend("bias", ("dm2", "gaussian"))
        expected = stats.linregress(levels, np.abs(REFERENCE["dm2"][0])).slope
        assert found.value == pytest.approx(expected, abs=1e-5)
        assert found.supports is False
        variance = evidence.trend("spread", ("nwj", "gaussian"), above=1.0, times=2.0)
        expected = stats.linregress(levels, 2 * np.log(REFERENCE["nwj"][1])).slope
        assert variance.value == pytest.approx(expected, rel=1e-4)
        assert variance.levels == ()

    def test_slope_over_the_highest_levels(self):
        evidence = Evidence(make_curves(**GAUSSIAN))
        found = evidence.trend("spread", ("dv", "gaussian"), times=2.0, highest=3)
        expected = stats.linregress((6, 8, 10), 2 * np.log(REFERENCE["dv"][1][2:])).slope
        assert found.value == pytest.approx(expected, rel=1e-4)
        assert found.levels == ()  # all that it should be over
        lost = Evidence(blow_up(make_curves(**GAUSSIAN), "dv", after=0.9))
        found = lost.trend("spread", ("dv", "gaussian"), highest=3)
        assert (found.value, found.supports, found.note) == (None, None, "not finite")
        assert lost.trend("spread", ("dv", "gaussian")).levels == (2.0, 4.0, 6.0, 8.0)
        few = Evidence(make_curves(levels=(2.0, 4.0), **GAUSSIAN))
        assert few.trend("spread", ("dv", "gaussian"), highest=3).missing == ("3 levels",)

    def test_error_over_seeds(self):
        curves = make_curves(methods=("pc",), seeds=3, **GAUSSIAN)
        shifts = (0.0, 0.2, 0.7)
        for column, shift in enumerate(shifts):
            curves.values[:, column] -= shift
        found = Evidence(curves).estimate("bias", ("pc", "gaussian"), {2.0: 1.0})
        assert found.value == pytest.approx(0.09 + 0.3, abs=1e-5)
        assert found.stderr == pytest.approx(np.std(shifts, ddof=1) / math.sqrt(3), rel=1e-4)
        assert found.freedom == 2

    def test_error_of_one_seed(self):
        curves = make_curves(methods=("pc",), **GAUSSIAN)
        evidence = Evidence(curves)
        one = evidence.estimate("spread", ("pc", "gaussian"), {2.0: 1.0})
        other = evidence.estimate("spread", ("pc", "gaussian"), {4.0: 1.0})
        both = evidence.estimate("spread", ("pc", "gaussian"), {2.0: 0.5, 4.0: 0.5})
        assert both.stderr == pytest.approx(math.hypot(one.stderr, other.stderr) / 2)
        assert one.stderr > 0
        assert one.freedom == both.freedom == 19

    @pytest.mark.parametrize(("iterations", "freedom"), [(100, 4), (140, 6), (143, 6), (2000, 19)])
    def test_freedom_of_a_short_run(self, iterations, freedom):
        """One less than the batch means, of two values at least, of the shortest half."""
        curves = make_curves(methods=("pc",), iterations=iterations, **GAUSSIAN)
        weights = dict.fromkeys(curves.settings.levels, 0.2)
        for quantity in ("bias", "log bias", "spread"):
            found = Evidence(curves).estimate(quantity, ("pc", "gaussian"), weights)
            assert found.freedom == freedom
            assert 0 < found.stderr < math.inf

    def test_too_few_iterations(self):
        evidence = Evidence(make_curves(iterations=90, **GAUSSIAN))
        for quantity in ("bias", "log bias", "spread"):
            found = evidence.larger(quantity, ("cpc", "gaussian"), ("pc", "gaussian"))
            assert found.value is not None
            assert (found.low, found.high, found.supports) == (None, None, None)
            assert found.note == "too few iterations"
        assert evidence.trend("bias", ("cpc", "gaussian")).note == "too few iterations"

    def test_one_seed_left_of_several(self):
        """Its batch means know nothing of what differs from seed to seed."""
        curves = blow_up(make_curves(seeds=2, **GAUSSIAN), "dv", after=0.9, seeds=(1,))
        evidence = Evidence(curves)
        found = evidence.estimate("bias", ("dv", "gaussian"), {10.0: 1.0})
        assert (found.stderr, found.why) == (math.inf, "one seed left")
        compared = evidence.larger("bias", ("dv", "gaussian"), ("dm2", "gaussian"))
        assert compared.value > 0.5
        assert (compared.supports, compared.note) == (None, "one seed left")
        assert (compared.low, compared.high) == (None, None)
        # Each level has two seeds of three, and only one has both levels.
        three = make_curves(methods=("pc",), seeds=3, **GAUSSIAN)
        three.values[:200, 0] = three.values[-200:, 1] = np.nan
        found = Evidence(three).estimate("bias", ("pc", "gaussian"), {2.0: 0.5, 10.0: 0.5})
        assert found.why == "one seed left"

    def test_levels_that_blew_up_are_left_out(self):
        curves = blow_up(make_curves(**GAUSSIAN), "dv", after=0.7)
        evidence = Evidence(curves)
        assert evidence.levels_of(("dv", "gaussian"), ("pc", "gaussian")) == (2.0, 4.0, 6.0)
        found = evidence.larger("bias", ("dv", "gaussian"), ("pc", "gaussian"))
        assert found.value == pytest.approx((1.12 - 0.51) / 3, abs=1e-5)
        assert (found.supports, found.note, found.levels) == (True, "", (2.0, 4.0, 6.0))

    def test_what_blew_up_is_never_the_better(self):
        curves = blow_up(make_curves(**GAUSSIAN), "pc", after=0.7)
        found = Evidence(curves).larger("bias", ("cpc", "gaussian"), ("pc", "gaussian"))
        assert found.value > 0.5
        assert found.low > 0
        assert found.supports is None
        assert (found.note, found.levels) == ("pc, gaussian blew up", (2.0, 4.0, 6.0))
        reverse = Evidence(curves).larger("bias", ("pc", "gaussian"), ("cpc", "gaussian"))
        assert reverse.supports is None
        falling = blow_up(make_curves(**GAUSSIAN), "dm2", after=0.9)
        assert Evidence(falling).trend("bias", ("dm2", "gaussian")).supports is None

    def test_most_seeds_must_be_finite(self):
        curves = make_curves(methods=("pc", "dv"), seeds=3, **GAUSSIAN)
        once = Evidence(blow_up(curves, "dv", after=0.5, seeds=(1,)))
        assert once.levels_of(("dv", "gaussian")) == (2.0, 4.0, 6.0, 8.0, 10.0)
        assert once.estimate("bias", ("dv", "gaussian"), {10.0: 1.0}).freedom == 1
        twice = Evidence(blow_up(curves, "dv", after=0.5, seeds=(1, 2)))
        assert twice.levels_of(("dv", "gaussian")) == (2.0, 4.0)

    def test_what_is_not_there(self):
        evidence = Evidence(blow_up(make_curves(methods=("pc", "dv"), **GAUSSIAN), "dv"))
        absent = evidence.larger("bias", ("js", "gaussian"), ("pc", "cubic"))
        assert (absent.value, absent.supports) == (None, None)
        assert absent.missing == ("js", "the cubic task")
        lost = evidence.larger("bias", ("dv", "gaussian"), ("pc", "gaussian"))
        assert (lost.supports, lost.note, lost.missing) == (None, "not finite", ())
        alone = Evidence(make_curves(methods=("pc",), levels=(2.0,), **GAUSSIAN))
        assert alone.trend("bias", ("pc", "gaussian")).missing == ("2 levels",)

    def test_constant_curves(self):
        constant = ((-1.0,) * 5, (0.0,) * 5)
        evidence = Evidence(make_curves({"cpc": constant}, **GAUSSIAN))
        assert evidence.larger("spread", ("pc", "gaussian"), ("cpc", "gaussian")).supports is True
