"""Table 1 of the paper: what each of the ten methods learns by, and how it infers MI."""

from pathlib import Path

from pointdep.core.methods import LOWER_BOUNDS, METHODS, PAPER_METHODS
from pointdep.errors import InputError
from pointdep.experiments.reports import TEXTS, filled, markdown, rows_of

_AS_PRINTED = {"dm2": "E_J[s] (Eq. 7)"}

LEGEND, NOTES = TEXTS["table1 legend"], TEXTS["table1 notes"]


def table() -> list[dict[str, str]]:
    """The ten methods in the paper's order; group: "baselines" or "the paper's own"."""
    rows = []
    for key in PAPER_METHODS:
        method = METHODS[key]
        inference = _AS_PRINTED.get(key, method.inferring)
        inference += f", with {method.reading}" if method.reading else ""
        group = "baselines" if key in LOWER_BOUNDS else "the paper's own"
        row = {"key": key, "name": method.name, "group": group, "learning": method.learning}
        rows.append({**row, "inference": inference})
    return rows


def text_table() -> str:
    """Learning and inference of each method; at most 100 columns wide."""
    width = max(map(len, PAPER_METHODS))
    lines = [
        f"{row['key']:<{width}}  {row['name']}\n"
        f"{'':<{width}}    learning   {row['learning']}\n"
        f"{'':<{width}}    inference  {row['inference']}"
        for row in table()
    ]
    return "\n".join([*lines, "", *map(filled, (*LEGEND, *NOTES))])


def markdown_table() -> str:
    """The table as a page of Markdown."""
    parts = ["# Table 1: methods to estimate mutual information"]
    columns = {name: (name, "") for name in ("name", "learning", "inference")}
    columns = {"key": ("", ""), **columns, "name": ("method", "")}
    for group in ("baselines", "the paper's own"):
        own = [{**row, "key": f"`{row['key']}`"} for row in table() if row["group"] == group]
        parts += [f"## {group[0].upper()}{group[1:]}", markdown(rows_of(own, columns))]
    return "\n\n".join([*parts, " ".join(LEGEND), *NOTES]) + "\n"


def write_markdown(path: Path) -> None:
    """The page into a file."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: give a file")
    if path.suffix == ".json":
        raise InputError(f"{path} would hold Markdown: name it .md, or use --json > {path}")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
    path.write_text(markdown_table(), "utf-8")
