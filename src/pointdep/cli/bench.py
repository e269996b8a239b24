"""``pointdep bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pointdep.cli import options
from pointdep.cli.show import print_json
from pointdep.errors import InputError

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
        _print_tasks()
        return
    from pointdep.data.tasks import QUICK, TASKS
    from pointdep.experiments import bench as experiment
    from pointdep.fitting.progress import show

    sets = {"all": tuple(TASKS), "quick": QUICK}
    names = options.parse_names("--tasks", tasks)
    asked = experiment.Bench(
        tasks=tuple(task for name in names for task in sets.get(name, (name,))),
        estimators=options.parse_names("--estimators", estimators),
        rows=options.parse_numbers("--rows", rows),
        seeds=seeds,
        confidence=confidence,
        device=device,
    )
    if output is not None:
        experiment.open_folder(output)
    with show("benchmark", enabled=not quiet) as progress:
        results, resumed = experiment.run_bench(asked, output, progress)
    if output is not None:
        experiment.write_report(asked, results, output)
    if json:
        place = None if output is None else str(output)
        print_json(
            "bench", {**experiment.outcome_as_dict(asked, results, resumed), "output": place}
        )
        return
    print(experiment.text_outcome(asked, results, resumed))
    if output is not None:
        print(f"\nwritten: {output}")


def _print_tasks() -> None:
    from pointdep.data.tasks import QUICK, TASKS

    width = max(map(len, TASKS))
    print(f"{'task'.ljust(width)}  nats   quick  what it is")
    for name, kind in TASKS.items():
        quick = "yes" if name in QUICK else ""
        nats = kind.joint().mutual_information
        print(f"{name.ljust(width)}  {nats:.3f}  {quick:5}  {kind.description}")
