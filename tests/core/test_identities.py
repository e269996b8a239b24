"""Identities between the methods, for any scores and weights."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.nn.functional import binary_cross_entropy_with_logits

from pointdep.core import objectives as o
from pointdep.core.methods import METHODS


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


def mean(weights, values):
    return (weights * values).sum() / weights.sum()


def classifier(s, j, m):
    """Minus the mean of PyTorch's cross-entropy over all cells: J labelled 1, M labelled 0."""
    n_j, n_m = j.sum(), m.sum()
    logits = (s - (n_m / n_j).log()).expand(2, *s.shape)
    labels, weight = torch.stack([torch.ones_like(s), torch.zeros_like(s)]), torch.stack([j, m])
    loss = binary_cross_entropy_with_logits(logits, labels, weight=weight, reduction="sum")
    return -loss / (n_j + n_m)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


property_test = settings(max_examples=30, deadline=None)
shifts = st.floats(-20.0, 20.0)

# f(scores, joint, product, weights as the objectives take them) -> two values that are equal.
IDENTITIES = {
    "dm1 is nwj of shifted scores": lambda s, j, m, w: (o.dm1(s, **w), o.nwj(s + 1.0, **w)),
    "pc is the classifier over all cells": lambda s, j, m, w: (o.pc(s, **w), classifier(s, j, m)),
    "js is the balanced classifier": lambda s, j, m, w: (
        o.js(s, **w),
        2 * classifier(s, j / j.sum(), m / m.sum()),
    ),
    "pc is js if both samples weigh the same": lambda s, j, m, w: (
        2 * o.pc(s, joint=j / j.sum(), product=m / m.sum()),
        o.js(s, **w),
    ),
    "inference of js": lambda s, j, m, w: (
        METHODS["js"].inference(s, **w),
        1.0 + mean(j, s) - mean(m, s.exp()),
    ),
    "drf": lambda s, j, m, w: (o.drf(s, **w), mean(j, s) - mean(m, s**2) / 2),
    "smile, clipped wide, is dv": lambda s, j, m, w: (o.smile_bound(s, tau=11, **w), o.dv(s, **w)),
    "dm2 is dv and the log mean it holds down": lambda s, j, m, w: (
        o.dm2(s, eta=0.7, **w),
        o.dv(s, **w) + mean(m, s.exp()).log() - 0.7 * mean(m, s.exp()).log() ** 2,
    ),
}


@pytest.mark.parametrize("name", IDENTITIES)
@property_test
@given(weighted_scores())
def test_identities(name, case):
    scores, weights = case
    close(*IDENTITIES[name](scores, *explicit(scores, weights), weights))


@property_test
@given(weighted_scores(), st.floats(0.1, 10.0), st.floats(0.0, 0.95))
def test_identities_with_an_option(case, lam, alpha):
    scores, weights = case
    shifted = o.dm1(scores + math.log(lam), **weights)
    close(o.dm1(scores, lam=lam, **weights), shifted - math.log(lam) + lam - 1.0)
    relative = o.drf(scores, alpha=alpha, **weights)
    close(relative, o.rpc(scores, a=0.0, b=alpha, c=1.0 - alpha, **weights))


@property_test
@given(weighted_scores(), shifts)
def test_dv_ignores_a_constant_and_is_nwj_at_the_best_one(case, shift):
    scores, weights = case
    dv = o.dv(scores, **weights)
    close(o.dv(scores + shift, **weights), dv)
    assert o.nwj(scores + shift, **weights) <= dv + 1e-9
    best = 1.0 - mean(explicit(scores, weights)[1], scores.exp()).log()
    close(o.nwj(scores + best, **weights), dv)


@property_test
@given(weighted_scores(), hnp.arrays(np.float64, 6, elements=shifts))
def test_cpc_ignores_a_function_of_x(case, shift):
    scores, weights = case
    moved = scores + torch.from_numpy(shift)[: len(scores), None]
    close(o.cpc(moved, **weights), o.cpc(scores, **weights))


def test_cpc_does_not_ignore_a_function_of_y():
    scores = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moved = scores + torch.arange(5.0, dtype=torch.float64)
    assert abs(o.cpc(moved) - o.cpc(scores)) > 0.1
