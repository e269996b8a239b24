"""The objectives against plain loops, and what holds for every one of them."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.nn.functional import binary_cross_entropy_with_logits

from pointdep.core import objectives
from pointdep.core import objectives as o
from pointdep.core.methods import METHODS
from pointdep.core.objectives import joint_mean, product_log_mean_exp, product_mean
from refusals import refused

from .reference import CASES

EYE = torch.eye(6, dtype=torch.float64)
OFF = 1.0 - EYE


def draw(*shape, seed=0, scale=1.5):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


def draw_weights(*shape, seed, zeros=0.3):
    """Uneven non-negative weights, about `zeros` of them zero."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(*shape, generator=generator, dtype=torch.float64) + 0.1
    return weights * (torch.rand(*shape, generator=generator) > zeros)


every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@every_case
def test_against_loops(case):
    """With no, with both and with one of the weights, which may be rectangular or a mask."""
    scores, weights = draw(6, 6), draw_weights(6, 6, seed=3)
    for parts, full in (
        ((), (EYE, OFF)),
        ((EYE.bool(), OFF.bool()), (EYE, OFF)),
        ((None, weights), (EYE, weights)),
        ((weights, None), (weights, OFF)),
    ):
        assert case(scores, *parts).item() == pytest.approx(case.by_hand(scores, *full), rel=1e-12)
    rectangular = draw(4, 6), draw_weights(4, 6, seed=1), draw_weights(4, 6, seed=2)
    assert case(*rectangular).item() == pytest.approx(case.by_hand(*rectangular), rel=1e-12)


@every_case
@pytest.mark.parametrize("weighted", [False, True])
def test_leading_dimensions_are_independent_replicas(case, weighted):
    scores, joint = draw(2, 3, 5, 5, seed=4), draw_weights(2, 3, 5, 5, seed=5)
    product = draw_weights(3, 5, 5, seed=6) if weighted else None
    for lead in ((), (0,)):
        stack = scores[lead]
        values = case(stack, joint[lead] if weighted else None, product)
        assert values.shape == stack.shape[:-2]
        for at in itertools.product(*map(range, values.shape)):
            weights = (joint[lead][at], product[at[-1]]) if weighted else ()
            one = case(stack[at], *weights)
            assert values[at].item() == pytest.approx(one.item(), rel=1e-12)
    leaf = scores[0].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(case(leaf)[1], leaf)
    assert gradient[1].any()
    assert not gradient[[0, 2]].any()


@every_case
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e308])
@pytest.mark.parametrize("given_joint", [True, False])
def test_masked_cells_may_hold_anything(case, poison, given_joint):
    scores = draw(6, 6, seed=14)
    joint, product = draw_weights(6, 6, seed=15), draw_weights(6, 6, seed=16)
    joint[2], product[2] = 0.0, 0.0
    masked = ((joint if given_joint else EYE) == 0) & (product == 0)
    joint = joint if given_joint else None
    assert masked.sum() >= 5
    clean = scores.clone().requires_grad_()
    dirty = scores.masked_fill(masked, poison).requires_grad_()
    values = [case(s, joint, product) for s in (clean, dirty)]
    gradients = [torch.autograd.grad(v, s)[0] for v, s in zip(values, (clean, dirty), strict=True)]
    for plain, poisoned in (values, gradients):
        assert torch.isfinite(plain).all()
        torch.testing.assert_close(poisoned, plain, rtol=0, atol=0)
    assert not gradients[1][masked].any()


def test_cpc_row_without_product_cells_and_weights_that_do_not_fit():
    scores, product = draw(6, 6, seed=18).requires_grad_(), OFF.clone()
    product[3] = 0.0
    value = objectives.cpc(scores, product=product)
    by_hand = CASES["cpc"].by_hand(scores.detach(), EYE, product)
    assert value.item() == pytest.approx(by_hand, rel=1e-12)
    (gradient,) = torch.autograd.grad(value, scores)
    assert torch.isfinite(gradient).all()
    assert gradient[3].abs().max() < 1e-15
    for function in (joint_mean, product_mean, product_log_mean_exp):
        refused(r"\(2, 3\).*\(3, 3\)", function, draw(3, 3), torch.ones(2, 3))
        for shape in ((3,), (2, 3, 4)):
            refused("square", function, torch.zeros(shape), None)
    for alpha in (-0.1, 1.0, 2.0):
        refused("alpha", objectives.drf, draw(4, 4), alpha=alpha)


@every_case
def test_gradients_by_finite_differences(case):
    scores = draw(2, 4, 4, seed=19).requires_grad_()
    assert torch.autograd.gradcheck(case, (scores,))
    joint, product = draw_weights(3, 5, seed=20), draw_weights(2, 3, 5, seed=21)
    scores = draw(2, 3, 5, seed=22).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: case(s, joint, product), (scores,))
    scores = draw(3, 5, seed=26)
    joint, product = (draw_weights(3, 5, seed=s, zeros=0.0).requires_grad_() for s in (27, 28))
    assert torch.autograd.gradcheck(lambda j, m: case(scores, j, m), (joint, product))
    joint, product = (draw_weights(3, 5, seed=s).requires_grad_() for s in (29, 30))
    case(scores, joint, product).backward()
    for weights in (joint, product):
        assert weights.grad is None or torch.isfinite(weights.grad).all()


@pytest.mark.parametrize("name", [n for n in CASES if n != "squared_loss_mi"])
def test_rectangular_scores_without_weights_are_refused(name):
    for weights in ((), (None, torch.ones(4, 6))):
        refused("square", CASES[name], draw(4, 6), *weights)
    refused("at least two rows", CASES[name], draw(1, 1))


class TestMovingAverage:
    """MINE's gradient: E_J[ds] - E_M[exp(s) ds] / average."""

    scores = draw(2, 5, 5, seed=23)

    def hand_gradient(self, averages):
        gradient = torch.zeros_like(self.scores)
        for r, i, j in itertools.product(range(2), range(5), range(5)):
            s = self.scores[r, i, j].item()
            gradient[r, i, j] = 1 / 5 if i == j else -math.exp(s) / 20 / averages[r]
        return gradient

    def run(self, log_average, **options):
        scores = self.scores.clone().requires_grad_()
        value, state = objectives.dv_moving_average(scores, log_average, **options)
        (gradient,) = torch.autograd.grad(value.sum(), scores)
        return value.detach(), state, gradient

    def current(self):
        """E_M[exp s] of each replica."""
        cells = list(itertools.permutations(range(5), 2))
        return [sum(math.exp(m[at].item()) for at in cells) / 20 for m in self.scores]

    def test_starts_at_the_batch_and_is_kept_above_the_floor(self):
        _, state, gradient = self.run(None)
        assert state.exp().tolist() == pytest.approx(self.current())
        scores = self.scores.clone().requires_grad_()
        (expected,) = torch.autograd.grad(objectives.dv(scores).sum(), scores)
        torch.testing.assert_close(gradient, expected)
        floor = 100.0 * max(self.current())
        for start in (None, torch.zeros(2, dtype=torch.float64)):
            _, state, gradient = self.run(start, floor=floor)
            assert state.exp().tolist() == pytest.approx([floor, floor])
            torch.testing.assert_close(gradient, self.hand_gradient([floor, floor]))

    @pytest.mark.parametrize("momentum", [0.9, 0.25])
    def test_gradient_and_state_by_hand(self, momentum):
        old = [2.0, 0.1]
        log_average = torch.tensor(old, dtype=torch.float64).log()
        value, state, gradient = self.run(log_average, momentum=momentum)
        torch.testing.assert_close(value, objectives.dv(self.scores), rtol=1e-12, atol=1e-12)
        new = [momentum * a + (1 - momentum) * b for a, b in zip(old, self.current(), strict=True)]
        assert state.exp().tolist() == pytest.approx(new, rel=1e-12)
        torch.testing.assert_close(gradient, self.hand_gradient(new))


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
