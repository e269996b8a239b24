"""The table and the claims of Figure 1 as text: for a terminal and for a page."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence

from pointdep.experiments.figure1.claims import Claim, interval, number
from pointdep.experiments.figure1.evidence import NOISE, Finding
from pointdep.experiments.figure1.summary import Summary
from pointdep.experiments.text import aligned, markdown

WIDTH = 100
_MARK = "*"
_LEGEND = "bias / sd over the second half of each level, in nats; RMSE below"
_MARKED = f"{_MARK} values that are not finite were left out; - where none was finite."


def text_table(lines: Sequence[Summary]) -> str:
    """Bias / sd and RMSE of each method, task by task; at most 100 columns wide."""
    parts = []
    for task in dict.fromkeys(line.task for line in lines):
        for name, cell in _CELLS.items():
            for levels in _in_blocks(lines):
                rows = _rows(lines, task, levels, cell)
                rows[0][0] = f"{task}, {name}"
                parts.append(aligned(rows))
    notes = [_about(lines)] + [_MARKED] * any(line.not_finite for line in lines)
    parts.append("\n".join(textwrap.fill(note, WIDTH) for note in notes))
    return "\n\n".join(parts) + "\n"


def text_claims(claims: Sequence[Claim]) -> str:
    """Verdict, sentence and reason of each claim; at most 100 columns wide."""
    parts = []
    for claim in claims:
        head = f"{claim.key:<3} {claim.verdict:<14} "
        about = [f'"{claim.quote}" ({claim.source})', f"{claim.quantity}: {claim.because}"]
        filled = [
            textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(head))
            for text, first in zip(about, (head, " " * len(head)), strict=True)
        ]
        parts.append("\n".join(filled))
    return "\n".join([*parts, "", _count(claims), textwrap.fill(NOISE, WIDTH)]) + "\n"


def markdown_table(lines: Sequence[Summary]) -> str:
    """Bias / sd, then RMSE: a line a method and a column a level, for each task."""
    levels = list(dict.fromkeys(line.level for line in lines))
    parts = ["# Figure 1 in numbers", _about(lines)]
    if any(line.not_finite for line in lines):
        parts.append(_MARKED.replace(_MARK, f"\\{_MARK}"))
    for task in dict.fromkeys(line.task for line in lines):
        for name, cell in _CELLS.items():
            rows = _rows(lines, task, levels, cell)
            rows = [[text.replace(_MARK, f"\\{_MARK}") for text in row] for row in rows]
            parts += [f"## {task.capitalize()} task, {name}", markdown(rows)]
    return "\n\n".join(parts) + "\n"


def markdown_claims(claims: Sequence[Claim]) -> str:
    """Each claim with its rule and every number it rests on."""
    parts = ["# The paper's claims and what was measured", NOISE, _count(claims)]
    overview = [["", "claim", "verdict"]]
    overview += [[claim.key, claim.quote, f"**{claim.verdict}**"] for claim in claims]
    parts.append(markdown(overview))
    for claim in claims:
        parts += [
            f"## {claim.key}: {claim.verdict}",
            f"> {claim.quote}\n>\n> ({claim.source})",
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


def _rows(
    lines: Sequence[Summary], task: str, levels: Sequence[float], cell: Callable[[Summary], str]
) -> list[list[str]]:
    """A header, and a row for each method of the task."""
    rows = [["method", *(f"{level:g}" for level in levels)]]
    own = {(line.method, line.level): line for line in lines if line.task == task}
    for method in dict.fromkeys(method for method, _ in own):
        rows.append([method, *(cell(own[method, level]) for level in levels)])
    return rows


def _in_blocks(lines: Sequence[Summary], columns: int = 5) -> Iterator[list[float]]:
    """The levels, as many at a time as a line has room for."""
    levels = list(dict.fromkeys(line.level for line in lines))
    for start in range(0, len(levels), columns):
        yield levels[start : start + columns]


def _about(lines: Sequence[Summary]) -> str:
    seeds = max(line.seeds for line in lines)
    over = "one seed" if seeds == 1 else f"means over {seeds} seeds"
    return f"{_LEGEND}; {over}."


def _count(claims: Sequence[Claim]) -> str:
    verdicts = [claim.verdict for claim in claims]
    counts = [verdicts.count(verdict) for verdict in ("holds", "does not hold", "cannot tell")]
    return "Of {} claims {} hold, {} do not, and of {} it cannot be told.".format(
        len(claims), *counts
    )


def _finding(finding: Finding) -> list[str]:
    answer = {True: "yes", False: "no", None: "open"}[finding.supports]
    without = finding.low is None and finding.high is None
    missing = f"not run: {', '.join(finding.missing)}" if finding.missing else ""
    return [
        finding.about,
        "" if finding.value is None else number(finding.value),
        "" if without else interval(finding),
        answer,
        "; ".join(part for part in (finding.note, missing) if part),
    ]
