"""Every row answered by replicas that did not train on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.methods import Method
from pointdep.core.ratio import RatioModel
from pointdep.errors import MEANINGS, Flag, InputError
from pointdep.fitting.batches import held_out_cells
from pointdep.fitting.fold_plan import FoldPlan
from pointdep.fitting.progress import Progress
from pointdep.fitting.splits import Rows, Split
from pointdep.fitting.streamed_rows import Prepared, StreamedRows
from pointdep.inference.bias import FittingBias, fitting_bias
from pointdep.inference.mutual_information import (
    Array,
    MIEstimate,
    pseudo_values,
    standard_error,
)
from pointdep.inference.scoring import score_blocks, score_pairs

_BLOCK = 128
_BLOCK_BOUNDED = 256  # for a method that cannot exceed the logarithm of this
_SEEN_ROWS, _SEEN_BLOCK = 2048, 32
_CHECK_BLOCK, _CHECK_ROWS = 128, 50_000
_NEAR_CEILING = 0.5
_MANY_AT_LIMIT = 0.01
_FEW_ROWS, _MOST_OF_IT = 0.002, 0.5
_WIDE, _WIDE_SHARE = 0.5, 1 / 2  # of an interval: nats, and times the estimate
_PROOF = 2.0  # standard errors


@dataclass(frozen=True)
class OutOfFold:
    """pmi and the pseudo-values of the MI, (n,), NaN for rows that no replica reports; flags.

    bias: of the mean of pmi. lowest, highest: log r of pairs and mismatched pairs.
    """

    pmi: NDArray[np.float32]
    pseudo_values: Array
    flags: tuple[Flag, ...]
    bias: FittingBias
    lowest: float
    highest: float


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows x: (n, dx), y: (n, dy), and which of them each model, that did not see them, answers.

    codes: (n,) group of each row, or None. numbers: (n,), which rows of the data these are, where
    they are a sample of them.
    """

    parts: Sequence[tuple[RatioModel, Rows]]
    x: Tensor
    y: Tensor
    codes: NDArray[np.int64] | None
    seed: int
    numbers: NDArray[np.int64] | None = None

    def blocks(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What `held_out_blocks` makes of them."""
        return held_out_blocks(self.parts, self.x, self.y, seed=self.seed, codes=self.codes)


def out_of_fold(
    model: RatioModel,
    x: Tensor,
    y: Tensor,
    splits: Sequence[Split],
    *,
    seed: int,
    groups: Tensor | None = None,
) -> OutOfFold:
    """Score each replica's report rows with that replica; a row reported twice gets the mean."""
    sums = np.zeros((2, len(x)))
    counts = np.zeros(len(x))
    limited, lowest, highest = 0, math.inf, -math.inf
    for replica, split in enumerate(splits):
        one, rows = model.select([replica]), torch.from_numpy(split.report)
        log_ratio = score_pairs(one, x[rows.to(x.device)], y[rows.to(y.device)])
        sums[0, split.report] += log_ratio.double().numpy()
        sums[1, split.report] += inference_values(
            one, x, y, split.report, seed=seed, groups=groups, log_ratio=log_ratio
        )
        counts[split.report] += 1
        limited += int(one.at_limit(log_ratio.unsqueeze(0)).sum())
        low, high = seen_range(one, x, y, split.report, seed=seed, replica=replica)
        lowest = min(lowest, float(log_ratio.min()), low)
        highest = max(highest, float(log_ratio.max()), high)
    largest = max(len(split.report) for split in splits)
    with np.errstate(invalid="ignore"):
        pmi, values = sums / counts
    flags = limit_flags(
        model.methods[0], limited / counts.sum(), float(np.nanmean(values)), largest
    )
    bias = FittingBias()
    if model.methods[0].is_mean_of_pmi:
        codes = None if groups is None else groups.cpu().numpy()
        proven = above_zero(values, codes)
        bias = fitting_bias(model, x, y, splits, proven=proven, groups=groups)
    return OutOfFold(
        pmi.astype(np.float32),
        values,
        (*flags, *few_flags(values[~np.isnan(values)])),
        bias,
        lowest,
        highest,
    )


def above_zero(values: Array, codes: NDArray[np.int64] | None) -> bool:
    """Whether the mean of the values (n,), NaN left out, is above zero beyond chance."""
    known = ~np.isnan(values)
    own = None if codes is None else codes[known]
    return float(values[known].mean()) > _PROOF * standard_error(values[known], own)


def seen_range(
    one: RatioModel, x: Tensor, y: Tensor, report: Rows, *, seed: int, replica: int
) -> tuple[float, float]:
    """The lowest and highest log r of some mismatched pairs of a replica's report rows."""
    some = np.random.default_rng([seed, replica, 6]).permutation(report)[:_SEEN_ROWS]
    cells = mismatched(one, x, y, some, seed=seed)
    return float(cells.min()), float(cells.max())


def mismatched(model: RatioModel, x: Tensor, y: Tensor, rows: Rows, *, seed: int) -> Tensor:
    """log r within blocks of these rows, each x with the y of others too, as one vector."""
    cells, index = held_out_cells(x, y, [rows], block=_SEEN_BLOCK, seed=seed)
    valid = torch.from_numpy(index >= 0).view(*cells.x.shape[1:3])
    both = valid.unsqueeze(-1) & valid.unsqueeze(-2)
    return score_blocks(model, cells.x[0], cells.y[0])[both]


def held_out_blocks(
    parts: Sequence[tuple[RatioModel, Rows]],
    x: Tensor,
    y: Tensor,
    *,
    seed: int,
    codes: NDArray[np.int64] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `check_log_ratio` takes: log r in blocks (G, b, b), joint and product weights, groups.

    parts: each model with the rows it is asked about, of which at most 50,000 are used in all.
    codes: (n,) group of each row, or None.
    """
    share = min(1.0, _CHECK_ROWS / sum(len(rows) for _, rows in parts))
    random = np.random.default_rng([seed, 7])
    if share < 1.0:
        parts = [(m, random.permutation(r)[: max(2, int(len(r) * share))]) for m, r in parts]
    block = min(_CHECK_BLOCK, max(len(rows) for _, rows in parts))
    names = np.arange(len(x)) if codes is None else codes
    ids = None if codes is None else torch.from_numpy(codes).to(x.device)
    found: list[tuple[Tensor, ...]] = []
    for model, rows in parts:
        cells, index = held_out_cells(x, y, [rows], block=block, seed=seed, groups=ids)
        _, count, own, _ = cells.x.shape
        groups = torch.from_numpy(np.where(index[0] >= 0, names[index[0]], -1)).view(count, own)
        short = block - own  # a part of few rows has smaller blocks: padded with weight zero
        cubes = [
            F.pad(part, (0, short, 0, short))
            for part in (
                score_blocks(model, cells.x[0], cells.y[0]),
                cells.joint[0].view(count, own, own).cpu(),
                cells.product[0].view(count, own, own).cpu(),
            )
        ]
        found.append((*cubes, F.pad(groups, (0, short), value=-1)))
    ratios, joint, product, groups = (torch.cat(side) for side in zip(*found, strict=True))
    return ratios, joint, product, groups


def inference_values(
    model: RatioModel,
    x: Tensor,
    y: Tensor,
    rows: Rows,
    *,
    seed: int,
    groups: Tensor | None = None,
    log_ratio: Tensor | None = None,
) -> Array:
    """The method's inference on these rows as pseudo-values, (len(rows),), in their order."""
    method = model.methods[0]
    if not method.uses_product:
        if log_ratio is None:
            index = torch.from_numpy(rows)
            log_ratio = score_pairs(model, x[index.to(x.device)], y[index.to(y.device)])
        column = log_ratio[:, None]
        ones = torch.ones_like(column)
        return pseudo_values(method, column, ones, 0 * ones, torch.arange(len(column))[:, None])
    cells, index_array = held_out_cells(
        x, y, [rows], block=inference_block(method, len(rows)), seed=seed, groups=groups
    )
    blocks = score_blocks(model, cells.x[0], cells.y[0])
    valid = torch.from_numpy(index_array[0] >= 0)
    number = torch.cumsum(valid, 0) - 1  # position among the rows that are not padding
    count, block = blocks.shape[0], blocks.shape[1]
    columns = number.view(count, 1, block).expand(count, block, block).reshape(-1, block)
    values = pseudo_values(
        method,
        blocks.reshape(-1, block)[valid],
        cells.joint[0].cpu()[valid],
        cells.product[0].cpu()[valid],
        columns.clamp(min=0)[valid],
    )
    position = {row: k for k, row in enumerate(index_array[0][index_array[0] >= 0].tolist())}
    return values[[position[row] for row in rows.tolist()]]


def inference_block(method: Method, rows: int) -> int:
    """Rows set against each other when MI is inferred."""
    return min(rows, _BLOCK_BOUNDED if method.bounded_by_batch else _BLOCK)


def few_flags(values: Array) -> list[Flag]:
    """Whether the estimate hangs on a few rows, as it does when some lie far out."""
    squares = np.sort(np.square(values - values.mean()))
    top = math.ceil(len(values) * _FEW_ROWS)
    if len(values) < 50 or squares[-top:].sum() <= _MOST_OF_IT * squares.sum():
        return []
    rows = f"{top} of {len(values)} rows make" if top > 1 else f"1 of {len(values)} rows makes"
    message = (
        f"{MEANINGS['few_rows_decide']}: {rows} up over "
        f"{_MOST_OF_IT:.0%} of it. Look at the rows of most extreme PMI, and at columns with "
        "outliers: a logarithm or ranks of such a column leave the answer the same in principle"
    )
    return [Flag("few_rows_decide", (), message)]


def wide_flags(found: MIEstimate) -> list[Flag]:
    """Whether an estimate says little: its interval is wide, and wide beside it."""
    nats, ci = found.nats, found.ci
    wide = ci[1] - ci[0] > max(_WIDE, _WIDE_SHARE * nats)
    if not wide or found.estimates != "mutual information":
        return []
    message = (
        f"{MEANINGS['wide_interval']} (out of fold {nats:.2g}, {ci[0]:.2g} to {ci[1]:.2g} nats). "
        "Models of few rows may miss a part of the dependence too, so that the truth lies above. "
        "Give more rows, or fewer columns"
    )
    return [Flag("wide_interval", (), message)]


def limit_flags(method: Method, share: float, value: float, rows: int) -> list[Flag]:
    """Whether values sit at a limit of the method; rows: set against each other at most."""
    if share > _MANY_AT_LIMIT:
        message = (
            f"{MEANINGS['saturated']}: {share:.1%} of the out-of-fold pairs are at the floor or "
            "ceiling of the read-out, and their PMI is that limit rather than a finding; "
            "method='pc' has no such limit"
        )
        return [Flag("saturated", (), message)]
    # Rows are spread evenly over the blocks, so the largest block may be smaller than the limit.
    ceiling = math.log(math.ceil(rows / math.ceil(rows / inference_block(method, rows))))
    if method.bounded_by_batch and value > ceiling - _NEAR_CEILING:
        message = (
            f"{MEANINGS['saturated']}: the estimate {value:.2f} is close to log(batch) = "
            f"{ceiling:.2f}, which it cannot exceed; use method='pc'"
        )
        return [Flag("saturated", (), message)]
    return []


# Every stored row answered by the replica that did not train on it, chunk by chunk.


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
