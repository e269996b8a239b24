"""What the paper says about Figure 1, judged by the curves of a run.

`Evidence` compares curves, with the noise: a number, its interval, and whether it supports a
sentence. `QUESTIONS` has, for the key of each sentence, what is asked of which methods and tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from pointdep.core.methods import LOWER_BOUNDS, PAPER_METHODS
from pointdep.experiments import claims
from pointdep.experiments.claims import Answer, Finding, Measured, every, most
from pointdep.experiments.figure1 import Curves, batches_of, halves
from pointdep.experiments.reports import PAPER, TEXTS, Line, interval, number

CONFIDENCE = 0.95
NOISE: str = TEXTS["figure1 noise"]

# |bias|; the logarithm of its mean over levels; the logarithm of the standard deviation; the mean.
Quantity = Literal["bias", "log bias", "spread", "mean"]
Curve = tuple[str, str]  # method and task
Methods = Sequence[str]
_NOTHING = 1e-12  # nats; what stands for zero where a logarithm is taken

PLUG_INS = tuple(method for method in PAPER_METHODS if method not in LOWER_BOUNDS)
BUT_CPC = PAPER_METHODS[1:]
LOW_BIAS = ("smile", *PLUG_INS)
NOISY = ("nwj", "js", "dv")
# They learn I_JS, and their inference is finite wherever the scores are; that of `js` overflows.
LEARN_JS = ("variational", "smile")
NEAR = 0.1  # nats
SHIFT = 0.5  # nats: 1/(2 eta) of `dm2` with the paper's eta of 1
MUCH = 2.0
REACHED = 0.9  # of log(batch size)
HIGHEST = 3  # levels


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error, the degrees of freedom of that, or why there is none."""

    value: float
    stderr: float
    freedom: float
    why: str = ""

    def measured(self) -> Measured:
        """With the two-sided interval of Student's t."""
        from scipy.stats import t

        if not math.isfinite(self.stderr):
            return Measured(self.value, -math.inf, math.inf)
        reach = float(t.ppf((1 + CONFIDENCE) / 2, self.freedom)) * self.stderr
        return Measured(self.value, self.value - reach, self.value + reach)

    def minus(self, other: Estimate) -> Estimate:
        """The difference of independent numbers, with Welch's degrees of freedom."""
        value, stderr = self.value - other.value, math.hypot(self.stderr, other.stderr)
        if stderr == 0 or not math.isfinite(stderr):
            return Estimate(value, stderr, math.inf, self.why or other.why)
        # As shares of the sum: the fourth powers of large errors would overflow.
        doubt = (self.stderr / stderr) ** 4 / self.freedom
        doubt += (other.stderr / stderr) ** 4 / other.freedom
        return Estimate(value, stderr, 1 / doubt if doubt else math.inf)


class Evidence:
    """The halves of a run by curve and level, and what they say about a quantity."""

    def __init__(self, curves: Curves) -> None:
        self.curves, self.settings, self.tasks = curves, curves.settings, curves.settings.tasks
        self._halves: dict[tuple[Curve, float], dict[int, Line]] = {}
        self._blown_up: set[Curve] = set()
        for half in halves(curves):
            curve = half["method"], half["task"]
            if half["not_finite"] or None in (half["bias"], half["sd"], half["rmse"]):
                self._blown_up.add(curve)
            else:
                self._halves.setdefault((curve, half["level"]), {})[half["seed"]] = half

    def larger(self, quantity: Quantity, one: Curve, other: Curve, times: float = 1.0) -> Finding:
        """Is the mean over the levels of `one` larger than (`times` that of) the `other`?

        The value is the difference in nats; for "log bias", which alone takes `times`, the ratio
        of mean |bias|, and for "spread" that of standard deviations.
        """
        about = f"{one[0]}, {one[1]} against {other[1]}"
        if one[1] == other[1]:
            about = f"{one[0]} against {other[0]}, {one[1]}"
        levels = self.levels_of(one, other)
        weights = {level: 1 / len(levels) for level in levels}
        part = levels if len(levels) < len(self.settings.levels) else ()
        return self._compare(about, quantity, (one, other), weights, math.log(times), part)

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

        highest: over only so many of the highest levels, all of which it then needs.
        """
        about = ", ".join(curve)
        asked, needed = sorted(self.settings.levels)[-(highest or 0) :], highest or 2
        if len(asked) < needed and self.ran(curve):
            return Finding(about, missing=(f"{needed} levels",))
        levels = tuple(level for level in asked if level in self.levels_of(curve))
        if len(levels) < needed:
            return self.unknown(about, curve)
        centred = np.asarray(levels) - np.mean(levels)
        slope = (times * centred / np.square(centred).sum()).tolist()
        part = levels if len(levels) < len(asked) else ()
        weights = dict(zip(levels, slope, strict=True))
        return self._compare(about, quantity, (curve,), weights, above, part)

    def _compare(
        self,
        about: str,
        quantity: Quantity,
        curves: Sequence[Curve],
        weights: Mapping[float, float],
        limit: float,
        part: tuple[float, ...],
    ) -> Finding:
        """Is a curve, or the difference of two, above the limit? part: the levels, if not all."""
        estimates = [self.estimate(quantity, curve, weights) for curve in curves]
        found = [estimate for estimate in estimates if estimate is not None]
        if len(found) < len(curves):
            return self.unknown(about, *curves)
        difference = found[0] if len(found) == 1 else found[0].minus(found[1])
        answer = difference.measured().above(limit)
        # What blew up is never believed to be the better one, or to grow less.
        better = curves[0] if not answer else curves[1] if len(curves) > 1 else None
        ratio = len(curves) > 1 and quantity in {"log bias", "spread"}
        finding = replace(make_finding(about, difference, answer, ratio), levels=part)
        if answer is None or better not in self._blown_up:
            return finding
        return replace(finding, supports=None, note=f"{', '.join(better or ())} blew up")

    def ran(self, curve: Curve) -> bool:
        return curve[0] in self.settings.methods and curve[1] in self.tasks

    def levels_of(self, *curves: Curve) -> tuple[float, ...]:
        """Those at which at least half of the seeds of every curve are finite."""
        return tuple(
            level
            for level in self.settings.levels
            if all(2 * len(self._halves.get((c, level), ())) >= self.settings.seeds for c in curves)
        )

    def estimate(
        self, quantity: Quantity, curve: Curve, weights: Mapping[float, float]
    ) -> Estimate | None:
        """The weighted sum over levels from the seeds that are finite at all of them, or None."""
        by_level = [self._halves.get((curve, level), {}) for level in weights]
        seeds = set(by_level[0]).intersection(*by_level[1:]) if by_level else set()
        members = [[level[seed] for level in by_level] for seed in sorted(seeds)]
        own = [_weighted(quantity, weights.values(), one) for one in members]
        if not own or self.settings.seeds == 1:
            return own[0] if own else None
        sums = [seed.value for seed in own]
        if len(sums) == 1:
            return Estimate(sums[0], math.inf, math.inf, "one seed left")
        with np.errstate(over="ignore"):
            error = float(np.std(sums, ddof=1)) / math.sqrt(len(sums))
            return Estimate(float(np.mean(sums)), error, len(sums) - 1)

    def unknown(self, about: str, *curves: Curve) -> Finding:
        """No number, because a curve was not run or has no finite half."""
        methods = [method for method, _ in curves if method not in self.settings.methods]
        tasks = [f"the {task} task" for _, task in curves if task not in self.tasks]
        missing = tuple(dict.fromkeys(methods + tasks))
        return Finding(about, note="" if missing else "not finite", missing=missing)


def _weighted(quantity: Quantity, weights: Iterable[float], members: Sequence[Line]) -> Estimate:
    """The weighted sum of the halves of one seed, with the error of batch means."""
    total, parts = 0.0, []
    for weight, half in zip(weights, members, strict=True):
        bias, spread = half["bias"], math.log(max(half["sd"], _NOTHING))
        value = {"spread": spread, "mean": half["level"] + bias}.get(quantity, abs(bias))
        error = half["log_sd_stderr" if quantity == "spread" else "bias_stderr"]
        total += weight * value
        parts.append(weight * (math.inf if error is None else error))
    stderr = math.hypot(*parts)
    if quantity == "log bias":
        total, stderr = math.log(max(total, _NOTHING)), stderr / max(total, _NOTHING)
    freedom = min(batches_of(half["iterations"]) for half in members) - 1
    return Estimate(total, stderr, freedom, "" if math.isfinite(stderr) else "too few iterations")


def make_finding(about: str, found: Estimate, answer: bool | None, ratio: bool = False) -> Finding:
    """The number for a report; ratio: it is the logarithm of what is reported."""
    measured = found.measured()

    def reported(value: float) -> float | None:
        if not math.isfinite(value) or (ratio and value > 700):
            return None
        return math.exp(value) if ratio else value

    value, low, high = map(reported, (measured.value, measured.low, measured.high))
    note = (found.why or "within the noise") if answer is None else ""
    return Finding(about, value, low, high, supports=answer, note=note)


Asked = Callable[[Evidence], list[Finding]]
_NAMES: dict[Quantity, str] = {"bias": "|bias|", "spread": "log sd"}


def _slopes(evidence: Evidence, quantity: Quantity, methods: Sequence[str]) -> list[Finding]:
    """Does it grow with the true value on each curve?"""
    return [evidence.trend(quantity, (m, task)) for task in evidence.tasks for m in methods]


def _all_but_cpc_grow(evidence: Evidence) -> list[Finding]:
    return [
        replace(slope, about=f"{slope.about}, {name}")
        for quantity, name in _NAMES.items()
        for slope in _slopes(evidence, quantity, BUT_CPC)
    ]


def _both_grow(evidence: Evidence, methods: Sequence[str] = PAPER_METHODS) -> list[Finding]:
    """Do |bias| and standard deviation both grow with the true value?"""
    findings = []
    pairs = zip(*(_slopes(evidence, quantity, methods) for quantity in _NAMES), strict=True)
    for bias, spread in pairs:
        answers = bias.supports, spread.supports
        notes = [
            " ".join(filter(None, (name, _number(slope), slope.note)))
            for name, slope in zip(_NAMES.values(), (bias, spread), strict=True)
            if not slope.missing
        ]
        value = None if bias.missing else answers.count(True)
        found = replace(bias, value=value, low=None, high=None, supports=every(answers))
        findings.append(replace(found, note="; ".join(notes)))
    return findings


def _cpc_does_not(evidence: Evidence) -> list[Finding]:
    """The contrary for `cpc`."""
    return [replace(f, supports=_not(f.supports)) for f in _both_grow(evidence, ("cpc",))]


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _larger(quantity: Quantity, ones: Methods, others: Methods, times: float = 1.0) -> Asked:
    """Is each one larger than (`times`) each of the others, on each task?"""
    return lambda evidence: [
        evidence.larger(quantity, (one, task), (other, task), times)
        for task in evidence.tasks
        for one in ones
        for other in others
    ]


def _than_most(
    word: Literal["larger", "smaller"], quantity: Quantity, ones: Methods, others: Methods
) -> Asked:
    """Is each one larger, or smaller, than most of the others, on each task?"""
    words = {True: f"{word} than", False: f"not {word} than", None: "cannot tell from"}

    def compare(evidence: Evidence, one: str, task: str) -> Finding:
        found: dict[bool | None, list[str]] = {answer: [] for answer in words}
        missing: dict[str, None] = {}
        for other in others:
            pair = (one, task), (other, task)
            compared = evidence.larger(quantity, *(pair if word == "larger" else pair[::-1]))
            found[compared.supports].append(other)
            missing |= dict.fromkeys(compared.missing)
        answers = [answer for answer, names in found.items() for _ in names]
        note = "; ".join(f"{words[a]} {', '.join(names)}" for a, names in found.items() if names)
        about, count = f"{one}, {task}", len(found[True])
        return Finding(about, count, supports=most(answers), note=note, missing=tuple(missing))

    return lambda evidence: [compare(evidence, o, task) for task in evidence.tasks for o in ones]


def _like_exponential(method: str) -> Asked:
    """Does log variance grow by at least one per nat, over the highest levels?"""
    return lambda evidence: [
        evidence.trend("spread", (method, task), above=1.0, times=2.0, highest=HIGHEST)
        for task in evidence.tasks
    ]


def _more_on_gaussian(evidence: Evidence) -> list[Finding]:
    """Is the bias larger on the Gaussian task, and for `dv` smaller?"""
    orders = dict.fromkeys(PAPER_METHODS, ("gaussian", "cubic")) | {"dv": ("cubic", "gaussian")}
    return [evidence.larger("bias", (m, one), (m, other)) for m, (one, other) in orders.items()]


def _stops_at_log_batch(evidence: Evidence) -> list[Finding]:
    """Does the mean of `cpc` come close to log(batch size), and stay below, above that level?"""
    size = evidence.settings.batch_size
    ceiling = math.log(size)
    levels = sorted(level for level in evidence.settings.levels if level > ceiling)
    found = []
    for curve in (("cpc", task) for task in evidence.tasks):
        about = f"{', '.join(curve)} beside log({size}) = {ceiling:.2f}"
        estimates = [evidence.estimate("mean", curve, {level: 1.0}) for level in levels]
        means = [mean for mean in estimates if mean is not None]
        if evidence.ran(curve) and not levels:
            found.append(Finding(about, missing=(f"a level above {ceiling:.2f}",)))
        elif not means or len(means) < len(levels):
            found.append(evidence.unknown(about, curve))
        else:
            answers = [_not(mean.measured().above(ceiling)) for mean in means]
            answers.append(means[-1].measured().above(REACHED * ceiling))
            found.append(make_finding(about, means[-1], every(answers)))
    return found


def _blows_up_beside_pc(evidence: Evidence) -> list[Finding]:
    """Does what learns I_JS have values that are not finite, where `pc` has none?"""
    findings = []
    for task in evidence.tasks:
        curves = {m: evidence.curves.seeds_of(m, task) for m in (*LEARN_JS, "pc")}
        lost = {m: int((~np.isfinite(values)).sum()) for m, values in curves.items()}
        named = ", ".join(f"{method} {count}" for method, count in lost.items() if count)
        finding = evidence.larger("spread", ("variational", task), ("pc", task))
        supports = True if evidence.ran(("pc", task)) and named and not lost["pc"] else None
        if not finding.missing or supports:
            note = f"not finite, values: {named}" if named else "all values finite"
            finding = replace(finding, supports=supports, note=note, missing=())
        findings.append(finding)
    return findings


def _half_nat_above_dm1(evidence: Evidence) -> list[Finding]:
    """Is `dm2` above `dm1` by 1/(2 eta), at the level that both fit best?"""
    lowest = {min(evidence.settings.levels): 1.0}
    findings = []
    for task in evidence.tasks:
        pair, about = (("dm2", task), ("dm1", task)), f"dm2 against dm1, {task}"
        one, other = (evidence.estimate("mean", curve, lowest) for curve in pair)
        if one is None or other is None:
            findings.append(evidence.unknown(about, *pair))
        else:
            difference = one.minus(other)
            supports = difference.measured().within(SHIFT - NEAR, SHIFT + NEAR)
            findings.append(make_finding(about, difference, supports))
    return findings


QUESTIONS: dict[str, Asked] = {
    "a": lambda evidence: _slopes(evidence, "bias", PAPER_METHODS),
    "b": lambda evidence: _slopes(evidence, "spread", PAPER_METHODS),
    "ab": _both_grow,
    "c1": _stops_at_log_batch,
    "c2": _cpc_does_not,
    "c3": _all_but_cpc_grow,
    "d": _more_on_gaussian,
    "e": _larger("spread", BUT_CPC, ("cpc",)),
    "f": _than_most("larger", "bias", ("cpc",), BUT_CPC),
    "g1": _larger("log bias", ("cpc",), LOW_BIAS, MUCH),
    "g2": _larger("spread", LOW_BIAS, ("cpc",)),
    "h": _larger("spread", ("smile", "variational", "dm1", "dm2"), ("pc", "drf")),
    "i1": _than_most("larger", "spread", NOISY, LOW_BIAS),
    "i2": _than_most("larger", "bias", NOISY, LOW_BIAS),
    "j": _larger("spread", ("js",), LEARN_JS),
    "k1": _than_most("smaller", "spread", PLUG_INS, LOWER_BOUNDS),
    "k2": _than_most("smaller", "bias", PLUG_INS, LOWER_BOUNDS),
    "l1": _like_exponential("nwj"),
    "l2": _like_exponential("dv"),
    "l3": _like_exponential("js"),
    "m": _blows_up_beside_pc,
    "n1": _larger("bias", ("cpc",), ("nwj",)),
    "n2": _larger("bias", ("cpc",), ("dv",)),
    "o": _larger("spread", NOISY, ("smile",)),
    "p": _half_nat_above_dm1,
}
_OF_MOST = {"a", "b", "ab"}
"""Sentences about most of the estimators; the others are about each."""


def _judge(evidence: Evidence, key: str) -> Answer:
    found = QUESTIONS[key](evidence)
    decide = most if key in _OF_MOST else every
    return found, decide([finding.supports for finding in found])


JUDGES = {key: partial(_judge, key=key) for key in QUESTIONS}


def judge_figure1(curves: Curves) -> list[claims.Claim]:
    """Every statement on the curves of a run, whatever it left out."""
    return claims.judge_all(PAPER["claims"]["figure1"], JUDGES, Evidence(curves), counted)


def counted(findings: Sequence[Finding]) -> str:
    """How many say what: those against it by number, the open ones by reason."""
    yes, no, unsaid = ([f for f in findings if f.supports is s] for s in (True, False, None))
    parts = [f"{len(yes)} of {len(findings)} say so"]
    values = [finding.value for finding in yes if finding.value is not None]
    if no:
        against = (f"{finding.about} {_number(finding)}".rstrip() for finding in no)
        parts.append("against it: " + "; ".join(against))
    elif values:
        ends = dict.fromkeys((number(min(values)), number(max(values))))
        parts[0] += f" ({' to '.join(ends)})"
    for reason in dict.fromkeys(finding.note for finding in unsaid if not finding.missing):
        abouts = (f.about for f in unsaid if f.note == reason and not f.missing)
        parts.append(f"open: {'; '.join(abouts)} ({reason})")
    if partial := [finding.about for finding in yes if finding.levels]:
        parts.append(f"not over all levels: {'; '.join(partial)}")
    if missing := dict.fromkeys(name for finding in unsaid for name in finding.missing):
        parts.append(f"not run: {', '.join(missing)}")
    return "; ".join(parts)


def _number(finding: Finding) -> str:
    """ "-0.05 [-0.06, -0.04]"."""
    if finding.value is None:
        return ""
    return f"{number(finding.value)} {interval(finding.low, finding.high)}"
