"""``pointdep rank``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from pointdep.cli import options
from pointdep.cli.mi import FIGURES, draw
from pointdep.cli.show import print_json
from pointdep.errors import InputError


@options.explained
def rank(
    file: Annotated[Path, Argument(metavar="TABLE", show_default=False)],
    *,
    target: str,
    columns: str | None = None,
    networks: bool = False,
    groups: Path | None = None,
    group_column: str | None = None,
    plot: Path | None = None,
    pairs: Path | None = None,
    output: Annotated[Path | None, Option("--output", "-o")] = None,
    confidence: options.Confidence = 0.95,
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Which columns of a table say most about one of them?

    For instance:  pointdep rank houses.csv --target price --plot bars.png

    A line per column: its mutual information with the target in nats, an interval, the share of the
    entropy of a target that is categories, and the p-value of independence, for all columns
    together. Columns are read as they are: numbers, categories, dates, with missing values. Ids,
    texts and constants are left out.

    Options
    -------
    file: A table: .csv .parquet .arrow .feather, or a folder of shards.
    target: The column that the others are to tell about.
    columns: The columns to rank, comma separated; a+b ranks a and b together, by networks. [all]
    networks: Fit networks to every column, instead of a quick estimate.
    groups: File of one group per row, where rows are not independent draws.
    group_column: Column of the groups, there or in the table.
    plot: Draw the ranking as bars: FILE.png, .svg or .pdf.
    pairs: Draw the mutual information of every two columns as a heat map: FILE.png, .svg or .pdf.
    output: The ranking as a table: .csv or .parquet.
    """
    from pointdep.data.readers import read_table_file
    from pointdep.data.writers import check_writable, write_table

    for place, suffixes in ((plot, FIGURES), (pairs, FIGURES), (output, (".csv", ".parquet"))):
        if place is not None:
            check_writable(place, suffixes)
    table = read_table_file(file)
    own = options.read_groups(groups, group_column, [file])
    if groups is None and group_column is not None and group_column != target:
        table = table.drop(columns=group_column)
    from pointdep.estimators.pointwise import PointwiseDependency
    from pointdep.workflow.ranking import rank_columns

    how: dict[str, Any] = {"groups": own, "confidence": confidence, "random_state": seed}
    how["columns"] = None if columns is None else _groups(columns)
    how["estimator"] = PointwiseDependency(random_state=seed) if networks else None
    try:
        found = rank_columns(table, target, pairs=pairs is not None, progress=not quiet, **how)
    except InputError as error:
        table_of = ((r"\bunknown target\b", "unknown --target"), (r"\bcolumns\b:", "--columns"))
        raise InputError(options.as_written(str(error), table_of)) from None
    shown = found.table.drop(columns="position")
    written = {"plot": plot, "pairs_plot": pairs, "output": output}
    if output is not None:
        write_table(output, {str(name): shown[name].to_numpy() for name in shown})
    if plot is not None:
        draw(found.plot, plot, (7.0, 1.2 + 0.3 * len(shown)))
    if pairs is not None:
        size = 2.5 + 0.4 * len(shown)
        draw(found.plot_pairs, pairs, (size + 1, size))
    if json:
        print_json("rank", {**found.to_dict(), **written})
        return
    told = ", ".join(str(place) for place in written.values() if place is not None)
    print(found, *([f"written: {told}"] if told else []), sep="\n")


def _groups(text: str) -> list[list[str]]:
    """ "a,b+c" -> [["a"], ["b", "c"]]."""
    names = options.parse_names("--columns", text)
    return [[part.strip() for part in name.split("+")] for name in names]
