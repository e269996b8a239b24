"""Canonical coordinates from running sums: what the analysis of rows needs to know of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pointdep.core.canonical import Canonical, held_to, whitening


@dataclass(frozen=True)
class CrossMoments:
    """Sums over rows z = [x, y] of d = dx + dy columns: their number, z (d,) and z z' (d, d)."""

    count: int
    total: Tensor
    second: Tensor

    @classmethod
    def zero(cls, dim: int, device: torch.device) -> CrossMoments:
        """Of no rows."""
        total = torch.zeros(dim, dtype=torch.float64, device=device)
        return cls(0, total, total.new_zeros(dim, dim))

    def add_(self, rows: Tensor) -> CrossMoments:
        """Those of these rows, (n, d) float64, as well; the sums are changed in place."""
        self.total.add_(rows.sum(0))
        self.second.addmm_(rows.T, rows)
        return CrossMoments(self.count + len(rows), self.total, self.second)

    def __add__(self, other: CrossMoments) -> CrossMoments:
        return CrossMoments(
            self.count + other.count, self.total + other.total, self.second + other.second
        )

    @property
    def mean(self) -> Tensor:
        return self.total / self.count

    def around(self, mean: Tensor) -> Tensor:
        """The sum of (z - mean)(z - mean)', (d, d)."""
        apart = torch.outer(self.total, mean)
        return self.second - apart - apart.T + self.count * torch.outer(mean, mean)


def canonical_from_moments(parts: Sequence[CrossMoments], x_dim: int, draws: int) -> Canonical:
    """`canonical_correlations` of rows that are summed up in disjoint parts, left out in turn.

    draws: the number of independent rows (or groups of them) in all parts.
    """
    parts = [part for part in parts if part.count]
    whole = _sum(parts)
    found = _analyse(whole, x_dim)
    kept = len(found.correlations)
    moments, measured = whole.total.new_zeros(3, kept), whole.total.new_zeros(kept)
    for number, held in enumerate(parts if len(parts) > 1 else []):
        one = _analyse(_sum([p for k, p in enumerate(parts) if k != number]), x_dim)
        around = held.around(torch.cat([one.x_mean, one.y_mean]))
        have = min(kept, one.x_weight.shape[1], one.y_weight.shape[1])
        u, v = one.x_weight[:, :have], one.y_weight[:, :have]
        moments[:, :have] += torch.stack(
            [
                (u * (around[:x_dim, :x_dim] @ u)).sum(0),
                (v * (around[x_dim:, x_dim:] @ v)).sum(0),
                (u * (around[:x_dim, x_dim:] @ v)).sum(0),
            ]
        )
        measured[:have] += held.count
    return held_to(found, moments, measured, draws)


def _sum(parts: Sequence[CrossMoments]) -> CrossMoments:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    return whole


def _analyse(moments: CrossMoments, x_dim: int) -> Canonical:
    covariance = moments.around(moments.mean) / moments.count
    x_white = whitening(covariance[:x_dim, :x_dim], moments.count)
    y_white = whitening(covariance[x_dim:, x_dim:], moments.count)
    u, correlations, vt = torch.linalg.svd(
        x_white.T @ covariance[:x_dim, x_dim:] @ y_white, full_matrices=True
    )
    mean = moments.mean
    return Canonical(mean[:x_dim], mean[x_dim:], x_white @ u, y_white @ vt.T, correlations)
