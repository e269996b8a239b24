"""Who a doubtful x belongs to instead, and which pairs exchanged their y."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.fitting.progress import Progress
from pointdep.fitting.splits import Split
from pointdep.inference.scoring import score_matrix
from pointdep.retrieval.search import top_k

Rows = NDArray[np.int64]

_MOST_LOOKED_AT = 1_000  # candidates per row: the best may be of the row's own group
_MOST_SWAPS = 2_000  # rows among which exchanges are looked for
_ODDS = 10.0  # to one, that two rows exchanged their y


@dataclass(frozen=True)
class Partners:
    """For every row (n,): the row whose y belongs to its x more and its PMI; -1 and NaN for none.

    swapped: the row with which it may have exchanged y, or -1.
    """

    row: Rows
    pmi: NDArray[np.float32]
    swapped: Rows


def find_partners(
    model: RatioModel,
    x: Tensor,
    y: Tensor,
    splits: Sequence[Split],
    pmi: NDArray[np.float32],
    doubtful: Rows,
    *,
    codes: NDArray[np.int64] | None = None,
    progress: Progress,
) -> Partners:
    """Of the doubtful rows, worst first, each asked of a replica that did not see it.

    x: (n, dx), y: (n, dy), prepared; pmi: (n,) out of fold. Equal y are one candidate, named by the
    first row that has it; a y that only the row's own group has is none.
    """
    found = Partners(
        np.full(len(x), -1, np.int64),
        np.full(len(x), np.nan, np.float32),
        np.full(len(x), -1, np.int64),
    )
    candidates, of_row = _distinct(y)
    listed = y[torch.from_numpy(candidates).to(y.device)]
    elsewhere = candidates if codes is None else _elsewhere(candidates, of_row, codes)
    owner = _owners(splits, len(x))
    k = min(_of_own_group(doubtful, of_row, codes) + 1, _MOST_LOOKED_AT, len(candidates))
    done = 0
    for replica in np.unique(owner[doubtful]):
        rows = doubtful[owner[doubtful] == replica]
        asked = x[torch.from_numpy(rows).to(x.device)]
        best = top_k(model.select([int(replica)]), asked, listed, k, measure_recall=False)
        for row, numbers, values in zip(rows, best.indices, best.pmi, strict=True):
            for number, value in zip(numbers, values, strict=True):
                other = candidates[number]
                if codes is not None and codes[other] == codes[row]:
                    other = elsewhere[number]
                if other >= 0 and number != of_row[row] and value > pmi[row]:
                    found.row[row], found.pmi[row] = other, value
                    break
        done += len(rows)
        progress.update(done, len(doubtful), "doubtful rows")
    rows = doubtful[:_MOST_SWAPS]
    _find_swaps(model, x, y, owner, pmi, rows, found.swapped, codes)
    return found


def _of_own_group(doubtful: Rows, of_row: Rows, codes: NDArray[np.int64] | None) -> int:
    """The most candidates that a doubtful row's own group, or the row itself, has."""
    if codes is None:
        return 1
    own = np.unique(np.stack([codes, of_row]), axis=1)[0]  # one entry a group and candidate
    groups, counts = np.unique(own, return_counts=True)
    return int(counts[np.isin(groups, codes[doubtful])].max())


def _find_swaps(
    model: RatioModel,
    x: Tensor,
    y: Tensor,
    owner: Rows,
    pmi: NDArray[np.float32],
    rows: Rows,
    swapped: Rows,
    codes: NDArray[np.int64] | None,
) -> None:
    """Write into `swapped`: both belong to the other's y, more than to any other doubtful row's.

    A row that exchanged its y did so with any of the others: the odds are r r' to their number,
    and where the rows belong to their own y they must beat the r of these too.
    """
    if len(rows) < 2:
        return
    matrix = np.empty((len(rows), len(rows)))
    index = torch.from_numpy(rows)
    for replica in np.unique(owner[rows]):
        own = owner[rows] == replica
        asked = x[index[torch.from_numpy(own)].to(x.device)]
        one = model.select([int(replica)])
        matrix[own] = score_matrix(one, asked, y[index.to(y.device)])
    both = matrix + matrix.T
    gains = np.minimum(matrix - pmi[rows][:, None], (matrix - pmi[rows][:, None]).T)
    both[(np.minimum(matrix, matrix.T) <= 0) | (gains <= 0)] = -np.inf
    names = rows if codes is None else codes[rows]
    both[names[:, None] == names] = -np.inf  # within a group every y belongs to every x
    best = both.argmax(1)
    own_ratio = np.maximum(pmi[rows], 0.0)
    for row, other in enumerate(best):
        odds = both[row, other] - own_ratio[row] - own_ratio[other]
        if best[other] == row and odds > math.log(_ODDS * len(rows)):
            swapped[rows[row]] = rows[other]


def _distinct(y: Tensor) -> tuple[Rows, Rows]:
    """The first row of each distinct y, (c,), in order, and the candidate of each row, (n,)."""
    _, first, inverse = np.unique(y.cpu().numpy(), axis=0, return_index=True, return_inverse=True)
    order = first.argsort()
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return first[order].astype(np.int64), position[inverse.reshape(-1)]


def _elsewhere(candidates: Rows, of_row: Rows, codes: NDArray[np.int64]) -> Rows:
    """The first row of each candidate in another group than its first row's, (c,), -1 for none."""
    found = np.full(len(candidates), -1, np.int64)
    others = np.flatnonzero(codes != codes[candidates[of_row]])
    numbers, first = np.unique(of_row[others], return_index=True)
    found[numbers] = others[first]
    return found


def _owners(splits: Sequence[Split], rows: int) -> Rows:
    """A replica that did not see the row, (rows,)."""
    owner = np.full(rows, -1, np.int64)
    for replica, split in enumerate(splits):
        owner[split.report] = replica
    return owner
