"""What the curves say to a question, with the noise: yes, no, or it cannot be told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pointdep.experiments.figure1.curves import Curves
from pointdep.experiments.figure1.summary import BATCHES, Half, halves

CONFIDENCE = 0.95
NOISE = (
    "Biases and standard deviations are those over the second half of each level; a method as a "
    "whole is judged by the mean over the levels of its |bias|, or of the logarithm of its "
    "standard deviation. One is larger than another when the 95 % interval of the difference "
    "(Student's t) lies above zero; within the interval it cannot be told. The standard error is "
    "that over seeds; with a single seed it is that of batch means, which does not hold what "
    "differs from seed to seed. A half with a value that is not finite is left out, and a level "
    "where more than half of the seeds have one; as that leaves out the worst of a curve, one that "
    "blew up is never found to be the better one, or to grow less: then it cannot be told."
)

Quantity = Literal["bias", "signed bias", "spread"]
Curve = tuple[str, str]  # method and task
NOT_FINITE, WITHIN_NOISE = "not finite", "within the noise"
_NO_SPREAD = 1e-12  # nats; a constant curve has this standard deviation, for its logarithm


@dataclass(frozen=True)
class Measured:
    """A number with its standard error and the degrees of freedom of that."""

    value: float
    stderr: float
    freedom: float

    def interval(self) -> tuple[float, float]:
        """Two-sided, with Student's t."""
        from scipy.stats import t

        if not math.isfinite(self.stderr):
            return -math.inf, math.inf
        reach = float(t.ppf((1 + CONFIDENCE) / 2, self.freedom)) * self.stderr
        return self.value - reach, self.value + reach

    def above(self, limit: float = 0.0) -> bool | None:
        """Whether it is above the limit; None where the interval holds the limit."""
        low, high = self.interval()
        if low <= limit <= high:
            return None
        return low > limit

    def minus(self, other: Measured) -> Measured:
        """The difference of independent numbers, with Welch's degrees of freedom."""
        stderr = math.hypot(self.stderr, other.stderr)
        if stderr == 0 or not math.isfinite(stderr):
            return Measured(self.value - other.value, stderr, math.inf)
        # As shares of the sum: the fourth powers of large errors would overflow.
        doubt = (self.stderr / stderr) ** 4 / self.freedom
        doubt += (other.stderr / stderr) ** 4 / other.freedom
        return Measured(self.value - other.value, stderr, 1 / doubt if doubt else math.inf)

    def times(self, factor: float) -> Measured:
        return Measured(factor * self.value, abs(factor) * self.stderr, self.freedom)


@dataclass(frozen=True)
class Finding:
    """One number a verdict rests on, with its 95 % interval.

    Attributes
    ----------
    about: method and task, or what is compared.
    supports: whether it speaks for the claim; None where it does not say.
    note: why it does not say, or over which levels it is when not all.
    missing: what would have to be run to have the number.
    """

    about: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    supports: bool | None = None
    note: str = ""
    missing: tuple[str, ...] = ()


class Evidence:
    """The halves of a run, by curve and level."""

    def __init__(self, curves: Curves) -> None:
        self.curves = curves
        self.settings = curves.settings
        self.tasks = curves.settings.tasks
        self._halves: dict[tuple[Curve, float], list[Half]] = {}
        for half in halves(curves):
            self._halves.setdefault(((half.method, half.task), half.level), []).append(half)

    def ran(self, curve: Curve) -> bool:
        return curve[0] in self.settings.methods and curve[1] in self.tasks

    def larger(self, quantity: Quantity, one: Curve, other: Curve, times: float = 1.0) -> Finding:
        """Is the mean over the levels of `one` larger than (`times` that of) the `other`?

        The value is the difference in nats, or for "spread" the ratio of standard deviations.
        """
        about = f"{one[0]}, {one[1]} against {other[1]}"
        if one[1] == other[1]:
            about = f"{one[0]} against {other[0]}, {one[1]}"
        levels = self.levels_of(one, other)
        weights = {level: 1 / len(levels) for level in levels}
        first, second = (self.measured(quantity, curve, weights) for curve in (one, other))
        if first is None or second is None:
            return self.unknown(about, one, other)
        difference = first.minus(second.times(times))
        answer = difference.above()
        why = self._distrust(other if answer else one)
        ratio = quantity == "spread"
        return self.finding(about, difference, answer, levels=levels, ratio=ratio, distrust=why)

    def trend(
        self, quantity: Quantity, curve: Curve, above: float = 0.0, times: float = 1.0
    ) -> Finding:
        """Is (`times`) the slope of the quantity against the true value steeper than `above`?"""
        about = ", ".join(curve)
        levels = self.levels_of(curve)
        centred = np.asarray(levels) - np.mean(levels) if levels else np.zeros(0)
        total = float(np.square(centred).sum())
        weights = dict(zip(levels, (centred / total).tolist(), strict=True)) if total else {}
        slope = self.measured(quantity, curve, weights)
        if slope is None:
            if len(self.settings.levels) < 2 and self.ran(curve):
                return Finding(about, missing=("a second level",))
            return self.unknown(about, curve)
        slope = slope.times(times)
        answer = slope.above(above)
        why = "" if answer else self._distrust(curve)
        return self.finding(about, slope, answer, levels=levels, distrust=why)

    def levels_of(self, *curves: Curve) -> tuple[float, ...]:
        """Those at which at least half of the seeds of every curve are finite."""
        return tuple(
            level
            for level in self.settings.levels
            if all(2 * len(self._usable(c, level)) >= self.settings.seeds for c in curves)
        )

    def measured(
        self, quantity: Quantity, curve: Curve, weights: Mapping[float, float]
    ) -> Measured | None:
        """The weighted sum over levels, over the seeds that are finite at all of them."""
        by_level = [self._usable(curve, level) for level in weights]
        if not by_level:
            return None
        seeds = set.intersection(*(set(found) for found in by_level))
        if not seeds:
            return None
        steps = list(zip(weights.values(), by_level, strict=True))
        sums = [
            sum(weight * _value(quantity, found[seed]) for weight, found in steps)
            for seed in sorted(seeds)
        ]
        if len(sums) > 1:
            error = float(np.std(sums, ddof=1)) / math.sqrt(len(sums))
            return Measured(float(np.mean(sums)), error, len(sums) - 1)
        (seed,) = seeds
        error = math.hypot(*(weight * _error(quantity, found[seed]) for weight, found in steps))
        return Measured(sums[0], error, BATCHES - 1)

    def not_finite(self, curve: Curve) -> int:
        """How many values of the curve are not finite, of all seeds and levels."""
        return int((~np.isfinite(self.values(curve))).sum())

    def values(self, curve: Curve) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        """(iterations, seeds)."""
        own = [k for k, c in enumerate(self.curves.cells) if (c.method, c.task) == curve]
        return self.curves.values[:, own]

    def _usable(self, curve: Curve, level: float) -> dict[int, Half]:
        found = self._halves.get((curve, level), [])
        return {half.seed: half for half in found if not half.not_finite and half.sd is not None}

    def finding(
        self,
        about: str,
        found: Measured,
        answer: bool | None,
        *,
        levels: Sequence[float] | None = None,
        ratio: bool = False,
        distrust: str = "",
    ) -> Finding:
        """The number for a report.

        levels: those it is over, where that may not be all. ratio: it is the logarithm of what is
        reported. distrust: why the answer, if there is one, is not to be believed.
        """
        value, low, high = (_exp(v) if ratio else v for v in (found.value, *found.interval()))
        notes = [WITHIN_NOISE if answer is None else distrust]
        if levels is not None and len(levels) < len(self.settings.levels):
            notes.append(f"MI {', '.join(f'{level:g}' for level in levels)} only")
        return Finding(
            about,
            value,
            _known(low),
            _known(high),
            supports=None if distrust else answer,
            note="; ".join(note for note in notes if note),
        )

    def _distrust(self, curve: Curve) -> str:
        lost = any(
            half.not_finite
            for level in self.settings.levels
            for half in self._halves.get((curve, level), [])
        )
        return f"{', '.join(curve)} blew up" if lost else ""

    def unknown(self, about: str, *curves: Curve) -> Finding:
        """No number, because a curve was not run or has no finite half."""
        methods = [method for method, _ in curves if method not in self.settings.methods]
        tasks = [f"the {task} task" for _, task in curves if task not in self.tasks]
        missing = tuple(dict.fromkeys(methods + tasks))
        return Finding(about, note="" if missing else NOT_FINITE, missing=missing)


def opposite(finding: Finding) -> Finding:
    """The same number for the claim that says the contrary."""
    return replace(finding, supports=None if finding.supports is None else not finding.supports)


def every(answers: Sequence[bool | None]) -> bool | None:
    """Whether all are true; one that is false decides."""
    if False in answers:
        return False
    return None if None in answers or not answers else True


def most(answers: Sequence[bool | None]) -> bool | None:
    """Whether more than half are true, whatever the unknown ones are."""
    sure, possible = answers.count(True), len(answers) - answers.count(False)
    if 2 * sure > len(answers):
        return True
    return False if 2 * possible <= len(answers) and answers else None


def _value(quantity: Quantity, half: Half) -> float:
    assert half.bias is not None
    assert half.sd is not None
    if quantity == "spread":
        return math.log(max(half.sd, _NO_SPREAD))
    return abs(half.bias) if quantity == "bias" else half.bias


def _error(quantity: Quantity, half: Half) -> float:
    error = half.log_sd_stderr if quantity == "spread" else half.bias_stderr
    return math.inf if error is None else error


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0)) if math.isfinite(value) else (math.inf if value > 0 else 0.0)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
