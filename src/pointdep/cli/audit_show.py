"""What ``pointdep audit`` says, to a person and to a program."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any

from pointdep.cli.show import check_as_json, flags_as_json, found_as_json, print_rows

if TYPE_CHECKING:
    from pointdep.auditing.report.content import Shown
    from pointdep.auditing.result import Audit

_WORST = 10
_SHOWN = 30  # characters of a text on the terminal


def as_json(found: Audit) -> dict[str, Any]:
    """The result for a program."""
    share, table = found.contamination, found.table
    return {
        **found_as_json(found.mutual_information),
        "folds": found.folds,
        "answered": found.answered,
        "flags": flags_as_json(found.flags),
        "check": {k: v for k, v in check_as_json(found.check, None).items() if k != "plot"},
        "fdr": found.fdr,
        "contamination": {"share": share.share, "given": share.given, "stderr": share.stderr},
        "suspects": int(table["suspect"].sum()),
        "below_zero": int(table["below_zero"].sum()),
        "worst": worst_rows(found),
    }


def worst_rows(found: Audit) -> list[dict[str, Any]]:
    """The first rows by rank: numbers, and None where a cell is empty."""
    import pandas as pd

    kinds = {"row": int, "rank": int, "pmi": float, "stderr": float, "posterior": float}
    kinds |= {"q_value": float, "suspect": bool, "better_partner": int}
    kinds |= {"better_partner_pmi": float, "swapped_with": int, "duplicate_of": int}
    kinds |= {"better_label": str}
    worst = found.table.sort_values("rank").head(_WORST)
    return [
        {
            name: None if pd.isna(line.get(name)) else kind(line[name])
            for name, kind in kinds.items()
        }
        for _, line in worst.iterrows()
    ]


def print_audit(found: Audit, sides: list[Shown | None], written: list[str]) -> None:
    """The result for a person."""
    from pointdep.auditing.report.words import finding, more_by_chance, percent, share_in_words

    share = found.contamination
    below = int(found.table["below_zero"].sum())
    rows = {
        "suspects": finding(found),
        found.mutual_information.estimates: str(found.mutual_information),
        "chance pairs": f"{percent(share.share)}: {share_in_words(share)}{more_by_chance(found)}",
        "below zero": f"{below} ({percent(below / len(found.table))})",
        **check_rows(found),
    }
    if found.answered:
        rows["method"] = f"{found.method}: {found.answered}"
    print_rows(rows)
    print_worst(found, sides)
    if written:
        print(f"\nwritten: {', '.join(written)}")
    else:
        print("\nSee all of them:  pointdep audit ... -o report.html")


def check_rows(found: Audit) -> dict[str, str]:
    """The verdict of the check, and what it means for the suspects where it is not a good one."""
    from pointdep.auditing.report.words import caveat

    more = caveat(found)
    return {"check": str(found.check)} | ({"": more} if more else {})


def print_worst(found: Audit, sides: list[Shown | None]) -> None:
    """The worst rows, each with the label or the row whose y would fit better.

    And, where there is any, with the row that it may be swapped with. Suspects have a star.
    """
    from pointdep.auditing.report.words import probability

    worst = worst_rows(found)
    better = _column("better", [_better(line) for line in worst])
    swapped = [line["swapped_with"] for line in worst]
    if any(row is not None for row in swapped):
        others = _column("swapped?", ["-" if row is None else f"row {row}" for row in swapped])
        better = [f"{left}  {right}" for left, right in zip(better, others, strict=True)]
    head, *better = better
    print(f"\n{'row':>8} {'PMI':>8} {'chance':>7} {'q':>7}  {head}  x | y")
    for line, other in zip(worst, better, strict=True):
        x, y = (shown_text(side, line["row"]) for side in sides)
        pmi, posterior, q_value = (
            nan if line[name] is None else line[name] for name in ("pmi", "posterior", "q_value")
        )
        print(
            f"{line['row']:>8} {pmi:>8.2f} {probability(posterior):>7} {probability(q_value):>7}"
            f"{'*' if line['suspect'] else ' '} {other}  {x} | {y}"
        )
    if any(line["suspect"] for line in worst):
        print("* a suspect")


def _better(line: dict[str, Any]) -> str:
    if line["better_label"] is not None:
        return safe_text(line["better_label"])
    return "-" if line["better_partner"] is None else f"row {line['better_partner']}"


def _column(title: str, cells: list[str]) -> list[str]:
    """The title and the cells, as wide as each other."""
    width = max(map(len, [title, *cells]))
    return [f"{cell:<{width}}" for cell in (title, *cells)]


def shown_text(side: Shown | None, row: int) -> str:
    """The text of a row, as `safe_text` has it."""
    return "" if side is None else safe_text(side.texts[row])


def safe_text(text: str) -> str:
    """Short, and with nothing in it that a terminal would act on."""
    safe = "".join(
        character if character.isprintable() else ascii(character)[1:-1]
        for character in text[: 2 * _SHOWN]
    )
    return safe if len(safe) <= _SHOWN else safe[: _SHOWN - 1] + "…"
