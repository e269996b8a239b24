"""Training problems, recorded by name."""

from __future__ import annotations

from dataclasses import dataclass

MEANINGS = {
    "diverged": "the objective became non-finite; the best weights before that are used",
    "not_converged": "training reached max_epochs before the held-out objective stopped rising",
    "still_improving": "the last epoch was the best one: more epochs would fit better",
    "saturated": "values sit at a limit of the method, not of the data",
    "few_rows": "so few rows tell little: the interval may miss the truth",
    "wide_interval": "the interval is wide: the rows are too few to say how dependent x and y are",
    "few_rows_decide": "a few rows carry most of the spread: do not trust the interval",
    "duplicated_rows": "rows occur more than once and stand on both sides of the splits",
    "determined": "part of y is determined by x: the mutual information has no finite value",
    "collapsed": "the representations are all but constant: they tell no pair from another",
    "reference_too_small": "the stored reference of the read-out is too small for the values found",
    "few_pairs": "the pairs are too few to calibrate by: PMI may be off by a factor",
    "check_fails": "the calibrated ratio does not agree with the held-out pairs",
}


@dataclass(frozen=True)
class Flag:
    """One problem: its name (a key of `MEANINGS`), the replicas it touches, and what to do."""

    name: str
    replicas: tuple[int, ...]
    message: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"
