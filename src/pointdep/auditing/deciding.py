"""From the PMI of pairs and of mismatched pairs to suspects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pointdep.auditing.chance import (
    estimate_contamination,
    mismatched_shares,
    most_by_chance,
    posteriors,
    q_values,
)
from pointdep.auditing.mismatched import Mismatched
from pointdep.auditing.result import Contamination
from pointdep.errors import DataWarning, InputError, warn_caller

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
    pmi: NDArray[np.float32], beside: Mismatched, contamination: float | None, least: float
) -> Decision:
    """pmi: (n,), by models that did not see the pairs. contamination: where it is known.

    least: the lower end of the interval of the mutual information. Where it is not above 0, or
    where by their PMI all pairs may have come together by chance, and contamination is not given,
    nobody is a suspect. Warns there, and where the share is large.
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
    doubt = "" if found.given else _doubt(found, least)
    if doubt:
        warn_caller(doubt, DataWarning)
        return Decision(posterior, np.ones_like(posterior), found, named=False)
    if not found.given and found.share > max(_LARGE_SHARE, _FEW / len(pmi)):
        warn_caller(
            f"the share of chance pairs is estimated at {found.share:.0%}: {_WEAK}", DataWarning
        )
    return Decision(posterior, q_values(pmi, posterior), found)


def _doubt(found: Contamination, least: float) -> str:
    """Why no suspects can be named, or ""."""
    if least <= 0.0:
        return _INDEPENDENT
    doubt = found.stderr or 0.0
    if found.share + 2.0 * doubt < 1.0:
        return ""
    return (
        f"the share of chance pairs is estimated at {found.share:.0%} "
        f"(standard error {doubt:.0%}): {_ALL}"
    )


def ranks(pmi: NDArray[np.float32]) -> NDArray[np.int64]:
    """(n,): 1 for the lowest."""
    rank = np.empty(len(pmi), np.int64)
    rank[np.argsort(pmi, kind="stable")] = np.arange(1, len(pmi) + 1)
    return rank
