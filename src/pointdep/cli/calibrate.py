"""``pointdep calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pointdep.cli import options
from pointdep.cli.show import (
    check_as_json,
    check_rows,
    estimate_as_json,
    print_estimate,
    print_json,
)

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder to save the model in.")]
Loss = Annotated[
    str,
    typer.Option(
        "--loss", help="How the model was trained: sigmoid, softmax or softmax_one_sided."
    ),
]
Queries = Annotated[
    str, typer.Option("--queries", help="With softmax_one_sided, the side that asks: x or y.")
]
Scale = Annotated[
    float, typer.Option("--scale", help="Of the inner product: the slope is told in its unit.")
]
Normalize = Annotated[
    bool, typer.Option("--normalize/--as-they-are", help="Bring embeddings to length one, or not.")
]

Folds = Annotated[
    int, typer.Option("--folds", help="Calibrations made; each scores the rows it did not see.")
]
OutOfFold = Annotated[
    Path | None,
    typer.Option(
        "--oof", help="File for the PMI of these pairs, each by a calibration that did not see it."
    ),
]
_EACH = "scored by a calibration that did not see it ({count} made, none trained)"


def calibrate(
    files: options.Files,
    *,
    output: Output,
    oof: OutOfFold = None,
    loss: Loss = "sigmoid",
    queries: Queries = "x",
    scale: Scale = 1.0,
    normalize: Normalize = True,
    x_columns: options.XColumns = None,
    y_columns: options.YColumns = None,
    groups: options.Groups = None,
    group_column: options.GroupColumn = None,
    folds: Folds = 5,
    confidence: options.Confidence = 0.95,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """PMI from the embeddings of a model you already have, such as CLIP.

    For instance:  pointdep calibrate images.npy captions.npy --loss softmax -o model/

    Row i of both files are embeddings of a pair that the model was not trained on. The folder is
    for pointdep score and pointdep retrieve, with embeddings in their files; --oof tells which of
    these pairs belong together least.
    """
    import numpy as np

    from pointdep.data.readers import read_pairs
    from pointdep.data.storage import check_target
    from pointdep.data.writers import check_writable, write_table

    check_target(output)
    if oof is not None:
        check_writable(oof)
    x, y = read_pairs(files, x_columns=x_columns, y_columns=y_columns)
    names = options.read_groups(groups, group_column, files)
    from pointdep.estimators.calibrated import from_embeddings

    model = from_embeddings(
        x,
        y,
        loss=loss,
        queries=queries,
        scale=scale,
        normalize=normalize,
        groups=names,
        folds=folds,
        random_state=seed,
        device=device,
        progress=not quiet,
    )
    model.save(output)
    if oof is not None:
        write_table(oof, {"row": np.arange(len(model.oof_pmi_)), "pmi": model.oof_pmi_})
    found, check = model.mutual_information(confidence=confidence), model.check()
    if json:
        told = {"slope": model.slope_, "slope_stderr": model.slope_stderr_, "shift": model.shift_}
        content = {**estimate_as_json(model, found), "loss": loss, **told, "output": str(output)}
        print_json("calibrate", {**content, "check": check_as_json(check, None)})
        return
    calibration = f"log r = {model.slope_:.4g} * logit {model.shift_:+.4g}"
    more = {"calibration": calibration, **check_rows(check, None)}
    print_estimate(model, found, each=_EACH, more=more)
    print(f"model saved in {output}; score other pairs with: pointdep score {output} ...")
