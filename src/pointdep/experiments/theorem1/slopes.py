"""Error against rows: RMSE with its parts, and the slope of its logarithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from pointdep.experiments.theorem1.run import Outcome, Run

Floats = NDArray[np.float64]

THEOREM = -0.5
"""The exponent of n in the theorem's bound."""
CONFIDENCE = 0.95
QUANTITIES = ("held_out", "in_sample")


@dataclass(frozen=True)
class Summary:
    """One method at one number of rows, over the seeds; in nats.

    Attributes
    ----------
    rmse, bias, sd: of the held-out estimate, rmse^2 = bias^2 + sd^2; low, high: 95% interval of
        rmse, made as that of `Slope`: 93 to 95% for normal errors, less for skewed ones.
    in_sample_rmse, in_sample_bias: of the estimate over the rows that each network trained on.
    exact_rmse: of the mean of the exact PMI over the same rows; exact_sd: theory's value for it.
    at_limit, limit_error: mean over the runs (see `Run`). ended_early: networks in all.
    """

    method: str
    rows: int
    seeds: int
    rmse: float
    low: float
    high: float
    bias: float
    sd: float
    in_sample_rmse: float
    in_sample_bias: float
    exact_rmse: float
    exact_sd: float
    at_limit: float
    limit_error: float
    ended_early: int

    @property
    def bias_share(self) -> float:
        """How much of the squared error is bias, from 0 to 1.

        The mean of so many seeds is off by chance, which is taken away: sd^2 / (seeds - 1) is the
        square of its standard error. An unbiased estimate is at 0 more often than not.
        """
        squared = max(0.0, self.bias**2 - self.sd**2 / (self.seeds - 1))
        return squared / self.rmse**2 if self.rmse else 0.0


@dataclass(frozen=True)
class Slope:
    """How log RMSE falls with log n: least squares over the numbers of rows, each counting alike.

    low, high: 95% interval. Each log RMSE has its variance from leaving out one seed after the
        other (the jackknife); the slope weights and adds them, with Student's t of Welch's degrees
        of freedom. On simulated errors at six n, with 5 or 10 seeds and bias none, half or nine
        tenths of their square, it held the truth in 94 to 96% of 10,000 runs, and in 93 to 95%
        where the errors are skewed (exponential).
    last, last_low, last_high: between the last two numbers of rows alone, where an error that does
        not go away shows first.
    """

    method: str
    quantity: str
    value: float
    low: float
    high: float
    last: float
    last_low: float
    last_high: float

    @property
    def verdict(self) -> str:
        """Beside the theorem's exponent: "agrees", "steeper" or "shallower"."""
        if self.low <= THEOREM <= self.high:
            return "agrees"
        return "steeper" if self.high < THEOREM else "shallower"


def summarise(outcome: Outcome) -> list[Summary]:
    """One line a method and number of rows, in the order of the settings."""
    settings = outcome.settings
    lines = []
    for method in settings.methods:
        for rows in settings.rows:
            runs = _runs(outcome, method, rows)
            held = errors_of(outcome, runs, "held_out")
            seen = errors_of(outcome, runs, "in_sample")
            low, high = np.exp(combine(np.ones(1), held[None])[1:])
            lines.append(
                Summary(
                    method=method,
                    rows=rows,
                    seeds=len(runs),
                    rmse=rmse(held),
                    low=float(low),
                    high=float(high),
                    bias=float(held.mean()),
                    sd=float(held.std()),
                    in_sample_rmse=rmse(seen),
                    in_sample_bias=float(seen.mean()),
                    exact_rmse=rmse(errors_of(outcome, runs, "exact")),
                    exact_sd=settings.exact_sd(rows),
                    at_limit=fmean(run.at_limit for run in runs),
                    limit_error=fmean(run.limit_error for run in runs),
                    ended_early=sum(run.ended_early for run in runs),
                )
            )
    return lines


def slopes(outcome: Outcome) -> list[Slope]:
    """One for each method, held out and in sample."""
    settings = outcome.settings
    found = []
    for method in settings.methods:
        per_rows = [_runs(outcome, method, rows) for rows in settings.rows]
        for quantity in QUANTITIES:
            errors = np.stack([errors_of(outcome, runs, quantity) for runs in per_rows])
            last = fit_slope(settings.rows[-2:], errors[-2:])
            found.append(Slope(method, quantity, *fit_slope(settings.rows, errors), *last))
    return found


def fit_slope(rows: Sequence[int], errors: Floats) -> tuple[float, float, float]:
    """Slope of log RMSE against log rows with its interval; errors: (numbers of rows, seeds)."""
    centred = np.log(rows) - np.log(rows).mean()
    return combine(centred / np.square(centred).sum(), errors)


def combine(weights: Floats, errors: Floats) -> tuple[float, float, float]:
    """Weighted sum of log RMSEs with its interval; weights: (k,), errors: (k, seeds)."""
    from scipy.special import stdtrit

    squares, seeds = np.square(errors), errors.shape[1]
    value = float(weights @ _log_root(squares.mean(1)))
    # (k, seeds): each log RMSE without one of the seeds.
    without = _log_root(squares @ ((1.0 - np.eye(seeds)) / (seeds - 1)))
    parts = np.square(weights) * (seeds - 1) * without.var(1)
    variance = parts.sum()
    if variance == 0:
        return value, value, value
    freedom = (seeds - 1) * variance**2 / np.square(parts).sum()
    reach = float(stdtrit(freedom, (1.0 + CONFIDENCE) / 2.0) * np.sqrt(variance))
    return value, value - reach, value + reach


def rmse(errors: Floats) -> float:
    """Root of the mean square of (seeds,)."""
    return float(np.sqrt(np.square(errors).mean()))


def errors_of(outcome: Outcome, runs: Sequence[Run], quantity: str) -> Floats:
    """Estimate minus truth of each run, (runs,)."""
    return np.array([getattr(run, quantity) for run in runs]) - outcome.settings.mi


def _runs(outcome: Outcome, method: str, rows: int) -> list[Run]:
    return [run for run in outcome.runs if run.method == method and run.rows == rows]


def _log_root(mean_squares: Floats) -> Floats:
    found: Floats = 0.5 * np.log(mean_squares)
    return found
