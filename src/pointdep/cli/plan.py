"""``pointdep plan``."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointdep.cli import options
from pointdep.cli.show import print_json, print_rows
from pointdep.errors import InputError

if TYPE_CHECKING:
    from pointdep.planning.plan import Cost, Plan

Rows = Annotated[str, typer.Argument(metavar="ROWS", help="Pairs, as 1e6 or 1_000_000.")]
Dims = Annotated[
    str, typer.Argument(metavar="DIMS", help="Columns of both sides, as 512, or of each: 512,64.")
]
Gpu = Annotated[
    bool,
    typer.Option(
        "--gpu", help="On one GPU instead of a CPU; the constants are of one NVIDIA H200."
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(
        "--epochs",
        help="Epochs of the fit, which early stopping decides.",
        show_default="20, or 60 with 25 columns or fewer",
    ),
]
Queries = Annotated[
    int, typer.Option("--queries", help="Queries of retrieve; the candidates are ROWS.")
]
Cores = Annotated[
    int | None,
    typer.Option(
        "--cores",
        help="Of a CPU; the constants are of one and two.",
        show_default="those of this machine",
    ),
]


def plan(
    rows: Rows,
    dims: Dims,
    gpu: Gpu = False,
    epochs: Epochs = None,
    folds: options.Folds = 5,
    queries: Queries = 10_000,
    cores: Cores = None,
    json: options.Json = False,
) -> None:
    """What fit, score, audit and retrieve will take: time, memory, and the most of it.

    For instance:  pointdep plan 1e6 512 --epochs 10

    From measured constants (docs/plan.md), for columns of numbers, the default critic and files
    that are read as fast as they are worked on.
    """
    from pointdep.planning.plan import plan as planned

    found = planned(
        parse_rows(rows),
        parse_dims(dims),
        gpu=gpu,
        epochs=epochs,
        folds=folds,
        queries=queries,
        cores=cores,
    )
    if json:
        print_json("plan", as_json(found))
    else:
        print_plan(found)


def parse_rows(text: str) -> int:
    """ "1e6", "1_000_000" or "1,000,000" -> 1000000."""
    grouped = re.fullmatch(r"\d{1,3}(,\d{3})+", text)
    try:
        number = float(text.replace(",", "") if grouped else text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number == int(number) and number >= 1):
        raise InputError(f"ROWS {text!r} must be a whole number above 0, as 1e6 or 1_000_000")
    return int(number)


def parse_dims(text: str) -> tuple[int, int]:
    """ "512" -> (512, 512); "512,64" -> (512, 64)."""
    try:
        sides = [int(part) for part in text.split(",")]
    except ValueError:
        sides = []
    if len(sides) not in (1, 2) or min(sides) < 1:
        raise InputError(f"DIMS {text!r} must be columns above 0, as 512 or 512,64")
    return sides[0], sides[-1]


def as_json(found: Plan) -> dict[str, Any]:
    """The content of `--json`."""
    shape = found.shape
    return {
        "rows": shape.rows,
        "dims": [shape.x_dim, shape.y_dim],
        "epochs": shape.epochs,
        "folds": shape.folds,
        "queries": shape.queries,
        "device": found.device,
        "machine": found.machine,
        "cores": found.cores,
        "streamed": found.streamed,
        "costs": [_cost_as_json(one) for one in found.costs.values()],
        "advice": list(found.advice),
    }


def _cost_as_json(one: Cost) -> dict[str, Any]:
    return {
        "command": one.command,
        "seconds": one.seconds,
        "gib": one.gib,
        "gpu_gib": one.gpu_gib,
        "bottleneck": one.bottleneck,
        "share": one.share,
        "parts": [{"part": part, "seconds": value} for part, value in one.parts.items()],
        "within": one.within,
        "memory_within": one.memory_within,
    }


def print_plan(found: Plan) -> None:
    """For a person."""
    from pointdep.planning.advice import duration, size
    from pointdep.planning.memory import MEASURED_FOLDS

    shape = found.shape
    many = "s" if found.cores > 1 else ""
    place = "one GPU" if found.device == "gpu" else f"{found.cores} core{many} of a CPU"
    columns = f"{shape.x_dim} + {shape.y_dim} columns"
    print(f"{shape.rows:,} pairs of {columns}, {shape.folds} folds, {shape.epochs} epochs, {place}")
    print()
    head = ["", "time", "memory", *(["of the GPU"] if found.device == "gpu" else []), "most of it"]
    table = [head]
    for one in found.costs.values():
        gpu = [] if one.gpu_gib is None else [size(one.gpu_gib)]
        most = f"{one.bottleneck}, {one.share:.0%}"
        table.append([one.command, duration(one.seconds), size(one.gib), *gpu, most])
    widths = [max(len(row[k]) for row in table) for k in range(len(head))]
    for row in table:
        print(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    print()
    worst = _rounded_up(max(one.within for one in found.costs.values()))
    memory = ", ".join(
        f"{_rounded_up(one.memory_within):g} ({one.command})" for one in found.costs.values()
    )
    machine, guess = found.machine, ""
    if found.device == "cpu" and found.cores > 1:
        machine = machine.replace("one core", "one and two cores")
        guess = "; more cores are a guess" if found.cores > 2 else ""
    folds = "" if shape.folds == MEASURED_FOLDS else f"; memory with {MEASURED_FOLDS} folds"
    print_rows(
        {
            "audit": "with its fit",
            "retrieve": f"{min(shape.queries, shape.rows):,} queries among {shape.rows:,}{folds}",
            "how sure": f"held-out times were within a factor {worst:g}, memory within {memory}; "
            f"measured on {machine}{guess}. Another machine, slow disks and "
            "another number of epochs change it in proportion.",
            "so": " ".join(found.advice),
        }
    )


def _rounded_up(factor: float) -> float:
    return math.ceil(10 * factor) / 10
