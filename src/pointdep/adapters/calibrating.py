"""From logits of held-out pairs to the slope and shift that make them log r."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.adapters.cells import Cells, LogitMatrix
from pointdep.adapters.influence import FoldFit, Influence, influence
from pointdep.adapters.levels import COUNT, levels
from pointdep.adapters.logistic import Scaled, fit_log_ratio
from pointdep.adapters.rows import fold_of
from pointdep.adapters.sources import Source
from pointdep.errors import InputError
from pointdep.fitting.splits import Rows, Split
from pointdep.inference.mutual_information import standard_error

_MOST_ROWS = 4096  # all pairs of so many rows are looked at
_ROUNDS, _SETTLED = 8, 0.02  # of finding the temperature, and the change that ends it
_SETTLING_ROWS = 512
_CLEAR = 3.0  # standard errors


@dataclass(frozen=True, eq=False)
class Calibration:
    """weights: (R, k) float64, of each replica, as `CalibratedCritic` takes them.

    rows, fold: (m,), the rows that were looked at, whose candidates are the reference of queries,
    and the part of each; names: (m,), equal where rows are of one group. influence: of these rows.
    gap: by how much log r reads higher on a replica's own rows than on those it left out.
    spread: of the logits (less what is a function of the query) of mismatched pairs.
    """

    weights: Tensor
    temperature: float
    rows: Rows
    fold: Rows
    names: NDArray[np.int64]
    influence: Influence
    gap: float
    spread: float


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
    whose rows are no mismatched pairs of each other. Where the regression looks closest (its odds,
    the temperature of the levels, the mismatched pairs that are kept) is decided once, by all rows.
    """
    some = np.random.default_rng([seed, 31]).permutation(len(x))[:_MOST_ROWS]
    index = torch.from_numpy(some).to(x.device)
    logits = _all_logits(source, x[index], y[index])
    names = some if codes is None else codes[some]
    others = torch.from_numpy(names[:, None] != names)
    if not bool(others.any()):
        raise InputError("groups leaves no two rows of different groups to set against each other")
    fold = fold_of(splits, len(x))[some]
    matrix = LogitMatrix(logits.T if queries == "y" else logits, others, queries is not None)
    temperature = _find_temperature(matrix.first(_SETTLING_ROWS), seed) if queries else 1.0
    fits = _fit_folds(matrix, torch.from_numpy(fold), len(splits), temperature, seed)
    found = Calibration(
        torch.stack([fit.weights for fit in fits]),
        temperature,
        some,
        fold,
        names,
        influence(matrix, fits, temperature),
        _gap(matrix, fits),
        _spread(fits[0]),
    )
    return _no_reversal(found)


def _fit_folds(
    matrix: LogitMatrix, fold: Tensor, folds: int, temperature: float, seed: int
) -> list[FoldFit]:
    """A calibration for each fold, by the rows of the others."""
    parts = [
        matrix.parts(fold == number, temperature)
        for number in range(folds if matrix.levelled else 0)
    ]
    level = matrix.level(parts, temperature)
    cells = matrix.thinned(level, seed)
    design = matrix.design(cells, level)
    start = torch.zeros(design.shape[1], dtype=torch.float64)
    balanced = _fitted(design, cells, 0.0, start)
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
        level = levels(matrix.values, used, temperature)
    return temperature


def _fitted(design: Tensor, cells: Cells, odds: float, start: Tensor) -> Tensor:
    """Weights of the columns of a design, of which the second is one."""
    _require_overlap(design[:, 0], cells)
    scaled = Scaled.of(design)
    found = fit_log_ratio(
        scaled.values, cells.joint, cells.product, odds=odds, start=scaled.inward(start)
    )
    if found is None:
        raise InputError(_SEPARATED)
    return scaled.outward @ found


_SEPARATED = (
    "the logits tell all pairs from all mismatched pairs, so that nothing says how large log r is: "
    "give more held-out pairs"
)


def _require_overlap(values: Tensor, cells: Cells) -> None:
    """Refuse pairs that no mismatched pair comes near to, and logits that are all the same."""
    pairs = cells.joint > 0
    if float(values.max() - values.min()) <= 0:
        raise InputError("the logits are all the same (up to a function of the query)")
    if float(values[pairs].min()) > float(values[~pairs].max()):
        raise InputError(_SEPARATED)


def _gap(matrix: LogitMatrix, fits: list[FoldFit]) -> float:
    """Mean log r of the rows that made a calibration less that of the rows it left out."""
    scores = [(fit.rows, fit.of_pairs(matrix) @ fit.weights) for fit in fits]
    return float(np.mean([float(of[rows].mean() - of[~rows].mean()) for rows, of in scores]))


def _spread(fit: FoldFit) -> float:
    weight = fit.cells.product / fit.cells.product.sum()
    values = fit.design[:, 0]
    return float((weight @ (values - weight @ values).square()).sqrt())


def _no_reversal(found: Calibration) -> Calibration:
    """Logits that say nothing give log r = 0; such as say the opposite are an error."""
    mean = float(found.weights[:, 0].mean())
    if mean > 0:
        return found
    if mean < -_CLEAR * summed_stderr(found.influence.weights.mean(0)[:, 0], found.names):
        raise InputError(
            "pairs have lower logits than mismatched pairs: are these distances (give their "
            "negative), or are the rows of one side in another order?"
        )
    none = Influence(0 * found.influence.weights, 0 * found.influence.reported)
    return replace(found, weights=0 * found.weights, influence=none, gap=0.0)


def summed_stderr(influences: Tensor, names: NDArray[np.int64]) -> float:
    """Of what rows have these influences on, (m,); names: (m,), their groups."""
    values = influences.double().numpy()
    return standard_error(len(values) * values, names)


def _all_logits(source: Source, x: Tensor, y: Tensor) -> Tensor:
    """(n, n) float32 on the CPU."""
    rows = max(1, (1 << 24) // len(y))
    return torch.cat([source.matrix(part, y).float().cpu() for part in torch.split(x, rows)])
