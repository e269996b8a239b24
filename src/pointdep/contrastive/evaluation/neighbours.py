"""Nearest neighbours in feature space: a cheap monitor that needs no fit."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from pointdep.contrastive.evaluation.inputs import Rows, require_alike, split
from pointdep.errors import InputError, require_whole

_BUDGET = 1 << 26  # similarities alive at a time


@torch.no_grad()
def knn_accuracy(
    train: Rows,
    train_labels: Rows,
    test: Rows,
    test_labels: Rows,
    *,
    k: int = 20,
    temperature: float = 0.1,
    block: int | None = None,
) -> NDArray[np.float64]:
    """The share of test rows whose nearest training rows vote for their class, (R,).

    train: (R, n, d), or (n, d) for R = 1; train_labels: (n,); test, test_labels: likewise. Each of
    the k training rows of highest cosine similarity votes with exp(similarity / temperature).
    block: test rows compared at a time; None for as many as some hundred MB allow.
    """
    require_whole("k", k)
    if not (math.isfinite(temperature) and temperature > 0):
        raise InputError(f"temperature={temperature!r} must be a number above 0")
    known = split(train, train_labels, "train")
    asked = split(test, test_labels, "test", known.features.device)
    require_alike(known, asked)
    count = known.features.shape[1]
    if k > count:
        raise InputError(f"k={k} neighbours of {count} training rows: give at most {count}")
    if block is None:
        block = max(1, _BUDGET // count)
    require_whole("block", block)
    present, target = torch.unique(known.labels, return_inverse=True)
    shares = []
    for rows, queries in zip(known.features, asked.features, strict=True):
        anchors = normalize(rows, dim=-1)
        votes = [
            _vote(normalize(part, dim=-1), anchors, target, len(present), k, temperature)
            for part in queries.split(block)
        ]
        shares.append((present[torch.cat(votes)] == asked.labels).double().mean())
    return torch.stack(shares).cpu().numpy()


def _vote(
    queries: Tensor, anchors: Tensor, target: Tensor, classes: int, k: int, temperature: float
) -> Tensor:
    """The class with most weight among the neighbours of each query: (b, d) -> (b,)."""
    similarity, nearest = (queries @ anchors.T).topk(k, dim=-1)
    weights = ((similarity - similarity[:, :1]) / temperature).exp()
    votes = weights.new_zeros(len(queries), classes)
    return votes.scatter_add_(-1, target[nearest], weights).argmax(-1)
