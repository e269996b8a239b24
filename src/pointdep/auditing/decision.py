"""From the PMI of pairs and of mismatched pairs to suspects."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pointdep.auditing.evidence import Array32, Mismatched
from pointdep.auditing.result import Contamination
from pointdep.errors import DataWarning, InputError, warn_caller
from pointdep.inference.mutual_information import standard_error

# Which pairs came together by chance: functions of PMI, of pairs and of mismatched pairs.
#
# With a share eps of chance pairs in the data the fitted ratio is r_obs = eps + (1 - eps) r, and a
# pair is a chance pair with probability eps / r_obs. Far below zero a fitted log r is an
# extrapolation, so r_obs is first of all counted: of all mismatched pairs a share t has a PMI
# at most as high as this pair's. Chance pairs have a uniform t, and r_obs is the density of t over
# the pairs of the data, which rises with t.

Array = NDArray[np.float64]

_FAR_BELOW = -3.0  # nats
_FEWEST, _LINE = 30, 50  # pairs: a share counted on fewer, or a line through fewer, is chance
_CLEAR = 3.0  # times: two ratios counted on the same few pairs differ by less
_OF_SAY = 100  # pairs: with so many to count, PMI has half a say
_NEAR = 0.15  # of the mismatched pairs: the lowest, by which a density is extrapolated to 0
_LEAST_OF_LEAST = 0.25
_LONG = 0.5  # of the mismatched pairs: an interval with so many is long


def mismatched_shares(
    pmi: NDArray[np.floating], mismatched: NDArray[np.floating], *, below: bool = False
) -> Array:
    """Of mismatched pairs (m,), the share that has at most the PMI of each pair (n,), in (0, 1).

    below: less than it.
    """
    up_to = np.searchsorted(np.sort(mismatched), pmi, side="left" if below else "right")
    return (up_to + 0.5) / (len(mismatched) + 1)


def estimate_contamination(shares: Array, below: Array | None = None) -> Contamination:
    """eps: the density of `shares`, (n,), at 0, where right pairs are rarest.

    `most_by_chance`, or less where pairs lie above most mismatched ones: few are below then, and in
    a long interval, counted as one more than they are, because they may be none, these say enough.
    below: (n,) shares of the mismatched pairs with less PMI; `shares` where none tie.
    """
    found = most_by_chance(shares)
    ordered, ends = np.sort(shares), np.sort(shares if below is None else below)
    far = ends >= _LONG
    counts = np.searchsorted(ordered, ordered, side="left")[far] + 1
    density = counts / (len(ordered) * ends[far])
    if not far.any() or density.min() >= found.share:
        return found
    share = float(density.min())
    return Contamination(share, given=False, stderr=share / math.sqrt(counts[density.argmin()]))


def most_by_chance(shares: Array) -> Contamination:
    """eps, or more of it, counted on thirty pairs at least.

    The least density over an interval from 0; where the density falls towards 0, so that right
    pairs are still among those, what a straight line through it gives there. It is eps where some
    right pairs are impossible (inf r = 0), and above it where even the least likely pairs are
    sometimes right, or chance pairs are fewer than thirty and right ones above nearly all
    mismatched ones.
    """
    ordered = np.sort(shares)
    counts = np.searchsorted(ordered, ordered, side="right")  # ties lie in the interval together
    first = min(_FEWEST, len(ordered)) - 1
    ends, density = ordered[first:], counts[first:] / (len(ordered) * ordered[first:])
    least = int(density.argmin())
    share = min(float(density[least]), 1.0)
    near = ends <= _NEAR
    if near.sum() >= _LINE:
        # A straight line through the density over intervals from 0 to `ends`, at 0. Its variance
        # is as 1 / end.
        weights = np.sqrt(ends[near])
        columns = np.stack([weights, weights * ends[near]], 1)
        line = float(np.linalg.lstsq(columns, weights * density[near], rcond=None)[0][0])
        share = min(share, max(line, _LEAST_OF_LEAST * share))
    return Contamination(share, given=False, stderr=share / math.sqrt(counts[first + least]))


def observed_ratio(shares: Array) -> Array:
    """r_obs of each pair, (n,): the rising density of `shares` (Grenander).

    The slope of the greatest convex function below their cumulative distribution.
    """
    from sklearn.isotonic import isotonic_regression

    values, inverse, counts = np.unique(shares, return_inverse=True, return_counts=True)
    widths = np.diff(np.concatenate([[0.0], values, [1.0]]))
    heights = np.append(counts / len(shares), 0.0) / widths
    slopes: Array = isotonic_regression(heights, sample_weight=widths)
    return slopes[inverse]


def posteriors(
    pmi: NDArray[np.floating], shares: Array, contamination: float, standings: Array | None = None
) -> Array:
    """The probability that each pair is a chance pair, (n,): eps / r_obs.

    r_obs is counted, and PMI may only say that it is larger: above zero as it stands; below, the
    less the more pairs there are to count, this one and those with a lower PMI. So may `standings`,
    (n,), shares as `shares` of how the pair stands among mismatched pairs of its own x and y: what
    is unlike all other rows has a low PMI with everything, and still belongs to its partner most.
    They speak where they are clear.
    """
    pmi = pmi.astype(np.float64)
    counted = np.log(np.maximum(observed_ratio(shares), np.finfo(np.float64).tiny))
    say = _OF_SAY / (_OF_SAY + np.searchsorted(np.sort(pmi), pmi, side="right"))
    found = np.maximum(counted, np.where(pmi > 0, pmi, say * pmi + (1.0 - say) * counted))
    if standings is not None:
        found = np.maximum(found, np.log(np.maximum(observed_ratio(standings) / _CLEAR, 1e-300)))
    return np.exp(np.minimum(math.log(contamination) - found, 0.0))


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
    shares = mismatched_shares(pmi, beside.pmi)
    standings = mismatched_shares(beside.standing, beside.standings)
    if contamination is not None:
        found = most = Contamination(contamination, given=True)
    else:
        found = estimate_contamination(shares, mismatched_shares(pmi, beside.pmi, below=True))
        # The more cautious of the two for the suspects: among very dependent pairs the other one
        # would acquit wrong ones by how they stand.
        most = most_by_chance(shares)
    posterior = posteriors(pmi, shares, most.share, standings)
    # Wrong pairs far below zero must not hide that the others depend.
    known = ~np.isnan(pmi)
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
