"""``pointdep score``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pointdep.cli import options
from pointdep.cli.show import print_json, print_rows

ModelFolder = Annotated[Path, typer.Argument(help="Folder written by pointdep fit.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help=".parquet, .csv (row, pmi, npmi) or .npy (pmi); without it, CSV on standard output.",
    ),
]


def score(
    model: ModelFolder,
    files: options.Files,
    output: Output = None,
    x_columns: options.XColumns = None,
    y_columns: options.YColumns = None,
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """PMI of new pairs by a saved model.

    Above 0: together more often than chance. For instance:  pointdep score model/ x.npy y.npy -o
    pmi.parquet. For the rows that the model was fitted on, use pointdep fit --oof instead: it
    scores them by models that did not see them.
    """
    import numpy as np

    from pointdep.data.readers import read_pairs
    from pointdep.data.writers import check_writable, write_table
    from pointdep.estimator import PointwiseDependency

    if output is not None:
        check_writable(output)
    fitted = PointwiseDependency.load(model, device=device)
    x, y = read_pairs(files, x_columns=x_columns, y_columns=y_columns)
    fitted.progress = not quiet
    pmi = fitted.pmi(x, y)
    npmi = fitted.npmi(x, y, pmi=pmi)
    columns: dict[str, Any] = {"row": np.arange(len(pmi)), "pmi": pmi, "npmi": npmi}
    if output is not None:
        write_table(output, columns)
    elif not json:
        print("row,pmi,npmi", file=sys.stdout)
        for row in range(len(pmi)):
            print(f"{row},{pmi[row]:.6g},{npmi[row]:.6g}", file=sys.stdout)
        return
    mean, below = float(pmi.mean()), int((pmi < 0).sum())
    if json:
        content = {"rows": len(pmi), "mean_pmi": mean, "below_zero": below}
        print_json("score", {**content, "output": None if output is None else str(output)})
        return
    print_rows(
        {
            "pairs": str(len(pmi)),
            "mean PMI": f"{mean:.3f} nats",
            "below zero": f"{below} ({below / len(pmi):.2%}), together less often than chance",
            "written": str(output),
        }
    )
