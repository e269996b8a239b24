"""The questions behind the claims, put to the curves of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from pointdep.core.methods import LOWER_BOUNDS, PAPER_METHODS
from pointdep.experiments.figure1.evidence import NOT_FINITE, Curve, Evidence, Finding, Quantity
from pointdep.experiments.figure1.settings import paper_method
from pointdep.experiments.text import interval, number

Answer = tuple[list[Finding], bool | None]
Judge = Callable[[Evidence], Answer]
Ask = Callable[[Evidence], list[Finding]]

PLUG_INS = tuple(method for method in PAPER_METHODS if method not in LOWER_BOUNDS)
BUT_CPC = PAPER_METHODS[1:]
LOW_BIAS = ("smile", *PLUG_INS)
NOISY = ("nwj", "js", "dv")
NEAR = 0.1  # nats
MUCH = 2.0
REACHED = 0.9  # of log(batch size)
HIGHEST = 3  # levels
# Those whose inference is finite wherever the scores are: that of `js` overflows by itself.
_LEARN_JS = ("variational", "smile")
_ALL_FINITE = "all values finite"
_NAMES: dict[Quantity, str] = {"bias": "|bias|", "spread": "log sd"}


def opposite(finding: Finding) -> Finding:
    """The same number for the claim that says the contrary."""
    return replace(finding, supports=_not(finding.supports))


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


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


def all_of(ask: Ask) -> Judge:
    """Every finding must support the claim; one against it is enough to refute it."""

    def judge(evidence: Evidence) -> Answer:
        found = ask(evidence)
        return found, every([finding.supports for finding in found])

    return judge


def most_of(ask: Ask) -> Judge:
    """More than half of the findings must support the claim, whatever the unknown ones are."""

    def judge(evidence: Evidence) -> Answer:
        found = ask(evidence)
        return found, most([finding.supports for finding in found])

    return judge


def grows(*quantities: Quantity, methods: Sequence[str]) -> Ask:
    """Does it grow with the true value, for each method on each task?"""

    def ask(evidence: Evidence) -> list[Finding]:
        found = []
        for quantity in quantities:
            of = f", {_NAMES[quantity]}" if len(quantities) > 1 else ""
            for task in evidence.tasks:
                slopes = [evidence.trend(quantity, (method, task)) for method in methods]
                found += [replace(slope, about=slope.about + of) for slope in slopes]
        return found

    return ask


def both_grow(methods: Sequence[str]) -> Ask:
    """Do |bias| and standard deviation both grow with the true value?"""
    return lambda evidence: [
        _both_grow(evidence, (method, task)) for task in evidence.tasks for method in methods
    ]


def not_both_grow(method: str) -> Ask:
    """Does one of them fall?"""
    return lambda evidence: [opposite(found) for found in both_grow((method,))(evidence)]


def _both_grow(evidence: Evidence, curve: Curve) -> Finding:
    slopes = {name: evidence.trend(quantity, curve) for quantity, name in _NAMES.items()}
    told = [
        " ".join(part for part in (name, _slope(slope), slope.note) if part)
        for name, slope in slopes.items()
        if not slope.missing
    ]
    bias, spread = slopes.values()
    return Finding(
        ", ".join(curve),
        value=None if bias.missing else sum(s.supports is True for s in (bias, spread)),
        supports=every([bias.supports, spread.supports]),
        note="; ".join(told),
        missing=bias.missing,
        levels=bias.levels,
    )


def _slope(slope: Finding) -> str:
    return "" if slope.value is None else f"{number(slope.value)} {interval(slope.low, slope.high)}"


def larger(
    quantity: Quantity, ones: Sequence[str], others: Sequence[str], times: float = 1.0
) -> Ask:
    """Is each one larger than (`times`) each of the others, on each task?"""
    return lambda evidence: [
        evidence.larger(quantity, (one, task), (other, task), times)
        for task in evidence.tasks
        for one in ones
        for other in others
        if one != other
    ]


def beside_most(
    quantity: Quantity, ones: Sequence[str], others: Sequence[str], *, above: bool
) -> Ask:
    """Is each one larger (smaller where not `above`) than most of the others, on each task?"""
    return lambda evidence: [
        _beside_most(evidence, quantity, one, others, task, above)
        for task in evidence.tasks
        for one in ones
    ]


def _beside_most(
    evidence: Evidence, quantity: Quantity, one: str, others: Sequence[str], task: str, above: bool
) -> Finding:
    found: dict[str, Finding] = {}
    for other in others:
        pair = ((one, task), (other, task)) if above else ((other, task), (one, task))
        found[other] = evidence.larger(quantity, *pair)
    word = "larger" if above else "smaller"
    said = {True: f"{word} than", False: f"not {word} than", None: "cannot tell from"}
    named = {
        words: ", ".join(other for other in others if found[other].supports is answer)
        for answer, words in said.items()
    }
    return Finding(
        f"{one}, {task}",
        value=sum(finding.supports is True for finding in found.values()),
        supports=most([finding.supports for finding in found.values()]),
        note="; ".join(f"{words} {names}" for words, names in named.items() if names),
        missing=tuple(dict.fromkeys(name for f in found.values() for name in f.missing)),
    )


def more_on_gaussian(evidence: Evidence) -> list[Finding]:
    """Is the bias larger on the Gaussian task, and for `dv` smaller?"""
    orders = dict.fromkeys(PAPER_METHODS, ("gaussian", "cubic"))
    orders["dv"] = ("cubic", "gaussian")
    return [
        evidence.larger("bias", (method, first), (method, second))
        for method, (first, second) in orders.items()
    ]


def stops_at_log_batch(evidence: Evidence) -> list[Finding]:
    """Does the mean of `cpc` come close to log(batch size), and stay below, above that level?"""
    return [_stops_at_log_batch(evidence, ("cpc", task)) for task in evidence.tasks]


def _stops_at_log_batch(evidence: Evidence, curve: Curve) -> Finding:
    size = evidence.settings.batch_size
    ceiling = math.log(size)
    about = f"{', '.join(curve)} beside log({size}) = {ceiling:.2f}"
    levels = sorted(level for level in evidence.settings.levels if level > ceiling)
    if evidence.ran(curve) and not levels:
        return Finding(about, missing=(f"a level above {ceiling:.2f}",))
    biases = [evidence.measured("signed bias", curve, {level: 1.0}) for level in levels]
    means = [bias.plus(level) for bias, level in zip(biases, levels, strict=True) if bias]
    if not means or len(means) < len(levels):
        return evidence.unknown(about, curve)
    below = [_not(mean.above(ceiling)) for mean in means]
    return evidence.finding(about, means[-1], every([*below, means[-1].above(REACHED * ceiling)]))


def like_exponential(method: str) -> Ask:
    """Does log variance grow by at least one a nat, over the highest levels?"""
    return lambda evidence: [
        evidence.trend("spread", (method, task), above=1.0, times=2.0, highest=HIGHEST)
        for task in evidence.tasks
    ]


def blows_up_beside_pc(evidence: Evidence) -> list[Finding]:
    """Does what learns I_JS have values that are not finite, where `pc` has none?"""
    findings = []
    for task in evidence.tasks:
        lost = {method: evidence.not_finite((method, task)) for method in (*_LEARN_JS, "pc")}
        named = ", ".join(f"{method} {count}" for method, count in lost.items() if count)
        finding = evidence.larger("spread", ("variational", task), ("pc", task))
        supports = True if evidence.ran(("pc", task)) and named and not lost["pc"] else None
        note = f"{NOT_FINITE}, values: {named}" if named else _ALL_FINITE
        if finding.missing and supports is None:
            findings.append(finding)
            continue
        findings.append(replace(finding, supports=supports, note=note, missing=()))
    return findings


def half_nat_above_dm1(evidence: Evidence) -> list[Finding]:
    """Is `dm2` above `dm1` by 1/(2 eta), at the level that both fit best?"""
    shift = 1 / (2 * float(paper_method("dm2").options["eta"]))
    lowest = {min(evidence.settings.levels): 1.0}
    findings = []
    for task in evidence.tasks:
        pair = ("dm2", task), ("dm1", task)
        about = f"dm2 against dm1, {task}"
        found = [evidence.measured("signed bias", curve, lowest) for curve in pair]
        if found[0] is None or found[1] is None:
            findings.append(evidence.unknown(about, *pair))
            continue
        difference = found[0].minus(found[1])
        low, high = difference.interval()
        supports = None
        if shift - NEAR <= low and high <= shift + NEAR:
            supports = True
        elif high < shift - NEAR or low > shift + NEAR:
            supports = False
        findings.append(evidence.finding(about, difference, supports))
    return findings
