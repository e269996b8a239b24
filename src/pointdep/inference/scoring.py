"""Ask a fitted model about many pairs, in blocks; the replicas' log-ratios are averaged."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.errors import InputError
from pointdep.fitting.progress import Progress, Silent

_BUDGET = 1 << 22  # numbers alive at a time
_MATRIX_BUDGET = 1 << 25  # each pass over the rows embeds all candidates anew: few passes
_SILENT = Silent()
Array32 = NDArray[np.float32]
Rows = NDArray[np.int64]


def score_pairs(model: RatioModel, x: Tensor, y: Tensor, progress: Progress = _SILENT) -> Tensor:
    """log r of each pair, mean over the replicas. x: (n, dx), y: (n, dy) -> (n,) on the CPU."""
    return score_replicas(model, x, y, progress).mean(0)


@torch.no_grad()
def score_replicas(model: RatioModel, x: Tensor, y: Tensor, progress: Progress = _SILENT) -> Tensor:
    """log r of each pair by each replica. x: (n, dx), y: (n, dy) -> (R, n) on the CPU."""
    width = max(model.critic.cell_width(), x.shape[-1] + y.shape[-1])
    rows = max(1, _BUDGET // (model.replicas * width))
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
    device = model.constant.device
    out = np.empty((len(x), len(y)), dtype=np.float32)
    candidates = spread(y.to(device), model.replicas)
    for first in range(0, len(x), rows):
        part = spread(x[first : first + rows].to(device), model.replicas)
        out[first : first + rows] = model.log_ratio_matrix(part, candidates).mean(0).cpu().numpy()
        progress.update(min(first + rows, len(x)), len(x), "rows")
    return out


@torch.no_grad()
def score_blocks(model: RatioModel, x: Tensor, y: Tensor) -> Tensor:
    """log r within blocks, mean over the replicas. x: (G, b, dx), y: (G, b, dy) -> (G, b, b)."""
    blocks = max(1, _BUDGET // (model.replicas * model.critic.cell_width() * x.shape[1] ** 2))
    device = model.constant.device
    found = []
    for both in zip(torch.split(x, blocks), torch.split(y, blocks), strict=True):
        a, b = (spread(side.to(device), model.replicas) for side in both)
        found.append(model.log_ratio_blocks(a, b).mean(0).cpu())
    return torch.cat(found)


def spread(rows: Tensor, replicas: int) -> Tensor:
    """The same rows for every replica: (n, ...) -> (R, n, ...), without a copy."""
    return rows.unsqueeze(0).expand(replicas, *rows.shape)


# The balanced classifier that a log-ratio implies: the score by which fits are compared.

_SHUFFLES = 8  # product samples per row


def shuffled_log_likelihood(
    score: Callable[[Rows, Rows], NDArray[np.floating]],
    rows: int,
    *,
    seed: int,
    groups: Rows | None = None,
) -> float:
    """Minus the log-loss of sigmoid(log r) on n pairs, and on shifts of y against x.

    Both kinds weigh one half: -log 2 for a model that says r = 1 everywhere; never above 0.
    score: log r, (n,), of the rows of x and of y with these numbers, (n,) each. groups: (n,); rows
    of one group are not set against each other.
    """
    if rows < 2:
        raise InputError("score needs at least two rows, to shuffle them against each other")
    order = np.random.default_rng(seed).permutation(rows)
    names = order if groups is None else groups[order]
    product = []
    for shift in range(1, min(_SHUFFLES, rows - 1) + 1):
        mismatched = names != np.roll(names, shift)
        product.append(score(order, np.roll(order, shift))[mismatched])
    shuffled = np.concatenate(product)
    if not len(shuffled):
        raise InputError("score found no two rows of different groups to compare")
    positive = np.logaddexp(0.0, -score(order, order).astype(np.float64)).mean()
    return float(-0.5 * (positive + np.logaddexp(0.0, shuffled.astype(np.float64)).mean()))


# Normalised PMI: PMI / -log p(x,y), in [-1, 1].

Array = NDArray[np.float64]


def normalised_pmi(
    pmi: Array, log_frequencies: Sequence[Array | None], rows: int
) -> NDArray[np.float32]:
    """pmi: (n,); per side, log p of each outcome, (n,), or None where the side is continuous.

    -log p(x,y) = -log p(x) - log p(y) - PMI. An outcome of a continuous side counts as one of
    `rows` equally likely ones.
    """
    surprise = -pmi
    for frequency in log_frequencies:
        surprise = surprise + (math.log(rows) if frequency is None else -frequency)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(surprise <= 0, 1.0, pmi / surprise)
    return np.clip(values, -1.0, 1.0).astype(np.float32)
