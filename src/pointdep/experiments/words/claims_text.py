"""The claims as text, for a terminal and for a page, and what a run differs in from the paper's."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from pointdep.experiments.text import markdown
from pointdep.experiments.words.claims import Claim
from pointdep.experiments.words.settings import Training

WIDTH = 100
_OTHER_RUN = "The verdicts are about this run alone, which is not the paper's experiment. "
_ONE_SEED = "Of one seed: another may give other numbers."
_WHERE = "The rule of each verdict and all its figures: claims.md."


def departures(settings: Training, words: int) -> list[str]:
    """What keeps the verdicts from being about the paper's experiment."""
    said = settings.departures(words)
    if not said:
        return [_ONE_SEED]
    return [
        f"This is not the paper's experiment, and the verdicts are about this run alone: "
        f"{'; '.join(said)}. {_ONE_SEED}"
    ]


def text_departures(settings: Training, words: int) -> str:
    """The head of what a terminal shows, where it is not about the paper's experiment; or ""."""
    said = settings.departures(words)
    if not said:
        return ""
    return textwrap.fill(f"This is not the paper's experiment: {'; '.join(said)}.", WIDTH) + "\n\n"


def text_claims(claims: Sequence[Claim], settings: Training, words: int) -> str:
    """Verdict, sentence and reason of each claim; at most 100 columns wide."""
    parts = []
    for one in claims:
        head = f"{one.key:<3} {one.verdict:<14} "
        filled = [
            textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(head))
            for text, first in ((f'"{one.quote}"', head), (one.because, " " * len(head)))
        ]
        parts.append("\n".join(filled))
    about = _OTHER_RUN if settings.departures(words) else ""
    notes = [count(claims), about + _ONE_SEED, _WHERE]
    return "\n".join([*parts, "", *(textwrap.fill(note, WIDTH) for note in notes)]) + "\n"


def markdown_claims(claims: Sequence[Claim], settings: Training, words: int) -> str:
    """Each claim with its rule and every number it rests on."""
    parts = [
        "# The paper's claims and what was measured",
        count(claims),
        *departures(settings, words),
    ]
    overview = [["", "claim", "verdict"]]
    overview += [[one.key, one.quote, f"**{one.verdict}**"] for one in claims]
    parts.append(markdown(overview))
    for one in claims:
        rows = [["", "measured (95 % interval)", "paper", "supports it"]]
        rows += [
            [
                number.about,
                number.text,
                "" if number.paper is None else number.shown(number.paper),
                {True: "yes", False: "no", None: ""}[number.supports],
            ]
            for number in one.findings
        ]
        parts += [
            f"## {one.key}: {one.verdict}",
            f"> {one.quote}\n>\n> ({one.source})",
            f"Rule: {one.rule}",
            markdown(rows),
        ]
    return "\n\n".join(parts) + "\n"


def count(claims: Sequence[Claim]) -> str:
    """How many hold."""
    verdicts = [one.verdict for one in claims]
    counts = [verdicts.count(name) for name in ("holds", "does not hold", "cannot tell")]
    return "Of {} claims {} hold, {} do not, and of {} it cannot be told.".format(
        len(verdicts), *counts
    )
