"""From logits of held-out pairs to the slope and shift that make them log r."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.adapters.levels import COUNT, columns, combine, levels, parts_of
from pointdep.adapters.logistic import fit_log_ratio
from pointdep.adapters.sources import Source
from pointdep.errors import InputError
from pointdep.fitting.splits import Rows, Split

_MOST_ROWS = 4096  # all pairs of so many rows are looked at
_KEPT = 1 << 17  # of the mismatched pairs: those of highest logit, and as many of the others
_ROUNDS, _SETTLED = 8, 0.02  # of finding the temperature, and the change that ends it
_SETTLING_ROWS = 512
_ALIKE = 1e-9  # of the spread of the logits: a column that varies less is constant
_CLEAR = 3.0  # standard errors


@dataclass(frozen=True, eq=False)
class Calibration:
    """weights: (R, k) float64, of each replica, as `CalibratedCritic` takes them.

    rows: (m,) the rows that were looked at, whose candidates are the reference of queries.
    """

    weights: Tensor
    temperature: float
    rows: Rows


@dataclass(frozen=True, eq=False)
class _Cells:
    """Pairs and mismatched pairs, as places in the matrix of logits, with their weights."""

    row: Tensor
    column: Tensor
    joint: Tensor
    product: Tensor

    def within(self, rows: Tensor) -> _Cells:
        """Those of which both rows are among these; rows: (m,) boolean."""
        kept = rows[self.row] & rows[self.column]
        return _Cells(self.row[kept], self.column[kept], self.joint[kept], self.product[kept])


@torch.no_grad()
def calibrate(
    source: Source,
    x: Tensor,
    y: Tensor,
    splits: Sequence[Split],
    *,
    queries: str | None,
    codes: NDArray[np.int64] | None,
    seed: int,
) -> Calibration:
    """One calibration for each split, by its training rows. x: (n, dx), y: (n, dy).

    queries: the side whose function the logits may hold, "x" or "y", or None. codes: (n,) groups,
    whose rows are no mismatched pairs of each other.
    """
    some = np.random.default_rng([seed, 31]).permutation(len(x))[:_MOST_ROWS]
    index = torch.from_numpy(some).to(x.device)
    logits = _all_logits(source, x[index], y[index])
    names = torch.from_numpy(some if codes is None else codes[some])
    others = names.unsqueeze(1) != names
    if not bool(others.any()):
        raise InputError("groups leaves no two rows of different groups to set against each other")
    fold = np.empty(len(x), dtype=np.int64)
    for number, split in enumerate(splits):
        fold[split.report] = number
    fit = _Fit(
        logits.T if queries == "y" else logits,
        others,
        torch.from_numpy(fold[some]),
        levelled=queries is not None,
        seed=seed,
    )
    weights = torch.stack(fit.of_folds(len(splits)))
    return Calibration(_no_reversal(weights), fit.temperature, some)


class _Fit:
    """Of one matrix of logits, (n, n), queries in rows, pairs on the diagonal.

    others: (n, n), the product cells; fold: (n,). levelled: whether each query has levels of its
    own, else one constant stands for all.
    """

    def __init__(
        self, logits: Tensor, others: Tensor, fold: Tensor, *, levelled: bool, seed: int
    ) -> None:
        self.logits, self.others, self.fold = logits, others, fold
        self.levelled, self.seed = levelled, seed
        self.temperature = self._find_temperature() if levelled else 1.0

    def of_folds(self, folds: int) -> list[Tensor]:
        """The weights for each fold, by the rows of the others."""
        parts = [
            self._parts(self.fold == number) for number in range(folds if self.levelled else 0)
        ]
        level = self._level(parts)
        cells = self._thinned(level)
        design = self._design(cells, level)
        start = torch.zeros(design.shape[1], dtype=torch.float64)
        balanced = _fitted(design, cells, 0.0, start)
        # The fit is to look where most pairs are.
        odds = max(0.0, float((design[cells.joint > 0] @ balanced).median()))
        whole = _fitted(design, cells, odds, balanced)
        found = []
        for number in range(folds):
            level = self._level(parts[:number] + parts[number + 1 :])
            kept = cells.within(self.fold != number)
            found.append(_fitted(self._design(kept, level), kept, odds, whole))
        return found

    def _parts(self, columns: Tensor) -> Tensor:
        return parts_of(self.logits[:, columns], self.others[:, columns], self.temperature)

    def _level(self, parts: list[Tensor]) -> Tensor:
        """(n, COUNT), zero without parts."""
        if not parts:
            return self.logits.new_zeros(len(self.logits), COUNT)
        return combine(parts, self.temperature)

    def _find_temperature(self) -> float:
        """The slope of log r, at which the log-mean-exp is to be taken: by turns, on some rows."""
        some = slice(min(len(self.logits), _SETTLING_ROWS))
        part = copy(self)
        part.logits, part.others = self.logits[some, some], self.others[some, some]
        used = part.others
        count = used.sum(1, keepdim=True).clamp(min=1)
        # First the mean alone, which has no temperature.
        level = (part.logits.masked_fill(~used, 0.0).sum(1, keepdim=True) / count).expand(-1, COUNT)
        temperature = 0.0
        for _ in range(_ROUNDS):
            cells = part._thinned(level)
            design = part._design(cells, level)
            start = torch.zeros(design.shape[1], dtype=torch.float64)
            slope = float(_fitted(design, cells, 0.0, start)[0])
            # Where the logits say nothing any temperature will do.
            last, temperature = temperature, max(slope, 1e-3 / float(design[:, 0].std()))
            if last and abs(math.log(temperature / last)) < _SETTLED:
                break
            level = levels(part.logits, part.others, temperature)
        return temperature

    def _design(self, cells: _Cells, level: Tensor) -> Tensor:
        """The columns of the regression, (N, k): slope, shift, and what mixes the levels."""
        values = self.logits[cells.row, cells.column].double()
        one = torch.ones_like(values).unsqueeze(1)
        if not self.levelled:
            return torch.cat([values.unsqueeze(1), one], 1)
        parts = columns(values, level[cells.row].double())
        return torch.cat([parts[:, :1], one, parts[:, 1:]], 1)

    def _thinned(self, level: Tensor) -> _Cells:
        """All pairs, the mismatched pairs that look most like them, and some of the others.

        Of mismatched pairs with low logits each says little: fewer, of more weight, will do.
        """
        n = len(self.logits)
        row, column = self.others.nonzero(as_tuple=True)
        weight = torch.ones(len(row), dtype=torch.float64)
        if len(row) > 2 * _KEPT:
            height = self.logits[row, column] - level[row, 0]
            bound = torch.topk(height, _KEPT).values[-1]
            high, low = (part.nonzero().squeeze(1) for part in (height >= bound, height < bound))
            draw = torch.Generator().manual_seed(self.seed)
            drawn = low[torch.randint(len(low), (_KEPT,), generator=draw)]
            weight = torch.cat([weight[high], weight.new_full((_KEPT,), len(low) / _KEPT)])
            kept = torch.cat([high, drawn])
            row, column = row[kept], column[kept]
        own = torch.arange(n)
        joint = torch.cat([torch.ones(n), torch.zeros(len(row))]).double()
        product = torch.cat([torch.zeros(n).double(), weight])
        return _Cells(torch.cat([own, row]), torch.cat([own, column]), joint, product)


def _fitted(design: Tensor, cells: _Cells, odds: float, start: Tensor) -> Tensor:
    """Weights of the columns of a design, of which the second is one."""
    _require_overlap(design[:, 0], cells)
    # In units of their spread, so that the unit of the logits does not matter.
    center, scale = design.mean(0), design.std(0)
    center[1], scale[1] = 0.0, 1.0
    scale = torch.where(scale > _ALIKE * scale[0], scale, scale[0])
    begin = start * scale
    begin[1] = start[1] + start @ center
    found = fit_log_ratio(
        (design - center) / scale, cells.joint, cells.product, odds=odds, start=begin
    )
    if found is None:
        raise InputError(_SEPARATED)
    weights = found / scale
    weights[1] = found[1] - weights @ center
    return weights


_SEPARATED = (
    "the logits tell all pairs from all mismatched pairs, so that nothing says how large log r is: "
    "give more held-out pairs"
)


def _require_overlap(values: Tensor, cells: _Cells) -> None:
    """Refuse pairs that no mismatched pair comes near to, and logits that are all the same."""
    pairs = cells.joint > 0
    if float(values.max() - values.min()) <= 0:
        raise InputError("the logits are all the same (up to a function of the query)")
    if float(values[pairs].min()) > float(values[~pairs].max()):
        raise InputError(_SEPARATED)


def _no_reversal(weights: Tensor) -> Tensor:
    """Logits that say nothing give log r = 0; such as say the opposite are an error."""
    slopes = weights[:, 0]
    mean, error = float(slopes.mean()), slope_stderr(weights)
    if mean > 0:
        return weights
    if mean < -_CLEAR * error:
        raise InputError(
            "pairs have lower logits than mismatched pairs: are these distances (give their "
            "negative), or are the rows of one side in another order?"
        )
    return torch.zeros_like(weights)


def slope_stderr(weights: Tensor) -> float:
    """Of the mean slope, weights: (R, k): the jackknife by parts."""
    slopes = weights[:, 0].double()
    return float(((len(slopes) - 1) * slopes.var(correction=0)).sqrt())


def _all_logits(source: Source, x: Tensor, y: Tensor) -> Tensor:
    """(n, n) float32 on the CPU."""
    rows = max(1, (1 << 24) // len(y))
    return torch.cat([source.matrix(part, y).float().cpu() for part in torch.split(x, rows)])
