"""Identities between the methods, for any scores and weights."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.nn.functional import binary_cross_entropy_with_logits

from pointdep.core import objectives
from pointdep.core.critics import SeparableCritic
from pointdep.core.methods import METHODS

from .tables import POSITIVE, maximise


@st.composite
def weighted_scores(draw):
    """(scores, weights): a square matrix with default weights, or any matrix with given ones."""
    if draw(st.booleans()):
        n = draw(st.integers(2, 6))
        return draw(matrices(n, n, -10.0, 10.0)), {}
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(2, 5))
    scores = draw(matrices(rows, columns, -10.0, 10.0))
    joint, product = (
        torch.where(draw(matrices(rows, columns, 0.0, 1.0)) > 0.4, 0.0, w)
        for w in (draw(matrices(rows, columns, 0.1, 3.0)), draw(matrices(rows, columns, 0.1, 3.0)))
    )
    joint[0, 0], product[0, 1] = 1.0, 0.5
    return scores, {"joint": joint, "product": product}


def matrices(rows, columns, low, high):
    floats = st.floats(low, high, allow_subnormal=False)
    return hnp.arrays(np.float64, (rows, columns), elements=floats).map(torch.from_numpy)


def explicit(scores, weights):
    """The weights as matrices, the defaults written out."""
    if weights:
        return weights["joint"], weights["product"]
    eye = torch.eye(len(scores), dtype=scores.dtype)
    return eye, 1 - eye


def cross_entropy_sum(logits, joint, product, pos_weight=None):
    """PyTorch's cross-entropy, summed: J cells labelled 1, M cells labelled 0."""
    both = torch.stack([logits, logits])
    labels = torch.stack([torch.ones_like(logits), torch.zeros_like(logits)])
    return binary_cross_entropy_with_logits(
        both,
        labels,
        weight=torch.stack([joint, product]),
        pos_weight=pos_weight,
        reduction="sum",
    )


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


property_test = settings(max_examples=30, deadline=None)
any_scores = given(weighted_scores())
shifts = st.floats(-20.0, 20.0)


@property_test
@any_scores
def test_dm1_is_nwj_of_shifted_scores(case):
    scores, weights = case
    close(objectives.dm1(scores, **weights), objectives.nwj(scores + 1.0, **weights))


@property_test
@given(weighted_scores(), st.floats(0.1, 10.0))
def test_lambda_of_dm1_shifts_the_score(case, lam):
    scores, weights = case
    shifted = objectives.dm1(scores + math.log(lam), **weights)
    close(objectives.dm1(scores, lam=lam, **weights), shifted - math.log(lam) + lam - 1.0)


@property_test
@any_scores
def test_js_is_the_balanced_classifier(case):
    scores, weights = case
    joint, product = explicit(scores, weights)
    n_j, n_m = joint.sum(), product.sum()
    total = n_j + n_m
    loss = cross_entropy_sum(scores, joint, product, pos_weight=n_m / n_j) / total
    close(objectives.js(scores, **weights), -(total / n_m) * loss)


@pytest.mark.parametrize("n", [2, 5, 9])
def test_js_and_pc_are_means_over_the_labelled_matrix(n):
    """The same with the default weights and the plain mean, no weight argument."""
    scores = torch.randn(n, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    labels, ratio = torch.eye(n, dtype=torch.float64), torch.tensor(n - 1.0, dtype=torch.float64)
    balanced = binary_cross_entropy_with_logits(scores, labels, pos_weight=ratio)
    close(objectives.js(scores), -(n / (n - 1)) * balanced)
    plain = binary_cross_entropy_with_logits(scores - ratio.log(), labels)
    close(objectives.pc(scores), -plain)


@property_test
@any_scores
def test_pc_is_the_classifier_over_all_cells(case):
    scores, weights = case
    joint, product = explicit(scores, weights)
    n_j, n_m = joint.sum(), product.sum()
    loss = cross_entropy_sum(scores - (n_m / n_j).log(), joint, product) / (n_j + n_m)
    close(objectives.pc(scores, **weights), -loss)


@property_test
@any_scores
def test_pc_is_js_where_both_samples_weigh_the_same(case):
    scores, weights = case
    joint, product = explicit(scores, weights)
    equal = {"joint": joint / joint.sum(), "product": product / product.sum()}
    close(2 * objectives.pc(scores, **equal), objectives.js(scores, **equal))


@pytest.mark.parametrize("scale", [0.2, 9.0])
def test_optima_of_js_and_of_a_raw_classifier_differ_by_the_log_counts(scale):
    joint, product = POSITIVE.joint, scale * POSITIVE.product
    start = torch.zeros_like(joint)
    balanced = maximise(lambda s: objectives.js(s, joint=joint, product=product), start)
    logits = maximise(lambda s: -cross_entropy_sum(s, joint, product), start)
    scores = maximise(lambda s: objectives.pc(s, joint=joint, product=product), start)
    gap = torch.full_like(start, math.log(scale))
    torch.testing.assert_close(balanced - logits, gap, rtol=0, atol=1e-5)
    torch.testing.assert_close(balanced, scores, rtol=0, atol=1e-5)


@property_test
@any_scores
def test_inference_of_js_is_nwj_of_shifted_scores(case):
    scores, weights = case
    joint, product = explicit(scores, weights)
    value = METHODS["js"].inference(scores, **weights)
    close(value, objectives.nwj(scores + 1.0, **weights))
    e_j = (joint * scores).sum() / joint.sum()
    e_m = (product * scores.exp()).sum() / product.sum()
    close(value, 1.0 + e_j - e_m)


@property_test
@given(weighted_scores(), st.floats(0.0, 0.95))
def test_relative_drf_is_a_special_case_of_rpc(case, alpha):
    scores, weights = case
    relative = objectives.drf(scores, alpha=alpha, **weights)
    close(relative, objectives.rpc(scores, a=0.0, b=alpha, c=1.0 - alpha, **weights))


@property_test
@any_scores
def test_relative_drf_without_alpha_is_drf(case):
    scores, weights = case
    joint, product = explicit(scores, weights)
    e_j = (joint * scores).sum() / joint.sum()
    e_m = (product * scores**2).sum() / product.sum()
    plain = objectives.drf(scores, **weights)
    close(plain, e_j - e_m / 2)
    relative = METHODS["drf_relative"].configure(alpha=0.0).objective(scores, **weights)
    assert relative.item() == plain.item()


@property_test
@given(weighted_scores(), shifts)
def test_dv_ignores_a_constant(case, shift):
    scores, weights = case
    close(objectives.dv(scores + shift, **weights), objectives.dv(scores, **weights))


@property_test
@given(weighted_scores(), shifts)
def test_nwj_does_not_ignore_it_and_dv_is_its_best_shift(case, shift):
    """DV is NWJ at the best constant: never below it, and equal to it there."""
    scores, weights = case
    dv = objectives.dv(scores, **weights)
    tolerance = 1e-9
    assert objectives.nwj(scores + shift, **weights) <= dv + tolerance
    _, product = explicit(scores, weights)
    best = 1.0 - ((product * scores.exp()).sum() / product.sum()).log()
    close(objectives.nwj(scores + best, **weights), dv)


@property_test
@given(weighted_scores(), hnp.arrays(np.float64, 6, elements=shifts))
def test_cpc_ignores_a_function_of_x(case, shift):
    scores, weights = case
    moved = scores + torch.from_numpy(shift)[: len(scores), None]
    close(objectives.cpc(moved, **weights), objectives.cpc(scores, **weights))


def test_cpc_does_not_ignore_a_function_of_y():
    scores = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moved = scores + torch.arange(5.0, dtype=torch.float64)
    assert abs(objectives.cpc(moved) - objectives.cpc(scores)) > 0.1


@property_test
@any_scores
def test_smile_with_a_wide_clip_is_dv(case):
    scores, weights = case
    value = METHODS["smile"].configure(tau=11.0).inference(scores, **weights)
    close(value, objectives.dv(scores, **weights))


@property_test
@any_scores
def test_dm2_is_dv_and_the_log_mean_it_holds_down(case):
    scores, weights = case
    _, product = explicit(scores, weights)
    log_mean = ((product * scores.exp()).sum() / product.sum()).log()
    dv, dm2 = objectives.dv(scores, **weights), objectives.dm2(scores, eta=0.7, **weights)
    close(dm2, dv + log_mean - 0.7 * log_mean**2)


@property_test
@given(matrices(6, 3, -4.0, 4.0), matrices(5, 3, -4.0, 4.0))
def test_sum_of_squares_of_a_separable_score(g, h):
    by_loop = sum(
        sum(g[i, k].item() * h[j, k].item() for k in range(3)) ** 2
        for i in range(6)
        for j in range(5)
    )
    by_gram = ((g.T @ g) * (h.T @ h)).sum().item()
    assert by_gram == pytest.approx(by_loop, rel=1e-10, abs=1e-10)


def test_drf_of_a_separable_critic_from_gram_matrices():
    """The whole objective in O(B d^2): all cells by Gram matrices, the diagonal taken off."""
    critic = SeparableCritic(2, 3, 4, hidden=(8,), embedding_dim=5).double()
    critic.reset([torch.Generator().manual_seed(s) for s in (0, 1)])
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(2, 9, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(2, 9, 4, generator=generator, dtype=torch.float64)
    g, h = critic.embed_x(x), critic.embed_y(y)
    diagonal = critic.pairs(x, y)
    squares = ((g.mT @ g) * (h.mT @ h)).sum((-1, -2)) - diagonal.square().sum(-1)
    close(diagonal.mean(-1) - squares / (9 * 8) / 2, objectives.drf(critic.matrix(x, y)))
