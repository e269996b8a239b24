"""What the paper says about Figure 1, judged by the curves of a run.

`Evidence` compares curves, with the noise: a number, its interval, and whether it supports a
sentence. A few questions (`grows`, `larger`, `than_most`, ...) put it to methods and tasks, and
`QUOTES` and `QUESTIONS` are the table of the paper's sentences, each with how it is judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pointdep.core.methods import LOWER_BOUNDS, PAPER_METHODS
from pointdep.experiments import claims
from pointdep.experiments.claims import Answer, Finding, Measured, Statement, every, most
from pointdep.experiments.figure1 import FEWEST_BATCHES, Curves, Half, batches_of, halves
from pointdep.experiments.reports import interval, number

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

# |bias|; the logarithm of its mean over levels; the logarithm of the standard deviation; the mean.
Quantity = Literal["bias", "log bias", "spread", "mean"]
Curve = tuple[str, str]  # method and task
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
        self._halves: dict[tuple[Curve, float], dict[int, Half]] = {}
        self._blown_up: set[Curve] = set()
        for half in halves(curves):
            curve = half.method, half.task
            if half.not_finite or None in (half.bias, half.sd, half.rmse):
                self._blown_up.add(curve)
            else:
                self._halves.setdefault((curve, half.level), {})[half.seed] = half

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
        own = [
            _weighted(quantity, weights.values(), [found[seed] for found in by_level])
            for seed in sorted(seeds)
        ]
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


def _weighted(quantity: Quantity, weights: Iterable[float], members: Sequence[Half]) -> Estimate:
    """The weighted sum of the halves of one seed, with the error of batch means."""
    total, parts = 0.0, []
    for weight, half in zip(weights, members, strict=True):
        bias, sd = half.bias or 0.0, half.sd or 0.0
        value = {"spread": math.log(max(sd, _NOTHING)), "mean": half.level + bias}
        error = half.log_sd_stderr if quantity == "spread" else half.bias_stderr
        total += weight * value.get(quantity, abs(bias))
        parts.append(weight * (math.inf if error is None else error))
    stderr = math.hypot(*parts)
    if quantity == "log bias":
        total, stderr = math.log(max(total, _NOTHING)), stderr / max(total, _NOTHING)
    freedom = min(batches_of(half.iterations) for half in members) - 1
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


@dataclass(frozen=True)
class Question:
    """When a sentence holds, what the numbers behind it are, and how they are found and judged."""

    rule: str
    quantity: str
    ask: Callable[[Evidence], list[Finding]]
    decide: Callable[[Sequence[bool | None]], bool | None] = every

    def judge(self, evidence: Evidence) -> Answer:
        found = self.ask(evidence)
        return found, self.decide([finding.supports for finding in found])


_NAMES: dict[Quantity, str] = {"bias": "|bias|", "spread": "log sd"}
_LONG: dict[Quantity, str] = {
    "bias": "|bias|",
    "log bias": "mean |bias|",
    "spread": "the standard deviation",
}
_OF_SLOPE: dict[Quantity, str] = {
    "bias": "slope of |bias| against MI",
    "spread": "slope of log standard deviation against MI, 1/nat",
}
_OF_LARGER: dict[Quantity, str] = {
    "bias": "difference of mean |bias|, nats",
    "log bias": "ratio of mean |bias|",
    "spread": "ratio of standard deviations",
}


def _rule(text: str, note: str = "") -> str:
    return " ".join(filter(None, (text[0].upper() + text[1:] + ", on every task.", note)))


def _each(methods: Sequence[str]) -> str:
    return f"each of {', '.join(methods)}" if len(methods) > 1 else methods[0]


def grows(quantity: Quantity, rule: str) -> Question:
    """Does it grow with the true value on most curves?"""
    return Question(
        rule, _OF_SLOPE[quantity], lambda evidence: _slopes(evidence, quantity, PAPER_METHODS), most
    )


def _slopes(evidence: Evidence, quantity: Quantity, methods: Sequence[str]) -> list[Finding]:
    return [evidence.trend(quantity, (m, task)) for task in evidence.tasks for m in methods]


def _all_but_cpc_grow(evidence: Evidence) -> list[Finding]:
    return [
        replace(slope, about=f"{slope.about}, {name}")
        for quantity, name in _NAMES.items()
        for slope in _slopes(evidence, quantity, BUT_CPC)
    ]


def _both_grow(evidence: Evidence, methods: Sequence[str]) -> list[Finding]:
    """Do |bias| and standard deviation both grow with the true value?"""
    pairs = zip(*(_slopes(evidence, quantity, methods) for quantity in _NAMES), strict=True)
    return [
        Finding(
            bias.about,
            value=None if bias.missing else (bias.supports, spread.supports).count(True),
            supports=every((bias.supports, spread.supports)),
            note="; ".join(
                " ".join(filter(None, (name, _number(slope), slope.note)))
                for name, slope in zip(_NAMES.values(), (bias, spread), strict=True)
                if not slope.missing
            ),
            missing=bias.missing,
            levels=bias.levels,
        )
        for bias, spread in pairs
    ]


def _cpc_does_not(evidence: Evidence) -> list[Finding]:
    """The contrary for `cpc`."""
    return [replace(f, supports=_not(f.supports)) for f in _both_grow(evidence, ("cpc",))]


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def larger(
    quantity: Quantity,
    ones: Sequence[str],
    others: Sequence[str],
    times: float = 1.0,
    note: str = "",
) -> Question:
    """Is each one larger than (`times`) each of the others, on each task?"""

    def ask(evidence: Evidence) -> list[Finding]:
        return [
            evidence.larger(quantity, (one, task), (other, task), times)
            for task in evidence.tasks
            for one in ones
            for other in others
        ]

    than = "larger than" if times == 1 else f"more than {times:g} times"
    said = f"{_LONG[quantity]} of {_each(ones)} is {than} that of {_each(others)}"
    return Question(_rule(said, note), _OF_LARGER[quantity], ask)


def than_most(
    word: Literal["larger", "smaller"],
    quantity: Quantity,
    ones: Sequence[str],
    others: Sequence[str],
) -> Question:
    """Is each one larger, or smaller, than most of the others, on each task?"""
    words = {True: f"{word} than", False: f"not {word} than", None: "cannot tell from"}

    def compare(evidence: Evidence, one: str, task: str) -> Finding:
        found: dict[bool | None, list[str]] = {answer: [] for answer in words}
        missing: list[str] = []
        for other in others:
            pair = (one, task), (other, task)
            compared = evidence.larger(quantity, *(pair if word == "larger" else pair[::-1]))
            found[compared.supports].append(other)
            missing += compared.missing
        return Finding(
            f"{one}, {task}",
            value=len(found[True]),
            supports=most([answer for answer, names in found.items() for _ in names]),
            note="; ".join(f"{words[a]} {', '.join(names)}" for a, names in found.items() if names),
            missing=tuple(dict.fromkeys(missing)),
        )

    said = (
        f"{_LONG[quantity]} of {_each(ones)} is {word} than that of more than half of "
        f"{', '.join(others)}"
    )
    return Question(
        _rule(said),
        f"how many it is {word} than",
        lambda evidence: [compare(evidence, one, task) for task in evidence.tasks for one in ones],
    )


def like_exponential(method: str, rule: str) -> Question:
    """Does log variance grow by at least one per nat, over the highest levels?"""
    return Question(
        rule,
        f"slope of log variance against MI, {HIGHEST} highest levels, 1/nat",
        lambda evidence: [
            evidence.trend("spread", (method, task), above=1.0, times=2.0, highest=HIGHEST)
            for task in evidence.tasks
        ],
    )


def _more_on_gaussian(evidence: Evidence) -> list[Finding]:
    """Is the bias larger on the Gaussian task, and for `dv` smaller?"""
    orders = dict.fromkeys(PAPER_METHODS, ("gaussian", "cubic")) | {"dv": ("cubic", "gaussian")}
    return [
        evidence.larger("bias", (method, first), (method, second))
        for method, (first, second) in orders.items()
    ]


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
        lost = {
            method: int((~np.isfinite(evidence.curves.seeds_of(method, task))).sum())
            for method in (*LEARN_JS, "pc")
        }
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


_VERIFY = "[...] We verify these facts in our experiments."
QUOTES: dict[str, dict[str, str]] = {
    "main text": {
        "a": "Most of the estimators have [...] larger bias [...] with larger ground truth MI.",
        "b": "Most of the estimators have [...] larger [...] variance with larger ground truth MI.",
        "ab": "Most of the estimators have both larger bias and variance with larger ground truth "
        "MI.",
        "c1": "The only exception is CPC, where its value is upper bounded by log(batch_size).",
        "c2": "The only exception [to both larger bias and variance with larger MI] is CPC [...]",
        "c3": "The only exception is CPC [...] [no other method is one]",
        "d": "The bias is also larger in Gaussian task than in Cubic task except for DV.",
        "e": "CPC has the smallest variance",
        "f": "yet it [CPC] is highly biased.",
        "g1": "SMILE/ Variational MI Bounds/ Probabilistic Classifier/ Density Matching I & II/ "
        "Density-Ratio Fitting approaches have a much lower bias [than CPC].",
        "g2": "Although having larger variance than CPC [the same six]",
        "h": "Among them, Probabilistic Classifier and Density-Ratio Fitting approaches have the "
        "smallest variance.",
        "i1": "NWJ/ JS/ DV, whereas, have both large variance [...]",
        "i2": "NWJ/ JS/ DV, whereas, have both large [...] bias.",
        "j": "JS has larger variance is because using I_NWJ objective during inference.",
        "k1": "plug-in MI estimators enjoy smaller variance [...] when comparing to most of the "
        "lower bound methods.",
        "k2": "plug-in MI estimators enjoy smaller [...] bias when comparing to most of the lower "
        "bound methods.",
    },
    "supplement": {
        "l1": f"the variance of an empirical I_NWJ estimation is Omega(e^I(X;Y)) {_VERIFY}",
        "l2": f"the limiting variance of an empirical I_DV estimation is Omega(e^I(X;Y)) {_VERIFY}",
        "l3": "this estimation method [JS] still considers I_NWJ as its inference objective, and "
        "therefore the variance is still Omega(e^I(X;Y)). Empirical results are shown in our "
        "experiments.",
        "m": "I_JS may encounter a relatively higher training instability [than the classifier] "
        "(unless a particular take-care on its numerical instability).",
        "n1": f"we can expect a smaller bias when comparing I_NWJ to I_CPC. {_VERIFY}",
        "n2": f"we can expect a smaller bias when comparing I_DV to I_CPC. {_VERIFY}",
        "o": "it [SMILE] is empirically admitting a small variance, which we also find in our "
        "experiments.",
    },
    claims.OURS: {"p": "DM II, read out as the paper prints it, is 1/(2 eta) = 0.5 above DM I."},
}
_BOTH = "how many of the two grow with MI"
_EXPONENTIAL = (
    "The logarithm of the variance of NWJ grows by at least 1 for each nat of MI over the "
    f"{HIGHEST} highest levels, on every task: the 95 % interval of the slope lies above "
    "1, or below it for the contrary. Omega(e^MI) is asymptotic, which is why the lower levels "
    "are left out (there, the variance of E_J[s] is the larger part), and speaks of the best "
    "critic: judged is whether trained networks show it at these levels, not the theorem."
)
QUESTIONS = {
    "a": grows(
        "bias",
        "|bias| grows with MI (least-squares slope above 0) on more than half of the curves: ten "
        "methods on each task. Methods that were not run count as unknown.",
    ),
    "b": grows("spread", "As a, for the logarithm of the standard deviation."),
    "ab": Question(
        "On more than half of the curves both grow: |bias| as in a and the standard deviation as "
        "in b.",
        _BOTH,
        lambda evidence: _both_grow(evidence, PAPER_METHODS),
        most,
    ),
    "c1": Question(
        "That no value is above log(batch_size) is so by construction, and says nothing. It is "
        "asked whether the bound is what stops it: at the highest level, the mean of CPC is above "
        f"{REACHED:g} log(batch_size), and at every level above log(batch_size) it stays below "
        "that, on every task.",
        "mean at the highest level, nats",
        _stops_at_log_batch,
    ),
    "c2": Question(
        "CPC does not have both: |bias| or standard deviation falls with MI (slope below 0), on "
        "every task.",
        _BOTH,
        _cpc_does_not,
    ),
    "c3": Question(
        "|bias| and standard deviation of each of the nine others grow with MI, on every task.",
        "slope of |bias| or of log standard deviation against MI",
        _all_but_cpc_grow,
    ),
    "d": Question(
        "|bias| is larger on the Gaussian task for each of the nine others, and smaller for DV.",
        _OF_LARGER["bias"],
        _more_on_gaussian,
    ),
    "e": larger("spread", BUT_CPC, ("cpc",)),
    "f": than_most("larger", "bias", ("cpc",), BUT_CPC),
    "g1": larger(
        "log bias",
        ("cpc",),
        LOW_BIAS,
        MUCH,
        f"The paper does not say how much is much: the factor {MUCH:g} is ours.",
    ),
    "g2": larger("spread", LOW_BIAS, ("cpc",)),
    "h": larger("spread", ("smile", "variational", "dm1", "dm2"), ("pc", "drf")),
    "i1": than_most("larger", "spread", NOISY, LOW_BIAS),
    "i2": than_most("larger", "bias", NOISY, LOW_BIAS),
    "j": larger("spread", ("js",), LEARN_JS, note="All three learn the same objective."),
    "k1": than_most("smaller", "spread", PLUG_INS, LOWER_BOUNDS),
    "k2": than_most("smaller", "bias", PLUG_INS, LOWER_BOUNDS),
    "l1": like_exponential("nwj", _EXPONENTIAL),
    "l2": like_exponential("dv", "As l1, for DV."),
    "l3": like_exponential("js", "As l1, for JS."),
    "m": Question(
        "It holds if on every task Variational or SMILE, which learn I_JS, has values that are not "
        "finite and PC has none. Otherwise it cannot be told: the care that the paper excepts is "
        "taken here (I_JS is learnt by softplus, the classifier by the cross-entropy of logits), "
        "so that a calm run is what the sentence allows. The standard deviations, of Variational "
        "over PC, are given and not counted: the two also weigh mismatched pairs differently.",
        f"{_OF_LARGER['spread']} (not counted)",
        _blows_up_beside_pc,
    ),
    "n1": larger("bias", ("cpc",), ("nwj",)),
    "n2": larger("bias", ("cpc",), ("dv",)),
    "o": larger("spread", NOISY, ("smile",), note="SMILE is meant to reduce their variance."),
    "p": Question(
        "At the lowest level, the bias of DM II less that of DM I, which fits the same likelihood "
        f"and reads out right, lies within {NEAR:g} of {SHIFT:g} nats with its whole 95 % "
        "interval, on every task; wholly outside of that for the contrary.",
        "difference of bias at the lowest level, nats",
        _half_nat_above_dm1,
    ),
}
STATEMENTS = tuple(
    Statement(key, source, quote, q.rule, q.judge, q.quantity)
    for source, quotes in QUOTES.items()
    for key, quote in quotes.items()
    for q in [QUESTIONS[key]]
)


def judge_figure1(curves: Curves) -> list[claims.Claim]:
    """Every statement on the curves of a run, whatever it left out."""
    return claims.judge_all(STATEMENTS, Evidence(curves), counted)


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
    partial = [finding.about for finding in yes if finding.levels]
    if partial:
        parts.append(f"not over all levels: {'; '.join(partial)}")
    missing = dict.fromkeys(name for finding in unsaid for name in finding.missing)
    if missing:
        parts.append(f"not run: {', '.join(missing)}")
    return "; ".join(parts)


def _number(finding: Finding) -> str:
    """ "-0.05 [-0.06, -0.04]"."""
    if finding.value is None:
        return ""
    return f"{number(finding.value)} {interval(finding.low, finding.high)}"
