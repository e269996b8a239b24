"""Shares, means and the shape of a sample, each with a 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_Z = 1.959964
_RESAMPLES = 200


@dataclass(frozen=True)
class Measured:
    """A number and the ends of its 95 % interval; of n things."""

    value: float
    low: float
    high: float
    n: int

    def agrees(self, value: float, n: int) -> bool:
        """Whether another share, `value` of n, differs by no more than chance explains."""
        pooled = (self.value * self.n + value * n) / (self.n + n)
        spread = math.sqrt(pooled * (1.0 - pooled) * (1.0 / self.n + 1.0 / n))
        return abs(self.value - value) <= _Z * spread

    def above(self, limit: float) -> bool | None:
        """Whether the number is above the limit; None where the interval holds the limit."""
        if self.low > limit:
            return True
        return False if self.high < limit else None


def share(count: int, n: int) -> Measured | None:
    """count of n, with Wilson's interval; None of nothing."""
    if n == 0:
        return None
    from scipy.stats import binomtest

    ends = binomtest(int(count), int(n)).proportion_ci(method="wilson")
    return Measured(count / n, float(ends.low), float(ends.high), n)


def mean(values: Floats) -> Measured:
    """The mean, with the normal interval."""
    n = len(values)
    error = _Z * float(values.std(ddof=1)) / math.sqrt(n)
    middle = float(values.mean())
    return Measured(middle, middle - error, middle + error, n)


def skewness(values: Floats) -> float:
    """Third central moment in units of the standard deviation; 0 for a Gaussian."""
    z = (values - values.mean()) / values.std()
    return float((z**3).mean())


def excess_kurtosis(values: Floats) -> float:
    """Fourth central moment in those units, less 3; 0 for a Gaussian."""
    z = (values - values.mean()) / values.std()
    return float((z**4).mean() - 3.0)


def distance_from_gaussian(values: Floats) -> float:
    """Kolmogorov and Smirnov's: how far the distribution is from the Gaussian fitted to it."""
    from scipy.special import ndtr

    ordered = np.sort(values)
    model = ndtr((ordered - values.mean()) / values.std())
    steps = np.arange(len(values) + 1) / len(values)
    return float(max((steps[1:] - model).max(), (model - steps[:-1]).max()))


def bootstrapped(statistic: Callable[[Floats], float], values: Floats, seed: int) -> Measured:
    """The statistic, with the percentile interval over resampled values."""
    random = np.random.default_rng([seed, 5])
    n = len(values)
    found = [statistic(values[random.integers(0, n, n)]) for _ in range(_RESAMPLES)]
    low, high = np.percentile(found, [2.5, 97.5])
    # The distance of a resample is biased up: its ties are steps that the sample does not have.
    value = statistic(values)
    return Measured(value, min(value, float(low)), max(value, float(high)), n)


def ratio_of_shares(part: int, n_part: int, whole: int, n_whole: int) -> Measured | None:
    """How many times more often something is in a part than in the rest, in both counted alike.

    `part` of n_part in the part, `whole` of n_whole in all. Half a case is added to each count, so
    that none is zero; the interval is Katz's, of the logarithm.
    """
    rest, n_rest = whole - part, n_whole - n_part
    if n_part == 0 or n_rest == 0:
        return None
    a, b = part + 0.5, rest + 0.5
    log = math.log(a / (n_part + 1)) - math.log(b / (n_rest + 1))
    error = _Z * math.sqrt(1 / a - 1 / (n_part + 1) + 1 / b - 1 / (n_rest + 1))
    return Measured(math.exp(log), math.exp(log - error), math.exp(log + error), n_part)


def separation(low: Floats, high: Floats) -> Measured | None:
    """How often one of `low` is below one of `high`, ties half: the area under the ROC curve.

    The interval is Hanley and McNeil's; None where either is empty.
    """
    if not len(low) or not len(high):
        return None
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([low, high]))[: len(low)]
    n, m = len(low), len(high)
    area = 1.0 - (float(ranks.sum()) - n * (n + 1) / 2) / (n * m)
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (n - 1) * (q1 - area**2) + (m - 1) * (q2 - area**2)
    error = _Z * math.sqrt(max(variance, 0.0) / (n * m))
    return Measured(area, area - error, area + error, n)
