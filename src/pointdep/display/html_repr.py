"""What a notebook shows of a result: a small card, without scripts, in the colours of the page.

Nothing here sets a colour of text or background, so that a card reads on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

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


class EstimatorCard:
    """The card of an estimator, instead of scikit-learn's diagram, which shows only its options."""

    def _found(self) -> list[tuple[str, object]]:
        """Names and values of what a fitted one has found."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        name = type(self).__name__
        options = ("options", " ".join(repr(self).split())[len(name) + 1 : -1] or "defaults")
        if not hasattr(self, "n_rows_"):
            return card(f"{name}, not fitted", [options])
        of_y = getattr(getattr(self, "encoder_y_", None), "names", ())
        sides = f"{self.n_features_in_} columns of X"  # type: ignore[attr-defined]
        sides += f", {len(of_y)} of Y" if of_y else ""
        of = ("fitted on", f"{self.n_rows_:,} rows, {sides}")
        notes = [str(flag) for flag in getattr(self, "flags_", ())]
        return card(name, [of, *self._found(), options], notes=notes)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Before `_repr_html_`, where a notebook asks for it; scikit-learn has one of its own."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
