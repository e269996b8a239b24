"""The learning objectives of Table 1, and a few others, as pure functions of a score matrix.

Each takes ``scores: (..., x, y)`` with any leading (replica) dimensions and returns the objective,
to be MAXIMISED, of shape ``(...,)``. ``joint`` and ``product`` are non-negative weights that
broadcast against it: ``joint`` marks samples of p(x,y), ``product`` samples of p(x)p(y). Left out,
row i and column i are the pairs and every other cell is a sample of the product. A cell of weight
zero may hold any score, a non-finite one included, and leaves value and gradient untouched.

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

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from pointdep.core.blocked.inner_scores import InnerScores, Joint, Product
from pointdep.core.blocked.sums import Elementwise, Quadratic, softplus, weighted_sum
from pointdep.core.blocked.walk import Others, Pairs, expanded, require_pairs
from pointdep.core.precision import HALF
from pointdep.errors import InputError

__all__ = ["InnerScores", "cpc", "dm1", "dm2", "drf", "dv", "dv_moving_average", "js", "nwj", "pc"]
__all__ += ["rpc", "smile_bound", "squared_loss_mi"]


class CellMeans(Protocol):
    """What objectives ask of scores that are no matrix; `InnerScores` is one."""

    def joint_mean(self, joint: Joint, function: Elementwise | None = None) -> Tensor:
        """E_J[function(s)], (...,)."""

    def product_mean(self, product: Product, function: Elementwise | None = None) -> Tensor:
        """E_M[function(s)], (...,)."""

    def quadratic_means(
        self, joint: Joint, product: Product, of_joint: Quadratic, of_product: Quadratic
    ) -> Tensor:
        """E_J[of_joint(s)] + E_M[of_product(s)], (...,)."""

    def product_log_mean_exp(self, product: Product) -> Tensor:
        """log E_M[exp s], (...,)."""

    def against_rows(self, joint: Joint, product: Product) -> Tensor:
        """E_J of s_ij - log mean exp over the pair itself and the product cells of its row."""


Scores = Tensor | CellMeans
Factored = Tensor | InnerScores
Weights = Tensor | Pairs | Others


def require_square(scores: Factored) -> None:
    """Refuse a rectangular matrix where the weights are left at their defaults."""
    if isinstance(scores, InnerScores):
        scores.require_pairs()
    else:
        require_pairs(scores.shape)


def joint_mean(scores: Scores, joint: Joint, function: Elementwise | None = None) -> Tensor:
    """E_J[function(s)], of shape (...,); the identity function by default."""
    if not isinstance(scores, Tensor):
        return scores.joint_mean(joint, function)
    if joint is None:
        require_square(scores)
        diagonal = scores.diagonal(dim1=-2, dim2=-1)
        return (function(diagonal) if function else diagonal).mean(-1)
    return _weighted_mean(scores, joint, function)


def product_mean(scores: Scores, product: Product, function: Elementwise | None = None) -> Tensor:
    """E_M[function(s)], of shape (...,); the identity function by default."""
    if not isinstance(scores, Tensor):
        return scores.product_mean(product, function)
    if product is None:
        require_square(scores)
        product = _off_diagonal(scores)
    return _weighted_mean(scores, product, function)


def quadratic_means(
    scores: Scores, joint: Joint, product: Product, of_joint: Quadratic, of_product: Quadratic
) -> Tensor:
    """E_J[of_joint(s)] + E_M[of_product(s)], of shape (...,)."""
    if not isinstance(scores, Tensor):
        return scores.quadratic_means(joint, product, of_joint, of_product)
    return joint_mean(scores, joint, of_joint) + product_mean(scores, product, of_product)


def product_log_mean_exp(scores: Scores, product: Product) -> Tensor:
    """log E_M[exp s], of shape (...,), by logsumexp: the sum itself does not fit float32."""
    if not isinstance(scores, Tensor):
        return scores.product_log_mean_exp(product)
    if product is None:
        require_square(scores)
        n = scores.shape[-1]
        others = scores.masked_fill(~_off_diagonal(scores), -math.inf)
        return torch.logsumexp(others.flatten(-2), -1) - math.log(n * (n - 1))
    weights = full_weights(scores, product)
    shifted = torch.where(weights > 0, scores + _log_weights(weights), -math.inf)
    return torch.logsumexp(shifted.flatten(-2), -1) - weights.flatten(-2).sum(-1).log()


def total_weight(scores: Factored, weights: Weights | None, default: int) -> Tensor:
    """The sum n_J or n_M of the weights, of shape (...,); `default` when they are left out."""
    if isinstance(scores, InnerScores):
        return scores.total_weight(weights, default)
    if weights is None:
        return scores.new_full(scores.shape[:-2], float(default))
    return full_weights(scores, weights).flatten(-2).sum(-1)


def full_weights(scores: Tensor, weights: Weights) -> Tensor:
    """The weights in the dtype and at the shape of the scores."""
    if not isinstance(weights, Tensor):
        raise InputError(
            "a matrix of scores takes tensors as weights; Pairs and Others go with InnerScores"
        )
    return expanded(weights.to(scores.dtype), scores.shape)


def _off_diagonal(scores: Tensor) -> Tensor:
    """Boolean (n, n): true off the diagonal, the default product weights."""
    return ~torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)


def _log_weights(weights: Tensor) -> Tensor:
    """log of the weights, 0 where they are zero: the slope of log there would be a NaN."""
    return torch.where(weights > 0, weights, 1.0).log()


def _weighted_mean(scores: Tensor, weights: Weights, function: Elementwise | None) -> Tensor:
    weights = full_weights(scores, weights)
    return weighted_sum(scores, weights, function) / weights.flatten(-2).sum(-1)


Objective = TypeVar("Objective", bound=Callable[..., Any])


def full_precision(objective: Objective) -> Objective:
    """Compute in float32 where the scores come in half precision, as under autocast.

    The number of cells of a batch of 300 does not even fit float16.
    """

    @wraps(objective)
    def of_float(scores: Any, /, *args: Any, **options: Any) -> Any:
        if isinstance(scores, Tensor | InnerScores) and scores.dtype in HALF:
            scores = scores.to(torch.float32)
        return objective(scores, *args, **options)

    return cast(Objective, of_float)


@full_precision
def cpc(scores: Scores, *, joint: Joint = None, product: Product = None) -> Tensor:
    """CPC / InfoNCE: mean_i [ s_ii - log( (1/B) sum_j exp s_ij ) ]; never above log B.

    With weights: each joint cell is set against the product cells of its row and itself, itself
    with its own joint weight.
    """
    if not isinstance(scores, Tensor):
        return scores.against_rows(joint, product)
    if joint is None and product is None:
        require_square(scores)
        positive = scores.diagonal(dim1=-2, dim2=-1)
        return (positive - torch.logsumexp(scores, -1)).mean(-1) + math.log(scores.shape[-1])
    if joint is None or product is None:
        require_square(scores)
        mask = _off_diagonal(scores)
        joint = (~mask).to(scores.dtype) if joint is None else joint
        product = mask.to(scores.dtype) if product is None else product
    joint, product = full_weights(scores, joint), full_weights(scores, product)
    positive = torch.where(joint > 0, scores, 0.0)
    negative = torch.where(product > 0, scores + _log_weights(product), -math.inf)
    row = torch.logsumexp(negative, -1, keepdim=True)
    own = torch.where(joint > 0, joint, 1.0)
    denominator = torch.logaddexp(positive + own.log(), row)
    count = own + product.sum(-1, keepdim=True)
    return joint_mean(positive - denominator + count.log(), joint)


@full_precision
def nwj(scores: Scores, *, joint: Joint = None, product: Product = None) -> Tensor:
    """NWJ: E_J[s] - E_M[exp(s - 1)]; at most the MI for any scores, best at s = 1 + log r."""
    return joint_mean(scores, joint) - (product_log_mean_exp(scores, product) - 1.0).exp()


@full_precision
def js(scores: Scores, *, joint: Joint = None, product: Product = None) -> Tensor:
    """Jensen-Shannon, Eq. (1): -E_J[softplus(-s)] - E_M[softplus(s)]; best at s = log r.

    It is the classifier that weighs joint and product samples equally, however many there are.
    """
    return joint_mean(scores, joint, F.logsigmoid) - product_mean(scores, product, softplus)


@full_precision
def js_bound(scores: Tensor, *, joint: Joint = None, product: Product = None) -> Tensor:
    """The bound of `js`, NWJ on s + 1: 1 + E_J[s] - E_M[exp s]."""
    return nwj(scores + 1.0, joint=joint, product=product)


@full_precision
def dv(scores: Scores, *, joint: Joint = None, product: Product = None) -> Tensor:
    """Donsker-Varadhan: E_J[s] - log E_M[exp s]; best at s = log r + any constant."""
    return joint_mean(scores, joint) - product_log_mean_exp(scores, product)


@full_precision
def dv_moving_average(
    scores: Scores,
    log_average: Tensor | None = None,
    *,
    joint: Joint = None,
    product: Product = None,
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
    scores: Factored, *, joint: Joint = None, product: Product = None, tau: float = 5.0
) -> Tensor:
    """SMILE's inference: E_J[s] - log E_M[exp clip(s, -tau, tau)]."""
    return joint_mean(scores, joint) - product_log_mean_exp(scores.clamp(-tau, tau), product)


@full_precision
def dm1(
    scores: Scores, *, joint: Joint = None, product: Product = None, lam: float = 1.0
) -> Tensor:
    """Density Matching I, Eq. (2): E_J[s] - lambda (E_M[exp s] - 1); best at log r - log lambda."""
    return joint_mean(scores, joint) - lam * (product_log_mean_exp(scores, product).exp() - 1.0)


@full_precision
def dm2(
    scores: Scores, *, joint: Joint = None, product: Product = None, eta: float = 1.0
) -> Tensor:
    """Density Matching II, Eq. (3): E_J[s] - eta (log E_M[exp s])^2; best at log r + 1/(2 eta)."""
    return joint_mean(scores, joint) - eta * product_log_mean_exp(scores, product).square()


@full_precision
def pc(scores: Factored, *, joint: Joint = None, product: Product = None) -> Tensor:
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
    scores: Scores, *, joint: Joint = None, product: Product = None, alpha: float = 0.0
) -> Tensor:
    """Density-Ratio Fitting, Eq. (6): E_J[s] - 1/2 E_M[s^2]; best at s = r.

    The relative form, 0 < alpha < 1: E_J[s] - alpha/2 E_J[s^2] - (1 - alpha)/2 E_M[s^2], best at
    s = r / (alpha r + 1 - alpha), which cannot exceed 1/alpha.
    """
    if not 0.0 <= alpha < 1.0:
        raise InputError(f"alpha={alpha} is outside [0, 1)")
    functions = Quadratic(1.0, -0.5 * alpha), Quadratic(0.0, -0.5 * (1.0 - alpha))
    return quadratic_means(scores, joint, product, *functions)


@full_precision
def rpc(
    scores: Scores,
    *,
    joint: Joint = None,
    product: Product = None,
    a: float = 1.0,
    b: float = 0.005,
    c: float = 1.0,
) -> Tensor:
    """Relative Predictive Coding: E_J[s] - a E_M[s] - b/2 E_J[s^2] - c/2 E_M[s^2].

    Best at s = (r - a) / (b r + c).
    """
    functions = Quadratic(1.0, -0.5 * b), Quadratic(-a, -0.5 * c)
    return quadratic_means(scores, joint, product, *functions)


@full_precision
def squared_loss_mi(scores: Scores, *, joint: Joint = None, product: Product = None) -> Tensor:
    """The squared-loss mutual information, 1/2 E_J[r] - 1/2, of scores that are r."""
    del product  # part of the common signature; the plug-in needs joint samples only
    return 0.5 * joint_mean(scores, joint) - 0.5
