"""The reliability curve of the classifier sigmoid(log r): what it says against what is seen."""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pointdep.inference.balances import Array, Blocks

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


def reliability_curve(blocks: Blocks, bins: int = _BINS) -> tuple[ReliabilityBin, ...]:
    """Bins of equal width in log r over the range where joint and product pairs both occur."""
    of_pairs, of_others = (blocks.log_ratio[mask] for mask in (blocks.pairs, blocks.others))
    edges = _edges(of_pairs.numpy(), of_others.numpy(), bins)
    curve = []
    for low, high in itertools.pairwise(edges.tolist()):
        counts = [int(((part >= low) & (part < high)).sum()) for part in (of_pairs, of_others)]
        if min(counts) >= _FEWEST:
            curve.append(_bin(blocks, low, high, counts))
    return tuple(curve)


def _bin(blocks: Blocks, low: float, high: float, counts: list[int]) -> ReliabilityBin:
    inside = (blocks.log_ratio >= low) & (blocks.log_ratio < high)
    member = inside.double()
    joint, of_joint = blocks.of_joint(member[blocks.pairs])
    product, of_product = blocks.of_product(member)
    # The distance to the lower edge is small, where exp of log r itself may be out of range.
    ratio = (blocks.log_ratio[inside] - low).exp()
    mean = blocks.product[inside].dot(ratio).item() / product
    influence = of_joint / joint - of_product / product
    return ReliabilityBin(
        low=low,
        high=high,
        predicted=low + math.log(mean),
        observed=math.log(joint) - math.log(product),
        stderr=float(np.sqrt(np.square(influence).sum())),
        joint=counts[0],
        product=counts[1],
    )


def _edges(joint: Array, product: Array, bins: int) -> Array:
    """(bins + 1,), from where joint pairs begin to where product pairs end; may be empty."""
    if len(joint) < _FEWEST or len(product) < _FEWEST:
        return np.empty(0)
    low = max(np.partition(joint, _FEWEST - 1)[_FEWEST - 1], product.min())
    high = min(np.partition(product, -_FEWEST)[-_FEWEST], joint.max())
    if not math.isfinite(low) or not math.isfinite(high) or high < low:
        return np.empty(0)
    edges: Array = np.linspace(low, high, bins + 1 if high > low else 2)
    edges[-1] = np.nextafter(edges[-1], math.inf)  # the highest pair belongs to the last bin
    return edges


def _sigmoid(logit: float) -> float:
    return 0.5 * (1.0 + math.tanh(0.5 * logit))
