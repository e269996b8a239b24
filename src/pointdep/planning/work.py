"""The work of each command, counted: for each of its parts so many units of a few kinds.

The kinds: `fixed` once; `columns`; `numbers`, values read, encoded or mapped; `streamed`, the same
of rows that are read again, `resident` where a GPU keeps these; `sorted`, values times the
logarithm of their count; `macs`, multiply-adds of networks in float32, `moments` of second moments
in float64 (`streamed_moments` where rows are streamed), and `cubes` of eigenvectors; `inputs` and
`units`, values that go into the networks and through their hidden layers, `pair_units` where these
are of pairs; `cells`, pairs of a row with another's; `steps` of the optimiser, and `weights` that a
step changes; `rows`, and `squares` of their number.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2

from pointdep.planning.shape import Shape

Counts = dict[str, float]
Work = dict[str, Counts]

_BLOCK = 128  # rows that an audit sets against each other
_CHECKED, _DOUBTFUL, _SWAPPED, _LISTED = 50_000, 5_000, 2_000, 1_000
_SUSPECTED = 0.01
_PROJECTED, _FLAT_ROWS, _NEAR_ROWS = 32, 20_000, 1_000_000
_FEW_PAIRS = 1 << 24
_CANDIDATES_A_LISTED, _SHORTEST, _LONGEST = 16, 200, 5_000
_SAMPLE, _SMALLEST_SAMPLE = 200, 10
_MIXED_ROWS, _MIXED_BLOCK, _SCALES, _SCALE_BLOCK = 4_000, 64, 7, 32
_JUDGED_BLOCK = 16


def fit(shape: Shape) -> Work:
    """`PointwiseDependency.fit`."""
    numbers = "streamed" if shape.streamed else "numbers"
    kept = shape.kept * shape.width
    out_of_fold = _scored(shape, shape.rows)
    bias = 2.0 * shape.kept * (shape.folds if shape.streamed else shape.folds * 0.88)
    out_of_fold = _sum({"fixed": 1}, out_of_fold, _scored(shape, bias))
    if shape.streamed:
        out_of_fold["streamed"] = shape.numbers
    judged = 2.0 * shape.folds * shape.stop  # with and without the network
    preparation = _sum(
        {"fixed": 1, "numbers": kept, "weights": _weights(shape)},
        _scored(shape, judged),
        _pairs(shape, judged * (_JUDGED_BLOCK - 1)),
    )
    if shape.wide:
        preparation["cells"] = shape.folds * min(shape.stop, _MIXED_ROWS) * _MIXED_BLOCK
    return {
        "reading": {numbers: shape.numbers},
        "rank maps": {
            "columns": shape.width,
            "numbers": kept,
            "sorted": kept * log2(shape.kept),
        },
        "closed form": _closed_form(shape),
        "training": _training(shape),
        "stopping rows": _stopping(shape),
        "out of fold": out_of_fold,
        "preparation": preparation,
    }


def score(shape: Shape) -> Work:
    """`pointdep score`: PMI, its standard error and whether it is outside, by all replicas."""
    return {
        "reading": {"numbers": shape.numbers, "streamed": shape.large * shape.numbers},
        "networks": _scored(shape, shape.rows * shape.folds),
        "preparation": {"fixed": 1, "rows": shape.rows, "weights": _weights(shape)},
    }


def audit(shape: Shape, *, near_copies: bool = True) -> Work:
    """What an audit does beside its fit; near_copies: by FAISS, among rows in memory."""
    rows = shape.rows
    beside = _sum(
        {"fixed": 1, "cells": rows * _BLOCK},
        _scored(shape, rows),
        _pairs(shape, rows * (_BLOCK - 1)),
    )
    work = {"mismatched pairs": beside}
    everyone = _scored(shape, rows * shape.folds)
    if shape.streamed:
        work["mismatched pairs"] = _sum(beside, everyone, {"streamed": shape.numbers})
        work["standard errors"] = {"rows": rows}
    else:
        work["standard errors"] = everyone
        if near_copies and rows <= _NEAR_ROWS:
            work["near copies"] = _near_copies(shape)
    doubtful = min(_DOUBTFUL, _SUSPECTED * rows + 100)
    work["better partners"] = _sum(
        _partners(shape, doubtful), _pairs(shape, min(doubtful, _SWAPPED) ** 2)
    )
    checked = min(shape.kept, _CHECKED)
    work["check"] = _sum(
        {"fixed": 1, "cells": checked * _BLOCK, "squares": checked**2},
        _scored(shape, checked),
        _pairs(shape, checked * (_BLOCK - 1)),
    )
    work["deciding"] = {"fixed": 1, "rows": rows, "sorted": rows * log2(rows)}
    return work


def retrieve(shape: Shape) -> Work:
    """`pointdep retrieve`: the best of all rows for each query."""
    rows, queries, net = shape.rows, min(shape.queries, shape.rows), shape.network
    work: Work = {
        "reading": {"numbers": rows * shape.y_dim + queries * shape.x_dim},
        "index": {
            "fixed": 1,
            "macs": shape.folds * rows * (net.y_macs * shape.wide + net.closed_y_macs),
            "inputs": shape.folds * rows * shape.y_dim,
            "units": shape.folds * rows * (net.units / 2 if shape.wide else 0),
            "numbers": shape.folds * rows * net.vector,
        },
        "search": _searched(shape, queries, rows, shape.folds),
        "preparation": {"fixed": 1, "weights": _weights(shape)},
    }
    if shape.wide:
        return work
    if shape.folds * queries * rows <= _FEW_PAIRS:
        return {**work, "index": {}, "search": _pairs(shape, shape.folds * queries * rows)}
    listed = list_length(rows) if shape.listed is None else shape.listed
    work["search"] = _sum(work["search"], _pairs(shape, shape.folds * queries * listed))
    sample = min(queries, _SAMPLE, max(_FEW_PAIRS // (shape.folds * rows), _SMALLEST_SAMPLE))
    work["known answers"] = _pairs(shape, shape.folds * sample * rows)
    return work


def list_length(candidates: int) -> float:
    """Candidates of a query that are scored, of narrow data; the data decide: this is a guess."""
    return min(max(candidates / _CANDIDATES_A_LISTED, _SHORTEST), _LONGEST)


COMMANDS: dict[str, Callable[[Shape], Work]] = {
    "fit": fit,
    "score": score,
    "audit": audit,
    "retrieve": retrieve,
}


def _weights(shape: Shape) -> float:
    return shape.folds * shape.network.weights


def _scored(shape: Shape, pairs: float) -> Counts:
    """Pairs through one replica each."""
    net = shape.network
    return {
        "macs": pairs * net.macs,
        "inputs": pairs * shape.width,
        "units": pairs * net.units,
        "pair_units": pairs * net.pair_units,
    }


def _pairs(shape: Shape, pairs: float) -> Counts:
    """More pairs of rows that have gone through a replica already."""
    net = shape.network
    return {
        "macs": pairs * (net.pair_macs + net.vector),
        "pair_units": pairs * net.pair_units,
    }


def _training(shape: Shape) -> Counts:
    net, steps = shape.network, shape.steps * shape.epochs
    rows = steps * shape.folds * shape.batch
    cells = rows * shape.block
    closed = 0 if shape.wide else net.closed_x_macs + net.closed_y_macs + net.vector
    counts: Counts = {
        "steps": steps,
        "weights": steps * _weights(shape),
        "inputs": rows * shape.width,
        "units": rows * net.units,
        "pair_units": cells * net.pair_units,
        "cells": cells,
        "macs": 3 * (rows * (net.x_macs + net.y_macs) + cells * net.pair_macs) + rows * closed,
    }
    if shape.streamed:
        counts["resident" if shape.resident else "streamed"] = shape.epochs * shape.numbers
    return counts


def _stopping(shape: Shape) -> Counts:
    # The critic of narrow data knows something before it is trained, and is judged then too.
    times = shape.epochs + (not shape.wide)
    net, rows = shape.network, times * shape.folds * shape.stop
    cells = rows * shape.stop_block
    return {
        "inputs": rows * shape.width,
        "cells": cells,
        "macs": rows * net.macs + cells * (net.pair_macs + net.vector),
        "pair_units": cells * net.pair_units,
    }


def _closed_form(shape: Shape) -> Counts:
    folds, parts, width = shape.folds, shape.parts, shape.width
    scaled = folds * shape.stop
    counts: Counts = {
        "fixed": 1,
        "cubes": folds * (parts + 1) * (shape.x_dim**3 + shape.y_dim**3),
        "cells": _SCALES * scaled * _SCALE_BLOCK,
        "inputs": scaled * width,
    }
    if shape.streamed:
        counts["streamed_moments"] = shape.moment_rows * width**2
        counts["streamed"] = shape.moment_rows * width + (1 << 16) * shape.table
    else:
        counts["moments"] = folds * shape.train * parts * width**2
    if shape.modulated:
        kept = folds * shape.kept * shape.train / shape.rows
        counts["moments"] = counts.get("moments", 0) + kept * 5 * shape.modulated**2
        counts["cubes"] += folds * 6 * (shape.modulated / 2) ** 3 * 2
    return counts


def _near_copies(shape: Shape) -> Counts:
    rows = shape.rows
    if rows <= _FLAT_ROWS:
        return {"macs": rows * rows * _PROJECTED, "numbers": shape.numbers}
    return {
        "macs": 10 * rows**1.5 * _PROJECTED,
        "numbers": shape.numbers,
        "sorted": rows * log2(rows),
    }


def _partners(shape: Shape, doubtful: float) -> Counts:
    """Each doubtful row's search among the rows in memory, by the replica that did not see it."""
    net, folds = shape.network, shape.folds
    rows = min(shape.rows, shape.kept + doubtful)
    counts = _sum(
        {
            "fixed": 1,
            "sorted": rows * log2(rows),
            "macs": folds * rows * (net.y_macs * shape.wide + net.closed_y_macs),
            "inputs": folds * rows * shape.y_dim,
        },
        {"streamed": rows * shape.width} if shape.streamed else {},
        _searched(shape, doubtful, rows, 1),
    )
    if shape.wide:
        return counts
    few = doubtful / folds * rows <= _FEW_PAIRS
    return _sum(counts, _pairs(shape, doubtful * (rows if few else min(rows, _LISTED))))


def _searched(shape: Shape, queries: float, rows: float, folds: int) -> Counts:
    """Inner products of all queries with all candidates."""
    vector = folds * shape.network.vector + 1
    return {"macs": queries * rows * vector, "cells": queries * rows}


def _sum(*counts: Counts) -> Counts:
    names = {name for one in counts for name in one}
    return {name: sum(one.get(name, 0) for one in counts) for name in sorted(names)}
