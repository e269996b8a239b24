"""Every estimator on every task: run what is missing, keep what ended, summarise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import pointdep
from pointdep.data.tasks import QUICK, TASKS
from pointdep.errors import InputError, require_whole, unknown_name
from pointdep.experiments.environment import environment
from pointdep.experiments.estimators import check_estimator
from pointdep.experiments.folders import prepare_folder
from pointdep.experiments.measure import measure
from pointdep.experiments.records import Result, ResultFile, Run
from pointdep.experiments.summary import summarise
from pointdep.fitting.progress import Progress, Silent
from pointdep.fitting.rendezvous import pick_device


@dataclass(frozen=True)
class Bench:
    """Which runs: tasks x rows x seeds x estimators; seeds counts from 0."""

    tasks: tuple[str, ...] = QUICK
    estimators: tuple[str, ...] = ("pc",)
    rows: tuple[int, ...] = (1000,)
    seeds: int = 3
    confidence: float = 0.9
    device: str = "auto"

    def __post_init__(self) -> None:
        for name in self.tasks:
            if name not in TASKS:
                raise unknown_name("task", name, TASKS)
        for name in self.estimators:
            check_estimator(name)
        for rows in self.rows:
            require_whole("rows", rows)
        require_whole("seeds", self.seeds)
        if not 0 < self.confidence < 1:
            raise InputError(f"confidence={self.confidence!r} must lie between 0 and 1")
        _ = self.resolved_device  # refuses one that is not there
        for part in ("tasks", "estimators", "rows"):
            if not getattr(self, part):
                raise InputError(f"{part} must name at least one")
            object.__setattr__(self, part, tuple(dict.fromkeys(getattr(self, part))))

    @property
    def resolved_device(self) -> str:
        """The device that is used: what "auto" stands for here."""
        return str(pick_device(self.device))

    def runs(self) -> list[Run]:
        """In an order that has something of everything early: seed by seed, small before large."""
        settings = self.confidence, self.resolved_device, pointdep.__version__
        return [
            Run(task, estimator, rows, seed, *settings)
            for seed in range(self.seeds)
            for rows in sorted(self.rows)
            for task in self.tasks
            for estimator in self.estimators
        ]

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        return (
            f"pointdep bench --tasks {','.join(self.tasks)} --estimators "
            f"{','.join(self.estimators)} --rows {','.join(map(str, self.rows))} "
            f"--seeds {self.seeds} --confidence {self.confidence:g} --device {self.device}"
        )


@dataclass(frozen=True, eq=False)
class Outcome:
    """The results of all runs, and how many of them were there before."""

    results: list[Result]
    resumed: int


def run_bench(
    bench: Bench, folder: Path | None = None, progress: Progress | None = None
) -> Outcome:
    """Run what `folder` does not hold yet; without a folder, everything.

    Runs that failed before are tried again: what was missing may be there now.
    """
    kept = None if folder is None else ResultFile(folder / "results.csv")
    known = {} if kept is None else {run: r for run, r in kept.results.items() if not r.failed}
    runs = bench.runs()
    shown = progress or Silent()
    results = []
    for done, run in enumerate(runs):
        shown.update(done, len(runs), f"{run.estimator} on {run.rows} rows of {run.task}")
        if run not in known:
            result = measure(run)
            if kept is not None:
                kept.add(result)
        else:
            result = known[run]
        results.append(result)
    return Outcome(results, sum(run in known for run in runs))


def open_folder(folder: Path) -> None:
    """Make the folder, or refuse it, or the results that it holds, before anything is run."""
    prepare_folder(folder)
    if (folder / "results.csv").exists():
        ResultFile(folder / "results.csv")


def write_report(bench: Bench, results: Sequence[Result], folder: Path) -> None:
    """summary.csv, results.json and the figure, beside the results.csv that is there."""
    from pointdep.data.writers import write_table
    from pointdep.experiments.figure import write_figure

    lines = [asdict(line) for line in summarise(results)]
    columns = {name: np.array([line[name] for line in lines], object) for name in lines[0]}
    write_table(folder / "summary.csv", columns)
    content = {
        "command": bench.command,
        **environment(bench.resolved_device),
        "settings": asdict(bench),
        "summary": lines,
        "results": [asdict(result) for result in results],
    }
    text = json.dumps(content, indent=1, allow_nan=False)
    (folder / "results.json").write_text(text + "\n", "utf-8")
    write_figure(results, folder)
