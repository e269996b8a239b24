"""`from_embeddings` and `from_logits`: PMI by the model you already have."""

from __future__ import annotations

from typing import Any

import numpy as np

from pointdep.adapters.estimator import CalibratedDependency
from pointdep.adapters.sources import as_table
from pointdep.errors import InputError


def from_embeddings(
    X: Any,
    Y: Any,
    *,
    loss: str = "sigmoid",
    queries: str = "x",
    scale: float = 1.0,
    normalize: bool = True,
    groups: Any = None,
    folds: int = 5,
    random_state: Any = 0,
    device: str = "auto",
    progress: bool = True,
) -> CalibratedDependency:
    """PMI by a two-tower model, from its embeddings of pairs that it was not trained on.

    X, Y: (n, d), row i of both a pair; `pmi`, `retrieve` and all other calls then take embeddings.
    loss, queries, scale, normalize: how the model was trained, as of `CalibratedDependency`.
    groups: (n,), for rows that are not independent draws.
    """
    return CalibratedDependency(
        "inner",
        loss=loss,
        queries=queries,
        scale=scale,
        normalize=normalize,
        folds=folds,
        random_state=random_state,
        device=device,
        progress=progress,
    )._fitted(X, Y, groups)


def from_logits(
    logits: Any,
    X: Any = None,
    Y: Any = None,
    *,
    loss: str = "sigmoid",
    queries: str = "x",
    groups: Any = None,
    folds: int = 5,
    random_state: Any = 0,
    device: str = "auto",
    progress: bool = True,
) -> CalibratedDependency:
    """PMI by any model that scores pairs, from its logits of pairs that it was not trained on.

    logits: a function or module, called with n rows of x and m rows of y and giving (n, m) logits,
        which is calibrated on the pairs X and Y; or the logits of held-out pairs themselves,
        (n, n), row i with column i a pair. Then X and Y of `pmi` and other calls are the numbers of
        rows and columns, and `read_out` takes other logits.
    loss, queries: how the model was trained, as of `CalibratedDependency`. groups: (n,), for rows
    that are not independent draws.
    """
    if callable(logits):
        if X is None or Y is None:
            raise InputError(
                "X and Y are missing: a function of logits needs held-out pairs, "
                "from_logits(function, X, Y)"
            )
    elif X is not None or Y is not None:
        raise InputError("X and Y are for a function of logits: a matrix holds its pairs already")
    else:
        logits = as_table(logits)
        X = Y = np.arange(len(logits))
    return CalibratedDependency(
        logits,
        loss=loss,
        queries=queries,
        folds=folds,
        random_state=random_state,
        device=device,
        progress=progress,
    )._fitted(X, Y, groups)
