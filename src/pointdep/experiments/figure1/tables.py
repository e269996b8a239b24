"""The table and the claims of Figure 1 as text: for a terminal and for a page."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence

from pointdep.experiments.figure1.claims import Claim
from pointdep.experiments.figure1.evidence import NOISE, Finding
from pointdep.experiments.figure1.settings import Figure1
from pointdep.experiments.figure1.statements import OURS
from pointdep.experiments.figure1.summary import Summary
from pointdep.experiments.text import aligned, interval, markdown, number

WIDTH = 100
_MARK = "*"
_LEGEND = "bias / sd over the second half of each level, in nats; RMSE below"
_MARKED = f"{_MARK} values that are not finite were left out."
_OURS = "ours, not the paper's"
_WHERE = "The rule of each verdict and all its figures: claims.md."
_UNKNOWN = "- where no value is finite, or the statistic is not."


def text_table(lines: Sequence[Summary]) -> str:
    """Bias / sd and RMSE of each method, task by task; at most 100 columns wide."""
    parts: list[str] = []
    for task in dict.fromkeys(line.task for line in lines):
        for name, cell in _CELLS.items():
            rows = _rows(lines, task, cell)
            rows[0][0] = f"{task}, {name}"
            parts += map(aligned, _in_blocks(rows))
    notes = [_about(lines), *_notes(lines)]
    parts.append("\n".join(textwrap.fill(note, WIDTH) for note in notes))
    return "\n\n".join(parts) + "\n"


def text_claims(claims: Sequence[Claim], settings: Figure1) -> str:
    """Verdict, sentence and reason of each claim; at most 100 columns wide.

    Those of which nothing was run are only named: claims.md has them.
    """
    parts, unknown = [], []
    for claim in claims:
        if claim.findings and all(finding.missing for finding in claim.findings):
            unknown.append(claim.key)
            continue
        head = f"{claim.key:<3} {claim.verdict:<14} "
        quote = claim.quote if claim.source == OURS else f'"{claim.quote}"'
        about = [f"{quote} ({claim.source})", f"{claim.quantity}: {claim.because}"]
        filled = [
            textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(head))
            for text, first in zip(about, (head, " " * len(head)), strict=True)
        ]
        parts.append("\n".join(filled))
    notes = [f"Not run here, so that it cannot be told: {', '.join(unknown)}."] if unknown else []
    notes += [_count(claims), *_caveats(settings), _WHERE]
    return "\n".join([*parts, "", *(textwrap.fill(note, WIDTH) for note in notes)]) + "\n"


def markdown_table(lines: Sequence[Summary]) -> str:
    """Bias / sd, then RMSE: a line a method and a column a level, for each task."""
    parts = ["# Figure 1 in numbers", " ".join([_about(lines), *_notes(lines)])]
    for task in dict.fromkeys(line.task for line in lines):
        for name, cell in _CELLS.items():
            parts += [f"## {task.capitalize()} task, {name}", markdown(_rows(lines, task, cell))]
    return "\n\n".join(parts).replace(_MARK, f"\\{_MARK}") + "\n"


def markdown_claims(claims: Sequence[Claim], settings: Figure1) -> str:
    """Each claim with its rule and every number it rests on."""
    parts = [
        "# The paper's claims and what was measured",
        _count(claims),
        *_caveats(settings),
        NOISE,
    ]
    overview = [["", "claim", "verdict"]]
    overview += [[claim.key, claim.quote, f"**{claim.verdict}**"] for claim in claims]
    parts.append(markdown(overview))
    for claim in claims:
        parts += [
            f"## {claim.key}: {claim.verdict}",
            f"> {claim.quote}\n>\n> ({_OURS if claim.source == OURS else claim.source})",
            f"Rule: {claim.rule}",
            markdown([["", claim.quantity, "95 % interval", "supports it", "note"]]
            + [_finding(finding) for finding in claim.findings]),
        ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _bias_sd(line: Summary) -> str:
    if line.bias is None:
        return "-"
    sign = "+" if line.bias > 0 else ""
    sd = "-" if line.sd is None else number(line.sd)
    return f"{sign}{number(line.bias)}/{sd}" + _MARK * (line.not_finite > 0)


def _rmse(line: Summary) -> str:
    return "-" if line.rmse is None else number(line.rmse) + _MARK * (line.not_finite > 0)


_CELLS: dict[str, Callable[[Summary], str]] = {"bias / sd": _bias_sd, "RMSE": _rmse}


def _rows(lines: Sequence[Summary], task: str, cell: Callable[[Summary], str]) -> list[list[str]]:
    """A header with the levels, and a row for each method of the task."""
    levels = list(dict.fromkeys(line.level for line in lines))
    rows = [["method", *(f"{level:g}" for level in levels)]]
    own = {(line.method, line.level): line for line in lines if line.task == task}
    for method in dict.fromkeys(method for method, _ in own):
        rows.append([method, *(cell(own[method, level]) for level in levels)])
    return rows


def _in_blocks(rows: Sequence[Sequence[str]]) -> Iterator[list[list[str]]]:
    """The first column with as many others, at most five, as a line has room for."""
    first = max(len(row[0]) for row in rows)
    widest = max(len(text) for row in rows for text in row[1:])
    columns = max(1, min(5, (WIDTH - first) // (2 + widest)))
    for start in range(1, len(rows[0]), columns):
        yield [[row[0], *row[start : start + columns]] for row in rows]


def _about(lines: Sequence[Summary]) -> str:
    seeds = max(line.seeds for line in lines)
    if seeds == 1:
        return f"{_LEGEND}; one seed."
    return f"{_LEGEND}; bias and sd are means over {seeds} seeds, RMSE is over all their values."


def _notes(lines: Sequence[Summary]) -> list[str]:
    notes = [_MARKED] if any(line.not_finite for line in lines) else []
    return notes + [_UNKNOWN] * any(None in (line.bias, line.sd, line.rmse) for line in lines)


def _count(claims: Sequence[Claim]) -> str:
    """The paper's, and ours one by one."""
    verdicts = [claim.verdict for claim in claims if claim.source != OURS]
    counts = [verdicts.count(verdict) for verdict in ("holds", "does not hold", "cannot tell")]
    ours = [f"{claim.key}: {claim.verdict}" for claim in claims if claim.source == OURS]
    return "Of {} claims of the paper {} hold, {} do not, and of {} it cannot be told. {}".format(
        len(verdicts), *counts, f"Of our own, {', '.join(ours)}."
    )


def _caveats(settings: Figure1) -> list[str]:
    """What keeps the verdicts from being about the paper's experiment."""
    notes = []
    if settings.departures:
        notes.append(
            "These are not the paper's settings, and the verdicts are about this run alone: "
            f"{settings.departures}."
        )
    if settings.seeds == 1:
        notes.append("Of one seed: another may give other verdicts; --seeds 3 says how far.")
    return notes


def _finding(finding: Finding) -> list[str]:
    answer = {True: "yes", False: "no", None: "open"}[finding.supports]
    missing = f"not run: {', '.join(finding.missing)}" if finding.missing else ""
    levels = ", ".join(f"{level:g}" for level in finding.levels)
    over = f"MI {levels} only" if levels else ""
    return [
        finding.about,
        "" if finding.value is None else number(finding.value),
        interval(finding.low, finding.high),
        answer,
        "; ".join(part for part in (finding.note, over, missing) if part),
    ]
