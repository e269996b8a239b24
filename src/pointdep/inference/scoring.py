"""Ask a fitted model about many pairs, in blocks; the replicas' log-ratios are averaged."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.fitting.progress import Progress, Silent

_BUDGET = 1 << 22  # numbers alive at a time
_MATRIX_BUDGET = 1 << 25  # each pass over the rows embeds all candidates anew: few passes
_SILENT = Silent()
Array32 = NDArray[np.float32]


def score_pairs(model: RatioModel, x: Tensor, y: Tensor, progress: Progress = _SILENT) -> Tensor:
    """log r of each pair, mean over the replicas. x: (n, dx), y: (n, dy) -> (n,) on the CPU."""
    return score_replicas(model, x, y, progress).mean(0)


@torch.no_grad()
def score_replicas(model: RatioModel, x: Tensor, y: Tensor, progress: Progress = _SILENT) -> Tensor:
    """log r of each pair by each replica. x: (n, dx), y: (n, dy) -> (R, n) on the CPU."""
    rows = max(1, _BUDGET // (model.replicas * max(model.critic.cell_width(), sum_dims(x, y))))
    device = model.constant.device
    out = torch.empty(model.replicas, len(x))
    for first in range(0, len(x), rows):
        part = slice(first, first + rows)
        a, b = (spread(side[part].to(device), model.replicas) for side in (x, y))
        out[:, part] = model.log_ratio_pairs(a, b).cpu()
        progress.update(min(first + rows, len(x)), len(x), "pairs")
    return out


@torch.no_grad()
def score_matrix(model: RatioModel, x: Tensor, y: Tensor, progress: Progress = _SILENT) -> Array32:
    """log r of all pairs, mean over the replicas. x: (n, dx), y: (m, dy) -> (n, m)."""
    rows = max(1, _MATRIX_BUDGET // (model.replicas * max(1, len(y))))
    device, columns = model.constant.device, y
    out = np.empty((len(x), len(y)), dtype=np.float32)
    candidates = spread(columns.to(device), model.replicas)
    for first in range(0, len(x), rows):
        part = spread(x[first : first + rows].to(device), model.replicas)
        out[first : first + rows] = model.log_ratio_matrix(part, candidates).mean(0).cpu().numpy()
        progress.update(min(first + rows, len(x)), len(x), "rows")
    return out


@torch.no_grad()
def score_blocks(model: RatioModel, x: Tensor, y: Tensor) -> Tensor:
    """log r within blocks, mean over the replicas. x: (G, b, dx), y: (G, b, dy) -> (G, b, b)."""
    width = model.replicas * model.critic.cell_width() * x.shape[1] ** 2
    blocks = max(1, _BUDGET // width)
    device = model.constant.device
    return torch.cat(
        [
            model.log_ratio_blocks(
                spread(a.to(device), model.replicas), spread(b.to(device), model.replicas)
            )
            .mean(0)
            .cpu()
            for a, b in zip(torch.split(x, blocks), torch.split(y, blocks), strict=True)
        ]
    )


def spread(rows: Tensor, replicas: int) -> Tensor:
    """The same rows for every replica: (n, ...) -> (R, n, ...), without a copy."""
    return rows.unsqueeze(0).expand(replicas, *rows.shape)


def sum_dims(x: Tensor, y: Tensor) -> int:
    """Numbers in one pair."""
    return int(x.shape[-1] + y.shape[-1])
