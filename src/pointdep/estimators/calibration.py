"""From logits of held-out pairs to the slope and shift that make them log r."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.linear import fit_logistic, logistic_curvature
from pointdep.errors import InputError
from pointdep.estimators.embeddings import Source
from pointdep.estimators.fit_rows import PairedRows
from pointdep.fitting.splits import Rows
from pointdep.inference.mutual_information import standard_error

# What a one-sided softmax leaves open: a function of the query, removed by its other logits.
#
# Trained to pick the right candidate for each query, a model's logit is log r plus any function
# of the query. For the true log r the log-mean-exp over candidates, drawn from their marginal, is
# zero; so what it is for the logits must be taken off. That mean hangs on the few candidates that
# fit the query, and where PMI is large a sample has hardly any. Log-means at a lower temperature
# and plain means are steadier, and move with the query's function in the same way: which mixture
# of these levels is right is fitted on held-out pairs.

SHARES = (1.0, 0.5, 0.25)
"""Of the slope that turns logits into log r: the temperatures of the log-means."""

COUNT = len(SHARES) + 1

BY_LEVEL = torch.zeros(COUNT, COUNT + 1, dtype=torch.float64)
"""(COUNT, COUNT + 1): how slope, shift and mix columns of the regression change with the levels."""
BY_LEVEL[0] = 1.0
BY_LEVEL[0, :2] = torch.tensor([-1.0, 0.0])
BY_LEVEL[range(1, COUNT), range(2, COUNT + 1)] = -1.0


def parts_of(logits: Tensor, used: Tensor, temperature: float) -> Tensor:
    """What of some candidates enters the levels: (n, m) -> (n, COUNT + 1).

    Log-sums of exponentials, the sum, and how many they are.
    """
    hidden = logits.masked_fill(~used, -math.inf)
    sums = [torch.logsumexp(share * temperature * hidden, -1) for share in SHARES]
    total = logits.masked_fill(~used, 0.0).sum(-1)
    return torch.stack([*sums, total, used.sum(-1).to(logits)], -1)


def combine(parts: Sequence[Tensor], temperature: float) -> Tensor:
    """The levels over candidates of which each part is known, (n, COUNT + 1) each."""
    stacked = torch.stack(list(parts))
    count = stacked[..., -1].sum(0)
    sums = (torch.logsumexp(stacked[..., k], 0) - count.log() for k in range(len(SHARES)))
    found = [one / (share * temperature) for one, share in zip(sums, SHARES, strict=True)]
    return torch.stack([*found, stacked[..., -2].sum(0) / count], -1)


def columns(logits: Tensor, level: Tensor) -> Tensor:
    """What log r is linear in: (..., N) and (..., N, COUNT) -> (..., N, COUNT).

    The logit less the first level, and by how much that exceeds the others. None of them changes
    when a function of the query is added to its logits.
    """
    first = level[..., :1]
    return torch.cat([logits.unsqueeze(-1) - first, first - level[..., 1:]], -1)


def pulls(
    logits: Tensor, used: Tensor, kept: Tensor, level: Tensor, asked: Tensor, temperature: float
) -> Tensor:
    """How what hangs on the levels moves with the weight of each candidate: (R, m, d).

    logits, used: (n, m); kept: (R, m) boolean, the candidates of each replica; level: its levels,
    (R, n, COUNT); asked: (R, n, COUNT, d), derivatives of d things by those levels.
    """
    own, other = used.to(logits), logits.masked_fill(~used, 0.0)
    count = own @ kept.T.to(own)
    asked = asked.to(own) / count.T.reshape(*level.shape[:2], 1, 1)
    # Of the mean: by how much a candidate's logit exceeds it.
    found = other.T @ asked[:, :, -1] - own.T @ (level[..., -1:].to(own) * asked[:, :, -1])
    base = level.mean(0).to(own)
    for k, share in enumerate(SHARES):
        heat = share * temperature
        risen = (heat * (logits - base[:, k : k + 1])).masked_fill(~used, -math.inf).exp()
        moved = (heat * (base[:, k] - level[..., k].to(own))).exp().unsqueeze(-1)
        found = found + (risen.T @ (moved * asked[:, :, k]) - own.T @ asked[:, :, k]) / heat
    return found * kept.unsqueeze(-1)


# Pairs and mismatched pairs of one matrix of logits, and what log r is linear in.

_KEPT = 1 << 17  # of the mismatched pairs: those of highest logit, and as many of the others


@dataclass(frozen=True, eq=False)
class Cells:
    """Pairs and mismatched pairs, as places in the matrix of logits, with their weights."""

    row: Tensor
    column: Tensor
    joint: Tensor
    product: Tensor

    def within(self, rows: Tensor) -> Cells:
        """Those of which both rows are among these; rows: (m,) boolean."""
        kept = rows[self.row] & rows[self.column]
        return Cells(self.row[kept], self.column[kept], self.joint[kept], self.product[kept])


@dataclass(frozen=True, eq=False)
class LogitMatrix:
    """values: (n, n), queries in rows, pairs on the diagonal; others: (n, n), the mismatched pairs.

    levelled: whether each query has levels of its own, else one constant stands for all.
    """

    values: Tensor
    others: Tensor
    levelled: bool

    def level(self, parts: list[Tensor], temperature: float) -> Tensor:
        """(n, COUNT), zero without parts."""
        if not parts:
            return self.values.new_zeros(len(self.values), COUNT)
        return combine(parts, temperature)

    def design(self, cells: Cells, level: Tensor) -> Tensor:
        """The columns of the regression, (N, k): slope, shift, and what mixes the levels."""
        values = self.values[cells.row, cells.column].double()
        one = torch.ones_like(values).unsqueeze(1)
        if not self.levelled:
            return torch.cat([values.unsqueeze(1), one], 1)
        parts = columns(values, level[cells.row].double())
        return torch.cat([parts[:, :1], one, parts[:, 1:]], 1)

    def pairs(self) -> Cells:
        """The diagonal."""
        own = torch.arange(len(self.values))
        one = torch.ones(len(own), dtype=torch.float64)
        return Cells(own, own, one, 0 * one)

    def thinned(self, level: Tensor, seed: int) -> Cells:
        """All pairs, the mismatched pairs that look most like them, and some of the others.

        Of mismatched pairs with low logits each says little: fewer, of more weight, will do.
        """
        row, column = self.others.nonzero(as_tuple=True)
        weight = torch.ones(len(row), dtype=torch.float64)
        if len(row) > 2 * _KEPT:
            high = torch.topk(self.values[row, column] - level[row, 0], _KEPT).indices
            # Not by a bound, at which any number of logits may be tied.
            is_low = torch.ones(len(row), dtype=torch.bool)
            is_low[high] = False
            low = is_low.nonzero().squeeze(1)
            draw = torch.Generator().manual_seed(seed)
            drawn = low[torch.randint(len(low), (_KEPT,), generator=draw)]
            weight = torch.cat([weight[high], weight.new_full((_KEPT,), len(low) / _KEPT)])
            kept = torch.cat([high, drawn])
            row, column = row[kept], column[kept]
        parts = zip(vars(self.pairs()).values(), (row, column, 0 * weight, weight), strict=True)
        return Cells(*(torch.cat(both) for both in parts))


# Logistic regression of belonging together on a few columns.

_ALIKE = 1e-9  # of the spread of the logits: a column that varies less is constant


@dataclass(frozen=True, eq=False)
class Scaled:
    """Columns of a regression, the second of them one, in units of their spread: (N, k).

    So that the unit of the logits does not matter. center, scale: (k,).
    """

    values: Tensor
    center: Tensor
    scale: Tensor

    @classmethod
    def of(cls, design: Tensor) -> Scaled:
        center, scale = design.mean(0), design.std(0)
        center[1], scale[1] = 0.0, 1.0
        scale = torch.where(scale > _ALIKE * scale[0], scale, scale[0])
        return cls((design - center) / scale, center, scale)

    @property
    def outward(self) -> Tensor:
        """(k, k): from weights of these columns to weights of those that were given."""
        found = torch.diag(1 / self.scale)
        found[1] -= self.center / self.scale
        return found

    def inward(self, weights: Tensor) -> Tensor:
        """The other way, (k,)."""
        found = weights * self.scale
        found[1] = weights[1] + weights @ self.center
        return found


def fit_log_ratio(
    columns: Tensor, joint: Tensor, product: Tensor, *, odds: float, start: Tensor
) -> Tensor | None:
    """Weights (k,) of the columns, (N, k), by which log r is their sum; float64.

    joint, product: (N,) weights of the cells as samples of p(x,y) and p(x)p(y). Product samples are
    made to weigh e^odds times as much as joint ones, so that the classifier is undecided, and looks
    closest, where log r = odds. None where no finite fit exists.
    """
    product = _weighed(joint, product, odds)
    return fit_logistic(columns, joint, product, offset=-odds, start=start)


def _weighed(joint: Tensor, product: Tensor, odds: float) -> Tensor:
    """Weights of the product samples, e^odds times as much in all as the joint ones."""
    return product * (math.exp(odds) * joint.sum() / product.sum())


# How a calibration moves with the weight of each of its rows: the infinitesimal jackknife.
#
# A row counts as a pair, as the x and as the y of mismatched pairs, and with a one-sided softmax as
# a candidate, which enters the levels of all queries. What a calibration says of a mean of log r is
# then as sure as the sum of the squares of these influences.


@dataclass(frozen=True, eq=False)
class FoldFit:
    """The calibration that leaves one fold out.

    rows: (n,) boolean, those it was fitted to. level: (n, COUNT), over their candidates. cells,
    design, odds, weights: of the regression and its outcome.
    """

    rows: Tensor
    level: Tensor
    cells: Cells
    design: Tensor
    odds: float
    weights: Tensor

    def of_pairs(self, matrix: LogitMatrix) -> Tensor:
        """The columns of all pairs, (n, k); those of its own rows leave the query's group out."""
        return matrix.design(matrix.pairs(), self.level)


def influence(matrix: LogitMatrix, fits: list[FoldFit], heat: float) -> tuple[Tensor, Tensor]:
    """Derivatives by the weight of each row, around weights of one.

    (R, n, k), of the weights of each calibration; (n,), of the mean log r that the calibrations
    report of the rows that each left out, with the pairs themselves held fixed.
    """
    of_rows, of_levels = zip(*(_of_fit(fit, len(matrix.values)) for fit in fits), strict=True)
    moved = torch.stack(of_rows)
    shares = torch.stack([(~fit.rows).double().mean() for fit in fits])
    means = torch.stack([fit.of_pairs(matrix)[~fit.rows].mean(0) for fit in fits])
    reported = torch.einsum("f,fnk,fk->n", shares, moved, means)
    if matrix.levelled:
        # What the levels do to the weights, and in the last place to the reported pairs themselves.
        left_out = [(~fit.rows).double() for fit in fits]
        direct = [
            (own / own.sum()).view(-1, 1, 1) * (BY_LEVEL @ fit.weights).view(-1, 1)
            for own, fit in zip(left_out, fits, strict=True)
        ]
        asked = torch.stack([torch.cat(both, -1) for both in zip(of_levels, direct, strict=True)])
        used = torch.stack([fit.rows for fit in fits])
        level = torch.stack([fit.level for fit in fits])
        pulled = pulls(matrix.values, matrix.others, used, level, asked, heat).double()
        moved = moved + pulled[..., :-1]
        reported = reported + torch.einsum("f,fnk,fk->n", shares, pulled[..., :-1], means)
        reported = reported + shares @ pulled[..., -1]
    return moved, reported


def _of_fit(fit: FoldFit, rows: int) -> tuple[Tensor, Tensor]:
    """Of the weights of one calibration, by its rows, (n, k), and by its levels, (n, COUNT, k)."""
    cells, scaled = fit.cells, Scaled.of(fit.design)
    z, weights = scaled.values, scaled.inward(fit.weights)
    product = _weighed(cells.joint, cells.product, fit.odds)
    total = cells.joint + product
    belongs, spread, hessian = logistic_curvature(z, total, weights, offset=-fit.odds)
    # Weights of the user's columns, by the gradient of the fit in its own.
    outward = torch.linalg.inv(hessian) @ scaled.outward.T
    of_joint = _centred((1 - belongs).unsqueeze(1) * z, cells.joint)
    of_product = _centred(belongs.unsqueeze(1) * z, product)
    gradient = z.new_zeros(rows, z.shape[1])
    gradient.index_add_(0, cells.row, of_joint - of_product)
    gradient.index_add_(0, cells.column, -of_product)
    if z.shape[1] == 2:
        return gradient @ outward, z.new_zeros(rows, COUNT, 2)
    by_level = BY_LEVEL.to(z) / scaled.scale
    bent = z.new_zeros(rows, z.shape[1]).index_add_(0, cells.row, spread.unsqueeze(1) * z)
    left = z.new_zeros(rows).index_add_(0, cells.row, cells.joint - total * belongs)
    own = (by_level @ weights).view(-1, 1) * bent.unsqueeze(1)
    return gradient @ outward, (left.view(-1, 1, 1) * by_level - own) @ outward


def _centred(values: Tensor, weight: Tensor) -> Tensor:
    """weight * (values - their mean), values: (N, k), weight: (N,)."""
    weight = weight.unsqueeze(1)
    return weight * (values - (weight * values).sum(0) / weight.sum())


_MOST_ROWS = 4096  # all pairs of so many rows are looked at
_ROUNDS, _SETTLED = 8, 0.02  # of finding the temperature, and the change that ends it
_SETTLING_ROWS = 512
_CLEAR = 3.0  # standard errors
_CELLS = 1 << 24  # logits computed at a time


@dataclass(frozen=True, eq=False)
class Calibration:
    """weights: (R, k) float64, of each replica, as `CalibratedCritic` takes them.

    rows, fold: (m,), the rows that were looked at, whose candidates are the reference of queries,
    and the part of each; names: (m,), equal where rows are of one group. influence, reported: of
    these rows. gap: by how much log r reads higher on a replica's own rows than on those it left
    out. spread: of the logits (less what is a function of the query) of mismatched pairs.
    """

    weights: Tensor
    temperature: float
    rows: Rows
    fold: Rows
    names: NDArray[np.int64]
    influence: Tensor
    reported: Tensor
    gap: float
    spread: float


@torch.no_grad()
def calibrate(source: Source, rows: PairedRows, queries: str | None) -> Calibration:
    """One calibration for each split of the rows, by its training rows.

    queries: the side whose function the logits may hold, "x" or "y", or None. Rows of one group are
    no mismatched pairs of each other. Where the regression looks closest (its odds, the temperature
    of the levels, the mismatched pairs that are kept) is decided once, by all rows.
    """
    seed, splits = rows.seed, rows.splits
    some = np.random.default_rng([seed, 31]).permutation(len(rows.x))[:_MOST_ROWS]
    index = torch.from_numpy(some).to(rows.x.device)
    parts = torch.split(rows.x[index], max(1, _CELLS // len(index)))
    logits = torch.cat([source.matrix(part, rows.y[index]).float().cpu() for part in parts])
    names = some if rows.codes is None else rows.codes[some]
    others = torch.from_numpy(names[:, None] != names)
    if not bool(others.any()):
        raise InputError("groups leaves no two rows of different groups to set against each other")
    of_row = np.full(len(rows.x), -1, dtype=np.int64)
    for number, split in enumerate(splits):
        of_row[split.report] = number
    fold = of_row[some]
    matrix = LogitMatrix(logits.T if queries == "y" else logits, others, queries is not None)
    few = (slice(_SETTLING_ROWS),) * 2
    first = replace(matrix, values=matrix.values[few], others=others[few])
    temperature = _find_temperature(first, seed) if queries else 1.0
    fits = _fit_folds(matrix, torch.from_numpy(fold), len(splits), temperature, seed)
    weights = torch.stack([fit.weights for fit in fits])
    on_weights, reported = influence(matrix, fits, temperature)
    gaps = []
    for fit in fits:
        log_ratio = fit.of_pairs(matrix) @ fit.weights
        gaps.append(float(log_ratio[fit.rows].mean() - log_ratio[~fit.rows].mean()))
    share, values = fits[0].cells.product / fits[0].cells.product.sum(), fits[0].design[:, 0]
    spread = float((share @ (values - share @ values).square()).sqrt())
    about = temperature, some, fold, names
    # Logits that say nothing give log r = 0; such as say the opposite are an error.
    mean = float(weights[:, 0].mean())
    if mean > 0:
        return Calibration(weights, *about, on_weights, reported, float(np.mean(gaps)), spread)
    if mean < -_CLEAR * summed_stderr(on_weights.mean(0)[:, 0], names):
        raise InputError("pairs have lower logits than others: are these distances?")
    return Calibration(0 * weights, *about, 0 * on_weights, 0 * reported, 0.0, spread)


def _fit_folds(
    matrix: LogitMatrix, fold: Tensor, folds: int, temperature: float, seed: int
) -> list[FoldFit]:
    """A calibration for each fold, by the rows of the others."""
    parts = [
        parts_of(matrix.values[:, fold == number], matrix.others[:, fold == number], temperature)
        for number in range(folds if matrix.levelled else 0)
    ]
    level = matrix.level(parts, temperature)
    cells = matrix.thinned(level, seed)
    design = matrix.design(cells, level)
    balanced = _fitted(design, cells, 0.0, torch.zeros(design.shape[1], dtype=torch.float64))
    # The fit is to look where most pairs are.
    odds = max(0.0, float((design[cells.joint > 0] @ balanced).median()))
    whole = _fitted(design, cells, odds, balanced)
    found = []
    for number in range(folds):
        level = matrix.level(parts[:number] + parts[number + 1 :], temperature)
        kept = cells.within(fold != number)
        design = matrix.design(kept, level)
        weights = _fitted(design, kept, odds, whole)
        found.append(FoldFit(fold != number, level, kept, design, odds, weights))
    return found


def _find_temperature(matrix: LogitMatrix, seed: int) -> float:
    """The slope of log r, at which the log-mean-exp is to be taken: by turns."""
    used = matrix.others
    count = used.sum(1, keepdim=True).clamp(min=1)
    # First the mean alone, which has no temperature.
    total = matrix.values.masked_fill(~used, 0.0).sum(1, keepdim=True)
    level, temperature = (total / count).expand(-1, COUNT), 0.0
    for _ in range(_ROUNDS):
        cells = matrix.thinned(level, seed)
        design = matrix.design(cells, level)
        start = torch.zeros(design.shape[1], dtype=torch.float64)
        slope = float(_fitted(design, cells, 0.0, start)[0])
        # Where the logits say nothing any temperature will do.
        last, temperature = temperature, max(slope, 1e-3 / float(design[:, 0].std()))
        if last and abs(math.log(temperature / last)) < _SETTLED:
            break
        level = combine([parts_of(matrix.values, used, temperature)], temperature)
    return temperature


def _fitted(design: Tensor, cells: Cells, odds: float, start: Tensor) -> Tensor:
    """Weights of the columns of a design, of which the second is one."""
    values, pairs = design[:, 0], cells.joint > 0
    if float(values.max() - values.min()) <= 0:
        raise InputError("the logits are all the same (up to a function of the query)")
    scaled = Scaled.of(design)
    samples = cells.joint, cells.product
    found = fit_log_ratio(scaled.values, *samples, odds=odds, start=scaled.inward(start))
    if found is None or float(values[pairs].min()) > float(values[~pairs].max()):
        raise InputError("the logits tell all pairs from all others: give more held-out pairs")
    return scaled.outward @ found


def summed_stderr(influences: Tensor, names: NDArray[np.int64]) -> float:
    """Of what rows have these influences on, (m,); names: (m,), their groups."""
    values = influences.double().numpy()
    return standard_error(len(values) * values, names)
