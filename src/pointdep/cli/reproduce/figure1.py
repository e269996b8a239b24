"""``pointdep reproduce figure1``."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pointdep.cli import options
from pointdep.cli.reproduce import shared
from pointdep.cli.show import print_json

if TYPE_CHECKING:
    from pointdep.experiments.figure1.claims import Claim
    from pointdep.experiments.figure1.curves import Curves
    from pointdep.experiments.figure1.settings import Figure1
    from pointdep.experiments.figure1.summary import Summary

Methods = Annotated[
    str | None,
    typer.Option("--methods", show_default="the ten of the paper", help="Names, comma separated."),
]
Tasks = Annotated[
    str | None,
    typer.Option("--tasks", show_default="gaussian,cubic", help="gaussian, cubic or both."),
]
Dim = Annotated[int | None, typer.Option("--dim", show_default="20", help="Columns of x and of y.")]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", show_default="128", help="Pairs drawn for each iteration."),
]
Iterations = Annotated[
    int | None,
    typer.Option(
        "--iterations", show_default="20000", help="In all, shared by the levels of the truth."
    ),
]
Hidden = Annotated[
    str | None,
    typer.Option("--hidden", show_default="512,512", help="Widths of the hidden layers."),
]
LearningRate = Annotated[
    float | None, typer.Option("--learning-rate", show_default="0.001", help="Of Adam.")
]
Seeds = Annotated[
    int | None,
    typer.Option("--seeds", show_default="1", help="How often every curve is drawn."),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        show_default="auto",
        help="Of matrix products: bf16, tf32, float32, float64, or auto: bf16 on a GPU.",
    ),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="Smaller, for a CPU: 5,000 iterations on batches of 32, layers 64,64, learning rate "
        "0.002; a minute or two. Options that are given win.",
    ),
]


def figure1(
    methods: Methods = None,
    tasks: Tasks = None,
    critic: shared.Critic = None,
    dim: Dim = None,
    batch_size: BatchSize = None,
    iterations: Iterations = None,
    hidden: Hidden = None,
    learning_rate: LearningRate = None,
    seeds: Seeds = None,
    seed: options.Seed = 0,
    precision: Precision = None,
    device: options.Device = "auto",
    quick: Quick = False,
    output: shared.Output = Path("figure1"),
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Figure 1: ten estimators while the truth climbs.

    Networks learn from fresh pairs while their mutual information is raised from 2 to 10 nats; the
    folder receives the figure, every curve, bias and spread, and the paper's claims judged by them.
    It is made for a GPU: without one, --quick.

    For instance:  pointdep reproduce figure1 --quick -o figure1/
    """
    from pointdep.experiments.figure1.report import write_report
    from pointdep.experiments.figure1.run import run_figure1
    from pointdep.experiments.figure1.settings import Figure1
    from pointdep.experiments.folders import prepare_folder, refuse_other_results
    from pointdep.fitting.progress import show
    from pointdep.fitting.rendezvous import pick_device

    given = {
        "methods": shared.names("--methods", methods),
        "tasks": shared.names("--tasks", tasks),
        "critic": critic,
        "dim": dim,
        "batch_size": batch_size,
        "iterations": iterations,
        "hidden": shared.widths(hidden),
        "learning_rate": learning_rate,
        "seeds": seeds,
        "seed": seed,
        "precision": precision,
        "device": device,
    }
    smaller = shared.chosen(Figure1().quick(), **given)
    settings = smaller if quick else shared.chosen(Figure1(), **given)
    on_cpu = pick_device(device).type == "cpu"
    prepare_folder(output)
    refuse_other_results(output, settings.command)
    if on_cpu and not quiet:
        say_how_long(settings, smaller)
    with show("Figure 1", enabled=not quiet, left="about") as progress:
        curves = run_figure1(settings, progress)
    lines, claims = write_report(curves, output)
    tell(curves, lines, claims, output, json=json)


def say_how_long(settings: Figure1, smaller: Figure1) -> None:
    """On standard error, before hours begin; and how long the version of --quick would take."""
    from pointdep.experiments.figure1.run import expected_seconds
    from pointdep.fitting.progress import duration

    print("measuring how fast this CPU is ...", file=sys.stderr, flush=True)
    seconds = expected_seconds(settings)
    less = seconds if settings == smaller else expected_seconds(smaller)
    hint = f"; with --quick about {duration(less)}" if less < seconds / 2 else ""
    print(
        f"on this CPU about {duration(seconds)} for {settings.iterations:,} iterations of "
        f"{len(settings.cells)} networks{hint}",
        file=sys.stderr,
        flush=True,
    )


def tell(
    curves: Curves, lines: list[Summary], claims: list[Claim], output: Path, *, json: bool
) -> None:
    """The outcome for a person or a program."""
    from pointdep.experiments.figure1.tables import text_claims, text_table

    if not json:
        print(text_table(lines))
        print(text_claims(claims, curves.settings))
        print(f"written: {output}")
        return
    told = "key", "source", "quote", "quantity", "verdict", "because"
    content = {
        **asdict(curves.settings),
        "device": curves.device,
        "precision": curves.precision,
        "setup_seconds": curves.setup_seconds,
        "train_seconds": curves.train_seconds,
        "summary": [asdict(line) for line in lines],
        "claims": [{name: getattr(claim, name) for name in told} for claim in claims],
        "output": str(output),
    }
    print_json("reproduce figure1", content)
