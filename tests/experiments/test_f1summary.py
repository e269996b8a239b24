"""Bias, spread and error of curves whose numbers can be counted by hand."""

from __future__ import annotations

import math
from dataclasses import asdict
from statistics import stdev

import numpy as np
import pytest

from pointdep.errors import InputError
from pointdep.experiments.figure1 import (
    Curves,
    Figure1,
    batch_means_error,
    batches_of,
    halves,
    summarise,
)

from .figure1_curves import with_values

SMALL = Figure1(
    methods=("pc", "dv"), tasks=("cubic",), levels=(1.0, 3.0), iterations=8, seeds=2, seed=5
)


def made(**columns):
    """Eight values a cell; cells that are not named are right."""
    values = np.repeat(SMALL.truth()[:, None], len(SMALL.cells), axis=1)
    for name, column in columns.items():
        method, seed = name.split("_")
        where = [(c.method, c.seed) for c in SMALL.cells].index((method, int(seed)))
        values[:, where] = column
    return with_values(SMALL, values)


def pick(lines, **wanted):
    (found,) = [
        line for line in lines if all(getattr(line, name) == v for name, v in wanted.items())
    ]
    return found


class TestHalves:
    def test_only_the_second_half_counts(self):
        lines = halves(made(pc_5=[99, 99, 0, 4, 99, 99, 2, 3]))
        first = pick(lines, method="pc", seed=5, level=1.0)
        assert (first.bias, first.sd, first.iterations) == (1.0, 2.0, 2)
        assert first.rmse == pytest.approx(math.sqrt(5))
        second = pick(lines, method="pc", seed=5, level=3.0)
        assert (second.bias, second.sd) == (-0.5, 0.5)
        assert second.rmse == pytest.approx(math.sqrt(0.5))
        assert (first.not_finite, second.not_finite) == (0, 0)

    def test_one_line_for_each_curve_and_level(self):
        lines = halves(made())
        assert [(h.method, h.seed, h.level) for h in lines] == [
            (method, seed, level)
            for method in ("pc", "dv")
            for seed in (5, 6)
            for level in (1.0, 3.0)
        ]

    def test_not_finite(self):
        lines = halves(made(pc_5=[1, 1, np.nan, 4, 3, 3, np.inf, -np.inf]))
        one = pick(lines, method="pc", seed=5, level=1.0)
        assert (one.not_finite, one.bias, one.sd, one.rmse) == (1, 3.0, None, 3.0)
        none = pick(lines, method="pc", seed=5, level=3.0)
        assert (none.not_finite, none.bias, none.sd, none.rmse) == (2, None, None, None)
        assert none.bias_stderr is none.log_sd_stderr is None

    def test_largest_numbers_of_float32(self):
        big = float(np.finfo(np.float32).max)
        found = pick(halves(made(dv_6=[1, 1, big, -big, 3, 3, 3, 3])), method="dv", seed=6, level=1)
        assert found.sd == pytest.approx(big)
        assert math.isfinite(found.rmse)

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("big", [1e200, 1e308])
    def test_what_overflows_is_unknown(self, big):
        values = np.repeat(SMALL.truth()[:, None], len(SMALL.cells), axis=1)
        values[2:4, :] = big
        values[6:, :] = -big, -big / 2, big, big / 2
        lines = halves(Curves(SMALL, values, 1.0, 1.0, "cpu", "float64"))
        for line in (*lines, *summarise(lines)):
            numbers = [value for value in asdict(line).values() if isinstance(value, float)]
            assert all(map(math.isfinite, numbers))
            assert (line.rmse, line.not_finite) == (None, 0)
        assert (lines[0].bias is None) == (big == 1e308)


class TestMeans:
    def test_over_seeds(self):
        lines = summarise(
            halves(made(pc_5=[0, 0, 0, 4, 3, 3, 3, 3], pc_6=[0, 0, 4, 6, 3, 3, 3, 3]))
        )
        assert len(lines) == 4
        found = pick(lines, method="pc", level=1.0)
        # Biases 1 and 4, standard deviations 2 and 1, mean squares 5 and 17.
        assert (found.seeds, found.bias, found.sd) == (2, 2.5, 1.5)
        assert found.bias_stderr == pytest.approx(1.5)
        assert found.rmse == pytest.approx(math.sqrt(11))
        assert (found.blown_up, found.iterations, found.not_finite) == (0, 4, 0)

    def test_a_seed_that_blew_up(self):
        lines = summarise(halves(made(pc_5=[1, 1, 1, 1, 3, np.nan, np.nan, np.nan])))
        found = pick(lines, method="pc", level=3.0)
        assert (found.seeds, found.blown_up, found.not_finite) == (2, 1, 2)
        assert (found.bias, found.sd, found.rmse) == (0.0, 0.0, 0.0)
        assert found.bias_stderr is None  # one seed does not tell what differs between them
        lost = [1, 1, 1, 1, np.nan, np.nan, np.nan, np.nan]
        found = pick(summarise(halves(made(pc_5=lost, pc_6=lost))), method="pc", level=3.0)
        assert found.bias is found.sd is found.rmse is found.bias_stderr is None

    def test_one_seed_has_the_error_of_its_batch_means(self):
        settings = Figure1(methods=("pc",), tasks=("cubic",), levels=(0.0,), iterations=80)
        values = np.random.default_rng(0).normal(size=(80, 1))
        (half,) = halves(with_values(settings, values))
        (line,) = summarise([half])
        assert line.bias_stderr == half.bias_stderr
        means = values[40:, 0].reshape(20, 2).mean(1)
        assert half.bias_stderr == pytest.approx(stdev(means) / math.sqrt(20), rel=1e-5)
        squares = np.square(values[40:, 0] - values[40:, 0].mean())
        variances = squares.reshape(20, 2).mean(1)
        expected = stdev(variances) / math.sqrt(20) / (2 * squares.mean())
        assert half.log_sd_stderr == pytest.approx(expected, rel=1e-5)


class TestBatchMeans:
    def test_sees_autocorrelation(self):
        rng = np.random.default_rng(0)
        errors, truth = [], []
        for _ in range(200):
            # Each draw stands for ten iterations: 60 independent ones in 600.
            draws = rng.normal(size=60)
            errors.append(batch_means_error(np.repeat(draws, 10)))
            truth.append(draws.mean())
        assert np.mean(errors) == pytest.approx(np.std(truth), rel=0.15)

    def test_too_few(self):
        assert batch_means_error(np.arange(9.0)) is None
        means = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
        expected = stdev(means) / math.sqrt(5)
        assert batch_means_error(np.repeat(means, 2)) == pytest.approx(expected)

    def test_batches(self):
        assert [batches_of(count) for count in (2, 10, 39, 40, 2000)] == [1, 5, 19, 20, 20]


def test_fewest_iterations():
    Figure1(iterations=20)
    with pytest.raises(InputError, match="iterations=19 must be at least 20, 4 for each of the 5"):
        Figure1(iterations=19)
