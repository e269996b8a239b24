"""PMI of queries with candidates: of all of them, or of a short list for each query."""

from __future__ import annotations

import torch
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.fitting.progress import Progress
from pointdep.inference.scoring import spread
from pointdep.retrieval.ranking import Best

_CELLS = 1 << 23  # of all replicas, alive at a time
_QUERIES = 1 << 10
_LISTED = 1 << 22  # numbers that the critic keeps alive for listed pairs


@torch.no_grad()
def offsets(model: RatioModel, x: Tensor) -> Tensor:
    """`RatioModel.offset` of many rows, x: (n, dx) -> (R, n) or (R, 1)."""
    rows = torch.split(_on(model, x), _QUERIES)
    parts = [model.offset(spread(part, model.replicas)) for part in rows]
    return torch.cat(parts, 1) if model.reference.shape[1] else parts[0]


@torch.no_grad()
def best_of_all(
    model: RatioModel,
    asked: Tensor,
    given: Tensor,
    k: int,
    *,
    queries: str,
    offset: Tensor,
    progress: Progress,
) -> tuple[Tensor, Tensor]:
    """The k candidates of highest PMI, every pair being scored, in blocks.

    asked: (n, d) queries, of the side `queries`; given: (m, e) candidates; offset: `offsets` of
    the x among them -> PMI and numbers, (n, k), on the CPU.
    """
    columns = max(1, _CELLS // (model.replicas * min(_QUERIES, len(asked))))
    found, done, total = [], 0, len(asked) * len(given)
    for start in range(0, len(asked), _QUERIES):
        rows = slice(start, min(start + _QUERIES, len(asked)))
        best = Best(k)
        for first in range(0, len(given), columns):
            part = slice(first, first + columns)
            best.add(_block(model, asked[rows], given[part], queries, offset, (rows, part)))
            done += (rows.stop - rows.start) * len(given[part])
            progress.update(done, total, "pairs")
        found.append(best.result())
    values, numbers = (torch.cat(side).cpu() for side in zip(*found, strict=True))
    return values, numbers


def _block(
    model: RatioModel,
    asked: Tensor,
    given: Tensor,
    queries: str,
    offset: Tensor,
    places: tuple[slice, slice],
) -> Tensor:
    """PMI of each of these queries with each of these candidates, (n, m)."""
    side_x, side_y = (asked, given) if queries == "x" else (given, asked)
    if offset.shape[1] > 1:
        offset = offset[:, places[0] if queries == "x" else places[1]]
    x, y = (spread(_on(model, rows), model.replicas) for rows in (side_x, side_y))
    pmi = model.log_ratio_matrix(x, y, offset).mean(0)
    return pmi if queries == "x" else pmi.T


@torch.no_grad()
def score_lists(
    model: RatioModel,
    asked: Tensor,
    given: Tensor,
    numbers: Tensor,
    *,
    queries: str,
    offset: Tensor,
) -> Tensor:
    """PMI of each query with the candidates on its list. numbers: (n, s) -> (n, s) on the CPU.

    offset: `offsets` of the x among `asked` and `given`.
    """
    length = numbers.shape[1]
    width = max(model.critic.cell_width(), asked.shape[1] + given.shape[1])
    count = max(1, _LISTED // (model.replicas * length * width))
    found = []
    for first in range(0, len(asked), count):
        rows = slice(first, first + count)
        alone = _on(model, asked[rows]).unsqueeze(1)  # (G, 1, d)
        listed = _on(model, given[numbers[rows].to(given.device)])  # (G, s, e)
        x, y = (spread(a, model.replicas) for a in _in_order(queries, alone, listed))
        own = offset
        if offset.shape[1] > 1:
            at = rows if queries == "x" else numbers[rows].flatten().to(offset.device)
            own = offset[:, at]
        found.append(model.log_ratio_blocks(x, y, own).mean(0).flatten(1).cpu())
    return torch.cat(found)


def _in_order(queries: str, asked: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    return (asked, given) if queries == "x" else (given, asked)


def _on(model: RatioModel, rows: Tensor) -> Tensor:
    return rows.to(model.constant.device)
