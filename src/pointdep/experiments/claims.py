"""The paper's sentences as a table: each has a rule, the numbers it is judged by, and a verdict.

The sentences are in paper.json, and an experiment has a function to judge each of them.
`judge_all` asks each of them about what was
measured and returns a `Claim` per sentence: "holds", "does not hold" or "cannot tell". A claim is
shown in a terminal (`text_claims`), on a page (`markdown_claims`) or to a program
(`claims_as_dicts`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from pointdep.experiments.reports import filled, interval, markdown, number

Verdict = Literal["holds", "does not hold", "cannot tell"]
VERDICTS: dict[bool | None, Verdict] = {True: "holds", False: "does not hold", None: "cannot tell"}
OURS = "pointdep"
"""The source of a claim that is ours rather than the paper's."""


@dataclass(frozen=True)
class Measured:
    """A number with the ends of its 95 % interval, from n observations."""

    value: float
    low: float
    high: float
    n: int = 0

    def above(self, limit: float = 0.0) -> bool | None:
        """Whether the number is above the limit; None if the interval holds the limit."""
        if self.low > limit:
            return True
        return False if self.high < limit else None

    def within(self, low: float, high: float) -> bool | None:
        """Whether the number lies between the limits; None if the interval holds one of them."""
        if low <= self.low and self.high <= high:
            return True
        return False if self.low > high or self.high < low else None


@dataclass(frozen=True)
class Finding:
    """One number behind a verdict.

    Attributes
    ----------
    about: what was measured, such as a method and a task.
    value, low, high: the number and its 95 % interval; None if unknown.
    paper: the paper's number.
    supports: whether it supports the claim; None if it is open, or only given for information.
    percent: whether the numbers are shares.
    note: why it is open, or details.
    missing: what would have to be run to get the number.
    levels: the levels of the truth that it covers, if these are not all.
    """

    about: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    paper: float | None = None
    supports: bool | None = None
    percent: bool = False
    note: str = ""
    missing: tuple[str, ...] = ()
    levels: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        """The number and its interval: "57.40 % (55.80 to 58.90)"."""
        if self.value is None:
            return "nothing to measure"
        said = self.shown(self.value) + (" %" if self.percent else "")
        if self.low is not None and self.high is not None:
            said += f" ({self.shown(self.low)} to {self.shown(self.high)})"
        return said

    def shown(self, value: float) -> str:
        """A number in the unit of this finding."""
        return f"{100 * value:.2f}" if self.percent else f"{value:.3g}"


def finding(about: str, measured: Measured | None, **details: Any) -> Finding:
    """A finding from what was measured, or with no number if there was nothing to measure."""
    if measured is None:
        return Finding(about, percent=details.get("percent", False))
    return Finding(about, measured.value, measured.low, measured.high, **details)


Answer = tuple[Sequence[Finding], bool | None]
Evidence = TypeVar("Evidence")


Judges = Mapping[str, Callable[[Evidence], Answer | None]]
"""From the key of a sentence to how it is judged; None leaves the sentence out."""


@dataclass(frozen=True)
class Claim:
    """A sentence with its verdict, the reason in one line, and the numbers behind it.

    Attributes
    ----------
    key: a letter per sentence, with a number if a sentence says several things.
    source: "main text" or "supplement" of the paper, or `OURS`.
    quote: the sentence, shortened; in [] what the paper does not say in these words.
    rule: when it holds, in words. It does not hold if the numbers clearly say the opposite;
        otherwise the verdict is "cannot tell".
    quantity: what the findings measure, if they all measure the same thing.
    """

    key: str
    source: str
    quote: str
    rule: str
    quantity: str
    verdict: Verdict
    because: str
    findings: tuple[Finding, ...]


def every(answers: Sequence[bool | None]) -> bool | None:
    """Whether all are true; a single false one decides."""
    if False in answers:
        return False
    return None if None in answers or not answers else True


def most(answers: Sequence[bool | None]) -> bool | None:
    """Whether more than half are true, whatever the unknown ones turn out to be."""
    sure, possible = answers.count(True), len(answers) - answers.count(False)
    if 2 * sure > len(answers):
        return True
    return False if 2 * possible <= len(answers) and answers else None


def listed(findings: Sequence[Finding]) -> str:
    """Every finding with its number, as the reason for a verdict."""
    return "; ".join(f"{finding.about}: {finding.text}" for finding in findings)


def judge_all(
    sentences: Sequence[Mapping[str, str]],
    judges: Judges[Evidence],
    evidence: Evidence,
    because: Callable[[Sequence[Finding]], str] = listed,
) -> list[Claim]:
    """Judge every sentence of a list in paper.json; because: findings summarised in one line."""
    claims = []
    for one in sentences:
        if (answer := judges[one["key"]](evidence)) is not None:
            about = one["key"], one["source"], one["quote"], one["rule"], one.get("quantity", "")
            findings, verdict = tuple(answer[0]), VERDICTS[answer[1]]
            claims.append(Claim(*about, verdict, because(findings), findings))
    return claims


def count(claims: Sequence[Claim]) -> str:
    """How many of the paper's claims hold, and the verdicts on ours."""
    verdicts = [claim.verdict for claim in claims if claim.source != OURS]
    holds, fails, open_ = (verdicts.count(verdict) for verdict in VERDICTS.values())
    ours = [f"{claim.key} {claim.verdict}" for claim in claims if claim.source == OURS]
    return (
        f"Of the paper's {len(verdicts)} claims, {holds} hold, {fails} do not hold, and {open_} "
        "cannot be judged." + (f" Ours: {', '.join(ours)}." if ours else "")
    )


def text_claims(claims: Sequence[Claim], notes: Sequence[str] = ()) -> str:
    """Verdict, sentence and reason of each claim for a terminal, then the notes.

    Claims for which nothing was run are only named.
    """
    parts, unknown = [], []
    for claim in claims:
        if claim.findings and all(finding.missing for finding in claim.findings):
            unknown.append(claim.key)
            continue
        head = f"{claim.key:<3} {claim.verdict:<14} "
        quote = claim.quote if claim.source == OURS else f'"{claim.quote}"'
        because = f"{claim.quantity}: {claim.because}" if claim.quantity else claim.because
        for text, first in ((f"{quote} ({claim.source})", head), (because, " " * len(head))):
            parts.append(filled(text, first, " " * len(head)))
    said = [f"Not run, and therefore open: {', '.join(unknown)}."] if unknown else []
    return "\n".join([*parts, "", *map(filled, [*said, count(claims), *notes])]) + "\n"


def claims_page(claims: Sequence[Claim], notes: Sequence[str]) -> str:
    """claims.md: how many hold, the notes, and each claim with its rule and numbers."""
    head = "# The paper's claims and what was measured", count(claims)
    return "\n\n".join([*head, *notes, markdown_claims(claims)]) + "\n"


def markdown_claims(
    claims: Sequence[Claim], *, measured: str = "measured", level: str = "##"
) -> str:
    """An overview, and each claim with its rule and every number behind it.

    measured: the heading of the numbers of claims without a `quantity`. level: of the headings.
    """
    overview = [["", "claim", "verdict"]]
    parts = [markdown(overview + [[c.key, c.quote, f"**{c.verdict}**"] for c in claims])]
    for claim in claims:
        source = "ours, not the paper's" if claim.source == OURS else claim.source
        parts += [
            f"{level} {claim.key}: {claim.verdict}",
            f"> {claim.quote}\n>\n> ({source})",
            f"Rule: {claim.rule}",
            markdown(list(_rows(claim, measured))),
        ]
    return "\n\n".join(parts)


def _rows(claim: Claim, measured: str) -> Iterator[list[str]]:
    """The findings: with a note each if all measure one quantity, else with the paper's number."""
    supports = {True: "yes", False: "no", None: "open" if claim.quantity else ""}
    if not claim.quantity:
        yield ["", f"{measured} (95 % interval)", "paper", "supports it"]
        for one in claim.findings:
            paper = "" if one.paper is None else one.shown(one.paper)
            yield [one.about, one.text, paper, supports[one.supports]]
        return
    yield ["", claim.quantity, "95 % interval", "supports it", "note"]
    for one in claim.findings:
        levels = ", ".join(f"{level:g}" for level in one.levels)
        not_run = f"not run: {', '.join(one.missing)}" if one.missing else ""
        notes = one.note, f"MI {levels} only" if levels else "", not_run
        yield [
            one.about,
            "" if one.value is None else number(one.value),
            interval(one.low, one.high),
            supports[one.supports],
            "; ".join(filter(None, notes)),
        ]


def claims_as_dicts(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """The claims for a program, with the fields that `_rows` shows of them."""
    told = []
    for claim in claims:
        content = asdict(claim)
        unused = ("paper", "percent") if claim.quantity else ("note", "missing", "levels")
        for one in content["findings"]:
            for name in unused:
                del one[name]
        if not claim.quantity:
            del content["quantity"]
        told.append(content)
    return told
