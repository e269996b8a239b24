"""Rows of cells as a table, for a terminal or in Markdown, and numbers for its cells."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if position else text.ljust(width)
            for position, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the header; a bar within a cell is not one between cells."""
    escaped = [[text.replace("|", "\\|") for text in row] for row in rows]
    rule = ["---"] * len(rows[0])
    return "\n".join(f"| {' | '.join(row)} |" for row in (escaped[0], rule, *escaped[1:]))


def number(value: float) -> str:
    """Short, for any size: a count, two digits after the point, or a power of ten."""
    if isinstance(value, int):
        return str(value)
    return f"{value:.2f}" if abs(value) < 1000 else f"{value:.1e}"


def interval(low: float | None, high: float | None) -> str:
    """ "[-0.06, -0.04]", an end that is not known as a dash; nothing where neither is."""
    if low is None and high is None:
        return ""
    return "[{}, {}]".format(*("-" if end is None else number(end) for end in (low, high)))
