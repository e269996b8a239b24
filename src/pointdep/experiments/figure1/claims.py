"""The paper's claims about Figure 1 beside what was measured, each with a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pointdep.experiments.figure1.curves import Curves
from pointdep.experiments.figure1.evidence import Evidence, Finding
from pointdep.experiments.figure1.statements import STATEMENTS, Statement
from pointdep.experiments.text import interval, number

Verdict = Literal["holds", "does not hold", "cannot tell"]
_VERDICTS: dict[bool | None, Verdict] = {True: "holds", False: "does not hold", None: "cannot tell"}


@dataclass(frozen=True)
class Claim:
    """A statement with its verdict: `because` in one line, `findings` number by number."""

    key: str
    source: str
    quote: str
    rule: str
    quantity: str
    verdict: Verdict
    because: str
    findings: tuple[Finding, ...]


def judge_claims(curves: Curves) -> list[Claim]:
    """Every statement on the curves of a run, whatever it left out."""
    evidence = Evidence(curves)
    return [_judge(statement, evidence) for statement in STATEMENTS]


def _judge(statement: Statement, evidence: Evidence) -> Claim:
    findings, answer = statement.judge(evidence)
    return Claim(
        key=statement.key,
        source=statement.source,
        quote=statement.quote,
        rule=statement.rule,
        quantity=statement.quantity,
        verdict=_VERDICTS[answer],
        because=_because(findings),
        findings=tuple(findings),
    )


def _because(findings: Sequence[Finding]) -> str:
    """How many say what: those against it by number, the open ones by reason."""
    yes, no, unsaid = ([f for f in findings if f.supports is s] for s in (True, False, None))
    parts = [f"{len(yes)} of {len(findings)} say so"]
    if no:
        parts.append("against it: " + "; ".join(map(describe, no)))
    elif yes:
        parts[0] += _range([finding.value for finding in yes if finding.value is not None])
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


def describe(finding: Finding) -> str:
    """ "dm2, cubic -0.05 [-0.06, -0.04]"."""
    if finding.value is None:
        return finding.about
    return f"{finding.about} {number(finding.value)} {interval(finding.low, finding.high)}".rstrip()


def _range(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = number(min(values)), number(max(values))
    return f" ({low})" if low == high else f" ({low} to {high})"
