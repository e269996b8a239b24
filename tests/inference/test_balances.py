"""The balances of the true ratio, and the influence of every row on them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep.errors import InputError
from pointdep.inference.moment_tests import arrange, side_balance, step_balance

GENERATOR = torch.Generator().manual_seed(0)
BLOCKS, SIZE = 3, 7
EYE = torch.eye(SIZE, dtype=torch.float64).repeat(BLOCKS, 1, 1)
LOG_RATIO = 1.5 * torch.randn(BLOCKS, SIZE, SIZE, generator=GENERATOR, dtype=torch.float64) + EYE


def exact_table(seed, size=6):
    """One block whose weights are the probabilities of a random table."""
    random = np.random.default_rng(seed)
    joint = random.gamma(0.3, size=(size, size)) + 1e-6
    joint = torch.from_numpy(joint / joint.sum())
    product = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
    return (joint / product).log()[None], joint[None], product[None]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), threshold=st.floats(-4, 8))
def test_every_balance_of_the_true_ratio_is_zero(seed, threshold):
    blocks = arrange(*exact_table(seed))
    part = torch.from_numpy(np.random.default_rng(seed).uniform(size=(1, 6, 6)))
    found = [
        step_balance(blocks, threshold),
        step_balance(blocks, threshold, part),
        side_balance(blocks, threshold, "x"),
        side_balance(blocks, threshold, "y"),
    ]
    for balance in found:
        assert balance is not None
        assert balance.offset == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("shift", [-2.0, 0.3, 5.0])
def test_a_constant_is_read_as_that_many_nats(shift):
    log_ratio, joint, product = exact_table(1)
    blocks = arrange(log_ratio + shift, joint, product)
    for threshold in (-1.0, 0.0, 4.0):
        assert step_balance(blocks, threshold).offset == pytest.approx(shift, abs=1e-12)


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
        up, down = ones.copy(), ones.copy()
        up.flat[unit] += 1e-5
        down.flat[unit] -= 1e-5
        slope = offset_of(up, threshold, product, part) - offset_of(down, threshold, product, part)
        assert balance.influence[unit] == pytest.approx(slope / 2e-5, abs=1e-8)
    assert balance.stderr == pytest.approx(math.sqrt((balance.influence**2).sum()))


def test_rows_of_a_group_are_summed():
    alone = step_balance(arrange(LOG_RATIO, EYE, 1 - EYE), 0.5)
    groups = torch.arange(BLOCKS * SIZE).view(BLOCKS, SIZE) // 3
    grouped = step_balance(arrange(LOG_RATIO, EYE, 1 - EYE, groups), 0.5)
    assert grouped.offset == alone.offset
    np.testing.assert_allclose(grouped.influence, alone.influence.reshape(-1, 3).sum(1))


def test_rows_that_were_not_drawn_beyond_the_step_carry_nothing():
    separated = torch.where(EYE > 0, 20.0, -20.0).double()
    assert step_balance(arrange(separated, EYE, 1 - EYE), 20.0).rows == 0
    assert step_balance(arrange(separated, EYE, 1 - EYE), 0.0).rows == 0


def test_a_constant_ratio_has_no_sides_to_split():
    blocks = arrange(torch.zeros_like(LOG_RATIO), EYE, 1 - EYE)
    assert side_balance(blocks, 0.0, "x") is None
    assert step_balance(blocks, 0.0).offset == pytest.approx(0.0, abs=1e-12)


def test_an_empty_side_has_no_balance():
    assert step_balance(arrange(LOG_RATIO, EYE, 0 * EYE), 0.0) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: {**a, "log_ratio": LOG_RATIO[0]}, r"blocks \(G, b, b\)"),
        (lambda a: {**a, "joint": EYE[:1]}, "of the shape"),
        (lambda a: {**a, "log_ratio": LOG_RATIO.clone().fill_(math.nan)}, "NaN"),
        (lambda a: {**a, "joint": 0 * EYE}, "no cell"),
        (lambda a: {**a, "groups": torch.zeros(3)}, "groups must be"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(InputError, match=message):
        arrange(**change({"log_ratio": LOG_RATIO, "joint": EYE, "product": 1 - EYE}))
