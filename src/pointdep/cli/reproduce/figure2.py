"""``pointdep reproduce figure2``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pointdep.cli import options, pretrain
from pointdep.cli.reproduce import representations as common
from pointdep.errors import unknown_name

PartName = Annotated[
    str,
    typer.Option(
        "--part", help="shallow (RealNVP on halves of the image) or deep (AMDIM, CIFAR-10)."
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        help="mnist or cifar10; by default mnist for shallow and cifar10 for deep. digits needs no "
        "files.",
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option("--seeds", help="Runs of each objective; by default 10 shallow and 1 deep."),
]
Iterations = Annotated[
    int | None,
    typer.Option("--iterations", show_default="21000", help="Steps of a run of the shallow part."),
]
Epochs = Annotated[
    int | None,
    typer.Option("--epochs", show_default="300", help="Passes over the images in the deep part."),
]
EvaluateEvery = Annotated[
    int | None,
    typer.Option(
        "--evaluate-every",
        help="Between two evaluations; by default 1000 iterations (shallow) or 10 epochs (deep).",
    ),
]
Together = Annotated[
    int | None,
    typer.Option(
        "--together", help="Replicas of the shallow part that train at once; by default all."
    ),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="Smaller, for a CPU: few images, short runs, small networks, 3 seeds (shallow). "
        "Options that are given win.",
    ),
]


def figure2(
    part: PartName = "shallow",
    dataset: Dataset = None,
    objectives: common.Objectives = None,
    seeds: Seeds = None,
    iterations: Iterations = None,
    epochs: Epochs = None,
    minutes: common.Minutes = None,
    evaluate_every: EvaluateEvery = None,
    batch_size: pretrain.BatchSize = None,
    learning_rate: pretrain.Rate = None,
    width: pretrain.Width = None,
    depth: pretrain.Depth = None,
    precision: common.Precision = None,
    loss_option: common.LossOptions = None,
    together: Together = None,
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
    """Figure 2: the same encoder by CPC, PCC and D-RFC.

    Encoders are trained without labels by each objective, and a linear classifier on their features
    is evaluated along the way, beside one on raw pixels. The folder receives the runs, the figure,
    every curve, and the paper's sentences judged by them. It is made for a GPU: without one,
    --quick.

    For instance:  pointdep reproduce figure2 --part shallow --quick --data mnist/ -o figure2/
    """
    if part not in ("shallow", "deep"):
        raise unknown_name("part", part, ("shallow", "deep"))
    settings = common.experiment(
        part,
        quick=quick,
        objectives=objectives,
        loss_option=loss_option,
        iterations=iterations,
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
        together=together,
        limit=limit,
    )
    common.run(
        settings,
        output or Path(f"figure2-{part}-{settings.dataset}"),
        data=data,
        download=download,
        merge=merge,
        json=json,
        quiet=quiet,
        command="figure2",
        device=device,
        compile_networks=compile_networks,
        checkpoint_every=60.0 * checkpoint_every,
    )
