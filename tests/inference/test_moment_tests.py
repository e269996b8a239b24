"""Balances of the true ratio, the recalibration of a wrong one, and the reliability curve."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from pointdep.display.plots import plot_reliability
from pointdep.inference import moment_tests
from pointdep.inference.moment_tests import arrange, recalibrate, side_balance, step_balance
from refusals import refused

GENERATOR = torch.Generator().manual_seed(0)
BLOCKS, SIZE = 3, 7
EYE = torch.eye(SIZE, dtype=torch.float64).repeat(BLOCKS, 1, 1)
LOG_RATIO = 1.5 * torch.randn(BLOCKS, SIZE, SIZE, generator=GENERATOR, dtype=torch.float64) + EYE


def exact_table(seed, size=6):
    """One block whose weights are the probabilities of a random table."""
    joint = np.random.default_rng(seed).gamma(0.3, size=(size, size)) + 1e-6
    joint = torch.from_numpy(joint / joint.sum())
    product = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
    return (joint / product).log()[None], joint[None], product[None]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), threshold=st.floats(-4, 8))
def test_every_balance_of_the_true_ratio_is_zero(seed, threshold):
    blocks = arrange(*exact_table(seed))
    part = torch.from_numpy(np.random.default_rng(seed).uniform(size=(1, 6, 6)))
    found = [step_balance(blocks, threshold), step_balance(blocks, threshold, part)]
    for balance in (*found, *(side_balance(blocks, threshold, side) for side in "xy")):
        assert balance.offset == pytest.approx(0.0, abs=1e-12)


def offset_of(row_weight, threshold, product_weight, part):
    """The balance by two plain loops, with a weight for every row."""
    below = above = total_joint = total_product = 0.0
    for g in range(BLOCKS):
        for i in range(SIZE):
            ratio = math.exp(LOG_RATIO[g, i, i] - threshold)
            below += row_weight[g, i] * part[g, i, i] / (1 + ratio)
            total_joint += row_weight[g, i]
            for j in range(SIZE):
                weight = row_weight[g, i] * row_weight[g, j] * product_weight[g, i, j]
                ratio = math.exp(LOG_RATIO[g, i, j] - threshold)
                above += weight * part[g, i, j] * ratio / (1 + ratio)
                total_product += weight
    return threshold + math.log(above / total_product) - math.log(below / total_joint)


@pytest.mark.parametrize("threshold", [-1.0, 1.5])
def test_the_influence_is_the_derivative_with_respect_to_a_row(threshold):
    product = 1 - EYE
    product[1, 2, 5] = product[2, :, 3] = 0.0
    part = torch.rand(BLOCKS, SIZE, SIZE, generator=GENERATOR, dtype=torch.float64)
    balance = step_balance(arrange(LOG_RATIO, EYE, product), threshold, part)
    ones = np.ones((BLOCKS, SIZE))
    assert balance.offset == pytest.approx(offset_of(ones, threshold, product, part), abs=1e-12)
    for unit in range(BLOCKS * SIZE):
        step = 1e-5 * (np.arange(BLOCKS * SIZE) == unit).reshape(BLOCKS, SIZE)
        up, down = (offset_of(at, threshold, product, part) for at in (ones + step, ones - step))
        assert balance.influence[unit] == pytest.approx((up - down) / 2e-5, abs=1e-8)
    assert balance.stderr == pytest.approx(math.sqrt((balance.influence**2).sum()))


def test_a_constant_is_read_in_nats_and_groups_are_summed():
    log_ratio, joint, product = exact_table(1)
    for shift, threshold in itertools.product((-2.0, 0.3, 5.0), (-1.0, 0.0, 4.0)):
        balance = step_balance(arrange(log_ratio + shift, joint, product), threshold)
        assert balance.offset == pytest.approx(shift, abs=1e-12)
    alone = step_balance(arrange(LOG_RATIO, EYE, 1 - EYE), 0.5)
    groups = torch.arange(BLOCKS * SIZE).view(BLOCKS, SIZE) // 3
    grouped = step_balance(arrange(LOG_RATIO, EYE, 1 - EYE, groups), 0.5)
    assert grouped.offset == alone.offset
    np.testing.assert_allclose(grouped.influence, alone.influence.reshape(-1, 3).sum(1))


def test_where_there_is_nothing_to_balance():
    separated = torch.where(EYE > 0, 20.0, -20.0).double()
    for threshold in (20.0, 0.0):  # rows that were not drawn beyond the step carry nothing
        assert step_balance(arrange(separated, EYE, 1 - EYE), threshold).rows == 0
    constant = arrange(torch.zeros_like(LOG_RATIO), EYE, 1 - EYE)
    assert side_balance(constant, 0.0, "x") is None
    assert step_balance(constant, 0.0).offset == pytest.approx(0.0, abs=1e-12)
    assert step_balance(arrange(LOG_RATIO, EYE, 0 * EYE), 0.0) is None
    refused("NaN", arrange, math.nan * LOG_RATIO, EYE, 1 - EYE)


@pytest.mark.parametrize("center", [-1.0, 0.0, 2.0])
@pytest.mark.parametrize(("shift", "slope"), [(0.0, 1.0), (-0.4, 1.0), (0.3, 0.7), (1.0, 1.5)])
def test_it_undoes_a_move_and_a_stretch(shift, slope, center):
    log_ratio, joint, product = exact_table(3, size=8)
    distorted = center + (log_ratio - center - shift) / slope
    found = recalibrate(arrange(distorted, joint, product), center)
    assert found.slope == pytest.approx(slope, abs=1e-6)
    assert found.shift == pytest.approx(shift, abs=1e-6)
    mended = found.intercept + found.slope * distorted
    torch.testing.assert_close(mended, log_ratio, atol=1e-5, rtol=0)


@pytest.mark.parametrize("offset", [-2.0, 0.0, 1.0])
def test_it_is_weighted_logistic_regression(offset):
    generator = torch.Generator().manual_seed(2)
    eye = torch.eye(50, dtype=torch.float64)[None]
    scores = torch.randn(1, 50, 50, generator=generator, dtype=torch.float64) + 1.5 * eye
    found = recalibrate(arrange(scores, eye, 1 - eye), 0.5, offset)
    values, label = scores.flatten().numpy() - 0.5, eye.flatten().numpy()
    weight = np.where(label > 0, 1 / 50, np.exp(0.5 - offset) / (50 * 49))
    wanted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
    wanted.fit(values[:, None], label, sample_weight=1e4 * weight)
    assert found.slope == pytest.approx(wanted.coef_[0, 0], abs=1e-4)
    assert found.shift == pytest.approx(wanted.intercept_[0] - offset, abs=1e-4)


def test_the_errors_are_those_of_repeated_draws():
    found = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        x = random.normal(size=400)
        y = 0.8 * x + 0.6 * random.normal(size=400)
        square = 0.64 / 0.36 * (x[:, None] ** 2 + y**2) - 2 * 0.8 / 0.36 * x[:, None] * y
        log_ratio = torch.from_numpy(-0.5 * np.log(0.36) - 0.5 * square)[None]
        eye = torch.eye(400, dtype=torch.float64)[None]
        found.append(recalibrate(arrange(log_ratio, eye, 1 - eye), 0.5))
    for name, truth in (("shift", 0.0), ("slope", 1.0)):
        values = np.array([getattr(each, name) for each in found])
        errors = np.array([getattr(each, f"{name}_stderr") for each in found])
        assert values.std() == pytest.approx(errors.mean(), rel=0.35)
        assert abs(values.mean() - truth) < 4 * errors.mean() / np.sqrt(len(found))


def test_nothing_is_fitted_where_nothing_can_be_and_an_exact_table():
    eye = torch.eye(60, dtype=torch.float64)[None]
    constant, apart = (arrange(ratio, eye, 1 - eye) for ratio in (0 * eye, 40 * eye - 20))
    assert recalibrate(constant, 0.0) is recalibrate(apart, 0.0) is None
    assert len(moment_tests.reliability_curve(constant)) == 1
    assert moment_tests.reliability_curve(apart) == ()
    curve = moment_tests.reliability_curve(arrange(*exact_table(4, size=30)))
    assert len(curve) > 3
    for point in curve:
        assert point.observed == pytest.approx(point.predicted, abs=1e-12)
        assert point.low <= point.predicted <= point.high
        wanted = 1 / (1 + math.exp(-point.predicted))
        assert point.predicted_probability == pytest.approx(wanted)
        assert point.observed_frequency == pytest.approx(wanted)


def test_the_balance_of_a_bin_has_the_spread_of_repeated_draws():
    """Of the true log r, as z-values: about normal, though a bin may hold ten joint pairs."""
    scores = []
    for seed in range(80):
        random = np.random.default_rng(seed)
        x = random.normal(size=150)
        y = 0.8 * x + 0.6 * random.normal(size=150)
        square = 0.64 / 0.36 * (x[:, None] ** 2 + y**2) - 2 * 0.8 / 0.36 * x[:, None] * y
        eye = torch.eye(150, dtype=torch.float64)[None]
        blocks = arrange(torch.from_numpy(-0.5 * np.log(0.36) - 0.5 * square)[None], eye, 1 - eye)
        for point, balance in moment_tests.reliability_balances(blocks):
            scores.append(balance.offset / balance.stderr)
            assert abs(balance.offset - (point.predicted - point.observed)) < 0.2 + balance.stderr
    assert len(scores) > 200
    assert np.std(scores) == pytest.approx(1.0, abs=0.25)
    assert abs(np.mean(scores)) < 0.35
    assert np.mean(np.abs(scores) > 2.6) < 0.03


def test_frequencies_weigh_joint_and_product_alike():
    generator = torch.Generator().manual_seed(0)
    eye = torch.eye(200, dtype=torch.float64)[None]
    log_ratio = torch.randn(1, 200, 200, generator=generator, dtype=torch.float64) + eye
    parts = log_ratio[eye > 0].numpy(), log_ratio[eye == 0].numpy()
    for point in moment_tests.reliability_curve(arrange(log_ratio, eye, 1 - eye)):
        joint, product = (np.sum((one >= point.low) & (one < point.high)) for one in parts)
        assert (point.joint, point.product) == (joint, product)
        share = joint / 200 / (joint / 200 + product / (200 * 199))
        assert point.observed_frequency == pytest.approx(share)
        # Few joint rows in a bin decide its error, which is then near that of a count.
        assert point.stderr == pytest.approx(math.sqrt(1 / joint - 1 / 200), rel=0.25)


def test_the_figure_shows_the_points_and_the_verdict():
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    curve = moment_tests.reliability_curve(arrange(*exact_table(4, size=30)))
    _, given = pyplot.subplots()
    ax = plot_reliability(curve, "Passes: a verdict that is long enough to be broken once", given)
    assert ax is given
    assert "Passes" in ax.get_title(loc="left")
    points = ax.containers[0].lines[0].get_xydata()
    np.testing.assert_allclose(points, [(point.predicted, point.observed) for point in curve])
    assert ax.get_xlim() == ax.get_ylim()
    assert plot_reliability((), "Cannot tell") is not given
    pyplot.close("all")
