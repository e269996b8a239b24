"""The questions behind the claims, put to the curves of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from pointdep.core.methods import PAPER_METHODS
from pointdep.experiments.figure1.evidence import (
    NOT_FINITE,
    Evidence,
    Finding,
    Quantity,
    every,
    most,
    opposite,
)
from pointdep.experiments.figure1.settings import paper_method

Answer = tuple[list[Finding], bool | None]
Judge = Callable[[Evidence], Answer]
Ask = Callable[[Evidence], list[Finding]]

LOWER_BOUNDS = PAPER_METHODS[:5]
PLUG_INS = PAPER_METHODS[5:]
BUT_CPC = PAPER_METHODS[1:]
LOW_BIAS = ("smile", *PLUG_INS)
NOISY = ("nwj", "js", "dv")
NEAR = 0.1  # nats
_ROUNDING = 1e-3  # nats
# Those whose inference is finite wherever the scores are: that of `js` overflows by itself.
_LEARN_JS = ("variational", "smile")


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
    return lambda evidence: [
        evidence.trend(quantity, (method, task))
        for quantity in quantities
        for task in evidence.tasks
        for method in methods
    ]


def falls(quantity: Quantity, method: str) -> Ask:
    return lambda evidence: [opposite(f) for f in grows(quantity, methods=(method,))(evidence)]


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


def below_log_batch(evidence: Evidence) -> list[Finding]:
    """Does `cpc` stay below log(batch size) while the truth goes above it?"""
    ceiling = math.log(evidence.settings.batch_size)
    reached = max(evidence.settings.levels) > ceiling
    findings = []
    for task in evidence.tasks:
        values = evidence.values(("cpc", task))
        finite = values[np.isfinite(values)]
        if not finite.size:
            findings.append(evidence.unknown(f"cpc, {task}", ("cpc", task)))
            continue
        highest = float(finite.max())
        within = highest <= ceiling + _ROUNDING
        supports = within if reached or not within else None
        missing = () if supports is not None else (f"a level above {ceiling:.2f}",)
        findings.append(Finding(f"cpc, {task}", highest, supports=supports, missing=missing))
    return findings


def like_exponential(method: str) -> Ask:
    """Does log variance grow by at least one a nat?"""
    return lambda evidence: [
        evidence.trend("spread", (method, task), above=1.0, times=2.0) for task in evidence.tasks
    ]


def less_stable_than_pc(evidence: Evidence) -> list[Finding]:
    """Blow-ups first; where neither side has one, `variational` against `pc`."""
    findings = []
    for task in evidence.tasks:
        lost = {method: evidence.not_finite((method, task)) for method in (*_LEARN_JS, "pc")}
        js_lost = sum(lost[method] for method in _LEARN_JS)
        finding = evidence.larger("spread", ("variational", task), ("pc", task))
        if evidence.ran(("pc", task)) and (js_lost or lost["pc"]):
            named = ", ".join(f"{method} {count}" for method, count in lost.items() if count)
            supports = None if js_lost and lost["pc"] else bool(js_lost)
            note = f"{NOT_FINITE}, values: {named}"
            finding = replace(finding, supports=supports, note=note, missing=())
        findings.append(finding)
    return findings


def half_nat_too_high(evidence: Evidence) -> list[Finding]:
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
