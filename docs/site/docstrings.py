"""Docstrings of this code base as Markdown, for mkdocstrings.

``name, name : what it is``, with or without a heading such as Parameters above it, becomes a list;
without that the lines of a list would run together in one paragraph. Examples become code blocks.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*\n(?:.+(?:\n|\Z))*", re.M)  # up to an empty line
_ITEM = re.compile(r"^( *)((?:\w+)(?:, \w+)*) ?: (?=\S)")
_TITLE = re.compile(r"^(\w[^\n]*)\n-{3,}$", re.M)
_PAGE = re.compile(r"\bdocs/(\w+)\.md\b")


def as_markdown(text: str) -> str:
    """The same text with its headings in bold and its lists as lists."""
    text = _TITLE.sub(r"**\1**\n", text)
    text = _EXAMPLE.sub(lambda found: textwrap.indent(found[0], "    "), text)
    made: list[str] = []
    inside = False  # a list
    for line in text.split("\n"):
        item = _ITEM.match(line)
        indent = len(line) - len(line.lstrip())
        if item:
            if not inside and made and made[-1]:
                made.append("")
            depth = "    " if inside and indent else ""
            names = ", ".join(f"`{name}`" for name in item[2].split(", "))
            made.append(f"{depth}- {names}: {line[item.end() :]}")
            inside = True
        elif not line.strip():
            made.append("")
            inside = False
        elif inside and not indent and made[-1].endswith("."):
            made += ["", line]  # a paragraph after the list, without an empty line between them
            inside = False
        else:
            made.append(f"    {line.strip()}" if inside else line)
    return _PAGE.sub(r"the page `\1`", "\n".join(made))


class Docstrings(griffe.Extension):
    """Rewrite every docstring as it is read, and show the values of private defaults."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_function(self, *, func: Any, **_: Any) -> None:
        for parameter in func.parameters:
            constant = func.module.members.get(str(parameter.default))
            if constant is None or constant.is_alias:
                continue
            if constant.is_attribute and constant.is_private:
                parameter.default = constant.value
