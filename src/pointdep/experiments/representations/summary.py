"""Means over the seeds, and differences between objectives with their noise.

An interval joins two errors, whose halves are added in squares: that of the seeds, which gets less
with their number, and that of the test images, which does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pointdep.experiments.representations.results import Curve
from pointdep.experiments.representations.settings import Experiment
from pointdep.experiments.words.numbers import Measured

SEED_SD = 0.5  # points: by how much seeds are taken to differ where there is only one
_Z = 1.959964
Finals = Mapping[int, float]
"""The accuracy at the end, a share, by seed."""


@dataclass(frozen=True)
class Summary:
    """An objective at the end of its runs: shares of the test images; None where unknown.

    runs: that ended, of which `diverged` have no finite features and are not in mean and sd.
    steps, epochs, minutes: mean length of a run that came to its end. paper: what the paper prints.
    """

    objective: str
    runs: int
    diverged: int
    mean: float | None
    sd: float | None
    steps: float | None
    epochs: float | None
    minutes: float | None
    paper: float | None


def summarise(curves: Sequence[Curve], experiment: Experiment) -> list[Summary]:
    """One line an objective, in the order of the curves."""
    objectives = dict.fromkeys(curve.objective for curve in curves)
    return [_line([c for c in curves if c.objective == o], experiment) for o in objectives]


def _line(curves: Sequence[Curve], experiment: Experiment) -> Summary:
    finals = [curve.final for curve in curves if curve.final is not None]
    whole = [curve for curve in curves if curve.steps and not curve.cut]
    objective = curves[0].objective
    return Summary(
        objective=objective,
        runs=len(curves),
        diverged=len(curves) - len(finals),
        mean=float(np.mean(finals)) if finals else None,
        sd=float(np.std(finals, ddof=1)) if len(finals) > 1 else None,
        steps=float(np.mean([c.steps[-1] for c in whole])) if whole else None,
        epochs=float(np.mean([c.epochs[-1] for c in whole])) if whole else None,
        minutes=float(np.mean([c.seconds[-1] for c in whole])) / 60 if whole else None,
        paper=experiment.paper_values.get(objective),
    )


def finals_of(curves: Sequence[Curve], objective: str, chance: float) -> dict[int, float]:
    """By seed; a run that diverged has the accuracy of chance."""
    own = [curve for curve in curves if curve.objective == objective]
    return {curve.seed: chance if curve.final is None else curve.final for curve in own}


def difference(one: Finals, other: Finals, test: int) -> Measured | None:
    """Mean of one less other in points, paired by seed, with its 95 % interval; test: images.

    Both are evaluated on the same images, and which of these each gets right is not kept: the error
    of the images is the least that a difference so large has. None without a common seed.
    """
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        return None
    shares = [float(np.mean([finals[seed] for seed in seeds])) for finals in (one, other)]
    images = _drawn(abs(shares[0] - shares[1]), test)
    return _measured([100 * (one[seed] - other[seed]) for seed in seeds], images, 2)


def above_fixed(one: Finals, share: float, test: int) -> Measured:
    """The same against a number that does not depend on a seed."""
    images = _drawn(abs(float(np.mean(list(one.values()))) - share), test)
    return _measured([100 * (value - share) for value in one.values()], images, 1)


def _measured(values: Sequence[float], images: float, runs: int) -> Measured:
    """The mean over the seeds; images: variance that they do not lessen.

    Of one seed the spread is taken to be that of so many runs with `SEED_SD` each.
    """
    from scipy.stats import t

    n, middle = len(values), float(np.mean(values))
    if n > 1:
        seeds = float(t.ppf(0.975, n - 1)) * float(np.std(values, ddof=1)) / math.sqrt(n)
    else:
        seeds = _Z * SEED_SD * math.sqrt(runs)
    reach = math.hypot(seeds, _Z * math.sqrt(images))
    return Measured(middle, middle - reach, middle + reach, n)


def _drawn(share: float, test: int) -> float:
    """Variance, in points, of a share of that many test images."""
    return 100.0**2 * share * (1.0 - share) / test
