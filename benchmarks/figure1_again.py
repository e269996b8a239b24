"""Draw and judge a stored run of Figure 1 again, without training: after a change of the rules.

    python benchmarks/figure1_again.py figure1/ again/

The first folder is one that `pointdep reproduce figure1` wrote; docs/figure1 is made from the
second, without curves.csv and the SVG.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from pointdep.experiments.figure1 import Curves, Figure1
from pointdep.experiments.figure1_report import column_of, write_report


def write_again(stored: Path, folder: Path) -> Curves:
    """The report of a stored run into another folder, and its curves, to six digits."""
    content = json.loads((stored / "figure1.json").read_text("utf-8"))
    asked, run, times = content["settings"], content["run"], content["times"]
    settings = Figure1(**{**asked, "hidden": tuple(asked["hidden"])})
    table = pd.read_csv(stored / "curves.csv")
    names = [column_of(cell) for cell in settings.cells]
    if len(table) != settings.iterations or not {*names} <= {*table.columns}:
        raise ValueError(f"curves.csv and figure1.json in {stored} are not of one run")
    values = table[names].to_numpy()
    curves = Curves(
        settings,
        values.astype(np.float64 if run["precision"] == "float64" else np.float32),
        times["setup_seconds"],
        times["train_seconds"],
        run["device"],
        run["precision"],
    )
    write_report(curves, folder, run)
    return curves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stored", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    write_again(options.stored, options.output)


if __name__ == "__main__":
    main()
