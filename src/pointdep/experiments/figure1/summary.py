"""Bias, spread and error of each curve, over the second half of each level."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pointdep.experiments.figure1.curves import Curves

Floats = NDArray[np.float64]

BATCHES = 20
"""Neighbouring values of a curve resemble each other; the means of this many parts hardly do."""
FEWEST_BATCHES = 5
"""Of fewer means the standard deviation says nothing."""


@dataclass(frozen=True)
class Half:
    """One curve over the second half of one level, in nats.

    The statistics are over the finite values. They are None where there are too few (one for `bias`
    and `rmse`, two for `sd`, ten for the errors) or where they overflow.

    Attributes
    ----------
    iterations, not_finite: how many values there are, and how many of them are not finite.
    bias, sd, rmse: mean error, standard deviation, root mean squared error: rmse^2 = bias^2 + sd^2.
    bias_stderr, log_sd_stderr: standard errors of `bias` and of log `sd` from batch means, which
        hold the noise of this one curve and not what differs from seed to seed.
    """

    method: str
    task: str
    level: float
    seed: int
    iterations: int
    not_finite: int
    bias: float | None
    bias_stderr: float | None
    sd: float | None
    log_sd_stderr: float | None
    rmse: float | None


@dataclass(frozen=True)
class Summary:
    """The mean over the seeds that have the statistic; None where none has it.

    Attributes
    ----------
    seeds, blown_up: how many there are, and how many have a value that is not finite.
    iterations, not_finite: values of all seeds, and how many of them are not finite.
    bias, sd: means over seeds of the bias and of the standard deviation within a curve.
    bias_stderr: over seeds; of a run with a single one, from its batch means.
    rmse: root of the mean over seeds of the mean squares.
    """

    method: str
    task: str
    level: float
    seeds: int
    blown_up: int
    iterations: int
    not_finite: int
    bias: float | None
    bias_stderr: float | None
    sd: float | None
    rmse: float | None


def halves(curves: Curves) -> list[Half]:
    """One line for each cell and level: task by task, method by method, seed by seed."""
    settings = curves.settings
    judged = [settings.second_half(level) for level in range(len(settings.levels))]
    columns = {cell: curves.of(cell) for cell in curves.cells}
    order = sorted(
        columns,
        key=lambda cell: (settings.tasks.index(cell.task), settings.methods.index(cell.method)),
    )
    return [
        _half(cell.method, cell.task, level, cell.seed, columns[cell][own].astype(np.float64))
        for cell in order
        for level, own in zip(settings.levels, judged, strict=True)
    ]


def summarise(lines: Sequence[Half]) -> list[Summary]:
    """One line for each method, task and level, in the order they come first."""
    groups: dict[tuple[str, str, float], list[Half]] = {}
    for line in lines:
        groups.setdefault((line.method, line.task, line.level), []).append(line)
    return [_mean(*key, members) for key, members in groups.items()]


def batches_of(count: int) -> int:
    """Into how many parts so many values are cut, each of at least two."""
    return min(BATCHES, count // 2)


@np.errstate(over="ignore", invalid="ignore")
def batch_means_error(values: Floats) -> float | None:
    """Standard error of the mean of (n,) values that follow each other; None below ten."""
    parts = batches_of(len(values))
    if parts < FEWEST_BATCHES:
        return None
    means = [part.mean() for part in np.array_split(values, parts)]
    return _known(np.std(means, ddof=1) / math.sqrt(parts))


@np.errstate(over="ignore", invalid="ignore")
def _half(method: str, task: str, level: float, seed: int, values: Floats) -> Half:
    finite = values[np.isfinite(values)]
    errors = finite - level
    return Half(
        method=method,
        task=task,
        level=level,
        seed=seed,
        iterations=len(values),
        not_finite=len(values) - len(finite),
        bias=_known(errors.mean()) if len(finite) else None,
        bias_stderr=batch_means_error(errors),
        sd=_known(errors.std()) if len(finite) > 1 else None,
        log_sd_stderr=_log_sd_error(errors),
        rmse=_known(np.sqrt(np.square(errors).mean())) if len(finite) else None,
    )


def _log_sd_error(errors: Floats) -> float | None:
    """By the delta method from that of the variance: d log sd = d var / (2 var)."""
    squares = np.square(errors - errors.mean()) if len(errors) else errors
    variance = squares.mean() if len(errors) else 0.0
    # Divided first: of large values, the squares of the squares would overflow.
    error = batch_means_error(squares / variance if variance else squares)
    return None if error is None else error / 2


def _mean(method: str, task: str, level: float, members: list[Half]) -> Summary:
    biases = [half.bias for half in members if half.bias is not None]
    rmses = [half.rmse for half in members if half.rmse is not None]
    error = members[0].bias_stderr if len(members) == 1 else None
    if len(biases) > 1:
        with np.errstate(over="ignore", invalid="ignore"):
            error = _known(np.std(biases, ddof=1) / math.sqrt(len(biases)))
    return Summary(
        method=method,
        task=task,
        level=level,
        seeds=len(members),
        blown_up=sum(half.not_finite > 0 for half in members),
        iterations=sum(half.iterations for half in members),
        not_finite=sum(half.not_finite for half in members),
        bias=_mean_of(biases),
        bias_stderr=error,
        sd=_mean_of(half.sd for half in members),
        rmse=_known(math.hypot(*rmses) / math.sqrt(len(rmses))) if rmses else None,
    )


def _mean_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    with np.errstate(over="ignore"):
        return _known(np.mean(known)) if known else None


def _known(value: float | np.floating) -> float | None:
    return float(value) if math.isfinite(value) else None
