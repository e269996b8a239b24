"""The closed form of log r for Gaussian pairs."""

from __future__ import annotations

import torch
from torch import Tensor


def gaussian_log_ratio(u: Tensor, v: Tensor, correlations: Tensor) -> Tensor:
    """log r of canonical coordinates u, v: (..., k) with canonical correlations (k,) -> (...,).

    sum_k [ -1/2 log(1-rho^2) - (rho^2 (u^2 + v^2) - 2 rho u v) / (2 (1-rho^2)) ]
    """
    square = correlations.square()
    exponent = (square * (u.square() + v.square()) - 2 * correlations * u * v) / (2 * (1 - square))
    return (-0.5 * torch.log1p(-square) - exponent).sum(-1)


def gaussian_terms(u: Tensor, v: Tensor, correlations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`gaussian_log_ratio` taken apart, so that all pairs are one product.

    u: (R, ..., n, k), v: (R, ..., m, k), correlations: (R, k). The terms of u alone, (R, ..., n),
    and of v alone, (R, ..., m), and what is to meet v in an inner product, (R, ..., n, k).
    """
    shape = (correlations.shape[0], *[1] * (u.ndim - 2), correlations.shape[1])
    square = correlations.square()
    weight = (0.5 * square / (1 - square)).view(shape)
    constant = (-0.5 * torch.log1p(-square).sum(-1)).view(shape[:-1])
    own_u = constant - (u.square() * weight).sum(-1)
    own_v = -(v.square() * weight).sum(-1)
    return own_u, own_v, u * (correlations / (1 - square)).view(shape)


def gaussian_mutual_information(correlations: Tensor) -> Tensor:
    """MI in nats of Gaussian pairs with these canonical correlations: -1/2 sum log(1-rho^2)."""
    return -0.5 * torch.log1p(-correlations.square()).sum(-1)
