"""What a notebook shows of a result: a small card, without scripts, in the colours of the page.

Nothing here sets a colour of text or background, so that a card reads on light and dark pages.
"""

from collections.abc import Iterable, Sequence
from html import escape

_FRAME = (
    "display:inline-block;max-width:100%;box-sizing:border-box;padding:.5em .8em;"
    "border:1px solid rgba(128,128,128,.45);border-radius:6px"
)
_NAME = (
    "padding:.1em 1em .1em 0;text-align:left;vertical-align:top;white-space:nowrap;"
    "font-weight:normal;opacity:.75"
)
_VALUE = "padding:.1em 0;text-align:left;vertical-align:top"
_CELL = "padding:.1em 0 .1em 1em;text-align:right"


def card(
    title: str,
    rows: Iterable[tuple[str, object]] = (),
    *,
    notes: Sequence[str] = (),
    table: str = "",
) -> str:
    """A title, names with their values, warnings, and a table, which alone is HTML already."""
    lines = "".join(
        f'<tr><th style="{_NAME}">{escape(name)}</th>'
        f'<td style="{_VALUE}">{escape(str(value))}</td></tr>'
        for name, value in rows
    )
    parts = [f'<div style="font-weight:600">{escape(title)}</div>']
    if lines:
        parts.append(f'<table style="margin:.3em 0;border:0">{lines}</table>')
    parts += [f"<div>&#9888; {escape(note)}</div>" for note in notes]
    if table:
        parts.append(f'<div style="overflow-x:auto;margin-top:.5em">{table}</div>')
    return f'<div style="{_FRAME}">{"".join(parts)}</div>'


def columns(names: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A table as HTML, with a line of names."""
    head = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in names)
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{_CELL}">{escape(str(value))}</td>' for value in line)
        + "</tr>"
        for line in lines
    )
    return f"<table><tr>{head}</tr>{body}</table>"
