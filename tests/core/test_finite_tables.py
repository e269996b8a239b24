"""On a finite table a free score per cell has a known best value: log r exactly, and the MI."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pointdep.core import objectives
from pointdep.core.methods import METHODS

from .tables import POSITIVE, SMALL, ZERO, ZERO_CELL, all_batches, maximise, table_of

# Options that move the optimum, beside the defaults of every method but cpc, whose cells only make
# sense in batches.
CONFIGURED = {
    **{key: method for key, method in METHODS.items() if key != "cpc"},
    "dm1 lam=0.4": METHODS["dm1"].configure(lam=0.4),
    "dm2 eta=3": METHODS["dm2"].configure(eta=3.0),
    "drf alpha=0.3": METHODS["drf"].configure(alpha=0.3),
    "drf_relative alpha=0.1": METHODS["drf_relative"].configure(alpha=0.1),
    "rpc a=0.3 b=0.1 c=2": METHODS["rpc"].configure(a=0.3, b=0.1, c=2.0),
    "rpc a=0 b=0": METHODS["rpc"].configure(a=0.0, b=0.0),
}
RANDOM_START = torch.randn(5, 7, generator=torch.Generator().manual_seed(3))
every_method = pytest.mark.parametrize("method", CONFIGURED.values(), ids=CONFIGURED)


def best_scores(method, table, product_scale=1.0, start=None):
    """The optimum of the method's objective, and the weights it was found under."""
    weights = {"joint": table.joint, "product": product_scale * table.product}
    start = torch.zeros_like(table.joint) if start is None else start
    return maximise(partial(method.objective, **weights), start), weights


def log_ratio_of(method, scores, table):
    """The read-out, finished for the methods that learn log r up to a constant."""
    lacking = (table.product * scores.exp()).sum().log() if method.reference == "constant" else 0.0
    return method.read_out(scores) - lacking


@every_method
def test_best_score_reads_out_as_the_exact_log_ratio(method):
    """And the inverse of the exact log ratio is stationary."""
    exact = POSITIVE.squared_loss_mi if method.key == "smi" else POSITIVE.mi
    for product_scale, start in ((1.0, torch.zeros(5, 7)), (6.0, RANDOM_START)):
        scores, weights = best_scores(method, POSITIVE, product_scale, start.double())
        error = log_ratio_of(method, scores, POSITIVE) - POSITIVE.log_ratio
        assert error.abs().max() < 1e-4
        assert method.inference(scores, **weights).item() == pytest.approx(exact, abs=1e-4)
    scores = method.inverse(POSITIVE.log_ratio).requires_grad_()
    value = method.objective(scores, joint=POSITIVE.joint, product=POSITIVE.product)
    (gradient,) = torch.autograd.grad(value, scores)
    assert gradient.abs().max() < 1e-12


@every_method
def test_a_cell_of_probability_zero(method):
    scores, weights = best_scores(method, ZERO_CELL)
    log_ratio = log_ratio_of(method, scores, ZERO_CELL)
    positive = ZERO_CELL.joint > 0
    assert torch.nonzero(~positive).tolist() == [list(ZERO)]
    error = (log_ratio - ZERO_CELL.log_ratio)[positive]
    assert error.abs().max() < 1e-4
    if method.scores_ratio and method.key != "rpc":
        assert scores[ZERO].item() == pytest.approx(0.0, abs=1e-6)
        assert log_ratio[ZERO] <= math.log(1e-4) + 1e-9
    elif method.key == "rpc":
        least = -method.options["a"] / method.options["c"]
        assert scores[ZERO].item() == pytest.approx(least, abs=1e-6)
    else:
        assert log_ratio[ZERO] < -8
    exact = ZERO_CELL.squared_loss_mi if method.key == "smi" else ZERO_CELL.mi
    if method.key == "smile":
        # The clip holds the impossible cell at -tau, and E_M[exp clip s] that much above one.
        exact -= math.log1p(ZERO_CELL.product[ZERO].item() * math.exp(-5.0))
    assert method.inference(scores, **weights).item() == pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize("eta", [0.25, 0.5, 1.0, 4.0])
def test_dm2_as_printed_is_high_by_one_over_two_eta(eta):
    printed = METHODS["dm2"].configure(eta=eta, corrected=False)
    scores, weights = best_scores(printed, POSITIVE)
    bias = printed.read_out(scores) - POSITIVE.log_ratio
    torch.testing.assert_close(bias, torch.full_like(bias, 1 / (2 * eta)), rtol=0, atol=1e-5)
    inferred = printed.inference(scores, **weights).item()
    assert inferred == pytest.approx(POSITIVE.mi + 1 / (2 * eta), abs=1e-5)
    corrected = METHODS["dm2"].configure(eta=eta)
    assert corrected.inference(scores, **weights).item() == pytest.approx(POSITIVE.mi, abs=1e-5)


@pytest.mark.parametrize(("table", "size"), [(POSITIVE, 2), (SMALL, 3)], ids=["of 2", "of 3"])
def test_cpc_over_all_batches(table, size):
    batches = all_batches(table, size)
    assert batches.probability.sum().item() == pytest.approx(1.0)
    value = partial(batches.expected, METHODS["cpc"].objective)
    scores = maximise(value, torch.zeros_like(table.joint))
    # Row by row, log E_p(y)[exp s(x, y)] is what the score still lacks.
    row_constant = (table.p_y * scores.exp()).sum(1, keepdim=True).log()
    error = METHODS["cpc"].read_out(scores) - row_constant - table.log_ratio
    assert error.abs().max() < 1e-4
    inferred = batches.expected(METHODS["cpc"].inference, scores).item()
    assert 0.0 < inferred <= min(math.log(size), table.mi)


def arrays(shape, low, high):
    return hnp.arrays(np.float64, shape, elements=st.floats(low, high, allow_subnormal=False))


@settings(max_examples=60, deadline=None)
@given(cells=arrays((3, 4), 1e-3, 1.0), scores=arrays((3, 4), -30.0, 30.0))
def test_lower_bounds_hold_for_any_scores(cells, scores):
    table, scores = table_of(cells), torch.from_numpy(scores)
    for key in ("nwj", "dv", "mine", "js"):
        value = METHODS[key].inference(scores, joint=table.joint, product=table.product)
        assert value <= table.mi + 1e-9


@settings(max_examples=30, deadline=None)
@given(arrays((2, 3), 1e-3, 1.0), arrays((2, 3), -30.0, 30.0), st.sampled_from([2, 3]))
def test_cpc_is_below_log_batch_and_mi_for_any_scores(cells, scores, size):
    table = table_of(cells)
    value = all_batches(table, size).expected(objectives.cpc, torch.from_numpy(scores))
    assert value <= min(math.log(size), table.mi) + 1e-9
