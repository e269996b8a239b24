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
_SLOPES = (0.0, 0.5, 1.0, 2.0)  # of log(f / f0) over PMI: 1 is that of a PMI that is right
_STEEP = 1.4  # slope on the whole, below which PMI is stretched, and the slopes fall with it
_WHOLE = tuple(np.geomspace(0.1, 2.0, 10).tolist())  # slopes that are tried for it
_LOWEST = 0.005  # of the mismatched pairs: where f / f0 has ended at eps
_STEPS = 200  # mismatched pairs that stand for all in an integral
_MOST_LOW = 20_000  # pairs that stand for all
_MOST_NATS = 500.0
_CLEAR = 3.0  # times: two ratios counted on the same few pairs differ by less


def mismatched_shares(pmi: NDArray[np.floating], mismatched: NDArray[np.floating]) -> Array:
    """Of mismatched pairs (m,), the share that has at most the PMI of each pair (n,), in (0, 1)."""
    up_to = np.searchsorted(np.sort(mismatched), pmi, side="right")
    return (up_to + 0.5) / (len(mismatched) + 1)


@dataclass(frozen=True, eq=False)
class RatioCurve:
    """r_obs as a function of PMI: the sum of weights * exp(slopes * (PMI - top)), slopes[0] = 0.

    top: the PMI up to which it was fitted. Above, it rises as exp(PMI). share, stderr: eps, what
    the curve ends at for the lowest mismatched pairs, and its standard error.
    """

    slopes: Array
    weights: Array
    top: float
    share: float
    stderr: float

    def __call__(self, pmi: NDArray[np.floating]) -> Array:
        """(n,) for each of `pmi`, (n,)."""
        beyond = _above(pmi, self.top)
        low = self.weights @ np.exp(np.multiply.outer(self.slopes, np.minimum(beyond, 0.0)))
        ratio: Array = low * np.exp(np.maximum(beyond, 0.0))
        return ratio


def fit_ratio(pmi: NDArray[np.floating], mismatched: NDArray[np.floating]) -> RatioCurve:
    """From the PMI of pairs, (n,), and of mismatched pairs, (m,), by maximum likelihood.

    Low pairs are a Poisson process of density n f0 r_obs, whose likelihood is concave in the
    weights. The slopes are those of a PMI that is right within a factor of two, or smaller if a
    single exponential beside the constant says that PMI is stretched, as by an over-fitted critic.
    """
    chance, rows = np.sort(mismatched.astype(np.float64)), len(pmi)
    top = float(chance[min(int(_LOW * len(chance)), len(chance) - 1)])
    count = int(np.searchsorted(chance, top, side="right"))
    steps = _above(_evenly(chance[:count], _STEPS), top)
    low = np.sort(_above(pmi[pmi <= top], top))
    each = max(len(low) / _MOST_LOW, 1.0)
    low = _evenly(low, int(len(low) / each))

    def fitted(slopes: Array) -> tuple[float, Array]:
        """The log-likelihood, and the weights."""
        integral = np.exp(np.multiply.outer(slopes, steps)).mean(1) * count / len(chance)
        density = np.exp(np.multiply.outer(slopes, low)) / integral[:, None]
        likelihood, pairs = _mixture(density, each)
        return likelihood, pairs / (rows * integral)

    whole = max(_WHOLE, key=lambda slope: fitted(np.array([0.0, slope]))[0])
    slopes = min(1.0, whole / _STEEP) * np.array(_SLOPES)
    weights = fitted(slopes)[1]
    at_lowest = np.exp(slopes * _above(chance[int(_LOWEST * len(chance))], top))
    share = float(weights @ at_lowest)
    # What the low pairs tell of the weights that are not zero: the inverse of their covariance.
    values = np.exp(np.multiply.outer(slopes, low))
    used = (weights > 1e-3 / rows) | (slopes == 0.0)
    parts = values[used] / np.maximum(weights @ values, 1e-300)
    inverse = np.linalg.pinv(each * parts @ parts.T)
    variance = float(at_lowest[used] @ inverse @ at_lowest[used])
    # All low pairs may be chance pairs, and the lowest of them is one pair.
    most = each * len(low) / (rows * _LOW)
    stderr = max(min(math.sqrt(max(variance, 0.0)), most), 1.0 / rows)
    return RatioCurve(slopes, weights, top, min(share, 1.0), stderr)


def _above(pmi: Any, top: float) -> Array:
    """PMI beyond `top`, within bounds that exp can take."""
    return np.clip(np.asarray(pmi, dtype=np.float64) - top, -_MOST_NATS, _MOST_NATS)


def _evenly(ordered: Array, count: int) -> Array:
    """So many of them, which stand for all."""
    return ordered[((np.arange(count) + 0.5) * (len(ordered) / max(count, 1))).astype(np.int64)]


def _mixture(density: Array, each: float) -> tuple[float, Array]:
    """Numbers of pairs (k,) in the parts of a mixture, and their Poisson log-likelihood.

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
    bounds = [(-25.0, math.log(max(pairs, 1.0)) + 1.0)] * parts
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return -float(found.fun), np.exp(found.x)


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


def posteriors(ratio: Array, contamination: float, standings: Array | None = None) -> Array:
    """The probability that each pair is a chance pair, (n,): eps / r_obs.

    ratio: (n,) r_obs. `standings`, (n,), the shares of mismatched pairs of the pair's own x and y
    that stand as low as it, may say that it is larger: what is unlike all other rows has a low PMI
    with everything, and still belongs to its partner most. They speak where they are clear.
    """
    if standings is not None:
        ratio = np.maximum(ratio, observed_ratio(standings) / _CLEAR)
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
) -> Decision:
    """pmi: (n,), by models that did not see the pairs. contamination: where it is known.

    groups: (n,) codes of rows that are not independent draws. least: the lower end of the interval
    of the mutual information. Nobody is a suspect if neither
    it nor that of the mean PMI, with wrong pairs held at -3 nats, is above 0, or if by their PMI
    all pairs may have come together by chance, unless contamination is given. Warns there, and
    where the share is large.
    """
    known = ~np.isnan(pmi)
    curve = fit_ratio(pmi[known], beside.pmi)
    found = Contamination(curve.share, given=False, stderr=curve.stderr)
    if contamination is not None:
        found = Contamination(contamination, given=True)
    standings = mismatched_shares(beside.standing, beside.standings)
    posterior = posteriors(curve(pmi), found.share, standings)
    # Wrong pairs far below zero must not hide that the others depend.
    held = np.maximum(pmi[known].astype(np.float64), _FAR_BELOW)
    error = standard_error(held, None if groups is None else groups[known])
    least = max(least, float(held.mean()) - 2.0 * error)
    doubt = "" if found.given else _doubt(found, least)
    if doubt:
        warn_caller(doubt, DataWarning)
        return Decision(posterior, np.ones_like(posterior), found, named=False)
    if not found.given and found.share > max(_LARGE_SHARE, _FEW / len(pmi)):
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
