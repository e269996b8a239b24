"""``pointdep score``."""

from __future__ import annotations

import warnings
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointdep.cli import options
from pointdep.cli.show import print_json, print_rows
from pointdep.errors import DataWarning, InputError

if TYPE_CHECKING:
    from pointdep.estimator import PointwiseDependency

ModelFolder = Annotated[Path, typer.Argument(help="Folder written by pointdep fit.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help=".parquet, .csv (row, pmi, npmi, stderr, outside) or .npy (pmi); without it, CSV on "
        "standard output.",
    ),
]

_MANY_OUTSIDE = 0.01


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

    For instance:  pointdep score model/ x.npy y.npy -o pmi.parquet

    pmi is above 0 for pairs that come together more often than chance; npmi is the same scaled to
    [-1, 1]; stderr is the standard error of pmi; outside says that the pair is unlike any of the
    fit, so that its pmi is an extrapolation.

    For the rows that the model was fitted on use pointdep fit --oof, which scores each by models
    that did not see it.
    """
    from pointdep.data.readers import read_pairs
    from pointdep.data.writers import check_writable, write_table
    from pointdep.estimator import PointwiseDependency

    if output is not None:
        check_writable(output)
    fitted = PointwiseDependency.load(model, device=device)
    x, y = read_pairs(files, x_columns=x_columns, y_columns=y_columns)
    fitted.progress = not quiet
    columns = score_columns(fitted, x, y)
    if output is not None:
        write_table(output, columns)
    elif not json:
        print_table(columns)
        return
    pmi, far = columns["pmi"], int(columns["outside"].sum())
    mean, below = float(pmi.mean()), int((pmi < 0).sum())
    if json:
        content = {"rows": len(pmi), "mean_pmi": mean, "below_zero": below, "outside": far}
        print_json("score", {**content, "output": None if output is None else str(output)})
        return
    print_rows(
        {
            "pairs": str(len(pmi)),
            "mean PMI": f"{mean:.3f} nats",
            "below zero": f"{below} ({below / len(pmi):.2%}), together less often than chance",
            "outside": f"{far} ({far / len(pmi):.2%}), unlike any pair of the fit",
            "written": str(output),
        }
    )


def score_columns(fitted: PointwiseDependency, x: Any, y: Any) -> dict[str, Any]:
    """The table, (n,) each; stderr is NaN where the model is a single one and has none."""
    import numpy as np

    with warnings.catch_warnings():
        # Said below, in the words of the command.
        warnings.filterwarnings("ignore", "[0-9]+ of [0-9]+ pair.* outside", DataWarning)
        pmi = fitted.pmi(x, y)
    outside = fitted.outside(x, y)
    if outside.mean() > _MANY_OUTSIDE:
        warnings.warn(
            f"{int(outside.sum())} of {len(outside)} pairs lie outside the data of the fit: their "
            "pmi is an extrapolation, and the column outside says which they are",
            DataWarning,
            stacklevel=2,
        )
    try:
        stderr = fitted.pmi_stderr(x, y)
    except InputError:
        stderr = np.full_like(pmi, np.nan)
    return {
        "row": np.arange(len(pmi)),
        "pmi": pmi,
        "npmi": fitted.npmi(x, y, pmi=pmi),
        "stderr": stderr,
        "outside": outside,
    }


def print_table(columns: dict[str, Any]) -> None:
    """CSV on standard output; an empty field where there is no number."""
    print(",".join(columns))
    for row, pmi, npmi, stderr, outside in zip(*columns.values(), strict=True):
        error = "" if isnan(stderr) else f"{stderr:.6g}"
        print(f"{row},{pmi:.6g},{npmi:.6g},{error},{outside}")
