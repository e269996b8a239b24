"""How much of the true answer a search finds, and how long its lists must be to find it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.fitting.progress import Progress
from pointdep.retrieval.index import CandidateIndex, other, query_vectors
from pointdep.retrieval.inner import scan
from pointdep.retrieval.pairs import best_of_all, offsets

_SAMPLE, _SMALLEST_SAMPLE = 200, 10
_SAMPLE_PRODUCTS, _SAMPLE_PAIRS = 1 << 27, 1 << 24  # what the truth about them may cost
_SEED = 0
_COVERED, _SLACK = 0.99, 1.25  # of the true best, and how much longer the lists are made for it
_COLUMNS = 1 << 14


def sample_queries(model: RatioModel, asked: int, index: CandidateIndex) -> Tensor:
    """Numbers of the queries that are compared with the truth."""
    budget = _SAMPLE_PRODUCTS if index.rows is None else _SAMPLE_PAIRS // model.replicas
    size = budget // index.count
    size = min(asked, _SAMPLE, max(size, _SMALLEST_SAMPLE))
    return torch.randperm(asked, generator=torch.Generator().manual_seed(_SEED))[:size]


@torch.no_grad()
def truth(
    model: RatioModel, asked: Tensor, index: CandidateIndex, k: int, progress: Progress
) -> tuple[Tensor, Tensor]:
    """PMI and numbers of the k best, (n, k), all candidates being looked at."""
    if index.rows is not None:
        return all_pairs(model, asked, index, k, progress)
    assert index.vectors is not None
    vectors, own = query_vectors(model, asked, other(index.side), index.has_own)
    return scan(index.vectors, vectors.cpu(), own.cpu(), k)


def all_pairs(
    model: RatioModel, asked: Tensor, index: CandidateIndex, k: int, progress: Progress
) -> tuple[Tensor, Tensor]:
    """The same where PMI is more than an inner product: every pair is scored."""
    assert index.rows is not None
    offset = offsets(model, asked) if index.offset is None else index.offset
    return best_of_all(
        model, asked, index.rows, k, queries=other(index.side), offset=offset, progress=progress
    )


def found_share(found: tuple[Tensor, Tensor], true: tuple[Tensor, Tensor]) -> float:
    """The share of the true best that was found; each: PMI and numbers, (n, k)."""
    shares = [
        # Of several equal ones any will do, so the value counts as well as the number.
        float((torch.isin(numbers, best) | (pmi >= least)).double().mean())
        for pmi, numbers, least, best in zip(*found, true[0][:, -1], true[1], strict=True)
    ]
    return sum(shares) / len(shares)


@torch.no_grad()
def needed_length(model: RatioModel, asked: Tensor, index: CandidateIndex, best: Tensor) -> int:
    """How long lists by inner product must be to hold the true best, numbers `best`: (n, k)."""
    assert index.vectors is not None
    vectors, _ = query_vectors(model, asked, other(index.side), index.has_own)
    first = index.vectors.block(0, 1)
    vectors, best = vectors.to(first.device), best.to(first.device)
    mine = (index.vectors.take(best) * vectors.unsqueeze(1)).sum(-1)
    above = torch.zeros_like(best)
    for start in range(0, index.count, _COLUMNS):
        block = index.vectors.block(start, min(start + _COLUMNS, index.count))
        ordered = (vectors @ block.T).sort(dim=1).values
        above += ordered.shape[1] - torch.searchsorted(ordered, mine.contiguous(), right=True)
    ranks = above.flatten().sort().values
    return math.ceil(_SLACK * (1 + int(ranks[math.ceil(_COVERED * len(ranks)) - 1])))
