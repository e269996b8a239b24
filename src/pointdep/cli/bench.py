"""``pointdep bench``."""

from pathlib import Path
from typing import Annotated

from typer import Option

from pointdep.cli import options
from pointdep.cli.show import print_json
from pointdep.errors import InputError


@options.explained
def bench(
    tasks: str = "quick",
    estimators: str = "pc",
    rows: str = "1000",
    seeds: int = 3,
    confidence: options.Confidence = 0.9,
    output: Path | None = None,
    device: options.Device = "auto",
    list_tasks: Annotated[bool, Option("--list")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare estimators on tasks of known answer.

    The mutual information and the PMI of each task are known exactly; --list names the tasks.

    For instance:  pointdep bench --estimators pc,drf,ksg --rows 1000,10000 -o results/

    Options
    -------
    tasks: Names, comma separated, or quick or all; see --list.
    estimators: METHOD or METHOD:CRITIC as in pointdep mi, or phsic: pc,pc:concat,ksg.
    rows: Numbers of rows to fit, comma separated.
    seeds: Runs of each kind, on draws of their own.
    output: Folder for results.csv, summary.csv, results.json and the figure; what is there already
        is not run again.
    list_tasks: Print the tasks and leave.
    """
    from pointdep.data.tasks import QUICK, TASKS

    if list_tasks:
        if json:
            raise InputError("--list is for people: leave --json out")
        width = max(map(len, TASKS))
        print(f"{'task'.ljust(width)}  nats   quick  what it is")
        for name, kind in TASKS.items():
            quick, nats = "yes" if name in QUICK else "", kind.joint().mutual_information
            print(f"{name.ljust(width)}  {nats:.3f}  {quick:5}  {kind.description}")
        return
    from pointdep.experiments import bench as experiment
    from pointdep.fitting.progress import show

    sets = {"all": tuple(TASKS), "quick": QUICK}
    names = options.parse_names("--tasks", tasks)
    chosen = tuple(task for name in names for task in sets.get(name, (name,)))
    compared = options.parse_names("--estimators", estimators)
    counts = options.parse_numbers("--rows", rows)
    asked = experiment.Bench(chosen, compared, counts, seeds, confidence, device)
    if output is not None:
        experiment.open_folder(output)
    with show("benchmark", enabled=not quiet) as progress:
        results, resumed = experiment.run_bench(asked, output, progress)
    if output is not None:
        experiment.write_report(asked, results, output)
    if json:
        content = experiment.outcome_as_dict(asked, results, resumed)
        print_json("bench", {**content, "output": output})
        return
    print(experiment.text_outcome(asked, results, resumed))
    if output is not None:
        print(f"\nwritten: {output}")
