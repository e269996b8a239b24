"""Rank-Gaussianising: each column to normal scores, which leaves r(x,y) as it is."""

from __future__ import annotations

import torch
from torch import Tensor, nn

KNOTS = 1024
"""Points kept of each column's map; columns with fewer distinct values keep them all."""


class RankMap(nn.Module):
    """Per column: the normal score of a value's rank, linear between the kept values.

    Tied values share their middle rank. Beyond the values seen in fitting the map goes on growing,
    but slowly: it stays one to one, and a lone outlier among new rows does not go far. Columns that
    are not numeric (indicators of categories) stay as they are.
    """

    values: Tensor
    scores: Tensor
    count: Tensor
    reach: Tensor

    def __init__(self, dim: int, knots: int = KNOTS) -> None:
        super().__init__()
        self.register_buffer("values", torch.full((dim, knots), torch.inf))
        self.register_buffer("scores", torch.zeros(dim, knots))
        self.register_buffer("count", torch.zeros(dim, dtype=torch.long))  # 0: left as it is
        self.register_buffer("reach", torch.ones(dim))

    @torch.no_grad()
    def fit(self, rows: Tensor, numeric: Tensor) -> RankMap:
        """Fit on rows: (n, dim); columns where `numeric` is false stay as they are."""
        knots = self.values.shape[1]
        self.values.fill_(torch.inf)
        self.count.zero_()
        # A GPU sorts all columns in the time that a CPU takes for one.
        ordered = rows.float().sort(0).values.T.cpu() if rows.is_cuda else None
        for column in torch.nonzero(numeric).flatten().tolist():
            column_rows = rows[:, column].float().cpu()
            if ordered is None:
                distinct, counts = torch.unique(column_rows, return_counts=True)
            else:
                distinct, counts = torch.unique_consecutive(ordered[column], return_counts=True)
            if len(distinct) < 2:
                continue
            share = (counts.cumsum(0).double() - 0.5 * counts) / len(rows)
            normal = torch.special.ndtri(share)
            kept = _spaced(share, normal, knots)
            size = len(kept)
            self.values[column, :size] = distinct[kept]
            self.scores[column, :size] = normal[kept].float()
            self.count[column] = size
            self.reach[column] = column_rows.std(correction=0).clamp(min=1e-30)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """x: (n, dim) -> the same shape."""
        mapped = self.count > 0
        if not bool(mapped.any()):
            return x
        columns = x.T.contiguous()
        last = (self.count - 1).clamp(min=1).unsqueeze(1)
        right = torch.searchsorted(self.values, columns).clamp(min=1).minimum(last)
        left = right - 1
        low, high = self.values.gather(1, left), self.values.gather(1, right)
        start, end = self.scores.gather(1, left), self.scores.gather(1, right)
        inside = columns.clamp(low, high)
        found = start + (end - start) * ((inside - low) / (high - low))
        # Past the ends the score grows with the logarithm of the distance in standard deviations.
        past = (columns - inside) / self.reach.unsqueeze(1)
        found = found + past.sign() * past.abs().log1p()
        whole: Tensor = torch.where(mapped.unsqueeze(1), found, columns).T.contiguous()
        return whole

    def beyond(self, mapped: Tensor, margin: float) -> Tensor:
        """Mapped rows (n, dim) -> (n,) boolean: a score `margin` or more past those of fitting."""
        last = (self.count - 1).clamp(min=0).unsqueeze(1)
        low, high = self.scores[:, 0], self.scores.gather(1, last).squeeze(1)
        far = (mapped < low - margin) | (mapped > high + margin)
        found: Tensor = (far & (self.count > 0)).any(1)
        return found


def _spaced(share: Tensor, normal: Tensor, knots: int) -> Tensor:
    """Positions of at most `knots` distinct values: even in order and in score, ends kept."""
    if len(share) <= knots:
        return torch.arange(len(share))
    half = knots // 2
    by_rank = torch.linspace(0, len(share) - 1, half).round().long()
    wanted = torch.linspace(float(normal[0]), float(normal[-1]), knots - half, dtype=normal.dtype)
    by_score = torch.searchsorted(normal, wanted).clamp(max=len(share) - 1)
    positions: Tensor = torch.unique(torch.cat([by_rank, by_score]))
    return positions
