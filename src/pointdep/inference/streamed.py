"""Every stored row answered by the replica that did not train on it, chunk by chunk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.errors import InputError
from pointdep.fitting.progress import Progress
from pointdep.fitting.splits import Rows, Split
from pointdep.fitting.streamed.plan import FoldPlan
from pointdep.fitting.streamed.rows import Prepared, StreamedRows
from pointdep.inference.bias import FittingBias, fitting_bias
from pointdep.inference.mutual_information import Array
from pointdep.inference.out_of_fold import (
    OutOfFold,
    above_zero,
    few_flags,
    inference_values,
    limit_flags,
    seen_range,
)
from pointdep.inference.scoring import score_pairs


def streamed_out_of_fold(
    model: RatioModel,
    rows: StreamedRows,
    plan: FoldPlan,
    kept: tuple[Tensor, Tensor, Sequence[Split], Tensor | None],
    *,
    seed: int,
    progress: Progress,
) -> OutOfFold:
    """`out_of_fold` in one pass over the rows, of which each process scores a part.

    kept: x, y, splits and groups of the kept rows, from which the range of mismatched pairs and
    the bias of fitting are taken: the latter by comparing, on each of them, the replicas that
    trained on it with the one that did not. Methods that infer from product samples do so within
    a chunk, and leave out rows that have none there: all their chunk reports are of one group.
    """
    ones = [model.select([replica]) for replica in range(model.replicas)]
    scored = rows.processes.every(lambda: _scored(ones, rows, plan, seed, progress))
    return rows.processes.first(lambda: _concluded(model, ones, scored, rows, plan, kept, seed))


@dataclass(frozen=True, eq=False)
class _Scored:
    """What the rows of a process say: PMI and pseudo-values, where they differ from it, (n,).

    numbers: of the rows, (n,), where they are not in order.
    """

    numbers: Rows | None
    pmi: NDArray[np.float32]
    values: Array | None
    limited: int
    lowest: float
    highest: float


def _scored(
    ones: Sequence[RatioModel],
    rows: StreamedRows,
    plan: FoldPlan,
    seed: int,
    progress: Progress,
) -> _Scored:
    own = rows.processes.own(rows.rows)
    count = own.stop - own.start
    numbers = None
    pmi = np.full(count, np.nan, np.float32)
    values = None
    if not ones[0].methods[0].is_mean_of_pmi:
        values, numbers = np.full(count, np.nan), np.empty(count, np.int64)
    limited, done, lowest, highest = 0, 0, math.inf, -math.inf
    # Rows that lie together may be alike, and are no product samples of each other then.
    for chunk in rows.ordered() if values is None else rows.shuffled(0):
        if numbers is not None:
            numbers[done : done + len(chunk.numbers)] = chunk.numbers
        for replica, one in enumerate(ones):
            at = np.flatnonzero(plan.fold[chunk.numbers] == replica).astype(np.int64)
            if not len(at):
                continue
            log_ratio, inferred = _reported(one, chunk, at, plan, seed, wanted=values is not None)
            pmi[done + at] = log_ratio.numpy()
            if values is not None and inferred is not None:
                values[done + at] = inferred
            limited += int(one.at_limit(log_ratio.unsqueeze(0)).sum())
            lowest = min(lowest, float(log_ratio.min()))
            highest = max(highest, float(log_ratio.max()))
        done += len(chunk.numbers)
        progress.update(done, count, "rows scored")
    return _Scored(numbers, pmi, values, limited, lowest, highest)


def _concluded(
    model: RatioModel,
    ones: Sequence[RatioModel],
    scored: Sequence[_Scored],
    rows: StreamedRows,
    plan: FoldPlan,
    kept: tuple[Tensor, Tensor, Sequence[Split], Tensor | None],
    seed: int,
) -> OutOfFold:
    method = model.methods[0]
    pmi, values = _in_order(scored)
    limited = sum(part.limited for part in scored)
    lowest, highest = min(p.lowest for p in scored), max(p.highest for p in scored)
    x, y, splits, groups = kept
    for replica, (one, split) in enumerate(zip(ones, splits, strict=True)):
        low, high = seen_range(one, x, y, split.report, seed=seed, replica=replica)
        lowest, highest = min(lowest, low), max(highest, high)
    values = pmi.astype(np.float64) if values is None else values
    known = ~np.isnan(values)
    if not known.any():
        raise InputError(
            f"method {method.key!r} infers from pairs of different groups, and no chunk of the "
            "rows reports two: rows that lie together are of few groups; shuffle them on disk, or "
            "use method='pc'"
        )
    share = limited / int((~np.isnan(pmi)).sum())
    flags = limit_flags(method, share, float(np.nanmean(values)), rows.pairs.chunk_rows())
    bias = FittingBias()
    if method.is_mean_of_pmi:
        proven = above_zero(values, plan.codes)
        draws = rows.rows if plan.codes is None else int(plan.codes.max()) + 1
        bias = fitting_bias(model, x, y, splits, proven=proven, groups=groups, draws=draws)
    few = few_flags((values if known.all() else values[known]).astype(np.float32))
    return OutOfFold(pmi, values, (*flags, *few), bias, lowest, highest)


def _in_order(scored: Sequence[_Scored]) -> tuple[NDArray[np.float32], Array | None]:
    """PMI and pseudo-values of all rows, from the first to the last."""
    pmi, values = scored[0].pmi, scored[0].values
    if len(scored) > 1:
        pmi = np.concatenate([part.pmi for part in scored])
        own = [part.values for part in scored if part.values is not None]
        values = np.concatenate(own) if own else None
    drawn = [part.numbers for part in scored if part.numbers is not None]
    if not drawn:
        return pmi, values
    order = np.argsort(np.concatenate(drawn))
    return pmi[order], None if values is None else values[order]


def _reported(
    one: RatioModel, chunk: Prepared, at: Rows, plan: FoldPlan, seed: int, *, wanted: bool
) -> tuple[Tensor, Array | None]:
    """log r of the rows at these places of a chunk, and their pseudo-values where wanted."""
    index = torch.from_numpy(at).to(chunk.x.device)
    log_ratio = score_pairs(one, chunk.x[index], chunk.y[index])
    if not wanted:
        return log_ratio, None
    codes = chunk.numbers if plan.codes is None else plan.codes[chunk.numbers]
    if one.methods[0].uses_product and len(np.unique(codes[at])) < 2:
        return log_ratio, None
    groups = None if plan.codes is None else torch.from_numpy(codes).to(chunk.x.device)
    values = inference_values(
        one, chunk.x, chunk.y, at, seed=seed, groups=groups, log_ratio=log_ratio
    )
    return log_ratio, values
