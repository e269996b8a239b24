"""What each command holds at its peak, counted in numbers of a few kinds.

The kinds: `fixed`, the libraries; `numbers` of the rows that are in memory; `sample`, of the rows
that a streamed fit keeps, `chunk`, of those it reads at a time, and `table`, of its rank maps;
`rows`; `weights` of all replicas; `squares`, second moments; `cells`, pairs of a row with another's
that are alive together, `compared` and `checked` those of an audit; `vectors`, what candidates are
searched by, and `lists` of them that are scored; `resident`, those of streamed rows that a
GPU keeps.
"""

from __future__ import annotations

from collections.abc import Callable

from pointdep.planning.shape import Shape
from pointdep.planning.work import Counts, list_length

MEASURED_FOLDS = 5
"""Of the searches that were measured: what a search holds was seen to grow with rows and columns,
not with the folds."""

_BLOCK, _CHECKED = 128, 50_000
_SEVERAL = 2_000  # candidates of a list, up to which memory was seen to grow with it
_PART = 1 << 24  # numbers that are scored at a time, where they are many
_GPU_CELLS = 1 << 24  # up to which the memory of a GPU was seen to grow with them
_VALUES = 1 << 16  # that a float16 column can have


def fit(shape: Shape) -> Counts:
    counts: Counts = {
        "fixed": 1,
        "weights": shape.folds * shape.network.weights,
        "cells": shape.folds * shape.stop * shape.stop_block,
        "squares": (shape.folds + 1) * shape.parts * shape.width**2,
    }
    if not shape.streamed:
        return {**counts, "numbers": shape.numbers}
    return {
        **counts,
        "rows": shape.rows,
        "sample": shape.kept * shape.width,
        "chunk": shape.chunk * shape.width,
        "table": _VALUES * shape.table,
    }


def audit(shape: Shape) -> Counts:
    """With its fit."""
    compared = (shape.chunk if shape.streamed else shape.rows) * _BLOCK / shape.folds
    checked = min(shape.kept, _CHECKED) * _BLOCK
    return {**fit(shape), "rows": shape.rows, "compared": compared, "checked": checked}


def score(shape: Shape) -> Counts:
    return {
        "fixed": 1,
        "weights": shape.folds * shape.network.weights,
        "numbers": min(shape.numbers, _PART) if shape.large else shape.numbers,
        "rows": shape.rows,
    }


def retrieve(shape: Shape) -> Counts:
    queries = min(shape.queries, shape.rows)
    listed = 0.0 if shape.wide else min(list_length(shape.rows), _SEVERAL)
    return {
        "fixed": 1,
        "weights": shape.folds * shape.network.weights,
        "numbers": shape.rows * shape.y_dim + queries * shape.x_dim,
        "vectors": shape.rows * (shape.folds * shape.network.vector + 1),
        "rows": shape.rows,
        "lists": listed * shape.folds * shape.network.pair_units,
    }


def of_gpu(command: str, shape: Shape) -> Counts:
    """The same kinds in the memory of a GPU."""
    counts = COMMANDS[command](shape)
    if "cells" in counts:
        counts["cells"] = min(counts["cells"], _GPU_CELLS)
    if command in ("fit", "audit") and shape.resident:
        counts["resident"] = shape.numbers
    return counts


def of_host(command: str, shape: Shape) -> Counts:
    """In the memory of the process."""
    return COMMANDS[command](shape)


COMMANDS: dict[str, Callable[[Shape], Counts]] = {
    "fit": fit,
    "score": score,
    "audit": audit,
    "retrieve": retrieve,
}
