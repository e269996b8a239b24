"""What the true ratio balances: E_J[h] = E_M[r h] for every h, with an error for each balance.

The h here are soft steps, h = 1 / (1 + r/c): then h and r h / c both lie between 0 and 1, and
E_J[1 - q] = c E_M[q] with q = r / (c + r) = sigmoid(log r - log c). The logarithm of the two sides'
ratio is read in nats: an estimate r e^a gives exactly a, whatever c. Steps at larger c look at
pairs of larger log r, so that a few of them see a constant fault as well as a slope.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, dataclass
from typing import Any

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
        return sums.index_add_(0, unit.flatten(), rows.flatten()).numpy()


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
    scores, joint, product = (part.detach().cpu().double() for part in (log_ratio, joint, product))
    pairs, others = joint > 0, product > 0
    used = pairs | others
    scores = torch.where(used, scores, torch.zeros_like(scores))
    if bool(scores.isnan().any()):
        raise InputError("log_ratio has NaN in cells of positive weight")
    rows = used.any(2) | used.any(1)
    if groups is None:
        unit = torch.arange(rows.numel()).view(rows.shape)
    else:
        unit = torch.unique(groups.detach().cpu(), return_inverse=True)[1]
    product = product / product.sum().clamp(min=torch.finfo(torch.float64).tiny)
    lowest, highest = scores.masked_fill(~pairs, math.inf), scores.masked_fill(~others, -math.inf)
    lowest = torch.stack([lowest.amin(2), lowest.amin(1)])
    highest = torch.stack([highest.amax(2), highest.amax(1)])
    units, share = len(torch.unique(unit[rows])), product.sum(2) + product.sum(1)
    about = unit, units, pairs, others, share, lowest, highest
    return Blocks(scores, joint / joint.sum(), product, *about)


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
    offset, influence = high.offset - low.offset, high.influence - low.influence
    return Balance(side, threshold, offset, influence, min(high.rows, low.rows))


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


# How an estimated log-ratio would have to be moved and stretched to be right (Cox, 1958).

_REACH = 20.0  # nats, or the spread of joint pairs: beyond it a pair has no more leverage
_STEPS = 50
_LONGEST_STEP = np.array([5.0, 0.5])


@dataclass(frozen=True)
class Recalibration:
    """The best log r is about  center + shift + slope * (log_ratio - center).

    shift 0 and slope 1 leave it as it is. A slope under 1 means that differences of log r come out
    too large by the factor 1 / slope.
    """

    center: float
    shift: float
    shift_stderr: float
    slope: float
    slope_stderr: float

    @property
    def intercept(self) -> float:
        """The best log r of a pair whose log_ratio is 0."""
        return self.center + self.shift - self.slope * self.center

    def to_dict(self) -> dict[str, float]:
        """Plain numbers, for JSON."""
        return {**asdict(self), "intercept": self.intercept}


def recalibrate(blocks: Blocks, center: float, offset: float = 0.0) -> Recalibration | None:
    """Logistic regression of joint against product on log r, with errors that respect reuse.

    offset: how far log r is too high around the center, as a balance there tells. Product pairs
    weigh e^(center - offset) times as much as joint ones, so that the odds are about even at the
    center however poor the estimate. None where no finite fit exists.
    """
    drawn = blocks.log_ratio[blocks.pairs].numpy()
    low, high = np.quantile(drawn[np.isfinite(drawn)], [0.01, 0.99]) - center
    score = (blocks.log_ratio - center).clamp(min(-_REACH, low), max(_REACH, high))
    odds = math.exp(center - offset)
    fitted = _newton(blocks, score, odds)
    if fitted is None:
        return None
    (shift, slope), inverse = fitted
    belongs = torch.sigmoid(shift + slope * score)
    influence = []
    for feature in (torch.ones_like(score), score):
        of_joint = blocks.of_joint(((1 - belongs) * feature)[blocks.pairs])[1]
        of_product = blocks.of_product(belongs * feature)[1]
        influence.append(of_joint - odds * of_product)
    errors = np.sqrt(np.square(inverse @ np.stack(influence)).sum(1))
    return Recalibration(center, shift - offset, float(errors[0]), slope, float(errors[1]))


def _newton(blocks: Blocks, score: Tensor, odds: float) -> tuple[tuple[float, float], Array] | None:
    """The coefficients, and the inverse of the Hessian there."""
    cells = blocks.pairs | blocks.others
    score, joint = score[cells], blocks.joint[cells]
    weight = joint + odds * blocks.product[cells]
    if float(score.max() - score.min()) <= 0:
        return None
    shift, slope = 0.0, 1.0
    for _ in range(_STEPS):
        belongs = torch.sigmoid(shift + slope * score)
        error = joint - weight * belongs
        spread = weight * belongs * (1 - belongs)
        gradient = np.array([error.sum().item(), error.dot(score).item()])
        leverage = spread * score
        h0, h1, h2 = (v.item() for v in (spread.sum(), leverage.sum(), leverage.dot(score)))
        hessian = np.array([[h0, h1], [h1, h2]])
        if not h0 * h2 - h1 * h1 > 1e-12 * h0 * h2:
            return None
        inverse: Array = np.linalg.inv(hessian)
        # Bounded, so that the first steps from a poor log r do not overshoot.
        step = inverse @ gradient
        step = step / max(1.0, float(np.abs(step / _LONGEST_STEP).max()))
        shift, slope = shift + float(step[0]), slope + float(step[1])
        if np.abs(step).max() < 1e-8:
            return (shift, slope), inverse
    return None


# The reliability curve of the classifier sigmoid(log r): what it says against what is seen.

_BINS = 10
_FEWEST = 10  # joint rows and product cells that a bin needs


@dataclass(frozen=True)
class ReliabilityBin:
    """Pairs whose log r lies from `low` up to `high`, joint and product weighing one half each.

    predicted and observed are logits of the probability that a pair is a joint one, stderr the
    standard error of the observed one. For the true r they agree: log E_M[r] in the bin is the
    logarithm of the share of joint pairs there over that of product pairs.
    """

    low: float
    high: float
    predicted: float
    observed: float
    stderr: float
    joint: int
    product: int

    @property
    def predicted_probability(self) -> float:
        """The predicted logit as a probability."""
        return _sigmoid(self.predicted)

    @property
    def observed_frequency(self) -> float:
        """The observed logit as a share of joint pairs."""
        return _sigmoid(self.observed)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return asdict(self) | {
            "predicted_probability": self.predicted_probability,
            "observed_frequency": self.observed_frequency,
        }


def reliability_curve(blocks: Blocks) -> tuple[ReliabilityBin, ...]:
    """Bins of equal width in log r over the range where joint and product pairs both occur."""
    return tuple(point for point, _ in reliability_balances(blocks))


def reliability_balances(blocks: Blocks) -> list[tuple[ReliabilityBin, Balance]]:
    """The same, each with its balance of h = 1 inside the bin: log( E_M[r h] / E_J[h] )."""
    of_pairs, of_others = (blocks.log_ratio[mask].numpy() for mask in (blocks.pairs, blocks.others))
    curve = []
    for low, high in itertools.pairwise(_edges(of_pairs, of_others).tolist()):
        counts = [int(((part >= low) & (part < high)).sum()) for part in (of_pairs, of_others)]
        if min(counts) < _FEWEST:
            continue
        inside = (blocks.log_ratio >= low) & (blocks.log_ratio < high)
        joint, of_joint = blocks.of_joint(inside.double()[blocks.pairs])
        product, of_product = blocks.of_product(inside.double())
        # The distance to the lower edge is small, where exp of log r itself may be out of range.
        ratio = torch.where(inside, (blocks.log_ratio - low).exp(), 0.0)
        wanted, of_wanted = blocks.of_product(ratio)
        of_joint, of_product, of_wanted = of_joint / joint, of_product / product, of_wanted / wanted
        predicted = low + math.log(wanted / product)
        observed = math.log(joint) - math.log(product)
        stderr = float(np.sqrt(np.square(of_joint - of_product).sum()))
        point = ReliabilityBin(low, high, predicted, observed, stderr, *counts)
        spreads = [float(np.square(part).sum()) for part in (of_joint, of_wanted)]
        offset = _as_of_counts(predicted - observed, spreads[0] / max(sum(spreads), 1e-300))
        rows = min(*counts, 1 / max(*spreads, 1e-300))
        curve.append((point, Balance("bin", predicted, offset, of_wanted - of_joint, rows)))
    return curve


def _as_of_counts(offset: float, joint_share: float) -> float:
    """The logarithm of two counts' ratio, made as symmetric as a normal variable.

    The square root of a Poisson count's deviance, 2 (e^d - 1 - d) per count, is close to normal
    from few counts on, unlike its logarithm. joint_share: how much of the variance comes from the
    joint pairs; the rest comes from the product pairs, of which too many raise the offset.
    """
    few_joint, few_product = (
        math.copysign(math.sqrt(2.0 * max(0.0, math.expm1(d) - d)), d) for d in (offset, -offset)
    )
    return joint_share * few_joint - (1.0 - joint_share) * few_product


def _edges(joint: Array, product: Array) -> Array:
    """(_BINS + 1,), from where joint pairs begin to where product pairs end; may be empty."""
    if len(joint) < _FEWEST or len(product) < _FEWEST:
        return np.empty(0)
    low = max(np.partition(joint, _FEWEST - 1)[_FEWEST - 1], product.min())
    high = min(np.partition(product, -_FEWEST)[-_FEWEST], joint.max())
    if not math.isfinite(low) or not math.isfinite(high) or high < low:
        return np.empty(0)
    edges: Array = np.linspace(low, high, _BINS + 1 if high > low else 2)
    edges[-1] = np.nextafter(edges[-1], math.inf)  # the highest pair belongs to the last bin
    return edges


def _sigmoid(logit: float) -> float:
    return 0.5 * (1.0 + math.tanh(0.5 * logit))
