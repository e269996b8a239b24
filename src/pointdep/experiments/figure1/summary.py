"""Bias, spread and error of each curve, over the second half of each level."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from pointdep.experiments.figure1.curves import Curves

Floats = NDArray[np.float64]

BATCHES = 20
"""Neighbouring values of a curve resemble each other; the means of this many parts hardly do."""


@dataclass(frozen=True)
class Half:
    """One curve over the second half of one level, in nats.

    The statistics are over the finite values, and None where there are none (`sd` and the errors:
    fewer than two, four).

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
    """The mean over the seeds that have a finite value; None where none has.

    Attributes
    ----------
    seeds, blown_up: how many there are, and how many have a value that is not finite.
    iterations, not_finite: values of all seeds, and how many of them are not finite.
    bias, sd: means over seeds of the bias and of the standard deviation within a curve.
    bias_stderr: over seeds; with a single one, from its batch means.
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


def batch_means_error(values: Floats) -> float | None:
    """Standard error of the mean of (n,) values that follow each other; None below four."""
    parts = min(BATCHES, len(values) // 2)
    if parts < 2:
        return None
    means = [part.mean() for part in np.array_split(values, parts)]
    return float(np.std(means, ddof=1)) / math.sqrt(parts)


def _half(method: str, task: str, level: float, seed: int, values: Floats) -> Half:
    finite = values[np.isfinite(values)]
    errors = finite - level
    sd = float(errors.std()) if len(finite) > 1 else None
    return Half(
        method=method,
        task=task,
        level=level,
        seed=seed,
        iterations=len(values),
        not_finite=len(values) - len(finite),
        bias=float(errors.mean()) if len(finite) else None,
        bias_stderr=batch_means_error(errors),
        sd=sd,
        log_sd_stderr=_log_sd_error(errors),
        rmse=float(np.sqrt(np.square(errors).mean())) if len(finite) else None,
    )


def _log_sd_error(errors: Floats) -> float | None:
    """By the delta method from that of the variance: d log sd = d var / (2 var)."""
    squares = np.square(errors - errors.mean()) if len(errors) else errors
    error = batch_means_error(squares)
    if error is None or squares.mean() == 0:
        return error
    return error / (2 * float(squares.mean()))


def _mean(method: str, task: str, level: float, members: list[Half]) -> Summary:
    biases = [half.bias for half in members if half.bias is not None]
    error: float | None
    if len(biases) > 1:
        error = stdev(biases) / math.sqrt(len(biases))
    else:
        error = next((half.bias_stderr for half in members if half.bias is not None), None)
    squares = _mean_of(None if half.rmse is None else half.rmse**2 for half in members)
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
        rmse=None if squares is None else math.sqrt(squares),
    )


def _mean_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
