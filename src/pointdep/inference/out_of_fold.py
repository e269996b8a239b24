"""Every row answered by replicas that did not train on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.critics.table import TableCritic
from pointdep.core.methods import Method, get_method
from pointdep.core.ratio import RatioModel
from pointdep.errors import MEANINGS, Flag, InputError
from pointdep.fitting.batches import held_out_cells
from pointdep.fitting.fold_plan import FoldPlan
from pointdep.fitting.progress import Progress
from pointdep.fitting.splits import CURVE_SHARES, Rows, Split
from pointdep.fitting.streamed_rows import Prepared, StreamedRows
from pointdep.inference.bias import FittingBias, closed_form_estimate, fitting_bias
from pointdep.inference.learning_curve import LearningCurve, learning_curve
from pointdep.inference.mutual_information import (
    Array,
    HeldOutBound,
    MIEstimate,
    pseudo_values,
    standard_error,
)
from pointdep.inference.scoring import score_blocks, score_pairs

_BLOCK = 128
_BLOCK_BOUNDED = 256  # for a method that cannot exceed the logarithm of this
_SEEN_ROWS, _SEEN_BLOCK = 2048, 32
_CHECK_BLOCK, _CHECK_ROWS = 128, 50_000
_BOUND_ROWS, _BLOCK_LARGE = 4096, 1024
_NEAR_LOG = 2.0  # nats below the ceiling of a bound where it starts to give way
_NEAR_CEILING = 0.5
_MANY_AT_LIMIT = 0.01
_FEW_ROWS, _MOST_OF_IT = 0.002, 0.5
_LEAST_NATS, _MOST_NATS = 3.0, 1e4  # that no estimate has, whatever the rows
_WIDE, _WIDE_SHARE = 0.5, 1 / 2  # of an interval: nats, and times the estimate
_PROOF = 2.0  # standard errors
_OF_CATEGORY = 5  # rows of each, on average, with fewer of which dependence may go unnoticed
_LEAST = 0.03  # nats

Kept = tuple[Tensor, Tensor, Sequence[Split], Tensor | None]
"""x, y, splits and groups of the rows in memory."""


@dataclass(frozen=True)
class OutOfFold:
    """pmi and the pseudo-values of the MI, (n,), NaN for rows that no replica reports; flags.

    bias: of the mean of pmi. lowest, highest: log r of pairs and mismatched pairs. bound: below
    the mutual information; curve: None where none was fitted.
    """

    pmi: NDArray[np.float32]
    pseudo_values: Array
    flags: tuple[Flag, ...]
    bias: FittingBias
    lowest: float
    highest: float
    bound: HeldOutBound | None = None
    curve: LearningCurve | None = None


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows x: (n, dx), y: (n, dy), and which of them each model, that did not see them, answers.

    codes: (n,) group of each row, or None.
    """

    parts: Sequence[tuple[RatioModel, Rows]]
    x: Tensor
    y: Tensor
    codes: NDArray[np.int64] | None
    seed: int

    def blocks(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What `check_log_ratio` takes: log r (G, b, b), joint and product weights, groups.

        At most 50,000 rows are used in all.
        """
        parts = self.parts
        share = min(1.0, _CHECK_ROWS / sum(len(rows) for _, rows in parts))
        random = np.random.default_rng([self.seed, 7])
        if share < 1.0:
            parts = [(m, random.permutation(r)[: max(2, int(len(r) * share))]) for m, r in parts]
        block = min(_CHECK_BLOCK, max(len(rows) for _, rows in parts))
        names = np.arange(len(self.x)) if self.codes is None else self.codes
        ids = None if self.codes is None else torch.from_numpy(self.codes).to(self.x.device)
        found: list[list[Tensor]] = []
        for model, rows in parts:
            cells, index = held_out_cells(
                self.x, self.y, [rows], block=block, seed=self.seed, groups=ids
            )
            _, count, own, _ = cells.x.shape
            groups = torch.from_numpy(np.where(index[0] >= 0, names[index[0]], -1))
            weights = [w[0].view(count, own, own).cpu() for w in (cells.joint, cells.product)]
            short = block - own  # a part of few rows has smaller blocks: padded with weight zero
            cubes = [score_blocks(model, cells.x[0], cells.y[0]), *weights]
            padded = [F.pad(cube, (0, short, 0, short)) for cube in cubes]
            found.append([*padded, F.pad(groups.view(count, own), (0, short), value=-1)])
        ratios, joint, product, groups = (torch.cat(side) for side in zip(*found, strict=True))
        return ratios, joint, product, groups


def out_of_fold(
    model: RatioModel,
    x: Tensor,
    y: Tensor,
    splits: Sequence[Split],
    *,
    seed: int,
    groups: Tensor | None = None,
    smaller: Sequence[tuple[RatioModel, Sequence[Split]]] = (),
) -> OutOfFold:
    """Score each replica's report rows with that replica; a row reported twice gets the mean.

    smaller: models of each of the last `CURVE_SHARES` of the rows, for a learning curve.
    """
    sums, counts = np.zeros((2, len(x))), np.zeros(len(x))
    limited, ranges = 0, []
    for replica, split in enumerate(splits):
        one, rows = model.select([replica]), torch.from_numpy(split.report)
        log_ratio = score_pairs(one, x[rows.to(x.device)], y[rows.to(y.device)])
        sums[0, split.report] += log_ratio.double().numpy()
        sums[1, split.report] += inference_values(
            one, x, y, split.report, seed=seed, groups=groups, log_ratio=log_ratio
        )
        counts[split.report] += 1
        limited += int(one.at_limit(log_ratio.unsqueeze(0)).sum())
        ranges.append((float(log_ratio.min()), float(log_ratio.max())))
        ranges.append(seen_range(one, x, y, split.report, seed=seed, replica=replica))
    with np.errstate(invalid="ignore"):
        pmi, values = sums / counts
    how: dict[str, Any] = {"at_limit": limited / counts.sum(), "seed": seed, "smaller": smaller}
    how["codes"] = None if groups is None else groups.cpu().numpy()
    how["together"] = max(len(split.report) for split in splits)
    kept, answers = (x, y, splits, groups), (pmi.astype(np.float32), values)
    found = _concluded(model, kept, answers, ranges, **how)
    exact = None
    if model.methods[0].is_mean_of_pmi:
        exact = closed_form_estimate(model, x, y, groups, float(np.nanmean(values)))
    return found if exact is None else replace(found, pseudo_values=exact[0], bias=exact[1])


def _concluded(
    model: RatioModel,
    kept: Kept,
    answers: tuple[NDArray[np.float32], Array],
    ranges: Sequence[tuple[float, float]],
    *,
    at_limit: float,
    codes: NDArray[np.int64] | None,
    together: int,
    seed: int,
    draws: int | None = None,
    smaller: Sequence[tuple[RatioModel, Sequence[Split]]] = (),
) -> OutOfFold:
    """Flags and bias of PMI and pseudo-values of all rows, whose groups are `codes`.

    ranges: of log r; at_limit: share of pairs there; together: rows set against each other;
    draws: of `fitting_bias`; smaller: of `out_of_fold`.
    """
    method, (_, values) = model.methods[0], answers
    known = ~np.isnan(values)
    seen = values if known.all() else values[known]
    flags = limit_flags(method, at_limit, float(seen.mean()), together)
    bias, bound, curve = FittingBias(), None, None
    x, y, splits, groups = kept
    if method.is_mean_of_pmi:
        own = None if codes is None else codes[known]
        error = standard_error(seen, own)
        if smaller:
            shares = CURVE_SHARES[-len(smaller) :]
            curve = learning_curve(smaller, x, y, values, shares=shares, stderr=error, codes=codes)
        proven = float(seen.mean()) > _PROOF * error
        bias = fitting_bias(
            model, x, y, splits, proven=proven, groups=groups, draws=draws, curve=curve
        ).judged()
        if isinstance(model.critic, TableCritic):
            flags += category_flags(model.critic, bias, float(seen.mean()), own, len(seen))
    if method.estimates == "mutual information":
        parts = [(model.select([r]), split.report) for r, split in enumerate(splits)]
        bound = held_out_bound(parts, x, y, seed=seed, groups=groups)
    flags += few_flags(seen.astype(np.float32))
    lowest, highest = zip(*ranges, strict=True)
    return OutOfFold(*answers, tuple(flags), bias, min(lowest), max(highest), bound, curve)


def seen_range(
    one: RatioModel, x: Tensor, y: Tensor, report: Rows, *, seed: int, replica: int
) -> tuple[float, float]:
    """The lowest and highest log r of some mismatched pairs of a replica's report rows."""
    some = np.random.default_rng([seed, replica, 6]).permutation(report)[:_SEEN_ROWS]
    cells, index = held_out_cells(x, y, [some], block=_SEEN_BLOCK, seed=seed)
    valid = torch.from_numpy(index >= 0).view(*cells.x.shape[1:3])
    both = valid.unsqueeze(-1) & valid.unsqueeze(-2)
    found = score_blocks(one, cells.x[0], cells.y[0])[both]
    return float(found.min()), float(found.max())


def inference_values(
    model: RatioModel,
    x: Tensor,
    y: Tensor,
    rows: Rows,
    *,
    seed: int,
    groups: Tensor | None = None,
    log_ratio: Tensor | None = None,
    method: Method | None = None,
    block: int | None = None,
) -> Array:
    """The method's inference on these rows as pseudo-values, (len(rows),), in their order.

    method: if not that of the model; block: rows set against each other, if not the method's.
    """
    method = method or model.methods[0]
    if not method.uses_product:
        if log_ratio is None:
            index = torch.from_numpy(rows)
            log_ratio = score_pairs(model, x[index.to(x.device)], y[index.to(y.device)])
        column = log_ratio[:, None]
        ones = torch.ones_like(column)
        return pseudo_values(method, column, ones, 0 * ones, torch.arange(len(column))[:, None])
    block = block or inference_block(method, len(rows))
    cells, index_array = held_out_cells(x, y, [rows], block=block, seed=seed, groups=groups)
    blocks = score_blocks(model, cells.x[0], cells.y[0])
    valid = torch.from_numpy(index_array[0] >= 0)
    number = torch.cumsum(valid, 0) - 1  # position among the rows that are not padding
    count, block, _ = blocks.shape
    columns = number.view(count, 1, block).expand(count, block, block).reshape(-1, block)
    parts = blocks.reshape(-1, block), cells.joint[0].cpu(), cells.product[0].cpu()
    log_ratio, joint, product = (part[valid] for part in parts)
    values = pseudo_values(method, log_ratio, joint, product, columns.clamp(min=0)[valid])
    position = {row: k for k, row in enumerate(index_array[0][index_array[0] >= 0].tolist())}
    return values[[position[row] for row in rows.tolist()]]


def held_out_bound(
    parts: Sequence[tuple[RatioModel, Rows]],
    x: Tensor,
    y: Tensor,
    *,
    seed: int,
    groups: Tensor | None = None,
) -> HeldOutBound | None:
    """The bound of InfoNCE on rows that the models did not see; None of fewer than two.

    For K independent pairs and any function s, E[s_ii - log mean_j exp s_ij] <= MI: the scores are
    normalised on the very rows they are tested on, so that no fault of the model lets it exceed the
    truth on average. Its error includes that of the normaliser (the infinitesimal jackknife).
    """
    method, random = get_method("cpc"), np.random.default_rng([seed, 10])
    chosen = [(m, random.permutation(rows)) for m, rows in parts]
    if groups is not None:  # the pairs must be independent: one of each group
        codes = groups.cpu().numpy()
        firsts = (np.unique(codes[rows], return_index=True)[1] for _, rows in chosen)
        chosen = [(m, rows[np.sort(at)]) for (m, rows), at in zip(chosen, firsts, strict=True)]
    share = min(1.0, _BOUND_ROWS / sum(len(rows) for _, rows in chosen))
    chosen = [(m, rows[: max(2, math.ceil(share * len(rows)))]) for m, rows in chosen]
    chosen = [(m, rows) for m, rows in chosen if len(rows) > 1]
    if not chosen:
        return None
    block = min(_BLOCK, *(len(rows) for _, rows in chosen))
    how: dict[str, Any] = {"seed": seed, "method": method}

    def values_of(block: int) -> Array:
        found = [inference_values(m, x, y, rows, block=block, **how) for m, rows in chosen]
        return np.concatenate(found)

    values = values_of(block)
    longest = max(len(rows) for _, rows in chosen)
    if float(values.mean()) > math.log(block) - _NEAR_LOG and longest > block:
        block = min(_BLOCK_LARGE, longest)  # costs more, and the smaller one is near its ceiling
        values = values_of(block)
    draws = np.concatenate([rows for _, rows in chosen])  # a row may be reported more than once
    draws = draws if groups is None else codes[draws]
    return HeldOutBound(float(values.mean()), standard_error(values, draws), block)


def inference_block(method: Method, rows: int) -> int:
    """Rows set against each other when MI is inferred."""
    return min(rows, _BLOCK_BOUNDED if method.bounded_by_batch else _BLOCK)


def few_flags(values: Array) -> list[Flag]:
    """Whether the estimate hangs on a few rows, as it does when some lie far out."""
    squares = np.sort(np.square(values - values.mean()))
    top = math.ceil(len(values) * _FEW_ROWS)
    if len(values) < 50 or squares[-top:].sum() <= _MOST_OF_IT * squares.sum():
        return []
    message = (
        f"{MEANINGS['few_rows_decide']}: {top} of {len(values)} row(s) make up over "
        f"{_MOST_OF_IT:.0%} of it. Look at the rows of most extreme PMI, and at columns with "
        "outliers: their logarithm or ranks leave the answer the same in principle"
    )
    return [Flag("few_rows_decide", (), message)]


def category_flags(
    critic: TableCritic, bias: FittingBias, mean: float, groups: Rows | None, rows: int
) -> list[Flag]:
    """Whether most of the estimate is a correction, so that the truth is likely above.

    mean: of PMI out of fold. The correction is right up to that, however the mean rises.
    """
    most = max(critic.x_factors.shape[1], critic.y_factors.shape[1])
    draws = rows if groups is None else len(np.unique(groups))
    # With rows enough per category, a mean and a correction near zero are independence.
    margin = bias.resolution if draws < _OF_CATEGORY * most else -_LEAST
    if mean > bias.correction + margin:
        return []
    message = (
        f"{MEANINGS['rises_with_rows']} ({draws:,} rows of {most:,} categories show little of what "
        "rare ones have in common). Give more rows, or merge rare categories"
    )
    return [Flag("rises_with_rows", (), message)]


def wide_flags(found: MIEstimate) -> list[Flag]:
    """Whether an estimate says little: its interval is wide, and wide beside it."""
    nats, (low, high) = found.nats, found.ci
    if not high - low > max(_WIDE, _WIDE_SHARE * nats) or found.estimates != "mutual information":
        return []
    message = (
        f"{MEANINGS['wide_interval']} (out of fold {nats:.2g}, {low:.2g} to {high:.2g} nats). "
        "Models of few rows may miss a part of the dependence too, so that the truth lies above. "
        "Give more rows, or fewer columns"
    )
    return [Flag("wide_interval", (), message)]


def astray_flags(found: MIEstimate, lowest: float) -> list[Flag]:
    """Whether training went astray although all its numbers stayed finite.

    lowest: log r that a pair or mismatched pair had. Mutual information is not negative, no rows
    show so much, and r is 1 on average over mismatched pairs.
    """
    impossible = found.nats > _MOST_NATS or lowest > _LEAST_NATS
    if found.estimates == "mutual information":
        impossible |= found.nats < -_LEAST_NATS
    if not impossible:
        return []
    told = f"training went astray: {found.nats:.2g} nats cannot be (log r is at least {lowest:.2g})"
    return [Flag("diverged", (), f"{told}. Try a smaller learning_rate, or method='pc'")]


def limit_flags(method: Method, share: float, value: float, rows: int) -> list[Flag]:
    """Whether values sit at a limit of the method; rows: set against each other at most."""
    # Rows are spread evenly over the blocks, so the largest block may be smaller than the limit.
    ceiling = math.log(math.ceil(rows / math.ceil(rows / inference_block(method, rows))))
    if share > _MANY_AT_LIMIT:
        reason = (
            f"{share:.1%} of the out-of-fold pairs are at the floor or ceiling of the read-out, "
            "and their PMI is that limit rather than a finding; method='pc' has no such limit"
        )
    elif method.bounded_by_batch and value > ceiling - _NEAR_CEILING:
        reason = (
            f"the estimate {value:.2f} is close to log(batch) = {ceiling:.2f}, which it cannot "
            "exceed; use method='pc'"
        )
    else:
        return []
    return [Flag("saturated", (), f"{MEANINGS['saturated']}: {reason}")]


# Every stored row answered by the replica that did not train on it, chunk by chunk.


def streamed_out_of_fold(
    model: RatioModel, rows: StreamedRows, plan: FoldPlan, kept: Kept, *, progress: Progress
) -> OutOfFold:
    """`out_of_fold` in one pass over the rows, of which each process scores a part.

    kept: x, y, splits and groups of the kept rows, from which the range of mismatched pairs and
    the bias of fitting are taken: the latter by comparing, on each of them, the replicas that
    trained on it with the one that did not. Methods that infer from product samples do so within
    a chunk, and leave out rows that have none there: all their chunk reports are of one group.
    """
    ones = [model.select([replica]) for replica in range(model.replicas)]
    scored = rows.processes.every(lambda: _scored(ones, rows, plan, progress))

    def conclude() -> OutOfFold:
        pmi, values = _in_order(scored)
        if np.isnan(values).all():
            raise InputError(
                f"method {model.methods[0].key!r} infers from pairs of different groups, and no "
                "chunk of the rows reports two: shuffle the rows on disk, or use method='pc'"
            )
        x, y, splits, _ = kept
        ranges = [
            seen_range(one, x, y, split.report, seed=rows.seed, replica=replica)
            for replica, (one, split) in enumerate(zip(ones, splits, strict=True))
        ]
        ranges += [part.extremes for part in scored]
        how: dict[str, Any] = {"together": rows.pairs.chunk_rows(), "codes": plan.codes}
        how["at_limit"] = sum(part.limited for part in scored) / int((~np.isnan(pmi)).sum())
        how["draws"] = rows.rows if plan.codes is None else int(plan.codes.max()) + 1
        return _concluded(model, kept, (pmi, values), ranges, seed=rows.seed, **how)

    return rows.processes.first(conclude)


@dataclass(frozen=True, eq=False)
class _Scored:
    """What the rows of a process say: PMI and pseudo-values, where they differ from it, (n,).

    numbers: of the rows, (n,), where they are not in order. extremes: the lowest and highest PMI.
    """

    numbers: Rows | None
    pmi: NDArray[np.float32]
    values: Array | None
    limited: int
    extremes: tuple[float, float]


def _scored(
    ones: Sequence[RatioModel], rows: StreamedRows, plan: FoldPlan, progress: Progress
) -> _Scored:
    own = rows.processes.own(rows.rows)
    count = own.stop - own.start
    pmi = np.full(count, np.nan, np.float32)
    values, numbers = None, None
    if not ones[0].methods[0].is_mean_of_pmi:
        values, numbers = np.full(count, np.nan), np.empty(count, np.int64)
    limited, done = 0, 0
    # Rows that lie together may be alike, and are no product samples of each other then.
    for chunk in rows.ordered() if values is None else rows.shuffled(0):
        if numbers is not None:
            numbers[done : done + len(chunk.numbers)] = chunk.numbers
        for replica, one in enumerate(ones):
            at = np.flatnonzero(plan.fold[chunk.numbers] == replica).astype(np.int64)
            if not len(at):
                continue
            index = torch.from_numpy(at).to(chunk.x.device)
            log_ratio = score_pairs(one, chunk.x[index], chunk.y[index])
            pmi[done + at] = log_ratio.numpy()
            if values is not None:
                values[done + at] = _inferred(one, chunk, at, plan, rows.seed, log_ratio)
            limited += int(one.at_limit(log_ratio.unsqueeze(0)).sum())
        done += len(chunk.numbers)
        progress.update(done, count, "rows scored")
    low, high = np.fmin.reduce(pmi, initial=math.inf), np.fmax.reduce(pmi, initial=-math.inf)
    return _Scored(numbers, pmi, values, limited, (float(low), float(high)))


def _in_order(scored: Sequence[_Scored]) -> tuple[NDArray[np.float32], Array]:
    """PMI and pseudo-values of all rows, from the first to the last."""
    # One process, as most fits have, needs no copy of all rows.
    pmi = np.concatenate([part.pmi for part in scored]) if len(scored) > 1 else scored[0].pmi
    drawn = [
        (p.numbers, p.values) for p in scored if p.numbers is not None and p.values is not None
    ]
    if not drawn:
        return pmi, pmi.astype(np.float64)
    numbers, values = (np.concatenate(side) for side in zip(*drawn, strict=True))
    order = np.argsort(numbers)
    return pmi[order], values[order]


def _inferred(
    one: RatioModel, chunk: Prepared, at: Rows, plan: FoldPlan, seed: int, log_ratio: Tensor
) -> Array | float:
    """Pseudo-values of the rows at these places of a chunk; NaN where all are of one group."""
    codes = chunk.numbers if plan.codes is None else plan.codes[chunk.numbers]
    if one.methods[0].uses_product and len(np.unique(codes[at])) < 2:
        return math.nan
    groups = None if plan.codes is None else torch.from_numpy(codes).to(chunk.x.device)
    return inference_values(
        one, chunk.x, chunk.y, at, seed=seed, groups=groups, log_ratio=log_ratio
    )
