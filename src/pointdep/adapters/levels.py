"""What a one-sided softmax leaves open: a function of the query, removed by its other logits.

Trained to pick the right candidate for each query, a model's logit is log r plus any function of
the query. For the true log r the log-mean-exp over candidates, drawn from their marginal, is zero;
so what it is for the logits must be taken off. That mean hangs on the few candidates that fit the
query, and where PMI is large a sample has hardly any. Log-means at a lower temperature and plain
means are steadier, and move with the query's function in the same way: which mixture of these
levels is right is fitted on held-out pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

SHARES = (1.0, 0.5, 0.25)
"""Of the slope that turns logits into log r: the temperatures of the log-means."""

COUNT = len(SHARES) + 1

BY_LEVEL = torch.zeros(COUNT, COUNT + 1, dtype=torch.float64)
"""(COUNT, COUNT + 1): how slope, shift and mix columns of the regression change with the levels."""
BY_LEVEL[0] = 1.0
BY_LEVEL[0, :2] = torch.tensor([-1.0, 0.0])
BY_LEVEL[range(1, COUNT), range(2, COUNT + 1)] = -1.0


def levels(logits: Tensor, used: Tensor, temperature: float) -> Tensor:
    """Log-mean-exps at each temperature, and the mean, of each row: (n, m) -> (n, COUNT).

    used: (n, m) boolean, which candidates of a query count.
    """
    return combine([parts_of(logits, used, temperature)], temperature)


def parts_of(logits: Tensor, used: Tensor, temperature: float) -> Tensor:
    """What of some candidates enters the levels: (n, m) -> (n, COUNT + 1).

    Log-sums of exponentials, the sum, and how many they are.
    """
    hidden = logits.masked_fill(~used, -math.inf)
    sums = [torch.logsumexp(share * temperature * hidden, -1) for share in SHARES]
    total = logits.masked_fill(~used, 0.0).sum(-1)
    return torch.stack([*sums, total, used.sum(-1).to(logits)], -1)


def combine(parts: Sequence[Tensor], temperature: float) -> Tensor:
    """The levels over candidates of which each part is known, (n, COUNT + 1) each."""
    stacked = torch.stack(list(parts))
    count = stacked[..., -1].sum(0)
    found = [
        (torch.logsumexp(stacked[..., k], 0) - count.log()) / (share * temperature)
        for k, share in enumerate(SHARES)
    ]
    return torch.stack([*found, stacked[..., -2].sum(0) / count], -1)


def columns(logits: Tensor, level: Tensor) -> Tensor:
    """What log r is linear in: (..., N) and (..., N, COUNT) -> (..., N, COUNT).

    The logit less the first level, and by how much that exceeds the others. None of them changes
    when a function of the query is added to its logits.
    """
    first = level[..., :1]
    return torch.cat([logits.unsqueeze(-1) - first, first - level[..., 1:]], -1)


def pulls(
    logits: Tensor, used: Tensor, kept: Tensor, level: Tensor, asked: Tensor, temperature: float
) -> Tensor:
    """How what hangs on the levels moves with the weight of each candidate: (R, m, d).

    logits, used: (n, m); kept: (R, m) boolean, the candidates of each replica; level: its levels,
    (R, n, COUNT); asked: (R, n, COUNT, d), derivatives of d things by those levels.
    """
    own, other = used.to(logits), logits.masked_fill(~used, 0.0)
    count = own @ kept.T.to(own)
    asked = asked.to(own) / count.T.reshape(*level.shape[:2], 1, 1)
    # Of the mean: by how much a candidate's logit exceeds it.
    found = other.T @ asked[:, :, -1] - own.T @ (level[..., -1:].to(own) * asked[:, :, -1])
    base = level.mean(0).to(own)
    for k, share in enumerate(SHARES):
        heat = share * temperature
        risen = (heat * (logits - base[:, k : k + 1])).masked_fill(~used, -math.inf).exp()
        moved = (heat * (base[:, k] - level[..., k].to(own))).exp().unsqueeze(-1)
        found = found + (risen.T @ (moved * asked[:, :, k]) - own.T @ asked[:, :, k]) / heat
    return found * kept.unsqueeze(-1)
