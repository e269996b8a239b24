"""``pointdep plan``."""

import math
import re
from dataclasses import asdict
from typing import Annotated, Any

from typer import Argument

from pointdep.cli import options
from pointdep.cli.show import print_json, print_rows
from pointdep.errors import InputError


@options.explained
def plan(
    rows: Annotated[str, Argument(metavar="ROWS")],
    dims: Annotated[str, Argument(metavar="DIMS")],
    gpu: bool = False,
    epochs: int | None = None,
    folds: options.Folds = 5,
    queries: int = 10_000,
    cores: int | None = None,
    json: options.Json = False,
) -> None:
    """Expected time and memory of fit, score, audit and retrieve, and what takes longest.

    For instance:  pointdep plan 1e6 512 --epochs 10

    A dry run of up to half a minute measures this machine on a few synthetic rows. The plan is for
    columns of numbers, the default critic, and files that can be read as fast as they are used.

    Options
    -------
    rows: Pairs, as 1e6 or 1_000_000.
    dims: Columns of both sides, as 512, or of each: 512,64.
    gpu: Plan for the GPU of this machine; if it has none, for one H200.
    epochs: Epochs of the fit, which early stopping decides. [20, or 60 with 25 columns or fewer]
    queries: Queries of retrieve; the candidates are ROWS.
    cores: Cores of the CPU; more than this machine has are extrapolated. [those of this machine]
    """
    from pointdep.workflow.plan import plan as make_plan

    asked: dict[str, Any] = {"epochs": epochs, "folds": folds, "queries": queries, "cores": cores}
    found = make_plan(parse_rows(rows), parse_dims(dims), gpu=gpu, **asked)
    if not json:
        print_plan(found)
        return
    shape = asdict(found.shape)
    costs = [
        {
            **asdict(one),
            "bottleneck": one.bottleneck,
            "share": one.share,
            "parts": [{"part": part, "seconds": value} for part, value in one.parts.items()],
        }
        for one in found.costs.values()
    ]
    content: dict[str, Any] = {
        "dims": [shape["x_dim"], shape["y_dim"]],
        **{name: shape[name] for name in ("rows", "epochs", "folds", "queries")},
        **{name: getattr(found, name) for name in ("device", "machine", "cores", "streamed")},
        "costs": costs,
        "advice": list(found.advice),
    }
    print_json("plan", content)


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
    what = "columns above 0, as 512 or 512,64"
    sides = options.parse_numbers("DIMS", text, what)
    if len(sides) > 2 or min(sides) < 1:
        raise InputError(f"DIMS {text!r} must be {what}")
    return sides[0], sides[-1]


def print_plan(found: Any) -> None:
    """For a person."""
    from pointdep.workflow.plan import duration, size

    shape, costs = found.shape, found.costs.values()
    cores = f"{found.cores} core{'s' if found.cores > 1 else ''} of a CPU"
    place = "one GPU" if found.device == "gpu" else cores
    columns = f"{shape.x_dim} + {shape.y_dim} columns"
    print(f"{shape.rows:,} pairs of {columns}, {shape.folds} folds, {shape.epochs} epochs, {place}")
    title = "memory + GPU" if found.device == "gpu" else "memory"
    print(f"\n{'':10}{'time':10}{title:22}longest part")
    for one in costs:
        memory = " + ".join(size(gib) for gib in (one.gib, one.gpu_gib) if gib is not None)
        longest = f"{one.bottleneck}, {one.share:.0%}"
        print(f"{one.command:10}{duration(one.seconds):10}{memory:22}{longest}")
    print()
    sure = "; ".join(f"{one.command} {one.within:.1f} and {one.memory_within:.1f}" for one in costs)
    print_rows(
        {
            "audit": "includes its fit",
            "retrieve": f"{min(shape.queries, shape.rows):,} queries among {shape.rows:,}",
            "how sure": f"measured on {found.machine}; earlier plans were within these factors of "
            f"time and memory: {sure}. Slow disks and another number of epochs change it.",
            "advice": " ".join(found.advice),
        }
    )
