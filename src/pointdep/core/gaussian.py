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


def gaussian_mutual_information(correlations: Tensor) -> Tensor:
    """MI in nats of Gaussian pairs with these canonical correlations: -1/2 sum log(1-rho^2)."""
    return -0.5 * torch.log1p(-correlations.square()).sum(-1)
