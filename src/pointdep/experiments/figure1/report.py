"""The folder a run of Figure 1 leaves: figure, curves, tables, claims and how it was made."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pointdep.data.writers import write_table
from pointdep.experiments.environment import environment
from pointdep.experiments.figure1.claims import Claim, judge_claims
from pointdep.experiments.figure1.curves import Curves
from pointdep.experiments.figure1.draw import write_figure
from pointdep.experiments.figure1.evidence import NOISE
from pointdep.experiments.figure1.summary import Half, Summary, halves, summarise
from pointdep.experiments.figure1.tables import markdown_claims, markdown_table

MEAN = "mean"


def write_report(curves: Curves, folder: Path, command: str) -> None:
    """Everything into the folder, which is made where it is missing.

    figure1.png, .svg and .pdf; curves.csv; table.csv and table.md; claims.md; figure1.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    by_seed = halves(curves)
    means = summarise(by_seed)
    claims = judge_claims(curves)
    write_curves(curves, folder / "curves.csv")
    write_numbers(by_seed, means, folder / "table.csv")
    (folder / "table.md").write_text(markdown_table(means), "utf-8")
    (folder / "claims.md").write_text(markdown_claims(claims), "utf-8")
    content = {"command": command, **as_json(curves, by_seed, means, claims)}
    text = json.dumps(content, indent=1, allow_nan=False)
    (folder / "figure1.json").write_text(text + "\n", "utf-8")
    write_figure(curves, folder)


def write_curves(curves: Curves, path: Path) -> None:
    """A line an iteration, a column a cell: "cpc gaussian seed 0", with 6 significant digits.

    Values that are not finite are nan, inf and -inf, as pandas.read_csv reads them.
    """
    import pandas as pd

    table = pd.DataFrame({"truth": curves.settings.truth()})
    for cell in curves.cells:
        table[f"{cell.method} {cell.task} seed {cell.seed}"] = curves.of(cell)
    table.to_csv(path, index_label="iteration", float_format="%.6g", na_rep="nan")


def write_numbers(by_seed: list[Half], means: list[Summary], path: Path) -> None:
    """The lines of each seed and, with "mean" for a seed, the mean over them; empty: unknown."""
    lines = [asdict(half) for half in by_seed]
    lines += [{**asdict(mean), "seed": MEAN} for mean in means]
    names = [name for name in lines[0] if name != "log_sd_stderr"]
    columns = {name: np.array([line[name] for line in lines], object) for name in names}
    write_table(path, columns)


def as_json(
    curves: Curves, by_seed: list[Half], means: list[Summary], claims: list[Claim]
) -> dict[str, Any]:
    """The run for a program; nothing in it is nan or infinite."""
    settings = curves.settings
    return {
        **environment(curves.device),
        "precision": curves.precision,
        "seeds": sorted({cell.seed for cell in curves.cells}),
        "settings": asdict(settings),
        "times": {
            "setup_seconds": curves.setup_seconds,
            "train_seconds": curves.train_seconds,
            "ms_per_iteration": 1000 * curves.train_seconds / settings.iterations,
        },
        "summary": [asdict(line) for line in means],
        "by_seed": [asdict(line) for line in by_seed],
        "claims_noise": NOISE,
        "claims": [asdict(claim) for claim in claims],
    }
