"""What ``pointdep reproduce figure2`` and ``simclr`` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointdep.cli import options, pretrain
from pointdep.cli.reproduce import shared
from pointdep.cli.show import print_json
from pointdep.errors import InputError

if TYPE_CHECKING:
    from pointdep.data.images import ImageSet
    from pointdep.experiments.representations.run import Found
    from pointdep.experiments.representations.settings import Experiment
    from pointdep.experiments.words.claims import Claim

Objectives = Annotated[
    str | None,
    typer.Option(
        "--objectives",
        show_default="cpc,pcc,drfc",
        help="Of these and variational, dm1, dm2, rpc; comma separated.",
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes", help="Training time after which a run ends, its learning rate down by then."
    ),
]
LossOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--loss-option",
        help="Option of an objective's loss as OBJECTIVE.NAME=VALUE: cpc.temperature=0.2, "
        "drfc.scale=10.",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision", help="32, bf16, 16 or auto; by default 32 for shallow, auto for the others."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Folder for runs, figure and numbers. The same command goes on from what is there, "
        "and finished runs of others are merged.",
    ),
]


Merge = Annotated[
    bool,
    typer.Option(
        "--merge",
        help="Train nothing and read no images: figure and verdicts of the finished runs in the "
        "folder, whoever ran them.",
    ),
]


def experiment(
    part: str,
    *,
    quick: bool,
    objectives: str | None,
    loss_option: list[str] | None,
    iterations: int | None = None,
    epochs: int | None = None,
    **given: Any,
) -> Experiment:
    """The settings with the options that were given."""
    from pointdep.experiments.representations.settings import Experiment

    base = Experiment(part).quick() if quick else Experiment(part)
    return shared.chosen(
        base.with_length(iterations, epochs),
        objectives=shared.names("--objectives", objectives),
        loss=_loss(loss_option),
        **given,
    )


def _loss(pairs: list[str] | None) -> dict[str, dict[str, Any]] | None:
    """["drfc.scale=10"] -> {"drfc": {"scale": 10}}."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in (options.parse_options(pairs, "--loss-option") or {}).items():
        objective, dot, option = name.partition(".")
        if not dot or not objective or not option:
            raise InputError(
                f"--loss-option {name!r} must say whose it is, as drfc.scale=10 or cpc.{name}=..."
            )
        found.setdefault(objective, {})[option] = value
    return found or None


def run(
    settings: Experiment,
    output: Path,
    *,
    data: Path | None,
    download: bool,
    merge: bool,
    json: bool,
    quiet: bool,
    command: str,
    pd_rows: int = 0,
    **how: Any,
) -> None:
    """Train what is left, and tell all that the folder holds; how: other options of the run."""
    from pointdep.experiments.representations import run as experiments
    from pointdep.experiments.representations.report import as_dict, write_report
    from pointdep.fitting.rendezvous import pick_device

    def load() -> ImageSet:
        assert settings.dataset is not None
        return pretrain.read_images(settings.dataset, data, download, settings.limit, quiet)

    if merge:
        found = experiments.merge_experiment(settings, output, pd_rows=pd_rows)
    else:
        pick_device(how["device"])  # refuses one that is not there
        how |= {"pd_rows": pd_rows, "progress": not quiet}
        # Written after each job, so that a command that is ended leaves what it has.
        found = experiments.run_experiment(
            settings, output, load, after_each=lambda some: write_report(some, output), **how
        )
    claims = write_report(found, output)
    if json:
        print_json(
            f"reproduce {command}",
            {"part": settings.part, **as_dict(found, claims), "output": str(output)},
        )
    else:
        _tell(found, claims, output)


def _tell(found: Found, claims: Sequence[Claim], output: Path) -> None:
    from pointdep.experiments.representations.text import text_report

    print(text_report(found, claims))
    print(f"written: {output}")
