"""``pointdep bench``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointdep.cli import options
from pointdep.cli.show import print_json
from pointdep.errors import InputError

if TYPE_CHECKING:
    from pointdep.experiments.bench import Bench, Outcome
    from pointdep.experiments.records import Result
    from pointdep.experiments.summary import Summary

Tasks = Annotated[
    str, typer.Option("--tasks", help="Names, comma separated, or quick or all; see --list.")
]
Estimators = Annotated[
    str,
    typer.Option(
        "--estimators",
        help="METHOD or METHOD:CRITIC as in pointdep mi, or phsic: pc,pc:concat,ksg.",
    ),
]
Rows = Annotated[str, typer.Option("--rows", help="Numbers of rows to fit, comma separated.")]
Seeds = Annotated[int, typer.Option("--seeds", help="Runs of each kind, on draws of their own.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Folder for results.csv, summary.csv, results.json and the figure; what is there "
        "already is not run again.",
    ),
]
List = Annotated[bool, typer.Option("--list", help="Print the tasks and leave.")]

_COLUMNS = {
    "task": "task",
    "rows": "rows",
    "estimator": "estimator",
    "runs": "runs",
    "error": "error",
    "absolute_error": "|error|",
    "pmi_rmse": "RMSE",
    "pmi_pearson": "corr",
    "pmi_spearman": "rank",
    "coverage": "cover",
    "seconds": "seconds",
}
_FORMATS = {"error": "+.3f", "coverage": ".2f", "seconds": ".1f"}
_LEGEND = (
    "error, |error|: of the mutual information, mean over the seeds, in nats; RMSE, corr, rank:\n"
    "of PMI on fresh rows, its correlation and rank correlation with the exact one; cover: share\n"
    "of the {confidence:g}% intervals that hold the true value; runs: that no error ended."
)


def bench(
    tasks: Tasks = "quick",
    estimators: Estimators = "pc",
    rows: Rows = "1000",
    seeds: Seeds = 3,
    confidence: options.Confidence = 0.9,
    output: Output = None,
    device: options.Device = "auto",
    list_tasks: List = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare estimators on tasks of known answer.

    The mutual information and the PMI of each task are known exactly; --list names the tasks.

    For instance:  pointdep bench --estimators pc,drf,ksg --rows 1000,10000 -o results/
    """
    if list_tasks:
        if json:
            raise InputError("--list is for people: leave --json out")
        return _print_tasks()
    from pointdep.experiments.bench import Bench, open_folder, run_bench, write_report
    from pointdep.fitting.progress import show

    asked = Bench(
        tasks=parse_tasks(tasks),
        estimators=options.parse_names("--estimators", estimators),
        rows=options.parse_numbers("--rows", rows),
        seeds=seeds,
        confidence=confidence,
        device=device,
    )
    if output is not None:
        open_folder(output)
    with show("benchmark", enabled=not quiet) as progress:
        outcome = run_bench(asked, output, progress)
    if output is not None:
        write_report(asked, outcome.results, output)
    if json:
        print_json("bench", as_json(asked, outcome, output))
    else:
        print_outcome(asked, outcome)
        if output is not None:
            print(f"\nwritten: {output}")
    return None


def parse_tasks(text: str) -> tuple[str, ...]:
    """Names, among which "all" and "quick" stand for many."""
    from pointdep.data.tasks import QUICK, TASKS

    sets = {"all": tuple(TASKS), "quick": QUICK}
    names = options.parse_names("--tasks", text)
    return tuple(task for name in names for task in sets.get(name, (name,)))


def as_json(asked: Bench, outcome: Outcome, output: Path | None) -> dict[str, Any]:
    """The outcome for a program."""
    from pointdep.experiments.summary import summarise

    about = asdict(asked)
    failed = [result for result in outcome.results if result.failed]
    return {
        **{name: about[name] for name in ("tasks", "estimators", "rows", "seeds", "confidence")},
        "runs": len(outcome.results),
        "resumed": outcome.resumed,
        "failed": len(failed),
        "summary": [asdict(line) for line in summarise(outcome.results)],
        "notes": [
            {name: getattr(result, name) for name in ("task", "rows", "estimator", "seed")}
            | {"failed": result.failed, "reason": result.reason}
            for result in outcome.results
            if result.reason
        ],
        "output": None if output is None else str(output),
    }


def print_outcome(asked: Bench, outcome: Outcome) -> None:
    """The outcome for a person."""
    from pointdep.experiments.summary import over_tasks, summarise

    lines = sorted(
        summarise(outcome.results), key=lambda line: (asked.tasks.index(line.task), line.rows)
    )
    if len(asked.tasks) > 1:
        lines += over_tasks(outcome.results)
    _print_table(lines)
    print("\n" + _LEGEND.format(confidence=100 * asked.confidence))
    if outcome.resumed:
        print(f"{outcome.resumed} of {len(outcome.results)} runs were there already.")
    _print_notes(outcome.results)


def _print_table(lines: Sequence[Summary]) -> None:
    cells = [list(_COLUMNS.values())]
    cells += [[_cell(name, line) for name in _COLUMNS] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = [
            text.ljust(width) if name in ("task", "estimator") else text.rjust(width)
            for name, text, width in zip(_COLUMNS, row, widths, strict=True)
        ]
        print("  ".join(padded).rstrip())


def _cell(name: str, line: Summary) -> str:
    value = getattr(line, name)
    if name == "runs" and line.failed:
        return f"{line.runs - line.failed}/{line.runs}"
    if value is None:
        return "-"
    return format(value, _FORMATS.get(name, ".3f")) if isinstance(value, float) else str(value)


def _print_notes(results: Sequence[Result]) -> None:
    """Why there are gaps, once for each reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for result in results:
        if result.reason:
            reasons.setdefault((result.estimator, result.reason), []).append(result.task)
    for (estimator, reason), tasks in reasons.items():
        print(f"{estimator} on {', '.join(dict.fromkeys(tasks))}: {reason}")


def _print_tasks() -> None:
    from pointdep.data.tasks import QUICK, TASKS

    width = max(map(len, TASKS))
    print(f"{'task'.ljust(width)}  nats   quick  what it is")
    for name, kind in TASKS.items():
        quick = "yes" if name in QUICK else ""
        nats = kind.joint().mutual_information
        print(f"{name.ljust(width)}  {nats:.3f}  {quick:5}  {kind.description}")
