"""What the true ratio balances: E_J[h] = E_M[r h] for every h, with an error for each balance.

The h here are soft steps, h = 1 / (1 + r/c): then h and r h / c both lie between 0 and 1, and
E_J[1 - q] = c E_M[q] with q = r / (c + r) = sigmoid(log r - log c). The logarithm of the two sides'
ratio is read in nats: an estimate r e^a gives exactly a, whatever c. Steps at larger c look at
pairs of larger log r, so that a few of them see a constant fault as well as a slope.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.errors import InputError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Blocks:
    """Log-ratios of rows set against each other, with the weights of their cells.

    log_ratio, joint, product: (G, b, b) float64, the weights summing to one; unit: (G, b), whose
    equal numbers mark rows that are not independent draws; units: how many of them have weight.
    pairs, others: (G, b, b), whether a cell has joint weight, and whether it has product weight;
    share: (G, b), the product weight of a row as x and as y; lowest, highest: (2, G, b), the least
    log-ratio of a row's pairs and the largest of its others, as x and as y.
    """

    log_ratio: Tensor
    joint: Tensor
    product: Tensor
    unit: Tensor
    units: int
    pairs: Tensor
    others: Tensor
    share: Tensor
    lowest: Tensor
    highest: Tensor

    def of_joint(self, values: Tensor) -> tuple[float, Array]:
        """E_J of values (p,), those of the `pairs`, and the influence of each unit on it."""
        weight = self.joint[self.pairs]
        cells = weight * values
        mean = cells.sum()
        unit = self.unit.unsqueeze(2).expand_as(self.pairs)[self.pairs]
        return mean.item(), self._by_unit(cells - mean * weight, unit)

    def of_product(self, values: Tensor) -> tuple[float, Array]:
        """E_M of values (G, b, b), and the influence of each unit on it.

        The influence is the derivative with respect to the weight of a unit, which counts once for
        each row as x and once for each row as y (the infinitesimal jackknife).
        """
        cells = self.product * values
        by_x = cells.sum(2)
        mean = by_x.sum()
        return mean.item(), self._by_unit(by_x + cells.sum(1) - mean * self.share, self.unit)

    def _by_unit(self, rows: Tensor, unit: Tensor) -> Array:
        sums = torch.zeros(int(self.unit.max()) + 1, dtype=rows.dtype)
        values: Array = sums.index_add_(0, unit.flatten(), rows.flatten()).numpy()
        return values


@dataclass(frozen=True)
class Balance:
    """How far log r is too high on one test function: offset in nats, with its error.

    name: "all" pairs around the threshold, or the side, "x" or "y", whose halves are compared.
    influence: (units,), whose sum of squares is the variance of the offset; rows: the number of
    independent draws that carry the scarcer of its two sides: joint pairs below the threshold, and
    product pairs above it.
    """

    name: str
    threshold: float
    offset: float
    influence: Array
    rows: float

    @property
    def stderr(self) -> float:
        """Standard error of the offset."""
        return float(np.sqrt(np.square(self.influence).sum()))


def arrange(
    log_ratio: Tensor, joint: Tensor, product: Tensor, groups: Tensor | None = None
) -> Blocks:
    """log_ratio and the weights: (G, b, b); groups: (G, b), equal where rows are not independent.

    groups may also be the row numbers, where one row stands in several blocks.
    """
    if log_ratio.ndim != 3 or log_ratio.shape[1] != log_ratio.shape[2]:
        raise InputError(f"log_ratio must be blocks (G, b, b), not {tuple(log_ratio.shape)}")
    if joint.shape != log_ratio.shape or product.shape != log_ratio.shape:
        raise InputError(
            f"joint {tuple(joint.shape)} and product {tuple(product.shape)} must be weights of "
            f"the shape of log_ratio, {tuple(log_ratio.shape)}"
        )
    scores, joint, product = (part.detach().cpu().double() for part in (log_ratio, joint, product))
    pairs, others = joint > 0, product > 0
    used = pairs | others
    scores = torch.where(used, scores, torch.zeros_like(scores))
    if bool(scores.isnan().any()):
        raise InputError("log_ratio has NaN in cells of positive weight")
    if not bool(pairs.any()):
        raise InputError("joint marks no cell: give at least one pair")
    rows = used.any(2) | used.any(1)
    if groups is None:
        unit = torch.arange(rows.numel()).view(rows.shape)
    else:
        if groups.shape != rows.shape:
            raise InputError(f"groups must be {tuple(rows.shape)}, not {tuple(groups.shape)}")
        unit = torch.unique(groups.detach().cpu(), return_inverse=True)[1]
    product = product / product.sum().clamp(min=torch.finfo(torch.float64).tiny)
    return Blocks(
        scores,
        joint / joint.sum(),
        product,
        unit,
        len(torch.unique(unit[rows])),
        pairs,
        others,
        product.sum(2) + product.sum(1),
        _per_row(scores.masked_fill(~pairs, math.inf).neg()).neg(),
        _per_row(scores.masked_fill(~others, -math.inf)),
    )


def _per_row(cells: Tensor) -> Tensor:
    """The largest of each row's cells as x, and as y: (G, b, b) -> (2, G, b)."""
    return torch.stack([cells.amax(2), cells.amax(1)])


def step_balance(blocks: Blocks, threshold: float, part: Tensor | None = None) -> Balance | None:
    """log( c E_M[q g] / E_J[(1 - q) g] ) with log c = threshold, and 0 <= g <= 1 from `part`.

    part: (G, b, b), all ones when None. None is answered where a side is empty.
    """
    log_ratio, of_pairs = blocks.log_ratio, blocks.log_ratio[blocks.pairs]
    step, rest = torch.sigmoid(log_ratio - threshold), torch.sigmoid(threshold - of_pairs)
    if part is not None:
        step, rest = step * part, rest * part[blocks.pairs]
    below, of_below = blocks.of_joint(rest)
    above, of_above = blocks.of_product(step)
    if min(below, above) < torch.finfo(torch.float64).tiny:
        return None
    of_below, of_above = of_below / below, of_above / above
    # The spread among the draws at hand says nothing of rare ones that none of them is, so both
    # sides must also have been drawn beyond the step.
    drawn = torch.cat([blocks.lowest <= threshold, blocks.highest >= threshold])
    spread = max(np.square(of_below).sum(), np.square(of_above).sum())
    rows = min(
        *(len(torch.unique(blocks.unit[beyond])) for beyond in drawn),
        1 / float(spread) if spread > 0 else math.inf,
    )
    offset = threshold + math.log(above) - math.log(below)
    return Balance("all", threshold, offset, of_above - of_below, float(rows))


def side_balance(blocks: Blocks, threshold: float, side: str) -> Balance | None:
    """The offset among x (or y) of high mean log-ratio, less that among those of low.

    For the true r both are zero, however the x are split. A score that still lacks its read-out
    is r times a function of x, which no single step may notice.
    """
    upper = _upper_half(blocks, {"x": 2, "y": 1}[side])
    if upper is None:
        return None
    high, low = step_balance(blocks, threshold, upper), step_balance(blocks, threshold, 1 - upper)
    if high is None or low is None:
        return None
    return Balance(
        side,
        threshold,
        high.offset - low.offset,
        high.influence - low.influence,
        min(high.rows, low.rows),
    )


def _upper_half(blocks: Blocks, axis: int) -> Tensor | None:
    """(G, b, b) between 0 and 1: whether the mean log-ratio of this x (axis 2) or y (1) is high.

    The cell itself is left out of its mean: then, given the other rows, the split is a function of
    x alone, and the balance holds for the draws as it does for the distribution.
    """
    weight, log_ratio = blocks.product, blocks.log_ratio
    drawn = log_ratio[blocks.others].numpy()
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn):
        return None
    low, high = np.quantile(drawn, [0.05, 0.95])
    weighted = weight * log_ratio.clamp(float(low), float(high))
    others = weight.sum(axis, keepdim=True) - weight
    mean = (weighted.sum(axis, keepdim=True) - weighted) / others
    mean = torch.where(others > 0, mean, torch.full_like(mean, math.nan))
    of_pairs = mean[blocks.pairs & (others > 0)]
    if len(of_pairs) < 2 or not float(of_pairs.std()) > 0:
        return None
    score = (mean - of_pairs.median()) / (0.5 * of_pairs.std())
    return torch.sigmoid(score).nan_to_num(0.5)
