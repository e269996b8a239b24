"""The learning objectives of Table 1, and a few beside them, as pure functions of a score matrix.

Each takes ``scores: (..., x, y)`` with any leading (replica) dimensions and returns the objective,
to be MAXIMISED, of shape ``(...,)``. ``joint`` and ``product`` are weights as in `core.weights`:
left out, row i and column i are the pairs and every other cell is a sample of the product.

    >>> import torch
    >>> from pointdep import objectives
    >>> scores = torch.tensor([[2.0, -1.0], [-1.0, 2.0]])
    >>> round(objectives.pc(scores).item(), 4)
    -0.2201

In the place of the matrix may stand `InnerScores`, of the two sides whose inner products are the
scores: the matrix is then never held, and the value is the same.

Everything is computed from logits, softplus and logsumexp, so that scores of +-80 in float32 give
finite values and right gradients wherever the true value is finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pointdep.core.blocked.cells import softplus
from pointdep.core.blocked.layout import JointWeights, ProductWeights
from pointdep.core.blocked.scores import InnerScores
from pointdep.core.weights import (
    Scores,
    full_weights,
    joint_mean,
    log_weights,
    off_diagonal,
    product_log_mean_exp,
    product_mean,
    require_square,
    total_weight,
)
from pointdep.errors import InputError

__all__ = [
    "InnerScores",
    "cpc",
    "dm1",
    "dm2",
    "drf",
    "dv",
    "dv_moving_average",
    "js",
    "nwj",
    "pc",
    "rpc",
    "smile_bound",
    "squared_loss_mi",
]


P = ParamSpec("P")
T = TypeVar("T")


def full_precision(
    objective: Callable[Concatenate[Scores, P], T],
) -> Callable[Concatenate[Scores, P], T]:
    """Compute in float32 where the scores come in half precision, as under autocast.

    The number of cells of a batch of 300 does not even fit float16.
    """

    @wraps(objective)
    def of_float(scores: Scores, /, *args: P.args, **options: P.kwargs) -> T:
        half = scores.dtype in (torch.float16, torch.bfloat16)
        return objective(scores.to(torch.float32) if half else scores, *args, **options)

    return of_float


@full_precision
def cpc(scores: Scores, *, joint: JointWeights = None, product: ProductWeights = None) -> Tensor:
    """CPC / InfoNCE: mean_i [ s_ii - log( (1/B) sum_j exp s_ij ) ]; never above log B.

    With weights: each joint cell is set against the product cells of its row and itself, itself
    with its own joint weight.
    """
    if isinstance(scores, InnerScores):
        return scores.against_rows(joint, product)
    if joint is None and product is None:
        require_square(scores)
        positive = scores.diagonal(dim1=-2, dim2=-1)
        return (positive - torch.logsumexp(scores, -1)).mean(-1) + math.log(scores.shape[-1])
    if joint is None or product is None:
        require_square(scores)
        mask = off_diagonal(scores)
        joint = (~mask).to(scores.dtype) if joint is None else joint
        product = mask.to(scores.dtype) if product is None else product
    joint, product = full_weights(scores, joint), full_weights(scores, product)
    positive = torch.where(joint > 0, scores, 0.0)
    negative = torch.where(product > 0, scores + log_weights(product), -math.inf)
    row = torch.logsumexp(negative, -1, keepdim=True)
    own = torch.where(joint > 0, joint, 1.0)
    denominator = torch.logaddexp(positive + own.log(), row)
    count = own + product.sum(-1, keepdim=True)
    return joint_mean(positive - denominator + count.log(), joint)


@full_precision
def nwj(scores: Scores, *, joint: JointWeights = None, product: ProductWeights = None) -> Tensor:
    """NWJ: E_J[s] - E_M[exp(s - 1)]; at most the MI for any scores, best at s = 1 + log r."""
    return joint_mean(scores, joint) - (product_log_mean_exp(scores, product) - 1.0).exp()


@full_precision
def js(scores: Scores, *, joint: JointWeights = None, product: ProductWeights = None) -> Tensor:
    """Jensen-Shannon, Eq. (1): -E_J[softplus(-s)] - E_M[softplus(s)]; best at s = log r.

    It is the classifier that weighs joint and product samples equally, however many there are.
    """
    return joint_mean(scores, joint, F.logsigmoid) - product_mean(scores, product, softplus)


@full_precision
def dv(scores: Scores, *, joint: JointWeights = None, product: ProductWeights = None) -> Tensor:
    """Donsker-Varadhan: E_J[s] - log E_M[exp s]; best at s = log r + any constant."""
    return joint_mean(scores, joint) - product_log_mean_exp(scores, product)


@full_precision
def dv_moving_average(
    scores: Scores,
    log_average: Tensor | None = None,
    *,
    joint: JointWeights = None,
    product: ProductWeights = None,
    momentum: float = 0.9,
    floor: float = 1e-4,
) -> tuple[Tensor, Tensor]:
    """MINE: the value of `dv`, with a moving average of E_M[exp s] as the gradient's denominator.

    The average is passed in and out as its logarithm, of shape (...,); ``None`` starts it at this
    batch. Returns (objective, new log average).
    """
    log_mean = product_log_mean_exp(scores, product)
    current = log_mean.detach()
    if log_average is None:
        new = current
    else:
        new = torch.logaddexp(log_average + math.log(momentum), current + math.log1p(-momentum))
    new = new.clamp(min=math.log(floor))
    linear = joint_mean(scores, joint)
    surrogate = linear - (log_mean - new).exp()
    value = linear - log_mean
    return surrogate + (value - surrogate).detach(), new


@full_precision
def smile_bound(
    scores: Scores,
    *,
    joint: JointWeights = None,
    product: ProductWeights = None,
    tau: float = 5.0,
) -> Tensor:
    """SMILE's inference: E_J[s] - log E_M[exp clip(s, -tau, tau)]."""
    return joint_mean(scores, joint) - product_log_mean_exp(scores.clamp(-tau, tau), product)


@full_precision
def dm1(
    scores: Scores,
    *,
    joint: JointWeights = None,
    product: ProductWeights = None,
    lam: float = 1.0,
) -> Tensor:
    """Density Matching I, Eq. (2): E_J[s] - lambda (E_M[exp s] - 1); best at log r - log lambda."""
    return joint_mean(scores, joint) - lam * (product_log_mean_exp(scores, product).exp() - 1.0)


@full_precision
def dm2(
    scores: Scores,
    *,
    joint: JointWeights = None,
    product: ProductWeights = None,
    eta: float = 1.0,
) -> Tensor:
    """Density Matching II, Eq. (3): E_J[s] - eta (log E_M[exp s])^2; best at log r + 1/(2 eta)."""
    return joint_mean(scores, joint) - eta * product_log_mean_exp(scores, product).square()


@full_precision
def pc(scores: Scores, *, joint: JointWeights = None, product: ProductWeights = None) -> Tensor:
    """Probabilistic Classifier, Eqs. (4) and (5): minus the cross-entropy over all cells.

    The score is log r itself and the classifier's logit is s - log(n_M / n_J), so that nothing
    depends on the batch size, on masks or on ragged tails.
    """
    if joint is None or product is None:
        require_square(scores)
    n = scores.shape[-1]
    n_joint = total_weight(scores, joint, n)
    n_product = total_weight(scores, product, n * (n - 1))
    logits = scores - (n_product / n_joint).log()[..., None, None]
    positive = n_joint * joint_mean(logits, joint, F.logsigmoid)
    negative = n_product * product_mean(logits, product, softplus)
    return (positive - negative) / (n_joint + n_product)


@full_precision
def drf(
    scores: Scores,
    *,
    joint: JointWeights = None,
    product: ProductWeights = None,
    alpha: float = 0.0,
) -> Tensor:
    """Density-Ratio Fitting, Eq. (6): E_J[s] - 1/2 E_M[s^2]; best at s = r.

    The relative form, 0 < alpha < 1: E_J[s] - alpha/2 E_J[s^2] - (1 - alpha)/2 E_M[s^2], best at
    s = r / (alpha r + 1 - alpha), which cannot exceed 1/alpha.
    """
    if not 0.0 <= alpha < 1.0:
        raise InputError(f"alpha={alpha} is outside [0, 1)")
    value = joint_mean(scores, joint) - 0.5 * (1.0 - alpha) * product_mean(
        scores, product, torch.square
    )
    if alpha:
        value = value - 0.5 * alpha * joint_mean(scores, joint, torch.square)
    return value


@full_precision
def rpc(
    scores: Scores,
    *,
    joint: JointWeights = None,
    product: ProductWeights = None,
    a: float = 1.0,
    b: float = 0.005,
    c: float = 1.0,
) -> Tensor:
    """Relative Predictive Coding: E_J[s] - a E_M[s] - b/2 E_J[s^2] - c/2 E_M[s^2].

    Best at s = (r - a) / (b r + c).
    """
    return (
        joint_mean(scores, joint)
        - a * product_mean(scores, product)
        - 0.5 * b * joint_mean(scores, joint, torch.square)
        - 0.5 * c * product_mean(scores, product, torch.square)
    )


@full_precision
def squared_loss_mi(
    scores: Scores, *, joint: JointWeights = None, product: ProductWeights = None
) -> Tensor:
    """The squared-loss mutual information, 1/2 E_J[r] - 1/2, of scores that are r."""
    del product  # part of the common signature; the plug-in needs joint samples only
    return 0.5 * joint_mean(scores, joint) - 0.5
