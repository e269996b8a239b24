"""A sentence of the paper beside what was measured, with a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pointdep.experiments.words.numbers import Measured

Verdict = Literal["holds", "does not hold", "cannot tell"]
_VERDICTS: dict[bool | None, Verdict] = {True: "holds", False: "does not hold", None: "cannot tell"}


@dataclass(frozen=True)
class Finding:
    """One number behind a verdict.

    value, low, high: with its 95 % interval, where there is one. paper: the paper's number.
    supports: what it says of the claim; None where that is open, or it is only told beside.
    percent: whether the numbers are shares.
    """

    about: str
    value: float | None
    low: float | None = None
    high: float | None = None
    paper: float | None = None
    supports: bool | None = None
    percent: bool = False

    @property
    def text(self) -> str:
        """ "57.4 % (55.8 to 58.9)", or that there is nothing to measure."""
        if self.value is None:
            return "nothing to measure"
        said = self.shown(self.value) + (" %" if self.percent else "")
        if self.low is not None and self.high is not None:
            said += f" ({self.shown(self.low)} to {self.shown(self.high)})"
        return said

    def shown(self, value: float) -> str:
        """With as many digits as are worth reading."""
        return f"{100 * value:.2f}" if self.percent else f"{value:.3g}"


@dataclass(frozen=True)
class Claim:
    """A sentence with its verdict.

    key: a letter for the sentence. source: where in the paper it stands. quote: the sentence,
    shortened; in [] what the paper does not say in these words. rule: when it holds, when not.
    """

    key: str
    source: str
    quote: str
    rule: str
    verdict: Verdict
    findings: tuple[Finding, ...]

    @property
    def because(self) -> str:
        return "; ".join(f"{finding.about}: {finding.text}" for finding in self.findings)


def claim(
    key: str,
    source: str,
    quote: str,
    rule: str,
    answer: bool | None,
    *findings: Finding,
) -> Claim:
    """The claim with the verdict that the answer stands for."""
    return Claim(key, source, quote, rule, _VERDICTS[answer], findings)


def finding(
    about: str,
    measured: Measured | None,
    *,
    paper: float | None = None,
    supports: bool | None = None,
    percent: bool = False,
) -> Finding:
    """A number that was measured, or that there was nothing to measure."""
    if measured is None:
        return Finding(about, None, percent=percent)
    ends = measured.low, measured.high
    return Finding(about, measured.value, *ends, paper, supports, percent)


def every(answers: Sequence[bool | None]) -> bool | None:
    """Whether all are true; one that is false decides."""
    if False in answers:
        return False
    return None if None in answers or not answers else True
