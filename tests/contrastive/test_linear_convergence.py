"""Linear evaluation says "converged" where it is: few rows, many columns, hardly a penalty."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep.contrastive.evaluation import linear_evaluation
from pointdep.contrastive.multinomial import _MeanLoss, logistic_regression, minimise
from pointdep.fitting.progress import Silent

from .on_apple import OnApple


def few_rows(n: int, d: int, classes: int, apart: float) -> tuple[torch.Tensor, ...]:
    """Separable rows of Gaussian classes, and 3,000 more of them to test on."""
    generator = torch.Generator().manual_seed(1)
    centres = apart * torch.randn(classes, d, generator=generator)
    labels, unseen = torch.arange(n) % classes, torch.arange(3000) % classes
    train = torch.randn(n, d, generator=generator) + centres[labels]
    return train, labels, torch.randn(3000, d, generator=generator) + centres[unseen], unseen


@pytest.mark.parametrize(
    ("shape", "scaling", "C"),
    [
        ((100, 512, 10, 0.25), "standard", 100.0),
        ((100, 512, 10, 0.25), "standard", 1e4),
        ((100, 512, 10, 0.25), "minmax", 1e3),
        ((60, 300, 4, 0.12), "minmax", 1e5),
        ((60, 300, 2, 0.12), "none", 1e4),
    ],
)
def test_separable_rows_agree_with_sklearn(shape, scaling, C):
    data = few_rows(*shape)
    ours = linear_evaluation(*data, scaling=scaling, C=C)
    theirs = linear_evaluation(
        *data, scaling=scaling, C=C, solver="sklearn", tolerance=1e-11, max_iter=20_000
    )
    assert ours.converged.all()
    assert theirs.converged.all()
    assert 0.4 < theirs.accuracy[0] < 0.99
    assert abs(ours.accuracy[0] - theirs.accuracy[0]) <= 0.003
    assert ours.train_accuracy[0] == theirs.train_accuracy[0] == 1.0


ROWS, LABELS = few_rows(40, 60, 3, 0.25)[:2]
LOSS = _MeanLoss(ROWS.double()[None], LABELS, 3, 100.0, None)


def optimum() -> tuple[torch.Tensor, torch.Tensor]:
    """Point and value, to rounding."""
    start, precondition = LOSS.start(), LOSS.newton_at_zero()
    found = minimise(LOSS, start, precondition, tolerance=1e-12, max_iter=5000, progress=Silent())
    assert bool(found.converged.all())
    return found.point, LOSS(found.point)[0]


BEST = optimum()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(-6, 1), st.floats(0, 1))
def test_the_excess_bounds_the_distance_from_the_minimum(seed, exponent, bias):
    generator = torch.Generator().manual_seed(seed)
    away = torch.randn(BEST[0].shape, generator=generator, dtype=torch.float64) * 10**exponent
    away[:, -1] *= bias / away[:, -1].norm()
    value, _, excess = LOSS(BEST[0] + away)
    assert bool((value - BEST[1] <= excess * value + 1e-12).all())
    scaled, _, other = LOSS(BEST[0] * (1 + bias))  # a step along which rows stay separated
    if BEST[0][:, -1].norm() * bias <= 1:
        assert bool((scaled - BEST[1] <= other * scaled + 1e-12).all())


def test_float64_mends_what_float32_cannot_reach():
    train, labels, _, _ = few_rows(100, 200, 5, 0.25)
    far = train + 50  # digits of float32 that the products lose
    found = logistic_regression(far, labels, C=1e3, tolerance=1e-9, max_iter=3000)
    exact = logistic_regression(far.double(), labels, C=1e3, tolerance=1e-12, max_iter=3000)
    assert bool(found.converged.all())
    assert bool(exact.converged.all())
    assert torch.allclose(
        found.weights, exact.weights, atol=1e-4 * float(exact.weights.abs().max())
    )


def test_a_tolerance_out_of_reach_is_not_called_converged():
    train, labels, _, _ = few_rows(60, 100, 3, 0.25)
    found = logistic_regression(train, labels, C=100.0, tolerance=1e-40, max_iter=400)
    assert not bool(found.converged.any())
    assert int(found.iterations.max()) <= 400


def test_a_higher_value_is_never_the_minimum():
    def evaluate(point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A parabola whose excess is wrong on the other side of its bottom."""
        side = point[:, 0, 0]
        return side**2 / 2, point, torch.where(side < 0, 0.0, 1.0)

    start = torch.full((2, 1, 1), 3.0, dtype=torch.float64)
    found = minimise(
        evaluate, start, lambda g: 2.5 * g, tolerance=1e-6, max_iter=50, progress=Silent()
    )
    assert bool((found.point.abs() < 3.0).all())


@pytest.mark.parametrize("solver", ["device", "sklearn"])
def test_features_on_a_device_without_float64_go_to_the_cpu(solver):
    train, labels, test, unseen = few_rows(60, 20, 3, 0.5)
    plain = linear_evaluation(train, labels, test, unseen, solver=solver)
    there = train.as_subclass(OnApple), labels, test.as_subclass(OnApple), unseen
    found = linear_evaluation(*there, solver=solver)
    assert np.array_equal(found.accuracy, plain.accuracy)
    fit = logistic_regression(train.as_subclass(OnApple), labels)
    assert torch.equal(fit.weights, logistic_regression(train, labels).weights)
