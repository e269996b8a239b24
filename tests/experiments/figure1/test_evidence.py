"""Numbers with their noise, and what may be concluded from them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from pointdep.experiments.figure1.evidence import Evidence, Measured, every, most

from .synthetic import REFERENCE, blow_up, make_curves

GAUSSIAN = {"tasks": ("gaussian",)}


class TestMeasured:
    def test_difference_is_welch(self):
        rng = np.random.default_rng(0)
        one, other = rng.normal(1.0, 1.0, 4), rng.normal(0.0, 3.0, 9)
        made = [
            Measured(values.mean(), values.std(ddof=1) / math.sqrt(len(values)), len(values) - 1)
            for values in (one, other)
        ]
        expected = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
        assert made[0].minus(made[1]).interval() == pytest.approx(tuple(expected))

    def test_sides(self):
        clear = Measured(1.0, 0.1, 19)
        assert clear.above() is True
        assert clear.above(2.0) is False
        assert clear.above(1.1) is None
        assert Measured(9.0, math.inf, 1).above() is None
        assert Measured(1.0, 0.0, 1).minus(Measured(0.0, 0.0, 1)).above() is True
        assert clear.minus(Measured(0.0, math.inf, 1)).above() is None


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
        twice = evidence.larger("bias", ("cpc", "gaussian"), ("dm2", "gaussian"), times=2.0)
        assert twice.value == pytest.approx(11.31 / 5 - 2 * 1.19 / 5, abs=1e-5)

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

    def test_error_over_seeds(self):
        curves = make_curves(methods=("pc",), seeds=3, **GAUSSIAN)
        shifts = (0.0, 0.2, 0.7)
        for column, shift in enumerate(shifts):
            curves.values[:, column] -= shift
        found = Evidence(curves).measured("bias", ("pc", "gaussian"), {2.0: 1.0})
        assert found.value == pytest.approx(0.09 + 0.3, abs=1e-5)
        assert found.stderr == pytest.approx(np.std(shifts, ddof=1) / math.sqrt(3), rel=1e-4)
        assert found.freedom == 2

    def test_error_of_one_seed(self):
        curves = make_curves(methods=("pc",), **GAUSSIAN)
        evidence = Evidence(curves)
        one = evidence.measured("spread", ("pc", "gaussian"), {2.0: 1.0})
        other = evidence.measured("spread", ("pc", "gaussian"), {4.0: 1.0})
        both = evidence.measured("spread", ("pc", "gaussian"), {2.0: 0.5, 4.0: 0.5})
        assert both.stderr == pytest.approx(math.hypot(one.stderr, other.stderr) / 2)
        assert one.stderr > 0

    def test_levels_that_blew_up_are_left_out(self):
        curves = blow_up(make_curves(**GAUSSIAN), "dv", after=0.7)
        evidence = Evidence(curves)
        assert evidence.levels_of(("dv", "gaussian"), ("pc", "gaussian")) == (2.0, 4.0, 6.0)
        found = evidence.larger("bias", ("dv", "gaussian"), ("pc", "gaussian"))
        assert found.value == pytest.approx((1.12 - 0.51) / 3, abs=1e-5)
        assert (found.supports, found.note) == (True, "MI 2, 4, 6 only")

    def test_what_blew_up_is_never_the_better(self):
        curves = blow_up(make_curves(**GAUSSIAN), "pc", after=0.7)
        found = Evidence(curves).larger("bias", ("cpc", "gaussian"), ("pc", "gaussian"))
        assert found.value > 0.5
        assert found.low > 0
        assert found.supports is None
        assert found.note == "pc, gaussian blew up; MI 2, 4, 6 only"
        reverse = Evidence(curves).larger("bias", ("pc", "gaussian"), ("cpc", "gaussian"))
        assert reverse.supports is None
        falling = blow_up(make_curves(**GAUSSIAN), "dm2", after=0.9)
        assert Evidence(falling).trend("bias", ("dm2", "gaussian")).supports is None

    def test_most_seeds_must_be_finite(self):
        curves = make_curves(methods=("pc", "dv"), seeds=3, **GAUSSIAN)
        once = Evidence(blow_up(curves, "dv", after=0.5, seeds=(1,)))
        assert once.levels_of(("dv", "gaussian")) == (2.0, 4.0, 6.0, 8.0, 10.0)
        assert once.measured("bias", ("dv", "gaussian"), {10.0: 1.0}).freedom == 1
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
        assert alone.trend("bias", ("pc", "gaussian")).missing == ("a second level",)

    def test_constant_curves(self):
        constant = ((-1.0,) * 5, (0.0,) * 5)
        evidence = Evidence(make_curves({"cpc": constant}, **GAUSSIAN))
        assert evidence.larger("spread", ("pc", "gaussian"), ("cpc", "gaussian")).supports is True
