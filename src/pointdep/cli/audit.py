"""``pointdep audit``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointdep.cli import options
from pointdep.cli.settings import Settings, takes_settings
from pointdep.cli.show import check_as_json, flags_as_json, found_as_json, print_json, print_rows
from pointdep.errors import InputError

if TYPE_CHECKING:
    from pointdep.auditing.report.content import Shown
    from pointdep.auditing.result import Audit


# What ``pointdep audit`` says, to a person and to a program.

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
    from pointdep.auditing.report.wording import finding, more_by_chance, percent, share_in_words

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
    from pointdep.auditing.report.wording import caveat

    more = caveat(found)
    return {"check": str(found.check)} | ({"": more} if more else {})


def print_worst(found: Audit, sides: list[Shown | None]) -> None:
    """The worst rows, each with the label or the row whose y would fit better.

    And, where there is any, with the row that it may be swapped with. Suspects have a star.
    """
    from pointdep.auditing.report.wording import probability

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


Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="The report page, .html; or the table, .csv or .parquet."),
]
Table = Annotated[
    Path | None,
    typer.Option(
        "--table",
        help="The table of all rows, .csv or .parquet, with what --show-x and --show-y name.",
    ),
]
Fdr = Annotated[
    float,
    typer.Option("--fdr", help="Share of the suspects that may be right pairs: 0.1 is a tenth."),
]
ShareOfChance = Annotated[
    float | None,
    typer.Option(
        "--contamination", help="Share of pairs that came together by chance; else estimated."
    ),
]
Title = Annotated[str | None, typer.Option("--title", help="Title of the page.")]
ShowX = Annotated[
    str | None,
    typer.Option(
        "--show-x",
        help="What x is shown as: a column (or key) of the files, or FILE or FILE:COLUMN (.txt has "
        "a row a line, .npy may hold pictures). Names of picture and sound files show these.",
    ),
]
ShowY = Annotated[str | None, typer.Option("--show-y", help="The same for y.")]
Media = Annotated[
    int, typer.Option("--media", min=0, help="Rows whose pictures and sounds are in the page.")
]

_TABLES = (".csv", ".parquet")


@partial(takes_settings, without=("confidence",))
def audit(
    files: options.Files,
    *,
    output: Output = None,
    table: Table = None,
    fdr: Fdr = 0.1,
    contamination: ShareOfChance = None,
    show_x: ShowX = None,
    show_y: ShowY = None,
    title: Title = None,
    media: Media = 200,
    method: options.MethodName = "pc",
    settings: Settings,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the pairs of a data set that are wrong, and write a report page.

    For instance:  pointdep audit images.npy captions.npy -o report.html --show-y captions.txt

    Every pair is scored by models that did not see it. Suspects are the pairs that look as if x and
    y came together by chance.
    """
    from pointdep.auditing.report.content import as_shown, read_shown

    if settings.folds < 2:
        raise InputError("--folds must be at least 2: every row needs a model that did not see it")
    page, tables = check_outputs(output, table)
    x, y, groups = settings.read(files)
    given = ("--show-x", show_x, x), ("--show-y", show_y, y)
    sides = [
        as_shown(read_shown(option, value, side, files, values), len(values), option)
        for side, (option, value, values) in enumerate(given)
    ]
    found = run_audit(x, y, groups, method, settings, fdr, contamination, quiet)
    named = {"shown_x": sides[0] if show_x else None, "shown_y": sides[1] if show_y else None}
    for path in tables:
        write_table(found, path, named)
    if page is not None:
        title = title or f"Audit of {' and '.join(file.name for file in files)}"
        found.to_html(page, sides[0], sides[1], title, media, progress=not quiet)
    written = [str(path) for path in (page, *tables) if path is not None]
    if json:
        print_json("audit", {**as_json(found), "written": written})
    else:
        print_audit(found, sides, written)


def run_audit(
    x: Any,
    y: Any,
    groups: Any,
    method: str,
    settings: Settings,
    fdr: float,
    contamination: float | None,
    quiet: bool,
) -> Audit:
    """The audit by the estimator that the settings describe."""
    from pointdep.auditing.audit import audit as audit_pairs

    model = settings.networks(method, quiet=quiet)
    return audit_pairs(x, y, groups, fdr=fdr, contamination=contamination, model=model)


def check_outputs(output: Path | None, table: Path | None) -> tuple[Path | None, list[Path]]:
    """The page and the tables to write; InputError where one could not be."""
    from pointdep.auditing.report.page import SUFFIXES, check_page
    from pointdep.data.writers import check_writable

    if output is not None:
        check_writable(output, (*SUFFIXES, *_TABLES))
    if table is not None:
        check_writable(table, _TABLES)
    page = output if output is not None and output.suffix.lower() in SUFFIXES else None
    if page is not None:
        check_page(page)
    tables = [path for path in (output, table) if path is not None and path is not page]
    return page, tables


def write_table(found: Audit, path: Path, named: dict[str, Shown | None]) -> None:
    """By the suffix, with a column more for the texts of each side that the user named."""
    texts = {
        name: list(side.texts)
        for name, side in named.items()
        if side is not None and side.pictures is None
    }
    found = replace(found, table=found.table.assign(**texts))
    if path.suffix.lower() == ".csv":
        found.to_csv(path)
    else:
        found.to_parquet(path)
