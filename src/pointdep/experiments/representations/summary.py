"""Means over the seeds, and differences between objectives with their noise."""

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
    steps, epochs, minutes: mean length of a run. paper: what the paper prints.
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
    whole = [curve for curve in curves if curve.steps]
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

    Of several seeds Student's t; of one the interval that two runs of seeds with a standard
    deviation of `SEED_SD` would have, the test images drawn anew for each. None without a common
    seed.
    """
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        return None
    differences = [100 * (one[seed] - other[seed]) for seed in seeds]
    if len(seeds) > 1:
        return _student(differences)
    shares = one[seeds[0]], other[seeds[0]]
    reach = _Z * math.sqrt(sum(_drawn(share, test) + SEED_SD**2 for share in shares))
    return Measured(differences[0], differences[0] - reach, differences[0] + reach, 1)


def above_fixed(one: Finals, share: float, test: int) -> Measured:
    """The same against a number that does not depend on a seed."""
    differences = [100 * (value - share) for value in one.values()]
    if len(differences) > 1:
        return _student(differences)
    (value,) = one.values()
    reach = _Z * math.sqrt(_drawn(value, test) + _drawn(share, test) + SEED_SD**2)
    return Measured(differences[0], differences[0] - reach, differences[0] + reach, 1)


def _student(values: Sequence[float]) -> Measured:
    from scipy.stats import t

    n = len(values)
    middle = float(np.mean(values))
    reach = float(t.ppf(0.975, n - 1)) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Measured(middle, middle - reach, middle + reach, n)


def _drawn(share: float, test: int) -> float:
    """Variance, in points, of an accuracy over that many test images."""
    return 100.0**2 * share * (1.0 - share) / test
