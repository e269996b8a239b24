"""``pointdep fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pointdep.cli import options
from pointdep.cli.show import estimate_as_json, print_estimate, print_json

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder to save the model in.")]
CheckpointFile = Annotated[
    Path | None,
    typer.Option("--checkpoint", help="File that keeps the training state; go on from it."),
]


def fit(
    files: options.Files,
    output: Output,
    x_columns: options.XColumns = None,
    y_columns: options.YColumns = None,
    groups: options.Groups = None,
    group_column: options.GroupColumn = None,
    method: options.MethodName = "pc",
    method_option: options.MethodOptions = None,
    critic: options.CriticName = "concat",
    hidden: options.Hidden = "256,256",
    discrete: options.Discrete = None,
    folds: options.Folds = 5,
    max_epochs: options.MaxEpochs = 200,
    confidence: options.Confidence = 0.95,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    checkpoint: CheckpointFile = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit a model on paired rows and save it, to score other pairs with.

    For instance:  pointdep fit x.parquet y.parquet -o model/
    """
    from pointdep.data.readers import read_pairs
    from pointdep.storage import check_target

    check_target(output)
    x, y = read_pairs(files, x_columns=x_columns, y_columns=y_columns)
    model = options.make_model(
        method=method,
        method_options=method_option,
        critic=critic,
        hidden=hidden,
        folds=folds,
        max_epochs=max_epochs,
        seed=seed,
        device=device,
        discrete=discrete,
        quiet=quiet,
        checkpoint=checkpoint,
    )
    model.fit(x, y, groups=options.read_groups(groups, group_column, files))
    model.save(output)
    found = model.mutual_information(confidence=confidence)
    if json:
        print_json("fit", {**estimate_as_json(model, found), "output": str(output)})
    else:
        print_estimate(model, found)
        print(f"model saved in {output}; score pairs with: pointdep score {output} X Y")
