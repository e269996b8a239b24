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

OutOfFold = Annotated[
    Path | None,
    typer.Option(
        "--oof", help="File for the PMI of the training rows, each by models that did not see it."
    ),
]


def fit(
    files: options.Files,
    output: Output,
    oof: OutOfFold = None,
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
    negatives: options.Negatives = "auto",
    reference_size: options.ReferenceSize = 1024,
    confidence: options.Confidence = 0.95,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    checkpoint: CheckpointFile = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit a model on paired rows and save it.

    For instance:  pointdep fit x.parquet y.parquet -o model/ --oof pmi.csv

    --oof tells which of these pairs belong together least. To score other pairs with the model:
    pointdep score.
    """
    import numpy as np

    from pointdep.data.readers import read_pairs
    from pointdep.data.writers import check_writable, write_table
    from pointdep.storage import check_target

    check_target(output)
    if oof is not None:
        check_writable(oof)
    x, y = read_pairs(files, x_columns=x_columns, y_columns=y_columns)
    model = options.make_model(
        method=method,
        method_options=method_option,
        critic=critic,
        hidden=hidden,
        folds=folds,
        max_epochs=max_epochs,
        negatives=negatives,
        reference_size=reference_size,
        seed=seed,
        device=device,
        discrete=discrete,
        quiet=quiet,
        checkpoint=checkpoint,
    )
    model.fit(x, y, groups=options.read_groups(groups, group_column, files))
    model.save(output)
    if oof is not None:
        write_table(oof, {"row": np.arange(len(model.oof_pmi_)), "pmi": model.oof_pmi_})
    found = model.mutual_information(confidence=confidence)
    if json:
        print_json("fit", {**estimate_as_json(model, found), "output": str(output)})
    else:
        print_estimate(model, found)
        print(f"model saved in {output}; score other pairs with: pointdep score {output} ...")
