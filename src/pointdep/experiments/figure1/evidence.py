"""What the curves say to a question, with the noise: yes, no, or it cannot be told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pointdep.experiments.figure1.curves import Curves
from pointdep.experiments.figure1.summary import FEWEST_BATCHES, Half, batches_of, halves

CONFIDENCE = 0.95
NOISE = (
    "Biases and standard deviations are those over the second half of each level; a method as a "
    "whole is judged by the mean over the levels of its |bias|, or of the logarithm of its "
    "standard deviation. One is larger than another when the 95 % interval of the difference "
    "(Student's t) lies above zero; within the interval it cannot be told. A ratio has the "
    "interval of its logarithm. The standard error is that over seeds; in a run with a single seed "
    "it is that of batch means, which does not hold what differs from seed to seed. Of fewer than "
    f"{FEWEST_BATCHES} batch means, or where a run with several seeds has only one left, there is "
    "no interval, and it cannot be told. A half "
    "with a value that is not finite is left out, and a level where more than half of the seeds "
    "have one; as that leaves out the worst of a curve, one that blew up is never found to be the "
    "better one, or to grow less: then it cannot be told."
)

# |bias|; bias; the logarithm of the mean |bias|; the mean logarithm of the standard deviation.
Quantity = Literal["bias", "signed bias", "log bias", "spread"]
Curve = tuple[str, str]  # method and task
NOT_FINITE, WITHIN_NOISE = "not finite", "within the noise"
TOO_FEW, ONE_LEFT = "too few iterations", "one seed left"
_NOTHING = 1e-12  # nats; what stands for zero where a logarithm is taken
_ORDINALS = {2: "second", 3: "third"}


@dataclass(frozen=True)
class Measured:
    """A number with its standard error, the degrees of freedom of that, or why there is none."""

    value: float
    stderr: float
    freedom: float
    why: str = ""

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
        value, stderr = self.value - other.value, math.hypot(self.stderr, other.stderr)
        if stderr == 0 or not math.isfinite(stderr):
            return Measured(value, stderr, math.inf, self.why or other.why)
        # As shares of the sum: the fourth powers of large errors would overflow.
        doubt = (self.stderr / stderr) ** 4 / self.freedom
        doubt += (other.stderr / stderr) ** 4 / other.freedom
        return Measured(value, stderr, 1 / doubt if doubt else math.inf)

    def plus(self, shift: float) -> Measured:
        return replace(self, value=self.value + shift)

    def times(self, factor: float) -> Measured:
        return replace(self, value=factor * self.value, stderr=abs(factor) * self.stderr)


@dataclass(frozen=True)
class Finding:
    """One number a verdict rests on, with its 95 % interval.

    Attributes
    ----------
    about: method and task, or what is compared.
    supports: whether it speaks for the claim; None where it does not say.
    note: why it does not say, or what stands behind it.
    missing: what would have to be run to have the number.
    levels: those it is over, where these are not all that it should be over.
    """

    about: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    supports: bool | None = None
    note: str = ""
    missing: tuple[str, ...] = ()
    levels: tuple[float, ...] = ()


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

        The value is the difference in nats; for "log bias", which alone takes `times`, the ratio
        of mean |bias|, and for "spread" that of standard deviations.
        """
        if times != 1.0 and quantity != "log bias":
            raise ValueError(f"times={times:g} is for 'log bias', not for {quantity!r}")
        about = f"{one[0]}, {one[1]} against {other[1]}"
        if one[1] == other[1]:
            about = f"{one[0]} against {other[0]}, {one[1]}"
        levels = self.levels_of(one, other)
        weights = {level: 1 / len(levels) for level in levels}
        first, second = (self.measured(quantity, curve, weights) for curve in (one, other))
        if first is None or second is None:
            return self.unknown(about, one, other)
        difference = first.minus(second)
        answer = difference.above(math.log(times))
        return self.finding(
            about,
            difference,
            answer,
            ratio=quantity in {"log bias", "spread"},
            levels=levels if len(levels) < len(self.settings.levels) else (),
            distrust=self._distrust(other if answer else one),
        )

    def trend(
        self,
        quantity: Quantity,
        curve: Curve,
        *,
        above: float = 0.0,
        times: float = 1.0,
        highest: int | None = None,
    ) -> Finding:
        """Is (`times`) the slope of the quantity against the true value steeper than `above`?

        highest: over so many of the highest levels alone, and all of them.
        """
        about = ", ".join(curve)
        asked = sorted(self.settings.levels)
        asked, needed = (asked, 2) if highest is None else (asked[-highest:], highest)
        if len(asked) < needed and self.ran(curve):
            return Finding(about, missing=(f"a {_ORDINALS[needed]} level",))
        levels = tuple(level for level in asked if level in self.levels_of(curve))
        if len(levels) < needed:
            return self.unknown(about, curve)
        centred = np.asarray(levels) - np.mean(levels)
        weights = (centred / np.square(centred).sum()).tolist()
        slope = self.measured(quantity, curve, dict(zip(levels, weights, strict=True)))
        if slope is None:
            return self.unknown(about, curve)
        slope = slope.times(times)
        answer = slope.above(above)
        return self.finding(
            about,
            slope,
            answer,
            levels=levels if len(levels) < len(asked) else (),
            distrust="" if answer else self._distrust(curve),
        )

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
        """The weighted sum over levels, of the seeds that are finite at all of them."""
        by_level = [self._usable(curve, level) for level in weights]
        if not by_level:
            return None
        seeds = set.intersection(*(set(found) for found in by_level))
        if not seeds:
            return None
        steps = list(zip(weights.values(), by_level, strict=True))
        own = [
            _sum(quantity, [(weight, found[seed]) for weight, found in steps])
            for seed in sorted(seeds)
        ]
        if self.settings.seeds == 1:
            return own[0]
        sums = [seed.value for seed in own]
        if len(sums) == 1:
            return Measured(sums[0], math.inf, math.inf, ONE_LEFT)
        with np.errstate(over="ignore"):
            error = float(np.std(sums, ddof=1)) / math.sqrt(len(sums))
            return Measured(float(np.mean(sums)), error, len(sums) - 1)

    def not_finite(self, curve: Curve) -> int:
        """How many values of the curve are not finite, of all seeds and levels."""
        return int((~np.isfinite(self.values(curve))).sum())

    def values(self, curve: Curve) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        """(iterations, seeds)."""
        own = [k for k, c in enumerate(self.curves.cells) if (c.method, c.task) == curve]
        return self.curves.values[:, own]

    def _usable(self, curve: Curve, level: float) -> dict[int, Half]:
        return {half.seed: half for half in self._halves.get((curve, level), []) if _whole(half)}

    def finding(
        self,
        about: str,
        found: Measured,
        answer: bool | None,
        *,
        ratio: bool = False,
        levels: tuple[float, ...] = (),
        distrust: str = "",
    ) -> Finding:
        """The number for a report.

        ratio: it is the logarithm of what is reported. distrust: why the answer, if there is one,
        is not to be believed.
        """
        low, high = found.interval()
        return Finding(
            about,
            _reported(found.value, ratio),
            _reported(low, ratio),
            _reported(high, ratio),
            supports=None if distrust else answer,
            note=(found.why or WITHIN_NOISE) if answer is None else distrust,
            levels=levels,
        )

    def _distrust(self, curve: Curve) -> str:
        whole = all(
            _whole(half)
            for level in self.settings.levels
            for half in self._halves.get((curve, level), [])
        )
        return "" if whole else f"{', '.join(curve)} blew up"

    def unknown(self, about: str, *curves: Curve) -> Finding:
        """No number, because a curve was not run or has no finite half."""
        methods = [method for method, _ in curves if method not in self.settings.methods]
        tasks = [f"the {task} task" for _, task in curves if task not in self.tasks]
        missing = tuple(dict.fromkeys(methods + tasks))
        return Finding(about, note="" if missing else NOT_FINITE, missing=missing)


def _whole(half: Half) -> bool:
    """Every value is finite, and so are the statistics."""
    return not half.not_finite and None not in (half.bias, half.sd, half.rmse)


def _sum(quantity: Quantity, halves: Sequence[tuple[float, Half]]) -> Measured:
    """The weighted sum of the halves of one seed, with the error of batch means."""
    value = sum(weight * _value(quantity, half) for weight, half in halves)
    errors = [_error(quantity, half) for _, half in halves]
    stderr = math.hypot(
        *(weight * error for (weight, _), error in zip(halves, errors, strict=True))
    )
    if quantity == "log bias":
        value, stderr = math.log(max(value, _NOTHING)), stderr / max(value, _NOTHING)
    freedom = min(batches_of(half.iterations) for _, half in halves) - 1
    return Measured(value, stderr, freedom, "" if math.isfinite(stderr) else TOO_FEW)


def _value(quantity: Quantity, half: Half) -> float:
    assert half.bias is not None
    assert half.sd is not None
    if quantity == "spread":
        return math.log(max(half.sd, _NOTHING))
    return half.bias if quantity == "signed bias" else abs(half.bias)


def _error(quantity: Quantity, half: Half) -> float:
    error = half.log_sd_stderr if quantity == "spread" else half.bias_stderr
    return math.inf if error is None else error


def _reported(value: float, ratio: bool) -> float | None:
    """None where it is not finite; the exponential of what is the logarithm of a ratio."""
    if not math.isfinite(value) or (ratio and value > 700):
        return None
    return math.exp(value) if ratio else value
