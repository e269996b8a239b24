"""``pointdep audit``."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from typer import Option

from pointdep.cli import options
from pointdep.cli.options import Settings, takes_settings
from pointdep.cli.show import (
    check_as_json,
    encoder_rows,
    encoders_as_json,
    flags_as_json,
    found_as_json,
    print_json,
    print_rows,
)
from pointdep.errors import InputError, printable

if TYPE_CHECKING:
    from pointdep.auditing.report.content import Shown
    from pointdep.auditing.result import Audit


# What ``pointdep audit`` says, to a person and to a program.

_WORST = 10
_CONFUSED = 5
_SHOWN = 30  # characters of a text on the terminal
_TABLES = (".csv", ".parquet")


def as_json(found: Audit) -> dict[str, Any]:
    """The result for a program."""
    table, known = found.table, not math.isnan(found.mutual_information.nats)
    return {
        "kept": len(found.kept),
        "out_of_step": [{**asdict(one), "text": str(one)} for one in found.out_of_step],
        "fdr": found.fdr,
        "suspects": int(table["suspect"].sum()),
        "below_zero": int(table["below_zero"].sum()),
        "worst": worst_rows(found),
        **(_of_fit(found) if known else {}),
    }


def _of_fit(found: Audit) -> dict[str, Any]:
    """What a .csv table does not hold."""
    return {
        **found_as_json(found.mutual_information),
        **encoders_as_json(found.encoders, found.left_out),
        "folds": found.folds,
        "answered": found.answered,
        "flags": flags_as_json(found.flags),
        "check": {k: v for k, v in check_as_json(found.check, None).items() if k != "plot"},
        "contamination": asdict(found.contamination),
        "confusion": confusion_as_json(found),
    }


def confusion_as_json(found: Audit) -> dict[str, Any] | None:
    """Labels, and shares of the rows: a list per given label, over the likely right ones."""
    table = found.confusion
    return None if table is None else {"labels": list(table), "shares": table.values.tolist()}


def most_confused(found: Audit) -> list[str]:
    """The given labels that most often stand for another one, in words; none for pairs."""
    table = found.confusion
    if table is None:
        return []
    rows, names = len(found.table), [safe_text(str(name)) for name in table]
    counts = table.to_numpy() * rows
    counts[range(len(names)), range(len(names))] = 0.0
    most = counts.ravel().argsort()[::-1][:_CONFUSED]
    pairs = [divmod(int(place), len(names)) for place in most]
    return [
        f"{names[given]} for {names[right]} {counts[given, right]:,.0f}"
        for given, right in pairs
        if counts[given, right] >= 1
    ]


def worst_rows(found: Audit) -> list[dict[str, Any]]:
    """The first rows by rank: numbers, and None where a cell is empty."""
    import pandas as pd

    kinds = {"row": int, "rank": int, "pmi": float, "stderr": float, "posterior": float}
    kinds |= {"q_value": float, "suspect": bool, "better_partner": int}
    kinds |= {"better_partner_pmi": float, "swapped_with": int, "duplicate_of": int}
    kinds |= {"better_label": str, "why": str}
    return [
        {
            name: None if pd.isna(line.get(name)) else kind(line[name])
            for name, kind in kinds.items()
        }
        for _, line in found.table.sort_values("rank").head(_WORST).iterrows()
    ]


def print_audit(found: Audit, sides: list[Shown | None], written: list[str]) -> None:
    """The result for a person."""
    from pointdep.auditing.report.wording import finding, more_by_chance, percent, share_in_words

    rows = {"suspects": finding(found)}
    if found.out_of_step:
        rows["out of step"] = f"{'; '.join(map(str, found.out_of_step))} (no suspects)"
    below = int(found.table["below_zero"].sum())
    if not math.isnan(found.mutual_information.nats):
        share, at_least = found.contamination, found.mutual_information.at_least()
        rows[found.mutual_information.estimates] = found.mutual_information.headline
        rows |= {"at least": at_least} if at_least else {}
        told = f"{percent(share.share)}: {share_in_words(share)}{more_by_chance(found)}"
        rows |= {"chance pairs": told, **check_rows(found)}
    rows["below zero"] = f"{below} ({percent(below / len(found.table))})"
    if found.answered:
        rows["method"] = f"{found.method}: {found.answered}"
    rows |= encoder_rows(found.encoders, found.left_out)
    print_rows(rows)
    print_worst(found, sides)
    if written:
        print(f"\nwritten: {printable(', '.join(written))}")
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
    columns = [["better", *map(_better, worst)]]
    if any(line["swapped_with"] is not None for line in worst):
        columns.append(["swapped?", *(_row(line["swapped_with"]) for line in worst)])
    widths = [max(map(len, cells)) for cells in columns]
    head, *others = (
        "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        for cells in zip(*columns, strict=True)
    )
    print(f"\n{'row':>8} {'PMI':>8} {'chance':>7} {'q':>7}  {head}  x | y")
    for line, other in zip(worst, others, strict=True):
        texts = ("" if side is None else safe_text(side.texts[line["row"]]) for side in sides)
        chance, q = (probability(line[name]) for name in ("posterior", "q_value"))
        pmi = "nan" if line["pmi"] is None else f"{line['pmi']:.2f}"
        star = "*" if line["suspect"] else " "
        print(f"{line['row']:>8} {pmi:>8} {chance:>7} {q:>7}{star} {other}  {' | '.join(texts)}")
    if any(line["suspect"] for line in worst):
        print("* a suspect")


def _row(number: int | None) -> str:
    return "-" if number is None else f"row {number}"


def _better(line: dict[str, Any]) -> str:
    label = line["better_label"]
    return _row(line["better_partner"]) if label is None else safe_text(label)


def safe_text(text: str) -> str:
    """Short, and with nothing in it that a terminal would act on."""
    safe = printable(text[: 2 * _SHOWN])
    return safe if len(safe) <= _SHOWN else safe[: _SHOWN - 1] + "…"


_OPTIONAL = copy(get_args(options.Files)[1])
_OPTIONAL.help += " With --from, those that were audited, for --kept."
_OF_FILES = ("x_columns", "y_columns")


@partial(takes_settings, without=("confidence", "curve"))
@options.explained
def audit(
    files: Annotated[list[Path] | None, _OPTIONAL] = None,
    *,
    output: Path | None = None,
    table: Path | None = None,
    kept: Path | None = None,
    from_: Annotated[Path | None, Option("--from")] = None,
    fdr: float | None = None,
    contamination: float | None = None,
    decisions: Path | None = None,
    show_x: str | None = None,
    show_y: str | None = None,
    title: str | None = None,
    media: Annotated[int | None, Option(min=0)] = None,
    method: options.MethodName = "pc",
    settings: Settings,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the pairs of a data set that are wrong, and write a report page.

    For instance:  pointdep audit images.npy captions.npy -o report.html --show-y captions.txt

    Every pair is scored by models that did not see it. Suspects are the pairs that look as if x and
    y came together by chance.

    Options
    -------
    output: The report page, .html; or the table, .csv or .parquet.
    table: The table of all rows, .csv or .parquet, with what --show-x and --show-y name.
    kept: The cleaned list, .csv or .parquet: rows that are no suspects and could be read, with all
        columns of the files if these are tables, else their numbers.
    from_: Page or table of an earlier audit: decide it at another --fdr, without a fit.
    fdr: Share of the suspects that may be right pairs: 0.1 is a tenth. [0.1, or as --from has it]
    contamination: Share of pairs that came together by chance; else estimated.
    decisions: What was decided on the report page, as it downloads it (row, decision): these rows
        are taken as right or wrong, and the wrong ones are left out of the fit.
    show_x: What x is shown as: a column (or key) of the files, or FILE or FILE:COLUMN (.txt has a
        row a line, .npy may hold pictures). Names of picture and sound files show these.
    show_y: The same for y.
    title: Title of the page.
    media: Rows whose pictures and sounds are in the page. [as many as 30 MB hold]
    """
    from pointdep.auditing.report.page import SUFFIXES
    from pointdep.data.writers import check_writable

    for path, suffixes in ((output, (*SUFFIXES, *_TABLES)), (table, _TABLES), (kept, _TABLES)):
        if path is not None:
            check_writable(path, suffixes)
    files = files or []
    sides: list[Shown | None]
    if from_ is not None:
        _require_no_fit(
            settings,
            {
                "--contamination": contamination,
                "--decisions": decisions,
                "--method": method != "pc",
            },
        )
        found, sides = _again(from_, fdr, files, settings, (show_x, show_y))
    else:
        if not files:
            raise InputError("give the files to audit, or --from with an audit's page or table")
        if settings.folds < 2:
            raise InputError("--folds must be at least 2: a row needs a model that did not see it")
        x, y, groups = settings.read(files)
        sides = _shown(files, (x, y), (show_x, show_y))
        from pointdep.auditing.audit import audit as audit_pairs
        from pointdep.data.files import read_table

        model = settings.networks(method, quiet=quiet)
        reviewed = None if decisions is None else read_table(decisions, ["row", "decision"])
        how: dict[str, Any] = {"contamination": contamination, "model": model}
        how["decisions"] = reviewed
        found = audit_pairs(x, y, groups, fdr=0.1 if fdr is None else fdr, **how)
        title = title or f"Audit of {' and '.join(file.name for file in files)}"
    places = [path for path in (output, table) if path is not None]
    # The table has a column more for the texts of each side that the user named.
    named = zip(("shown_x", "shown_y"), sides, (show_x, show_y), strict=True)
    texts = {k: list(one.texts) for k, one, v in named if one and v and one.pictures is None}
    for path in places:
        if path.suffix.lower() in SUFFIXES:
            again = from_ is not None and not show_x and not show_y
            x_shown, y_shown = (None, None) if again else sides
            found.to_html(path, x_shown, y_shown, title, media, progress=not quiet)
        else:
            more = replace(found, table=found.table.assign(**texts))
            (more.to_csv if path.suffix.lower() == ".csv" else more.to_parquet)(path)
    if kept is not None:
        _write_kept(found, files, kept)
        places.append(kept)
    if json:
        print_json("audit", {**as_json(found), "written": places})
    else:
        print_audit(found, sides, list(map(str, places)))


_Sides = tuple[Any, Any]


def _shown(files: list[Path], values: _Sides, named: _Sides) -> list[Shown | None]:
    """What --show-x and --show-y name, or the values themselves."""
    from pointdep.auditing.report.content import as_shown, read_shown

    given = zip(("--show-x", "--show-y"), named, values, strict=True)
    return [
        as_shown(read_shown(option, name, side, files, own), len(own), option)
        for side, (option, name, own) in enumerate(given)
    ]


def _require_no_fit(settings: Settings, more: dict[str, Any]) -> None:
    """Refuse options that mean nothing where nothing is fitted."""
    changed = {
        f"--{one.name.replace('_', '-')}": getattr(settings, one.name) != one.default
        for one in fields(settings)
        if one.name not in _OF_FILES
    }
    if refused := [name for name, given in {**changed, **more}.items() if given]:
        raise InputError(f"--from fits nothing: leave out {', '.join(refused)}")


def _again(
    path: Path, fdr: float | None, files: list[Path], settings: Settings, named: _Sides
) -> tuple[Audit, list[Shown | None]]:
    """An earlier audit at another rate, and what its rows are shown as."""
    from pointdep.auditing.report.content import Shown
    from pointdep.auditing.saved import read_audit

    found = read_audit(path)
    found = found if fdr is None else found.at(fdr)
    if named != (None, None):
        if not files:
            raise InputError("--show-x and --show-y: give the files that were audited as well")
        return found, _shown(files, settings.read(files)[:2], named)
    if found.page is None:
        return found, list(found.sides or (None, None))
    texts = (found.page["x"], found.page["y"])
    return found, [None if side is None else Shown(side) for side in texts]


def _write_kept(found: Audit, files: list[Path], path: Path) -> None:
    from pointdep.auditing.saved import kept_table
    from pointdep.data.writers import write_table

    kept = kept_table(found, files, as_text=path.suffix.lower() == ".csv")
    columns: dict[str, Any] = {str(name): kept[name] for name in kept}
    write_table(path, columns)
