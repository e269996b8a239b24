"""The files that an experiment leaves beside its runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pointdep.data.writers import write_table
from pointdep.experiments.representations.claims import NOISE, judge_claims
from pointdep.experiments.representations.departures import choices, departures, note
from pointdep.experiments.representations.draw import write_figure
from pointdep.experiments.representations.run import RESULTS, Found
from pointdep.experiments.representations.summary import summarise
from pointdep.experiments.representations.text import markdown_report
from pointdep.experiments.words.claims import Claim
from pointdep.experiments.words.report import claims_as_dicts
from pointdep.fitting.state import unfinished


def write_report(found: Found, folder: Path) -> list[Claim]:
    """curves.csv, summary.csv, figure.png and .svg, report.md and results.json; the verdicts."""
    claims = judge_claims(found.experiment, found.curves, found.pixels)
    write_table(folder / "curves.csv", _curve_columns(found))
    write_table(folder / "summary.csv", _summary_columns(found))
    write_figure(found.experiment, found.curves, found.pixels, note(found), folder)
    (folder / "report.md").write_text(markdown_report(found, claims), "utf-8")
    content = {
        "command": found.experiment.command,
        "experiment": found.experiment.name,
        "machines": sorted({run.machine for run in found.runs if run.machine}),
        "claims_noise": NOISE,
        **as_dict(found, claims),
    }
    text = json.dumps(content, indent=1, allow_nan=False)
    # In one move: what is broken off here would be taken for the results of something else.
    unfinished(folder / RESULTS).write_text(text + "\n", "utf-8")
    unfinished(folder / RESULTS).replace(folder / RESULTS)
    return claims


def as_dict(found: Found, claims: Sequence[Claim]) -> dict[str, Any]:
    """The experiment for a program."""
    return {
        "settings": asdict(found.experiment),
        "data": found.data,
        "runs": [
            {
                "name": run.name,
                "objectives": run.settings["objectives"],
                "seeds": run.settings["seeds"],
                "machine": run.machine,
                "versions": ", ".join(
                    f"{name} {version}" for name, version in run.versions.items()
                ),
                "precision": run.where.get("precision", ""),
                "wall_seconds": run.wall_seconds,
                "flags": [{"name": name, "message": text} for name, text in run.flags],
            }
            for run in found.runs
        ],
        "shortened": departures(found),
        "ours": choices(found),
        "pixels": {k: v for k, v in asdict(found.pixels).items() if k != "origin"},
        "summary": [asdict(line) for line in summarise(found.curves, found.experiment)],
        "pd_model": list(found.pd_models),
        "claims": claims_as_dicts(claims),
    }


def _curve_columns(found: Found) -> dict[str, Any]:
    """A line an evaluation: run, objective, seed, iteration, epoch, seconds, accuracy."""
    lines = [
        (curve.run, curve.objective, curve.seed, *values)
        for curve in found.curves
        for values in zip(curve.steps, curve.epochs, curve.seconds, curve.accuracy, strict=True)
    ]
    names = "run", "objective", "seed", "iteration", "epoch", "seconds", "accuracy"
    return {name: np.array([line[k] for line in lines], object) for k, name in enumerate(names)}


def _summary_columns(found: Found) -> dict[str, Any]:
    lines = [asdict(line) for line in summarise(found.curves, found.experiment)]
    empty = dict.fromkeys(lines[0])
    lines.append({**empty, "objective": "pixels", "mean": found.pixels.accuracy})
    return {name: np.array([line[name] for line in lines], object) for name in empty}
