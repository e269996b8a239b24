"""The tables of methods and critics in docs/methods.md, made from the tables in the code.

python docs/site/tables.py
"""

from __future__ import annotations

import re
from pathlib import Path

from pointdep.core.critics import CRITICS
from pointdep.core.methods import METHODS

PAGE = Path(__file__).parents[1] / "methods.md"


def methods() -> str:
    """One line per method."""
    lines = ["| method | name | what it identifies | options |", "|---|---|---|---|"]
    for key, method in METHODS.items():
        options = ", ".join(f"`{name}={value}`" for name, value in method.options.items())
        lines.append(f"| `{key}` | {method.name} | {method.identifies} | {options} |")
    return "\n".join(lines)


def critics() -> str:
    """One line per critic; "auto" stands for another one if the data have many columns."""
    lines = [
        "| critic | score | columns given as | all pairs in one product | vectors for an index |",
        "|---|---|---|---|---|",
    ]
    for name, critic in CRITICS.items():
        for wide in (False, True):
            kind = critic.for_data(wide=wide)
            if wide and kind is critic:
                continue
            named = f"`{name}`, more than 25 columns" if wide else f"`{name}`"
            score = (kind.__doc__ or "").partition("\n")[0].rstrip(".")
            given = "normal scores" if kind.ranked else "standardised"
            marks = ["yes" if mark else "" for mark in (kind.separable, kind.has_inner)]
            lines.append(f"| {named} | {score} | {given} | {marks[0]} | {marks[1]} |")
    return "\n".join(lines)


def filled(text: str) -> str:
    """The page with both tables as they should be."""
    for name, table in (("methods", methods()), ("critics", critics())):
        marks = rf"(<!-- table of {name} -->\n).*?(<!-- end -->)"
        text, count = re.subn(marks, lambda m, t=table: f"{m[1]}\n{t}\n\n{m[2]}", text, flags=re.S)
        assert count == 1, name
    return text


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")
