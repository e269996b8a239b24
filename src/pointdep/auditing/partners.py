"""Who a doubtful x belongs to instead, and which pairs exchanged their y."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.fitting.data_flags import by_nature, repeat_by_nature, row_keys
from pointdep.fitting.progress import Progress
from pointdep.fitting.splits import Split
from pointdep.inference.scoring import score_matrix
from pointdep.retrieval.search import top_k

# Rows that are nearly the same pair.

Rows = NDArray[np.int64]

_NEIGHBOURS = 10
_CLOSE = 0.1  # of the distance to the tenth neighbour
_EXPECTED = 0.05  # rows of the data that may lie so close by chance
_PROJECTED = 32  # columns that neighbours are looked for in
_EQUAL = 1e-6
_BLOCK = 1 << 24  # distances alive at a time
_FLAT_ROWS, _CELLS, _PER_CELL = 20_000, 8, 64
_MOST_ROWS = 1_000_000  # with more only equal rows are looked for


def duplicates(x: Tensor, y: Tensor) -> Rows:
    """For each pair (n,) the first row that is (nearly) the same in x and in y, -1 for none.

    x: (n, dx), y: (n, dy), columns of about one scale. Nearly the same are two pairs that lie
    closer than a tenth of the distance to their tenth neighbour, on both sides, and closer than
    rows of these data would by chance. Pairs that repeat by nature, as those of few distinct values
    do, are not duplicates.
    """
    rows = torch.cat([x, y], 1).cpu()
    found = np.full(len(rows), -1, dtype=np.int64)
    if repeat_by_nature(x, y):
        return found
    first = _first_equal(rows)
    distinct = np.flatnonzero(first == np.arange(len(rows)))
    copies = first != np.arange(len(rows))
    found[copies] = first[copies]
    if _NEIGHBOURS < len(distinct) <= _MOST_ROWS:
        index = torch.from_numpy(distinct)
        near = _first_near(rows[index], x.shape[1])
        close = near >= 0
        found[distinct[close]] = distinct[near[close]]
        moved = found[found]  # a copy of a row that is itself near an earlier one
        found = np.where((found >= 0) & (moved >= 0), moved, found)
    return found


def copies_by_key(x: NDArray[np.float64], y: NDArray[np.float64]) -> Rows:
    """The same for equal pairs alone, by `row_keys` of both sides, (n,) each."""
    _, first, inverse, counts = np.unique(
        x + np.pi * y, return_index=True, return_inverse=True, return_counts=True
    )
    one_side = max(len(np.unique(side)) for side in (x, y))
    found = np.full(len(x), -1, np.int64)
    if by_nature(len(counts), len(x), one_side):
        return found
    first = first[inverse.reshape(-1)].astype(np.int64)
    copies = first != np.arange(len(x))
    found[copies] = first[copies]
    return found


def _first_equal(rows: Tensor) -> Rows:
    """The first row with the same values, (n,)."""
    _, first, inverse = np.unique(row_keys(rows), return_index=True, return_inverse=True)
    found: Rows = first[inverse.reshape(-1)].astype(np.int64)
    return found


def _first_near(rows: Tensor, x_dim: int) -> Rows:
    """The earliest neighbour that is nearly the same on both sides, (n,), -1 for none."""
    near, distances = _neighbours(_projected(rows))
    scale = distances[:, -1]
    least = min(_CLOSE, _chance_ratio(distances, len(rows)))
    suspected = distances <= 4 * least * scale[:, None]  # projections shorten distances unevenly
    found = np.full(len(rows), -1, dtype=np.int64)
    for row in np.flatnonzero(suspected.any(1)):
        others = near[row]
        squares = (rows[row] - rows[torch.from_numpy(others)]).square()
        total = squares.sum(1)
        limit = least**2 * total.max()
        # Each side may hold its own share of the distance, so that neither differs alone.
        sides = [squares[:, :x_dim].sum(1), squares[:, x_dim:].sum(1)]
        parts = [x_dim / rows.shape[1], 1 - x_dim / rows.shape[1]]
        close = (total <= limit).numpy()
        for side, part in zip(sides, parts, strict=True):
            close &= (side <= limit * part + _EQUAL).numpy()
        earlier = others[close & (others < row)]
        if len(earlier):
            found[row] = earlier.min()
    return found


def _chance_ratio(distances: NDArray[np.float32], rows: int) -> float:
    """The nearest neighbour over the tenth, that hardly a row of the data has by chance.

    In d dimensions a row has a neighbour within a share q of the tenth's distance with a
    probability of about 10 q^d. The logarithm of the tenth's distance over the j-th's has the
    expectation (1/j + ... + 1/9) / d, from which d is estimated, by outer neighbours, which lie
    beyond a few copies (after Levina and Bickel, 2005).
    """
    outer = np.arange(_NEIGHBOURS // 2, _NEIGHBOURS - 1)  # from the sixth to the ninth
    logs = np.log(np.maximum(distances[:, -1:], 1e-30) / np.maximum(distances[:, outer], 1e-30))
    expected = np.mean([sum(1 / i for i in range(j + 1, _NEIGHBOURS)) for j in outer])
    dimension = expected / max(float(np.median(logs.mean(1))), 1e-3)
    return float((_EXPECTED / (_NEIGHBOURS * rows)) ** (1.0 / dimension))


def _projected(rows: Tensor) -> Tensor:
    if rows.shape[1] <= _PROJECTED:
        return rows.float()
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(rows.shape[1], _PROJECTED, generator=generator) / _PROJECTED**0.5
    projected: Tensor = rows.float() @ matrix
    return projected


def _neighbours(rows: Tensor) -> tuple[Rows, NDArray[np.float32]]:
    """Numbers of the nearest rows and their distances, (n, 10), nearest first, itself left out."""
    try:
        squares, numbers = _by_faiss(rows.numpy())
    except ImportError:
        squares, numbers = _by_blocks(rows)
    order = np.argsort(numbers == np.arange(len(rows))[:, None], axis=1, kind="stable")
    kept = order[:, :_NEIGHBOURS]  # itself goes last, where it was found
    distances = np.sqrt(np.maximum(np.take_along_axis(squares, kept, 1), 0.0))
    return np.take_along_axis(numbers, kept, 1).astype(np.int64), distances


def _by_faiss(rows: NDArray[np.float32]) -> tuple[NDArray[np.float32], Rows]:
    import faiss

    rows = np.ascontiguousarray(rows)
    flat = faiss.IndexFlatL2(rows.shape[1])
    index: Any = flat
    if len(rows) > _FLAT_ROWS:
        # Rows that are nearly the same lie in the same cell, or in the next.
        index = faiss.IndexIVFFlat(flat, rows.shape[1], int(len(rows) ** 0.5))
        index.cp.max_points_per_centroid = _PER_CELL
        index.train(rows)
        index.nprobe = _CELLS
    index.add(rows)
    squares, numbers = index.search(rows, _NEIGHBOURS + 1)
    missing = numbers < 0  # fewer rows in the cells than asked for
    return np.where(missing, np.float32(np.inf), squares), np.where(missing, 0, numbers)


def _by_blocks(rows: Tensor) -> tuple[NDArray[np.float32], Rows]:
    found = []
    lengths = rows.square().sum(1)
    step = max(1, _BLOCK // len(rows))
    for first in range(0, len(rows), step):
        part = slice(first, min(first + step, len(rows)))
        block = lengths[part, None] + lengths[None] - 2 * rows[part] @ rows.T
        found.append(block.topk(_NEIGHBOURS + 1, largest=False))
    squares, numbers = (torch.cat(side).numpy() for side in zip(*found, strict=True))
    return squares, numbers


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
