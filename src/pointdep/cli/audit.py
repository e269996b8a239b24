"""``pointdep audit``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointdep.cli import options
from pointdep.cli.audit_show import as_json, print_audit
from pointdep.cli.settings import Settings, takes_settings
from pointdep.cli.show import print_json
from pointdep.errors import InputError

if TYPE_CHECKING:
    from pointdep.auditing.report.content import Shown
    from pointdep.auditing.result import Audit

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
    from pointdep.auditing.report.content import as_shown
    from pointdep.auditing.report.sources import read_shown

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
