"""``pointdep reproduce table1``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pointdep.cli import options
from pointdep.cli.show import print_json

Page = Annotated[
    Path | None, typer.Option("--output", "-o", help="File for the table, in Markdown.")
]


def table1(output: Page = None, json: options.Json = False) -> None:
    """Table 1: what each method learns by, and how it infers.

    For instance:  pointdep reproduce table1 -o table1.md
    """
    from pointdep.experiments.table1 import NOTES, table, text_table, write_markdown

    if output is not None:
        write_markdown(output)
    if json:
        content = {
            "rows": [asdict(row) for row in table()],
            "notes": list(NOTES),
            "output": None if output is None else str(output),
        }
        print_json("reproduce table1", content)
        return
    print(text_table())
    if output is not None:
        print(f"\nwritten: {output}")
