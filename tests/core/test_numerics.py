"""float32 with scores of +-80: right values and gradients wherever the true ones are finite."""

import math

import pytest
import torch

from pointdep.core import objectives
from pointdep.core.methods import METHODS

from .reference import CASES

N = 128
EYE = torch.eye(N)
SIGNS = torch.randint(0, 2, (N, N), generator=torch.Generator().manual_seed(0)) * 2.0 - 1.0
MATRICES = {
    "all +80": torch.full((N, N), 80.0),
    "all -80": torch.full((N, N), -80.0),
    "mixed": 80.0 * SIGNS,
    "pairs +80, rest -80": 160.0 * EYE - 80.0,
    "pairs -80, rest +80": 80.0 - 160.0 * EYE,
    "spread": torch.linspace(-80.0, 80.0, N * N).view(N, N),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_matrix = pytest.mark.parametrize("scores", MATRICES.values(), ids=MATRICES)


def value_and_gradient(function, scores):
    scores = scores.clone().requires_grad_()
    value = function(scores)
    (gradient,) = torch.autograd.grad(value, scores)
    return value.detach(), gradient


@every_case
@every_matrix
@pytest.mark.parametrize("weighted", [False, True])
def test_extreme_scores_in_float32(case, scores, weighted):
    generator = torch.Generator().manual_seed(1)
    joint, product = EYE, 1 - EYE
    if weighted:
        # No cell is both: its gradient would be a difference, and lose digits in any formula.
        joint = torch.rand(N, N, generator=generator)
        product = (joint <= 0.9) * torch.rand(N, N, generator=generator) / N**2
        joint = (joint > 0.9) * joint
    weights = (joint, product) if weighted else (None, None)
    value, gradient = value_and_gradient(lambda s: case(s, *weights), scores)
    assert value.dtype == gradient.dtype == torch.float32
    assert torch.isfinite(value)
    exact = case.by_hand(scores, joint, product)
    assert value.item() == pytest.approx(exact, rel=2e-5, abs=1e-5)
    weights64 = tuple(w if w is None else w.double() for w in weights)
    _, gradient64 = value_and_gradient(lambda s: case(s, *weights64), scores.double())
    assert torch.isfinite(gradient).all()
    assert torch.isfinite(gradient64).all()
    # Cell by cell and relative, but for what is subnormal in float32 beside the largest cell.
    least = 2e-38 * N * max(1.0, gradient64.abs().max().item())
    torch.testing.assert_close(gradient.double(), gradient64, rtol=1e-3, atol=least)


@pytest.mark.parametrize("key", METHODS)
@every_matrix
def test_extreme_scores_through_inference(key, scores):
    value = METHODS[key].inference(scores)
    assert value.dtype == torch.float32
    assert torch.isfinite(value)
    expected = METHODS[key].inference(scores.double()).item()
    assert value.item() == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("score", [-80.0, -30.0, -16.7, -1e-3, 0.0, 5.0, 16.7, 19.9, 20.1, 36.0])
def test_softplus_keeps_its_digits(score):
    """F.softplus turns linear above 20, where log(1 + exp s) - s is still above 1e-9."""
    for dtype, tolerance in ((torch.float64, 1e-14), (torch.float32, 1e-6)):
        given = torch.tensor(score, dtype=dtype)
        expected = math.log1p(math.exp(given.item()))
        assert objectives.softplus(given).item() == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("score", [17.0, 40.0, 80.0])
def test_a_confident_classifier_still_learns(score):
    """1 - sigmoid(s) rounds to zero in float32 above about 16.6; the gradient must not."""
    scores = (2 * score * torch.eye(4) - score).requires_grad_()
    for objective in (objectives.js, objectives.pc):
        (gradient,) = torch.autograd.grad(objective(scores), scores)
        assert (gradient.diagonal() > 0).all()
        assert (gradient[~torch.eye(4, dtype=torch.bool)] < 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("key", METHODS)
def test_half_precision_as_in_float32(key, dtype):
    """Scores as a training loop under autocast gives them."""
    scores = torch.randn(300, 300, generator=torch.Generator().manual_seed(0)).to(dtype)
    eye, whole = torch.eye(300), METHODS[key].objective(scores.float())
    torch.testing.assert_close(METHODS[key].objective(scores), whole)
    weighted = METHODS[key].objective(scores, joint=eye, product=1 - eye)
    torch.testing.assert_close(weighted, whole, rtol=1e-4, atol=1e-5)
    half = scores.clone().requires_grad_()
    METHODS[key].objective(half).backward()
    assert half.grad.dtype == dtype
    assert torch.isfinite(half.grad).all()
