"""PMI of queries with candidates: of all of them, or of a short list for each query."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.fitting.progress import Progress
from pointdep.inference.scoring import spread
from pointdep.retrieval.inner_product import best_first, topk_of_blocks

_CELLS = 1 << 23  # log r of all replicas, alive at a time
_METRIC_CELLS = 1 << 24  # the same, for scores of queries with all candidates
_QUERIES = 1 << 10
_LISTED = 1 << 22  # numbers that the critic keeps alive for listed pairs
_ROWS = 1 << 13  # embedded at a time

QueryScores = Callable[[slice], NDArray[np.float32]]
"""Scores of a slice of the queries with all candidates, (rows, candidates)."""


def other(side: str) -> str:
    """The opposite side: "y" for "x", and "x" for "y"."""
    return "y" if side == "x" else "x"


@torch.no_grad()
def offsets(model: RatioModel, x: Tensor) -> Tensor:
    """`RatioModel.offset` of many rows, x: (n, dx) -> (R, n) or (R, 1)."""
    rows = torch.split(x.to(model.constant.device), _QUERIES)
    parts = [model.offset(spread(part, model.replicas)) for part in rows]
    return torch.cat(parts, 1) if model.reference.shape[1] else parts[0]


def candidate_vectors(model: RatioModel, rows: Tensor, side: str) -> tuple[Tensor, bool]:
    """rows: (m, d) -> (m, e), with a last column for their own term of PMI if they have one."""
    vectors, own = _embedded(model, rows, side)
    joined = vectors if own is None else torch.cat([vectors, own.unsqueeze(1)], 1)
    return joined, own is not None


def query_vectors(
    model: RatioModel, rows: Tensor, side: str, has_own: bool
) -> tuple[Tensor, Tensor]:
    """rows: (n, d) -> (n, e), to multiply `candidate_vectors` with, and their own term, (n,)."""
    vectors, own = _embedded(model, rows, side)
    if has_own:
        vectors = torch.nn.functional.pad(vectors, (0, 1), value=1.0)
    return vectors, vectors.new_zeros(len(vectors)) if own is None else own


def _embedded(model: RatioModel, rows: Tensor, side: str) -> tuple[Tensor, Tensor | None]:
    rows = rows.to(model.constant.device)
    return model.inner_x(rows) if side == "x" else model.inner_y(rows)


@torch.no_grad()
def best_of_all(
    model: RatioModel,
    asked: Tensor,
    given: Tensor,
    k: int,
    queries: str,
    offset: Tensor,
    progress: Progress,
) -> tuple[Tensor, Tensor]:
    """The k candidates of highest PMI; every pair is scored, in blocks.

    asked: (n, d), the queries, which are rows of the side `queries`; given: (m, e), the
    candidates; offset: `offsets` of those that are x -> PMI and numbers, (n, k), on the CPU.
    """
    columns = max(1, _CELLS // (model.replicas * min(_QUERIES, len(asked))))
    done, total = 0, len(asked) * len(given)

    def blocks(rows: slice) -> Iterator[Tensor]:
        nonlocal done
        for first in range(0, len(given), columns):
            part = slice(first, first + columns)
            own = _part(offset, queries, rows, part)
            yield _block(model, asked[rows], given[part], queries, own)
            done += len(asked[rows]) * len(given[part])
            progress.update(done, total, "pairs")

    found = []
    for start in range(0, len(asked), _QUERIES):
        values, numbers = topk_of_blocks(blocks(slice(start, start + _QUERIES)), k)
        found.append(best_first(values.cpu(), numbers.cpu(), k))
    values, numbers = (torch.cat(side) for side in zip(*found, strict=True))
    return values, numbers


@torch.no_grad()
def score_lists(
    model: RatioModel, asked: Tensor, given: Tensor, numbers: Tensor, queries: str, offset: Tensor
) -> Tensor:
    """PMI of each query with the candidates on its list. numbers: (n, s) -> (n, s) on the CPU.

    offset: `offsets` of the rows of `asked` or `given` that are x.
    """
    device = model.constant.device
    width = max(model.critic.cell_width(), asked.shape[1] + given.shape[1])
    count = max(1, _LISTED // (model.replicas * numbers.shape[1] * width))
    found = []
    for first in range(0, len(asked), count):
        rows = slice(first, first + count)
        alone = asked[rows].unsqueeze(1)  # (G, 1, d)
        listed = given[numbers[rows].to(given.device)]  # (G, s, e)
        sides = (alone, listed) if queries == "x" else (listed, alone)
        x, y = (spread(side.to(device), model.replicas) for side in sides)
        own = _part(offset, queries, rows, numbers[rows].flatten().to(offset.device))
        found.append(model.log_ratio_blocks(x, y, own).mean(0).flatten(1).cpu())
    return torch.cat(found)


def query_scores(model: RatioModel, x: Tensor, y: Tensor, queries: str) -> QueryScores:
    """PMI as a function of the queries; x: (n, dx), y: (m, dy), prepared."""
    asked, given = (x, y) if queries == "x" else (y, x)
    given = given.to(model.constant.device)
    if model.inner_is_exact:
        with torch.no_grad():
            parts = [candidate_vectors(model, p, other(queries)) for p in torch.split(given, _ROWS)]
        vectors, has_own = torch.cat([part for part, _ in parts]), parts[0][1]
    else:
        offset = offsets(model, x)
    step = max(1, _METRIC_CELLS // (model.replicas * len(given)))

    @torch.no_grad()
    def scores(rows: slice) -> NDArray[np.float32]:
        if model.inner_is_exact:
            found, own = query_vectors(model, asked[rows], queries, has_own)
            return np.asarray((found @ vectors.T + own.unsqueeze(1)).cpu().numpy())
        blocks = []
        for first in range(rows.start, rows.stop, step):
            part = slice(first, min(first + step, rows.stop))
            own = _part(offset, queries, part, slice(None))
            blocks.append(_block(model, asked[part], given, queries, own).cpu())
        return np.asarray(torch.cat(blocks).numpy())

    return scores


def _block(model: RatioModel, asked: Tensor, given: Tensor, queries: str, offset: Tensor) -> Tensor:
    """PMI of each of these queries with each of these candidates, (n, m)."""
    sides = (asked, given) if queries == "x" else (given, asked)
    x, y = (spread(rows.to(model.constant.device), model.replicas) for rows in sides)
    pmi = model.log_ratio_matrix(x, y, offset).mean(0)
    return pmi if queries == "x" else pmi.T


def _part(offset: Tensor, queries: str, asked: slice, given: slice | Tensor) -> Tensor:
    """The offsets of some queries or some candidates, whichever are x; (R, 1) is of all of them."""
    if offset.shape[1] == 1:
        return offset
    return offset[:, asked if queries == "x" else given]
