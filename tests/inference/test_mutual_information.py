"""MI from log-ratios and its standard error."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from scipy import stats

from pointdep.core.methods import METHODS
from pointdep.inference.learning_curve import LearningCurve
from pointdep.inference.mutual_information import MIEstimate, RowValues, pseudo_values
from refusals import refused

N = 60
RANDOM = torch.Generator().manual_seed(0)
JOINT = torch.eye(N, dtype=torch.float64)
PRODUCT = 1.0 - JOINT
LOG_RATIO = 0.6 * torch.randn(N, N, generator=RANDOM, dtype=torch.float64) + JOINT
COLUMNS = torch.arange(N).expand(N, N)
ROW_FIELDS = {"doubt_above", "inflation", "neighbours"}


def estimate(values, method, correction=0.0, doubt=0.0, **how):
    of_rows = {name: how.pop(name) for name in ROW_FIELDS & how.keys()}
    return RowValues(values, None, correction, doubt, **of_rows).estimate(method, **how)


def values_of(key):
    return pseudo_values(METHODS[key], LOG_RATIO, JOINT, PRODUCT, COLUMNS)


@pytest.mark.parametrize("key", ["pc", "variational", "dm1", "dm2"])
def test_a_plug_in_is_the_mean_of_pmi(key):
    pmi = LOG_RATIO.diagonal().numpy()
    np.testing.assert_allclose(values_of(key), pmi, rtol=1e-9)
    found = estimate(values_of(key), METHODS[key])
    assert found.stderr == pytest.approx(pmi.std(ddof=1) / math.sqrt(N))


def delete_one(method):
    """Leave each row out, as x and as y, and look at the spread: Tukey's jackknife."""
    kept = [[i for i in range(N) if i != row] for row in range(N)]
    found = [method.inference(method.inverse(LOG_RATIO[k][:, k])).item() for k in kept]
    return math.sqrt((N - 1) / N * np.square(found - np.mean(found)).sum())


@pytest.mark.parametrize("key", METHODS)
def test_the_mean_is_the_inference_and_the_error_that_of_the_jackknife(key):
    method = METHODS[key]
    wanted = method.inference(method.inverse(LOG_RATIO), joint=JOINT, product=PRODUCT)
    assert values_of(key).mean() == pytest.approx(wanted.item(), rel=1e-12)
    assert estimate(values_of(key), method).stderr == pytest.approx(delete_one(method), rel=0.04)


def test_coverage_of_the_interval():
    """Nominal 90 % intervals of E_J[log r] for Gaussian pairs and the true r."""
    rho, hits, runs = 0.6, 0, 400
    truth, random = -0.5 * math.log(1 - rho**2), np.random.default_rng(1)
    for _ in range(runs):
        x, noise = random.standard_normal((2, 200))
        y = rho * x + math.sqrt(1 - rho**2) * noise
        pmi = truth - (rho**2 * (x**2 + y**2) - 2 * rho * x * y) / (2 * (1 - rho**2))
        column = torch.from_numpy(pmi)[:, None]
        ones = torch.ones_like(column)
        values = pseudo_values(METHODS["pc"], column, ones, 0 * ones, torch.arange(200)[:, None])
        low, high = estimate(values, METHODS["pc"], confidence=0.9).ci
        hits += low <= truth <= high
    assert stats.binomtest(hits, runs, 0.9).pvalue > 1e-4


def test_estimate_and_what_is_refused():
    said = "'dv' infers from pairs of different rows"
    refused(said, pseudo_values, METHODS["dv"], LOG_RATIO, JOINT, 0 * PRODUCT, COLUMNS)
    for confidence in (0.0, 1.0, -0.5, 95, math.nan):
        said = "confidence=.* must lie between 0 and 1"
        refused(said, estimate, np.zeros(3), METHODS["pc"], confidence=confidence)
    values = np.random.default_rng(0).normal(2.0, 1.0, 50)
    found = estimate(values, METHODS["js"], confidence=0.8, warnings=("a note",))
    spread = stats.sem(values)
    assert (found.nats, found.stderr) == pytest.approx((values.mean(), spread))
    assert found.ci == pytest.approx(stats.norm.interval(0.8, values.mean(), spread))
    about = (found.confidence, found.rows, found.method, found.warnings)
    assert about == (0.8, 50, "js", ("a note",))
    assert found.bits == pytest.approx(values.mean() / math.log(2))
    alone = estimate(np.array([1.5]), METHODS["pc"])
    assert (alone.nats, alone.stderr, alone.ci) == (1.5, math.inf, (0.0, math.inf))


def test_as_plain_data_and_as_text():
    found = estimate(np.array([1.0, 2.0, 4.0]), METHODS["smi"], warnings=("a", "b"))
    plain = json.loads(json.dumps(found.to_dict()))
    assert (plain["nats"], plain["bits"], plain["ci"]) == (found.nats, found.bits, list(found.ci))
    assert plain["warnings"] == ["a", "b"]
    assert plain["estimates"] == "squared-loss mutual information"
    assert set(plain) == {f.name for f in dataclasses.fields(MIEstimate)} | {"bits"}
    found = MIEstimate(1.0, 0.1, (0.804, 1.196))
    assert str(found) == "1.000 nats (1.443 bits), 95% interval 0.804 to 1.196"
    squared = dataclasses.replace(found, estimates="squared-loss mutual information")
    assert str(squared) == "squared-loss mutual information 1.000, 95% interval 0.804 to 1.196"
    least = dataclasses.replace(found, null_p=0.04, shuffles=24)
    assert "p <= 0.04 for independence, by 24 shuffles, the least" in str(least)
    more = estimate(VALUES, METHODS["pc"], null_p=0.08, shuffles=24)
    assert str(more).endswith(", p = 0.08 for independence, by 24 shuffles")


VALUES = np.random.default_rng(3).normal(0.02, 0.5, 400)


def test_a_correction_moves_it_and_its_doubt_widens_it():
    plain = estimate(VALUES, METHODS["pc"])
    moved = estimate(VALUES, METHODS["pc"], correction=0.3, doubt=0.05)
    assert (plain.correction, moved.correction) == (0.0, 0.3)
    assert moved.nats == pytest.approx(VALUES.mean() + 0.3)
    assert moved.stderr == pytest.approx(math.hypot(stats.sem(VALUES), 0.05))
    assert moved.ci == pytest.approx(stats.norm.interval(0.95, moved.nats, moved.stderr))
    wider = estimate(VALUES, METHODS["pc"], correction=0.3, doubt=0.1)
    assert wider.ci[0] < moved.ci[0] < moved.ci[1] < wider.ci[1]


@pytest.mark.parametrize("shift", [0.0, -0.02, -0.3, -5.0])
def test_intervals_of_mutual_information_stop_at_zero(shift):
    found = estimate(VALUES + shift, METHODS["pc"])
    low, high = stats.norm.interval(0.95, found.nats, found.stderr)
    assert low < 0
    # The upper end stays a reach above zero: an estimate far below it is no proof of anything. The
    # lower end is zero, or the estimate itself where chance has put it below.
    assert found.ci == pytest.approx((min(0.0, found.nats), max(high, (high - low) / 2)))
    assert found.nats == pytest.approx(VALUES.mean() + shift)  # the estimate itself is left


def test_other_quantities_bits_and_intervals_that_reach_farther_up():
    found = estimate(VALUES - 0.3, METHODS["smi"])
    assert found.estimates != "mutual information"
    assert found.ci == pytest.approx(stats.norm.interval(0.95, found.nats, found.stderr))
    assert found.ci[0] < 0
    found = estimate(VALUES + 1, METHODS["pc"])
    assert [2**bits for bits in found.ci_bits] == pytest.approx([math.exp(a) for a in found.ci])
    values, method = np.random.default_rng(0).normal(1.0, 1.0, 400), METHODS["pc"]
    plain = estimate(values, method, confidence=0.9, doubt=0.03)
    wider = estimate(values, method, confidence=0.9, doubt=0.03, doubt_above=0.2)
    assert (wider.nats, wider.ci[0]) == (plain.nats, plain.ci[0])
    z, error = 1.6448536, stats.sem(values)
    assert wider.ci[1] == pytest.approx(wider.nats + z * math.hypot(error, 0.2), rel=1e-6)
    known = estimate(values, method, confidence=0.9, neighbours=(1.5, 0.1))
    assert known.ci[1] == pytest.approx(1.5 + z * 0.1, rel=1e-6)
    assert estimate(values, method, inflation=2.0).stderr == pytest.approx(2 * error)


def test_rows_needed_follow_the_root_law_or_the_slower_curve():
    found = MIEstimate(nats=1.0, stderr=0.05, ci=(0.9, 1.1), rows=1000)
    assert (found.rows_needed(0.05), found.rows_needed(0.5)) == (4000, 1000)
    # Doublings that add 0.2 and 0.15 fall with the power log2(4/3) of the rows.
    slow = dataclasses.replace(
        found, curve=LearningCurve((250, 500, 1000), (0.5, 0.7, 0.85), (0.01,) * 3)
    )
    assert slow.rows_needed(0.05) == math.ceil(1000 * 2 ** (1 / math.log2(4 / 3)))
    unsure = dataclasses.replace(
        found, curve=LearningCurve((250, 500, 1000), (0.5, 0.7, 0.85), (0.1,) * 3)
    )
    assert unsure.rows_needed(0.05) == 4000
    # The part of the reach that the curve explains falls as slowly as the curve, the rest by the
    # root of the rows.
    part = LearningCurve((250, 500, 1000), (0.76, 0.81, 0.85), (0.01,) * 3)
    mixed = dataclasses.replace(found, curve=part)
    for precision in (0.08, 0.05, 0.02, 0.01):
        times = mixed.rows_needed(precision) / 1000
        left = (0.1**2 - 0.04**2) / times + 0.04**2 * times ** (-2 * math.log2(0.05 / 0.04))
        assert left == pytest.approx(precision**2, rel=1e-3)
    refused("precision", found.rows_needed, 0.0)
