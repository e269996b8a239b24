"""The weighted means that every objective is built from."""

import math

import pytest
import torch

from pointdep.core.weights import (
    joint_mean,
    off_diagonal,
    product_log_mean_exp,
    product_mean,
    require_square,
    total_weight,
)
from pointdep.errors import InputError

SCORES = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 10.0]], dtype=torch.float64)


def test_defaults_are_the_diagonal_and_the_rest():
    assert joint_mean(SCORES, None).item() == pytest.approx((1 + 5 + 10) / 3)
    assert product_mean(SCORES, None).item() == pytest.approx((2 + 3 + 4 + 6 + 7 + 8) / 6)
    expected = math.log(sum(math.exp(s) for s in (2, 3, 4, 6, 7, 8)) / 6)
    assert product_log_mean_exp(SCORES, None).item() == pytest.approx(expected)
    assert off_diagonal(SCORES).tolist() == [[i != j for j in range(3)] for i in range(3)]


def test_function_is_applied_before_the_mean():
    assert joint_mean(SCORES, None, torch.square).item() == pytest.approx((1 + 25 + 100) / 3)
    weights = torch.tensor([[0.0, 0.5, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    assert product_mean(SCORES, weights, torch.square).item() == pytest.approx((2 + 72) / 2.5)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_weights_of_any_dtype_keep_the_dtype_of_the_scores(dtype):
    weights = (~torch.eye(3, dtype=torch.bool)).to(dtype)
    for function in (product_mean, product_log_mean_exp):
        assert function(SCORES, weights).dtype == torch.float64
        torch.testing.assert_close(function(SCORES, weights), function(SCORES, None))


def test_weights_broadcast_over_rows_and_replicas():
    p_y = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    stacked = torch.stack([SCORES, -SCORES])
    by_hand = sum(w * SCORES[:, j].sum().item() for j, w in enumerate((0.2, 0.3, 0.5))) / 3
    assert product_mean(stacked, p_y).tolist() == pytest.approx([by_hand, -by_hand])
    assert total_weight(stacked, p_y, 0).tolist() == pytest.approx([3.0, 3.0])
    assert total_weight(stacked, None, 6).tolist() == [6.0, 6.0]


@pytest.mark.parametrize("shape", [(3, 4), (3,), (2, 3, 4)])
def test_rectangular_scores_need_weights(shape):
    with pytest.raises(InputError, match=r"joint.*product"):
        require_square(torch.zeros(shape))


def test_one_pair_has_no_product_samples():
    with pytest.raises(InputError, match="at least two rows"):
        require_square(torch.zeros(1, 1))


@pytest.mark.parametrize("function", [joint_mean, product_mean, product_log_mean_exp])
def test_weights_that_do_not_fit_are_named(function):
    with pytest.raises(InputError, match=r"\(2, 3\).*\(3, 3\)"):
        function(SCORES, torch.ones(2, 3))
