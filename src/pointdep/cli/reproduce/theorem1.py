"""``pointdep reproduce theorem1``."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pointdep.cli import options
from pointdep.cli.reproduce import shared
from pointdep.cli.show import print_json

if TYPE_CHECKING:
    from pointdep.experiments.theorem1.run import Outcome

_WIDTH = 100

Methods = Annotated[
    str | None,
    typer.Option(
        "--methods",
        show_default="pc,drf",
        help="Names, comma separated, of methods that infer the mean of PMI.",
    ),
]
Rows = Annotated[
    str | None,
    typer.Option(
        "--rows",
        show_default="300,1000,3000,10000,30000,100000",
        help="Numbers of rows, comma separated.",
    ),
]
Dim = Annotated[int | None, typer.Option("--dim", show_default="5", help="Columns of x and of y.")]
Mi = Annotated[
    float | None, typer.Option("--mi", show_default="1", help="True mutual information, in nats.")
]
Hidden = Annotated[
    str | None, typer.Option("--hidden", show_default="64,64", help="Widths of the hidden layers.")
]
Activation = Annotated[
    str | None,
    typer.Option("--activation", show_default="relu", help="relu, silu, gelu, tanh or elu."),
]
Folds = Annotated[
    int | None,
    typer.Option(
        "--folds", show_default="2", help="Networks of an estimate; each row is new to one."
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option("--seeds", show_default="10", help="Estimates of each kind, on new rows."),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="In under 2 minutes: up to 10,000 rows, 5 seeds, layers 32,32. Options that are given "
        "win.",
    ),
]


def theorem1(
    methods: Methods = None,
    rows: Rows = None,
    dim: Dim = None,
    mi: Mi = None,
    critic: shared.Critic = None,
    hidden: Hidden = None,
    activation: Activation = None,
    folds: Folds = None,
    seeds: Seeds = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    quick: Quick = False,
    output: shared.Output = Path("theorem1"),
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Theorem 1: the error against the number of rows.

    The theorem bounds the error of an estimate from n rows by a multiple of n^-1/2. Networks are
    fitted to n Gaussian pairs of known mutual information, n from 300 to 100,000, and the exponent
    with which the error falls is set beside -1/2. The largest n takes most of the time.

    For instance:  pointdep reproduce theorem1 --quick -o theorem1/
    """
    from pointdep.experiments.folders import prepare_folder, refuse_other_results
    from pointdep.experiments.theorem1.report import write_report
    from pointdep.experiments.theorem1.run import run_theorem1
    from pointdep.experiments.theorem1.settings import Theorem1
    from pointdep.fitting.progress import show
    from pointdep.fitting.rendezvous import pick_device

    settings = shared.chosen(
        Theorem1().quick() if quick else Theorem1(),
        methods=shared.names("--methods", methods),
        rows=None if rows is None else options.parse_numbers("--rows", rows),
        dim=dim,
        mi=mi,
        critic=critic,
        hidden=shared.widths(hidden),
        activation=activation,
        folds=folds,
        seeds=seeds,
        seed=seed,
        device=device,
    )
    pick_device(device)  # refuses one that is not there
    prepare_folder(output)
    refuse_other_results(output, settings.command)
    with show("Theorem 1", enabled=not quiet, left="about") as progress:
        outcome = run_theorem1(settings, progress)
    write_report(outcome, output)
    tell(outcome, output, json=json)


def tell(outcome: Outcome, output: Path, *, json: bool) -> None:
    """The outcome for a person or a program."""
    from pointdep.experiments.theorem1 import report
    from pointdep.experiments.theorem1.slopes import slopes, summarise

    lines, found = summarise(outcome), slopes(outcome)
    if not json:
        print(report.text_table(lines) + "\n")
        for paragraph in (report.LEGEND, *report.reading(lines, found), report.KNOWN):
            print(textwrap.fill(paragraph, _WIDTH, break_on_hyphens=False) + "\n")
        print(f"written: {output}")
        return
    content = {
        **asdict(outcome.settings),
        "device": outcome.device,
        "weights": outcome.weights,
        "seconds": sum(outcome.seconds),
        "slopes": [report.slope_as_dict(slope) for slope in found],
        "summary": [asdict(line) for line in lines],
        "output": str(output),
    }
    print_json("reproduce theorem1", content)
