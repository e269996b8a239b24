"""Who a doubtful x belongs to instead, and which pairs exchanged their y."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.fitting.data_flags import by_nature, repeat_by_nature, row_keys
from pointdep.fitting.progress import Progress
from pointdep.inference.scoring import score_matrix
from pointdep.retrieval.search import top_k

# Rows that are nearly the same pair.

Rows = NDArray[np.int64]

_NEIGHBOURS = 10
_CLOSE = 0.1  # of the distance to the tenth neighbour
_EXPECTED = 0.05  # rows of the data that may lie so close by chance
_PROJECTED = 32  # columns that neighbours are looked for in
_EQUAL = 1e-6
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
    if repeat_by_nature(x, y):
        return np.full(len(rows), -1, np.int64)
    found = _earlier_equal(row_keys(rows))
    distinct = np.flatnonzero(found < 0)
    if _NEIGHBOURS < len(distinct) <= _MOST_ROWS:
        near = _first_near(rows[torch.from_numpy(distinct)], x.shape[1])
        close = near >= 0
        found[distinct[close]] = distinct[near[close]]
        moved = found[found]  # a copy of a row that is itself near an earlier one
        found = np.where((found >= 0) & (moved >= 0), moved, found)
    return found


def copies_by_key(x: NDArray[np.float64], y: NDArray[np.float64]) -> Rows:
    """The same for equal pairs alone, by `row_keys` of both sides, (n,) each."""
    found = _earlier_equal(x + np.pi * y)
    one_side = max(len(np.unique(side)) for side in (x, y))
    if by_nature(int((found < 0).sum()), len(x), one_side):
        return np.full(len(x), -1, np.int64)
    return found


def _earlier_equal(keys: NDArray[np.float64]) -> Rows:
    """The first row with the same key, (n,), -1 for that row itself."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    found = first[inverse.reshape(-1)].astype(np.int64)
    return np.where(found == np.arange(len(keys)), -1, found)


def _first_near(rows: Tensor, x_dim: int) -> Rows:
    """The earliest neighbour that is nearly the same on both sides, (n,), -1 for none."""
    projected = rows.float()
    if rows.shape[1] > _PROJECTED:
        matrix = torch.randn(rows.shape[1], _PROJECTED, generator=torch.Generator().manual_seed(0))
        projected = projected @ (matrix / _PROJECTED**0.5)
    near, distances = _neighbours(projected.numpy())
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
        share = x_dim / rows.shape[1]
        close = (total <= limit).numpy()
        for side, part in ((squares[:, :x_dim], share), (squares[:, x_dim:], 1 - share)):
            close &= (side.sum(1) <= limit * part + _EQUAL).numpy()
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


def _neighbours(rows: NDArray[np.float32]) -> tuple[Rows, NDArray[np.float32]]:
    """Numbers of the nearest rows and their distances, (n, 10), nearest first, itself left out."""
    try:
        import faiss
    except ImportError:  # as on machines without an extra package for it: slower
        from sklearn.neighbors import NearestNeighbors

        search = NearestNeighbors(n_neighbors=_NEIGHBOURS).fit(rows)
        distances, numbers = search.kneighbors()  # of the rows it was fitted on, itself left out
        return numbers, distances.astype(np.float32)
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
    squares, numbers = np.where(missing, np.float32(np.inf), squares), np.where(missing, 0, numbers)
    order = np.argsort(numbers == np.arange(len(rows))[:, None], axis=1, kind="stable")
    kept = order[:, :_NEIGHBOURS]  # itself goes last, where it was found
    distances = np.sqrt(np.maximum(np.take_along_axis(squares, kept, 1), 0.0))
    return np.take_along_axis(numbers, kept, 1).astype(np.int64), distances


_MOST_LOOKED_AT = 1_000  # candidates per row: the best may be of the row's own group
_MOST_SWAPS = 2_000  # rows among which exchanges are looked for
_ODDS = 10.0  # to one, that two rows exchanged their y


@dataclass(frozen=True, eq=False)
class Searched:
    """Rows among which better partners are looked for.

    x: (m, dx), y: (m, dy), prepared; owner: (m,), a replica that did not see the row;
    pmi: (m,) out of fold; doubtful: positions among them, worst
    first; codes: (m,) their groups; numbers: (m,), which of all `rows` rows these are.
    """

    x: Tensor
    y: Tensor
    owner: NDArray[np.signedinteger[Any]]
    pmi: NDArray[np.float32]
    doubtful: Rows
    codes: NDArray[np.int64] | None
    numbers: Rows
    rows: int

    def x_of(self, positions: Rows) -> Tensor:
        """(k, dx)"""
        return self.x[torch.from_numpy(positions).to(self.x.device)]

    def y_of(self, positions: Rows) -> Tensor:
        """(k, dy)"""
        return self.y[torch.from_numpy(positions).to(self.y.device)]


@dataclass(frozen=True)
class Partners:
    """For every row (n,): the row whose y belongs to its x more and its PMI; -1 and NaN for none.

    swapped: the row with which it may have exchanged y, or -1.
    """

    row: Rows
    pmi: NDArray[np.float32]
    swapped: Rows


def find_partners(model: RatioModel, among: Searched, progress: Progress) -> Partners:
    """Of the doubtful rows, worst first, each asked of a replica that did not see it.

    Equal y are one candidate, named by the first row that has it; a y that only the row's own group
    has is none.
    """
    pmi, doubtful, codes, owner = among.pmi, among.doubtful, among.codes, among.owner
    partner, swapped = np.full((2, among.rows), -1, np.int64)
    better = np.full(among.rows, np.nan, np.float32)
    candidates, of_row = _distinct(among.y)
    listed = among.y_of(candidates)
    elsewhere = candidates if codes is None else _elsewhere(candidates, of_row, codes)
    k = min(_of_own_group(doubtful, of_row, codes) + 1, _MOST_LOOKED_AT, len(candidates))
    done = 0
    for replica in np.unique(owner[doubtful]):
        rows = doubtful[owner[doubtful] == replica]
        one = model.select([int(replica)])
        best = top_k(one, among.x_of(rows), listed, k, measure_recall=False)
        for row, numbers, values in zip(rows, best.indices, best.pmi, strict=True):
            for number, value in zip(numbers, values, strict=True):
                other = candidates[number]
                if codes is not None and codes[other] == codes[row]:
                    other = elsewhere[number]
                if other >= 0 and number != of_row[row] and value > pmi[row]:
                    place = among.numbers[row]
                    partner[place], better[place] = among.numbers[other], value
                    break
        done += len(rows)
        progress.update(done, len(doubtful), "doubtful rows")
    for row, other in _swaps(model, among):
        swapped[among.numbers[row]] = among.numbers[other]
    return Partners(partner, better, swapped)


def _of_own_group(doubtful: Rows, of_row: Rows, codes: NDArray[np.int64] | None) -> int:
    """The most candidates that a doubtful row's own group, or the row itself, has."""
    if codes is None:
        return 1
    own = np.unique(np.stack([codes, of_row]), axis=1)[0]  # one entry a group and candidate
    groups, counts = np.unique(own, return_counts=True)
    return int(counts[np.isin(groups, codes[doubtful])].max())


def _swaps(model: RatioModel, among: Searched) -> Iterator[tuple[int, int]]:
    """Rows that belong to each other's y, more than to any other doubtful row's.

    A row that exchanged its y did so with any of the others: the odds are r r' to their number,
    and where the rows belong to their own y they must beat the r of these too.
    """
    rows = among.doubtful[:_MOST_SWAPS]
    owner = among.owner[rows]
    if len(rows) < 2:
        return
    matrix, pmi = np.empty((len(rows), len(rows))), among.pmi[rows]
    for replica in np.unique(owner):
        own = owner == replica
        one = model.select([int(replica)])
        matrix[own] = score_matrix(one, among.x_of(rows[own]), among.y_of(rows))
    both, gains = matrix + matrix.T, matrix - pmi[:, None]
    both[(np.minimum(matrix, matrix.T) <= 0) | (np.minimum(gains, gains.T) <= 0)] = -np.inf
    names = rows if among.codes is None else among.codes[rows]
    both[names[:, None] == names] = -np.inf  # within a group every y belongs to every x
    best, own_ratio = both.argmax(1), np.maximum(pmi, 0.0)
    for row, other in enumerate(best):
        odds = both[row, other] - own_ratio[row] - own_ratio[other]
        if best[other] == row and odds > math.log(_ODDS * len(rows)):
            yield rows[row], rows[other]


def _distinct(y: Tensor) -> tuple[Rows, Rows]:
    """The first row of each distinct y, (c,), in order, and the candidate of each row, (n,)."""
    _, first, inverse = np.unique(y.cpu().numpy(), axis=0, return_index=True, return_inverse=True)
    order = first.argsort()
    return first[order].astype(np.int64), order.argsort()[inverse.reshape(-1)]


def _elsewhere(candidates: Rows, of_row: Rows, codes: NDArray[np.int64]) -> Rows:
    """The first row of each candidate in another group than its first row's, (c,), -1 for none."""
    found = np.full(len(candidates), -1, np.int64)
    others = np.flatnonzero(codes != codes[candidates[of_row]])
    numbers, first = np.unique(of_row[others], return_index=True)
    found[numbers] = others[first]
    return found
