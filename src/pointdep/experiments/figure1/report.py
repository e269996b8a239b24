"""The folder a run of Figure 1 leaves, and that folder read again.

It holds figure, curves, tables, claims and how they were made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pointdep.data.writers import write_table
from pointdep.errors import InputError
from pointdep.experiments.environment import environment
from pointdep.experiments.figure1.claims import Claim, judge_claims
from pointdep.experiments.figure1.curves import Curves
from pointdep.experiments.figure1.draw import write_figure
from pointdep.experiments.figure1.evidence import NOISE
from pointdep.experiments.figure1.settings import Cell, Figure1
from pointdep.experiments.figure1.summary import Half, Summary, halves, summarise
from pointdep.experiments.figure1.tables import markdown_claims, markdown_table

MEAN = "mean"
_CURVES, _JSON = "curves.csv", "figure1.json"


def write_report(
    curves: Curves, folder: Path, recorded: Mapping[str, Any] | None = None
) -> tuple[list[Summary], list[Claim]]:
    """Everything into the folder, which is made where it is missing; the numbers and the verdicts.

    curves.csv; table.csv and table.md; claims.md; figure1.png, .svg and .pdf; figure1.json.
    recorded: the `environment` a stored run was made in; None: this machine's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    by_seed = halves(curves)
    means = summarise(by_seed)
    claims = judge_claims(curves)
    write_curves(curves, folder / _CURVES)
    write_numbers(by_seed, means, folder / "table.csv")
    (folder / "table.md").write_text(markdown_table(means), "utf-8")
    (folder / "claims.md").write_text(markdown_claims(claims, curves.settings), "utf-8")
    write_figure(curves, folder)
    surroundings = environment(curves.device) if recorded is None else recorded
    content = {
        "command": curves.settings.command,
        "run": {**surroundings, "precision": curves.precision},
        **as_json(curves, by_seed, means, claims),
    }
    text = json.dumps(content, indent=1, allow_nan=False)
    (folder / _JSON).write_text(text + "\n", "utf-8")
    return means, claims


def read_curves(folder: Path) -> Curves:
    """The curves of a stored run, to six digits, with the settings and times it had."""
    import pandas as pd

    content = _read_json(folder)
    asked = content["settings"]
    settings = Figure1(**{**asked, "hidden": tuple(asked["hidden"])})
    path = folder / _CURVES
    if not path.is_file():
        raise InputError(f"{path} is missing: give the folder of a whole run")
    table = pd.read_csv(path)
    names = [_column(cell) for cell in settings.cells]
    if len(table) != settings.iterations or not {*names} <= {*table.columns}:
        raise InputError(f"{path} and {_JSON} beside it are not of one run")
    kind = np.float64 if content["run"]["precision"] == "float64" else np.float32
    return Curves(
        settings,
        table[names].to_numpy().astype(kind),
        content["times"]["setup_seconds"],
        content["times"]["train_seconds"],
        content["run"]["device"],
        content["run"]["precision"],
    )


def write_again(stored: Path, folder: Path) -> None:
    """The report of a stored run into another folder, judged by the rules of today."""
    write_report(read_curves(stored), folder, _read_json(stored)["run"])


def _read_json(folder: Path) -> dict[str, Any]:
    path = folder / _JSON
    if not path.is_file():
        raise InputError(f"{path} is missing: give the folder of a whole run")
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def write_curves(curves: Curves, path: Path) -> None:
    """A line an iteration, a column a cell: "cpc gaussian seed 0", with 6 significant digits.

    Values that are not finite are nan, inf and -inf, as pandas.read_csv reads them.
    """
    import pandas as pd

    table = pd.DataFrame({"truth": curves.settings.truth()})
    for cell in curves.cells:
        table[_column(cell)] = curves.of(cell)
    table.to_csv(path, index_label="iteration", float_format="%.6g", na_rep="nan")


def _column(cell: Cell) -> str:
    return f"{cell.method} {cell.task} seed {cell.seed}"


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
    """The run for a program; nothing in it is nan or infinite.

    "settings" are as asked for, where "auto" may stand for a device and a precision.
    """
    settings = curves.settings
    return {
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
