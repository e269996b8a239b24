"""PMI of some queries with all candidates: what the metrics are computed from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.inference.scoring import spread
from pointdep.retrieval.index import candidate_vectors, other, query_vectors
from pointdep.retrieval.pairs import offsets

_ROWS = 1 << 13  # embedded at a time
_CELLS = 1 << 24  # of all replicas, alive at a time

QueryScores = Callable[[slice], NDArray[np.float32]]
"""Scores of a slice of the queries with all candidates, (rows, candidates)."""


def query_scores(model: RatioModel, x: Tensor, y: Tensor, queries: str) -> QueryScores:
    """PMI as a function of the queries; x: (n, dx), y: (m, dy), prepared."""
    asked, given = (x, y) if queries == "x" else (y, x)
    if model.inner_is_exact:
        return _by_inner_product(model, asked, given, queries)
    return _by_pairs(model, asked, given, queries)


def _by_inner_product(model: RatioModel, asked: Tensor, given: Tensor, queries: str) -> QueryScores:
    with torch.no_grad():
        parts = [candidate_vectors(model, p, other(queries)) for p in torch.split(given, _ROWS)]
    vectors, has_own = torch.cat([part for part, _ in parts]), parts[0][1]

    @torch.no_grad()
    def scores(rows: slice) -> NDArray[np.float32]:
        found, own = query_vectors(model, asked[rows], queries, has_own)
        pmi: NDArray[np.float32] = (found @ vectors.T + own.unsqueeze(1)).cpu().numpy()
        return pmi

    return scores


def _by_pairs(model: RatioModel, asked: Tensor, given: Tensor, queries: str) -> QueryScores:
    device, replicas = model.constant.device, model.replicas
    candidates = spread(given.to(device), replicas)
    known = offsets(model, given) if queries == "y" else None

    @torch.no_grad()
    def some(rows: Tensor) -> Tensor:
        part = spread(rows.to(device), replicas)
        if queries == "x":
            return model.log_ratio_matrix(part, candidates).mean(0).cpu()
        return model.log_ratio_matrix(candidates, part, known).mean(0).T.cpu()

    def scores(rows: slice) -> NDArray[np.float32]:
        parts = torch.split(asked[rows], max(1, _CELLS // (replicas * len(given))))
        found: NDArray[np.float32] = torch.cat([some(part) for part in parts]).numpy()
        return found

    return scores
