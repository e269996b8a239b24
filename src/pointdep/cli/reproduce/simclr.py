"""``pointdep reproduce simclr``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pointdep.cli import options, pretrain
from pointdep.cli.reproduce import representations as common

Dataset = Annotated[
    str | None,
    typer.Option(
        "--dataset", show_default="cifar10", help="cifar10 or mnist; digits needs no files."
    ),
]
Seeds = Annotated[
    int | None, typer.Option("--seeds", show_default="5", help="Runs of each objective.")
]
Epochs = Annotated[
    int | None,
    typer.Option("--epochs", show_default="200", help="Passes over the images of a run."),
]
EvaluateEvery = Annotated[
    int | None,
    typer.Option("--evaluate-every", show_default="20", help="Epochs between two evaluations."),
]
PdRows = Annotated[
    int | None,
    typer.Option(
        "--pd-rows",
        min=0,
        show_default="10000",
        help="Test images on which the encoders of drfc and cpc are asked for PMI, retrieval and "
        "wrong labels; 0: not at all.",
    ),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="Smaller, for a CPU: 2,000 images, 3 epochs, one seed, width 16, 500 images as "
        "--pd-rows. Options that are given win.",
    ),
]


def simclr(
    dataset: Dataset = None,
    objectives: common.Objectives = None,
    seeds: Seeds = None,
    epochs: Epochs = None,
    minutes: common.Minutes = None,
    evaluate_every: EvaluateEvery = None,
    batch_size: pretrain.BatchSize = None,
    learning_rate: pretrain.Rate = None,
    width: pretrain.Width = None,
    depth: pretrain.Depth = None,
    precision: common.Precision = None,
    loss_option: common.LossOptions = None,
    pd_rows: PdRows = None,
    data: pretrain.Data = None,
    download: pretrain.Download = False,
    limit: pretrain.Limit = None,
    checkpoint_every: pretrain.CheckpointEvery = 2.0,
    compile_networks: pretrain.Compile = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    quick: Quick = False,
    merge: common.Merge = False,
    output: common.Output = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """SimCLR by CPC, PCC and D-RFC, beside the paper's values.

    A ResNet is trained by each objective, all else the same but the scale of its score, and a
    linear classifier on its features is evaluated along the way. Then the encoder is asked as a
    model of point-wise dependency: PMI of two views, retrieval of the second view, wrong labels. It
    is made for a GPU: without one, --quick.

    For instance:  pointdep reproduce simclr --seeds 1 --data cifar10/ -o simclr/
    """
    if pd_rows is None:
        pd_rows = 500 if quick else 10_000
    settings = common.experiment(
        "simclr",
        quick=quick,
        objectives=objectives,
        loss_option=loss_option,
        epochs=epochs,
        dataset=dataset,
        seeds=seeds,
        seed=seed,
        evaluate_every=evaluate_every,
        minutes=minutes,
        batch_size=batch_size,
        learning_rate=learning_rate,
        width=width,
        depth=depth,
        precision=precision,
        limit=limit,
    )
    common.run(
        settings,
        output or Path("simclr"),
        data=data,
        download=download,
        merge=merge,
        json=json,
        quiet=quiet,
        command="simclr",
        device=device,
        pd_rows=pd_rows,
        compile_networks=compile_networks,
        checkpoint_every=60.0 * checkpoint_every,
    )
