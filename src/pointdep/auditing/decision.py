"""From the PMI of pairs and of mismatched pairs to suspects."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointdep.auditing.evidence import Array32, Mismatched
from pointdep.auditing.result import Contamination
from pointdep.errors import DataWarning, InputError, warn_caller
from pointdep.inference.mutual_information import standard_error

# Which pairs came together by chance: functions of PMI, of pairs and of mismatched pairs.
#
# With a share eps of chance pairs in the data, pairs have the density f = eps f0 + (1 - eps) f1 of
# PMI, where f0 is that of mismatched pairs and f1 that of right ones, and a pair is a chance pair
# with probability eps f0 / f. f / f0 is r_obs as a function of PMI: exp(PMI) where the fit is
# right; far below zero, where a fitted PMI is an extrapolation, it ends at eps. It is fitted as a
# constant and a few exponentials of PMI, for which few pairs are enough, and only to low PMI, where
# pairs of both kinds are: how right pairs are spread elsewhere says nothing about these.

Array = NDArray[np.float64]

_FAR_BELOW = -3.0  # nats
# Chosen on Multi30k from row 10,000 on, digits and Gaussian pairs of known PMI, of which
# `benchmarks/planted.py` reports none but other plantings in the digits.
_LOW = 0.95  # of the mismatched pairs: those that f / f0 is fitted to
_FEWEST, _LEAST = 30, 0.05  # pairs, and a share of them: as many are low, so that some are right
_SLOPES = (0.5, 1.0, 2.0)  # of log(f / f0) over PMI: 1 is that of a PMI that is right
_WIDE, _LEAST_SLOPE = 2.5, 0.3  # over the spread of mismatched pairs: the least slope, if smaller
_LOWEST = 0.005  # of the mismatched pairs: where f / f0 has ended at eps
_STEPS = 200  # mismatched pairs that stand for all in an integral
_MOST_LOW = 20_000  # pairs that stand for all
_MOST_NATS = 500.0
_SHOWN = 2.0  # nats of likelihood
_NONE = -25.0  # logarithm of the number of pairs of a part that is not there
_CLEAR = 3.0  # times: two ratios counted on the same few pairs differ by less
_LOW_AMONG_ALL, _STANDS = 0.6, 0.5  # of the mismatched pairs


def mismatched_shares(pmi: NDArray[np.floating], mismatched: NDArray[np.floating]) -> Array:
    """Of mismatched pairs (m,), the share that has at most the PMI of each pair (n,), in (0, 1)."""
    up_to = np.searchsorted(np.sort(mismatched), pmi, side="right")
    return (up_to + 0.5) / (len(mismatched) + 1)


@dataclass(frozen=True, eq=False)
class RatioCurve:
    """r_obs as a function of PMI: the sum of exp(logs + slopes * (PMI - top)), slopes[0] = 0.

    logs: of the weights; top: the PMI up to which it was fitted. Above, it rises as exp(PMI).
    share, stderr: eps, what the curve ends at for the lowest mismatched pairs, and its error.
    """

    slopes: Array
    logs: Array
    top: float
    share: float
    stderr: float

    def __call__(self, pmi: NDArray[np.floating]) -> Array:
        """(n,) for each of `pmi`, (n,)."""
        beyond = _above(pmi, self.top)
        each = self.logs[:, None] + np.multiply.outer(self.slopes, np.minimum(beyond, 0.0))
        ratio: Array = _exp(np.logaddexp.reduce(each) + np.maximum(beyond, 0.0))
        return ratio


def fit_ratio(pmi: NDArray[np.floating], mismatched: NDArray[np.floating]) -> RatioCurve:
    """From the PMI of pairs, (n,), and of mismatched pairs, (m,), by maximum likelihood.

    Low pairs are a Poisson process of density n f0 r_obs, whose likelihood is concave in the
    weights. The slopes are those of a PMI that is right within a factor of two, and a smaller one
    where the PMI of mismatched pairs is spread wide, as by an over-fitted critic.
    """
    chance, rows = np.sort(mismatched.astype(np.float64)), len(pmi)
    enough = min(max(_FEWEST, math.ceil(_LEAST * rows)), rows) - 1
    top = max(float(chance[int(_LOW * len(chance))]), float(np.partition(pmi, enough)[enough]))
    count = int(np.searchsorted(chance, top, side="right"))
    steps = _above(_evenly(chance[:count], _STEPS), top)
    low = np.sort(_above(pmi[pmi <= top], top))
    each = max(len(low) / _MOST_LOW, 1.0)
    low = _evenly(low, int(len(low) / each))
    wide = max(_WIDE / max(float(steps.std()), 1e-9), _LEAST_SLOPE)
    slopes = np.array([0.0, min(_SLOPES[0], wide), *_SLOPES[1:]])
    # By logarithms: very dependent pairs lie hundreds of nats above mismatched ones.
    integral = np.logaddexp.reduce(np.multiply.outer(slopes, steps), 1) - math.log(_STEPS)
    integral += math.log(count / len(chance))
    values = np.multiply.outer(slopes, low)
    density = _exp(values - integral[:, None])
    pairs, loss = _mixture(density, each)
    # The slope that could pass for a constant is there only where the rows show it.
    steep = np.array([True, False, True, True])
    fewer, without = _mixture(density[steep], each)
    if without - loss < _SHOWN:
        pairs = np.full(len(slopes), math.exp(_NONE))
        pairs[steep] = fewer
    logs = np.log(pairs / rows) - integral
    at_lowest = slopes * _above(chance[int(_LOWEST * len(chance))], top)
    share = float(_exp(logs + at_lowest).sum())
    # What the low pairs tell of the parts that are there: the inverse of their covariance, each in
    # units of itself.
    used = (pairs > 1e-3) | (slopes == 0.0)
    parts = _exp((logs[:, None] + values - np.logaddexp.reduce(logs[:, None] + values))[used])
    inverse = np.linalg.pinv(each * parts @ parts.T, hermitian=True)
    ends = _exp((logs + at_lowest)[used])
    # The information is none if no chance pairs are there, and they are counts after all.
    counted = math.sqrt(max(rows * share, 1.0)) / rows
    stderr = math.sqrt(max(float(ends @ inverse @ ends), 0.0))
    stderr = min(max(stderr, counted), 3.0 * counted)
    return RatioCurve(slopes, logs, top, min(share, 1.0), stderr)


def _above(pmi: Any, top: float) -> Array:
    """PMI beyond `top`, within bounds that exp can take."""
    return np.clip(np.asarray(pmi, dtype=np.float64) - top, -_MOST_NATS, _MOST_NATS)


def _exp(logs: Array) -> Array:
    """Finite and above zero."""
    found: Array = np.exp(np.clip(logs, -_MOST_NATS, _MOST_NATS))
    return found


def _evenly(ordered: Array, count: int) -> Array:
    """So many of them, which stand for all."""
    return ordered[((np.arange(count) + 0.5) * (len(ordered) / max(count, 1))).astype(np.int64)]


def _mixture(density: Array, each: float) -> tuple[Array, float]:
    """Numbers of pairs (k,) in the parts of a mixture, and minus its Poisson log-likelihood.

    density: (k, n), of each part at the pairs; each: pairs that one of them stands for.
    """
    from scipy.optimize import minimize

    def loss(logs: Array) -> tuple[float, Array]:
        pairs = np.exp(logs)
        total = pairs @ density
        value = pairs.sum() - each * np.log(total).sum()
        return value, pairs * (1.0 - each * (density / total).sum(1))

    parts, pairs = len(density), each * density.shape[1]
    start = np.full(parts, math.log(max(pairs, 1.0) / parts))
    bounds = [(_NONE, math.log(max(pairs, 1.0)) + 1.0)] * parts
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return np.exp(found.x), float(found.fun)


def observed_ratio(shares: Array) -> Array:
    """The rising density of `shares` (Grenander), (n,): how much pairs outnumber chance pairs.

    The slope of the greatest convex function below their cumulative distribution.
    """
    from sklearn.isotonic import isotonic_regression

    values, inverse, counts = np.unique(shares, return_inverse=True, return_counts=True)
    widths = np.diff(np.concatenate([[0.0], values, [1.0]]))
    heights = np.append(counts / len(shares), 0.0) / widths
    slopes: Array = isotonic_regression(heights, sample_weight=widths)
    return slopes[inverse]


def unlike_others(shares: Array, standings: Array) -> Array:
    """r_obs, (n,), of pairs that are unlike all others but for each other, and 0 of the rest.

    Their PMI is low among all mismatched pairs, and so is that of all pairs that share their x or
    their y, among which they stand high. shares: (n,) of mismatched pairs with at most their PMI;
    standings: the same of mismatched pairs of their own x and y. These speak where they are clear.
    """
    unlike = (shares < _LOW_AMONG_ALL) & (standings > _STANDS)
    return np.where(unlike, observed_ratio(standings) / _CLEAR, 0.0)


def posteriors(ratio: Array, contamination: float) -> Array:
    """The probability that each pair is a chance pair, (n,): eps / r_obs."""
    return np.minimum(contamination / np.maximum(ratio, np.finfo(np.float64).tiny), 1.0)


def q_values(pmi: NDArray[np.floating], posterior: Array) -> Array:
    """Of each pair (n,) and all more likely chance pairs, the expected share of good ones.

    The mean of 1 - posterior. Pairs of equal posterior stand in the order of PMI, and those that
    are equal in both have one q-value.
    """
    order = np.lexsort((pmi, -posterior))
    running = np.cumsum(1.0 - posterior[order]) / np.arange(1, len(pmi) + 1)
    _, kind = np.unique(np.stack([-posterior, pmi], 1), axis=0, return_inverse=True)
    kind = kind.reshape(-1)[order]
    last = np.searchsorted(kind, kind, side="right") - 1
    found = np.empty(len(pmi))
    found[order] = running[last]
    return found


_LARGE_SHARE, _FEW = 0.3, 60  # a share of the rows, and rows: fewer cannot be counted well
_INDEPENDENT = (
    "the interval of the mutual information reaches down to 0: x and y depend too little on each "
    "other, or the rows are too few, for PMI to tell wrong pairs from right ones, and no suspects "
    "are named; whether they are dependent at all, mutual_information(shuffles=39) or pointdep mi "
    "--shuffles 39 says"
)
_ALL = (
    "by their PMI all pairs may have come together by chance, because the rows are too few or x "
    "and y depend too little on each other, and no suspects are named; give contamination= where "
    "you know the share"
)
_WEAK = (
    "that many pairs are wrong, or x and y depend so little on each other that right pairs look "
    "like chance, and then many suspects are right; give contamination= where you know the share"
)


@dataclass(frozen=True, eq=False)
class Decision:
    """posterior, q_value: (n,) for each pair; contamination: of all of them.

    named: whether suspects could be named; where not, every q_value is 1.
    """

    posterior: NDArray[np.float64]
    q_value: NDArray[np.float64]
    contamination: Contamination
    named: bool = True


def check_shares(fdr: float, contamination: float | None) -> None:
    """Refuse them before the work rather than after."""
    for name, value in (("fdr", fdr), ("contamination", contamination)):
        if value is not None and not 0.0 < value < 1.0:
            raise InputError(f"{name}={value!r} must lie between 0 and 1, as 0.05")


def decide(
    pmi: Array32,
    beside: Mismatched,
    contamination: float | None,
    least: float,
    groups: NDArray[np.int64] | None = None,
    labels: bool = False,
) -> Decision:
    """pmi: (n,), by models that did not see the pairs. contamination: where it is known.

    groups: (n,) codes of rows that are not independent draws. least: the lower end of the interval
    of the mutual information. Nobody is a suspect if neither
    it nor that of the mean PMI, with wrong pairs held at -3 nats, is above 0, or if by their PMI
    all pairs may have come together by chance, unless contamination is given. Warns there, and
    where the share is large. labels: y is one column of labels, of which many may be wrong.
    """
    known = ~np.isnan(pmi)
    curve = fit_ratio(pmi[known], beside.pmi)
    found = Contamination(curve.share, given=False, stderr=curve.stderr)
    if contamination is not None:
        found = Contamination(contamination, given=True)
    standings = mismatched_shares(beside.standing, beside.standings)
    unlike = unlike_others(mismatched_shares(pmi, beside.pmi), standings)
    posterior = posteriors(np.maximum(curve(pmi), unlike), found.share)
    # Wrong pairs far below zero must not hide that the others depend.
    held = np.maximum(pmi[known].astype(np.float64), _FAR_BELOW)
    error = standard_error(held, None if groups is None else groups[known])
    least = max(least, float(held.mean()) - 2.0 * error)
    doubt = "" if found.given else _doubt(found, least)
    if labels:
        doubt = _INDEPENDENT if doubt and least <= 0.0 else ""
    if doubt:
        warn_caller(doubt, DataWarning)
        return Decision(posterior, np.ones_like(posterior), found, named=False)
    if not labels and not found.given and found.share > max(_LARGE_SHARE, _FEW / len(pmi)):
        told = f"the share of chance pairs is estimated at {found.share:.0%}: {_WEAK}"
        warn_caller(told, DataWarning)
    return Decision(posterior, q_values(pmi, posterior), found)


def _doubt(found: Contamination, least: float) -> str:
    """Why no suspects can be named, or ""."""
    if least <= 0.0:
        return _INDEPENDENT
    doubt = found.stderr or 0.0
    if found.share + 2.0 * doubt < 1.0:
        return ""
    share = f"{found.share:.0%} (standard error {doubt:.0%})"
    return f"the share of chance pairs is estimated at {share}: {_ALL}"


def ranks(pmi: NDArray[np.float32]) -> NDArray[np.int64]:
    """(n,): 1 for the lowest."""
    return np.argsort(np.argsort(pmi, kind="stable")) + 1
