"""Means over the cells of a score matrix, under the weights of the joint and of the product.

Every objective is a function of ``scores: (..., x, y)`` and of two non-negative weight matrices
that broadcast against it: ``joint`` marks samples of p(x,y), ``product`` samples of p(x)p(y). By
default row i and column i are a pair, so ``joint`` is the identity and ``product`` is one off the
diagonal.

In the place of the matrix may stand `InnerScores`, whose sums are found without it; its weights may
be `Pairs` and `Others`.

A cell of weight zero is masked before anything is computed from it, so that it may hold any score,
a non-finite one included, and still leaves value and gradient untouched.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pointdep.core.blocked.layout import JointWeights, ProductWeights
from pointdep.core.blocked.scores import InnerScores
from pointdep.core.blocked.weights import Others, Pairs
from pointdep.errors import InputError

Elementwise = Callable[[Tensor], Tensor]
Scores = Tensor | InnerScores
Weights = Tensor | Pairs | Others


def require_square(scores: Scores) -> None:
    """Refuse a rectangular matrix where the weights are left at their defaults."""
    if isinstance(scores, InnerScores):
        scores.require_pairs()
        return
    if scores.ndim < 2 or scores.shape[-1] != scores.shape[-2]:
        raise InputError(
            f"scores of shape {tuple(scores.shape)} are not a square matrix of pairs: give `joint` "
            "and `product` weights that say which cells are samples of which distribution"
        )
    if scores.shape[-1] < 2:
        raise InputError("a batch of one pair has no product samples: at least two rows are needed")


def off_diagonal(scores: Tensor) -> Tensor:
    """Boolean (n, n): true off the diagonal, the default product weights."""
    return ~torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)


def joint_mean(scores: Scores, joint: JointWeights, function: Elementwise | None = None) -> Tensor:
    """E_J[function(s)], of shape (...,); the identity function by default."""
    if isinstance(scores, InnerScores):
        return scores.joint_mean(joint, function)
    if joint is None:
        require_square(scores)
        diagonal = scores.diagonal(dim1=-2, dim2=-1)
        return (function(diagonal) if function else diagonal).mean(-1)
    return _weighted_mean(scores, joint, function)


def product_mean(
    scores: Scores, product: ProductWeights, function: Elementwise | None = None
) -> Tensor:
    """E_M[function(s)], of shape (...,); the identity function by default."""
    if isinstance(scores, InnerScores):
        return scores.product_mean(product, function)
    if product is None:
        require_square(scores)
        product = off_diagonal(scores)
    return _weighted_mean(scores, product, function)


def product_log_mean_exp(scores: Scores, product: ProductWeights) -> Tensor:
    """log E_M[exp s], of shape (...,), by logsumexp: the sum itself does not fit float32."""
    if isinstance(scores, InnerScores):
        return scores.product_log_mean_exp(product)
    if product is None:
        require_square(scores)
        n = scores.shape[-1]
        return torch.logsumexp(
            scores.masked_fill(~off_diagonal(scores), -math.inf).flatten(-2), dim=-1
        ) - math.log(n * (n - 1))
    scores, weights = _masked(scores, product)
    shifted = torch.where(weights > 0, scores + log_weights(weights), -math.inf)
    return torch.logsumexp(shifted.flatten(-2), -1) - weights.flatten(-2).sum(-1).log()


def log_weights(weights: Tensor) -> Tensor:
    """log of the weights, 0 where they are zero: the slope of log there would be a NaN."""
    return torch.where(weights > 0, weights, 1.0).log()


def total_weight(scores: Scores, weights: Weights | None, default: int) -> Tensor:
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
    try:
        return weights.to(scores.dtype).expand_as(scores)
    except RuntimeError:
        raise InputError(
            f"weights of shape {tuple(weights.shape)} do not fit scores of shape "
            f"{tuple(scores.shape)}"
        ) from None


def _masked(scores: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    """Scores with zero-weight cells replaced by 0, and the weights at full shape."""
    weights = full_weights(scores, weights)
    return torch.where(weights > 0, scores, 0.0), weights


def _weighted_mean(scores: Tensor, weights: Weights, function: Elementwise | None) -> Tensor:
    scores, weights = _masked(scores, weights)
    values = function(scores) if function else scores
    return (weights * values).flatten(-2).sum(-1) / weights.flatten(-2).sum(-1)
