"""Every estimator on every task: fit, compare with the exact answer, and keep what is finished.

`run_bench` makes the runs, `summarise` takes means over their seeds, and `write_report` and
`text_outcome` show them.
"""

import csv
import io
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import rankdata

import pointdep
from pointdep.core.critics import CRITICS
from pointdep.core.methods import METHODS
from pointdep.data.tasks import QUICK, TASKS, make_task
from pointdep.errors import InputError, PointdepError, unknown_name
from pointdep.estimators.classical.catalogue import CLASSICAL
from pointdep.estimators.classical.estimator import ClassicalDependency
from pointdep.estimators.pointwise import PointwiseDependency
from pointdep.experiments import reports
from pointdep.experiments.reports import Floats, Line
from pointdep.fitting.progress import Progress, Silent
from pointdep.fitting.rendezvous import pick_device
from pointdep.inference.mutual_information import MIEstimate

_Answer = TypeVar("_Answer")

FRESH_ROWS = 5000
_FRESH_SEED = 1_000_000  # far from the seeds of the rows that are fitted


def check_estimator(name: str) -> None:
    """Refuse a name that is not `METHOD`, `METHOD:CRITIC` or a classical method."""

    method, colon, critic = name.partition(":")
    if method not in METHODS and (colon or method not in CLASSICAL):
        raise unknown_name("estimator", method, METHODS if colon else (*METHODS, *CLASSICAL))
    if colon and critic not in CRITICS:
        raise unknown_name(f"critic of {name!r}:", critic, CRITICS)


def make_estimator(name: str, *, seed: int, device: str = "auto") -> Any:
    """The estimator of this name with its default settings, not fitted."""

    check_estimator(name)
    method, _, critic = name.partition(":")
    common: dict[str, Any] = {"method": method, "random_state": seed, "progress": False}
    if method in CLASSICAL:
        return ClassicalDependency(**common)
    if critic:
        common["critic"] = critic
    return PointwiseDependency(device=device, **common)


@dataclass(frozen=True)
class Run:
    """One fit: `estimator` on `rows` rows of `task`, and all else that its result depends on."""

    task: str
    estimator: str
    rows: int
    seed: int
    confidence: float
    device: str
    pointdep: str


@dataclass(frozen=True)
class Result(Run):
    """What a run found; None if the estimator has no such answer, and `reason` says why.

    true_mi, mi, stderr, low, high, error: nats; the pmi columns compare with the exact PMI of fresh
    rows; seconds: of fitting and of the mutual information; flags: names, separated by spaces.
    """

    true_mi: float
    mi: float | None = None
    stderr: float | None = None
    low: float | None = None
    high: float | None = None
    error: float | None = None
    covered: bool | None = None
    pmi_rmse: float | None = None
    pmi_pearson: float | None = None
    pmi_spearman: float | None = None
    seconds: float | None = None
    flags: str = ""
    reason: str = ""

    @property
    def run(self) -> Run:
        """What was asked."""
        return Run(*(getattr(self, field.name) for field in fields(Run)))

    @property
    def failed(self) -> bool:
        """Whether an error ended it before there was any answer."""
        return self.seconds is None


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
        least = {"rows": 1, "seeds": 1}
        distinct = "tasks", "estimators", "rows"
        reports.check_settings(self, known={"tasks": TASKS}, distinct=distinct, least=least)
        for name in self.estimators:
            check_estimator(name)
        if not 0 < self.confidence < 1:
            raise InputError(f"confidence={self.confidence!r} must lie between 0 and 1")
        _ = self.resolved_device  # refuses one that is not there

    @property
    def resolved_device(self) -> str:
        """The device that is used: what "auto" stands for here."""
        return str(pick_device(self.device))

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        return reports.command_line("bench", **vars(self))

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


def run_bench(
    bench: Bench, folder: Path | None = None, progress: Progress | None = None
) -> tuple[list[Result], int]:
    """Run what `folder` does not hold yet; without a folder, everything.

    Runs that failed before are tried again: what was missing may be there now. Returns all results,
    and how many of them were there before.
    """
    path = None if folder is None else folder / "results.csv"
    known = {} if path is None else read_results(path)
    known = {run: result for run, result in known.items() if not result.failed}
    runs = bench.runs()
    shown = progress or Silent()
    results = []
    for done, run in enumerate(runs):
        shown.update(done, len(runs), f"{run.estimator} on {run.rows} rows of {run.task}")
        result = known.get(run) or measure(run)
        if run not in known and path is not None:
            add_result(path, result)
        results.append(result)
    return results, sum(run in known for run in runs)


def measure(run: Run) -> Result:
    """Fit and compare; an estimator that fails gives a result with the reason."""

    task = make_task(run.task, run.rows, run.seed)
    fresh = make_task(run.task, FRESH_ROWS, run.seed + _FRESH_SEED)
    nats = run.estimator not in CLASSICAL or CLASSICAL[run.estimator].pmi == "nats"
    found: dict[str, Any] = {}
    reasons: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the flags are kept in the result
        try:
            model = make_estimator(run.estimator, seed=run.seed, device=run.device)
            start = time.perf_counter()
            model.fit(task.x, task.y)
            information = _ask(lambda: model.mutual_information(confidence=run.confidence), reasons)
            found["seconds"] = time.perf_counter() - start
            found["flags"] = " ".join(flag.name for flag in getattr(model, "flags_", ()))
            if information is not None:
                found |= compare_information(information, task.mutual_information, reasons)
            pmi = _ask(lambda: np.asarray(model.pmi(fresh.x, fresh.y), np.float64), reasons)
            if pmi is not None:
                found |= compare_pmi(pmi, fresh.pmi, reasons, nats=nats)
        except Exception as error:  # whatever it is, the other runs are still wanted
            reasons.append(_reason(error))
    reason = "; ".join(dict.fromkeys(reasons))
    return Result(**vars(run), true_mi=task.mutual_information, **found, reason=reason)


def compare_information(found: MIEstimate, true: float, reasons: list[str]) -> dict[str, Any]:
    """The columns of the mutual information; reasons receives why one is missing."""
    if found.estimates != "mutual information":
        reasons.append(f"estimates the {found.estimates}")
        return {}
    if not math.isfinite(found.nats):
        reasons.append(f"the mutual information is {found.nats}")
        return {}
    columns: dict[str, Any] = {"mi": found.nats, "error": found.nats - true}
    if math.isfinite(found.stderr):
        columns["stderr"] = found.stderr
    low, high = found.ci
    if math.isfinite(low) and math.isfinite(high):
        columns |= {"low": low, "high": high, "covered": low <= true <= high}
    return columns


def compare_pmi(found: Floats, true: Floats, reasons: list[str], *, nats: bool = True) -> Line:
    """The columns of the PMI: found and true are (n,); reasons receives why one is missing.

    Without nats, found is a score that goes with PMI, whose distance from it means nothing.
    """

    if np.isnan(found).any():
        reasons.append(f"{int(np.isnan(found).sum())} of {len(found)} PMI are NaN")
        return {}
    # Ranks need no finite numbers: -inf, for pairs never seen together, is the lowest.
    columns: dict[str, Any] = {"pmi_spearman": _correlation(rankdata(found), rankdata(true))}
    if infinite := int(np.isinf(found).sum()):
        reasons.append(f"{infinite} of {len(found)} PMI are infinite")
        return columns
    if nats:
        columns["pmi_rmse"] = float(np.sqrt(np.mean(np.square(found - true))))
    columns["pmi_pearson"] = _correlation(found, true)
    return columns


def _correlation(found: Floats, true: Floats) -> float | None:
    """None if either is constant, as the PMI of independent pairs is."""
    if np.ptp(found) < 1e-12 or np.ptp(true) < 1e-12:
        return None
    return float(np.corrcoef(found, true)[0, 1])


def _ask(answer: Callable[[], _Answer], reasons: list[str]) -> _Answer | None:
    """The answer, or None and a reason if the estimator does not give it."""
    try:
        return answer()
    except InputError as error:
        reasons.append(_reason(error))
        return None


def _reason(error: Exception) -> str:
    """One line; errors that are not ours are named."""
    text = " ".join(str(error).split())
    return text if isinstance(error, PointdepError) else f"{type(error).__name__}: {text}"


COLUMNS = tuple(field.name for field in fields(Result))
_TEXT = ("task", "estimator", "device", "pointdep", "flags", "reason")
_PARSERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(COLUMNS, lambda text: float(text) if text else None),
    **dict.fromkeys(_TEXT, str),
    **dict.fromkeys(("rows", "seed"), int),
    "covered": lambda text: {"True": True, "False": False, "": None}[text],
}


def add_result(path: Path, result: Result) -> None:
    """Write one line, whole, so that a run that is ended leaves those before it."""
    new = not path.exists() or path.stat().st_size == 0
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([COLUMNS] * new + [astuple(result)])
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(written.getvalue())


def read_results(path: Path) -> dict[Run, Result]:
    """What `add_result` wrote, by what was asked."""
    results: dict[Run, Result] = {}
    if not path.exists():
        return results
    # A run that was killed while writing may have left half a line at the end.
    os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        if tuple(next(lines, COLUMNS)) != COLUMNS:
            raise InputError(f"{path} has other columns than ours: choose another folder")
        for cells in lines:
            try:
                pairs = zip(COLUMNS, cells, strict=True)
                result = Result(**{name: _PARSERS[name](cell) for name, cell in pairs})
            except (KeyError, ValueError):
                said = f"{path}, line {lines.line_num}, is not a result: delete the line"
                raise InputError(f"{said} or choose another folder") from None
            results[result.run] = result
    return results


def open_folder(folder: Path) -> None:
    """Make the folder, or refuse it, or the results that it holds, before anything is run."""
    reports.prepare_folder(folder)
    read_results(folder / "results.csv")


ALL_TASKS = "all tasks"
_COLUMNS = {
    **{name: (name, "") for name in ("task", "rows", "estimator", "runs")},
    "error": ("error", "+.3f"),
    "absolute_error": ("|error|", ".3f"),
    "pmi_rmse": ("RMSE", ".3f"),
    "pmi_pearson": ("corr", ".3f"),
    "pmi_spearman": ("rank", ".3f"),
    "coverage": ("cover", ".2f"),
    "seconds": ("seconds", ".1f"),
}
_MEANS = list(_COLUMNS)[4:]
_LEAST_ERROR = 1e-3  # nats; smaller errors are drawn here


def summarise(results: Sequence[Result], *, over_tasks: bool = False) -> list[Line]:
    """One line for each task, number of rows and estimator, in the order they come first.

    Means are over the runs that have the number; coverage: share of the intervals that hold the
    true mutual information. over_tasks: one line for each number of rows and estimator.
    """

    table = pd.DataFrame(map(asdict, results)).rename(columns={"covered": "coverage"})
    table["failed"] = table["seconds"].isna()
    table["absolute_error"] = table["error"].astype(float).abs()
    if over_tasks:
        table["task"] = ALL_TASKS
    of = ["task", "rows", "estimator"]
    groups = table.astype(dict.fromkeys(_MEANS, float)).groupby(of, sort=False)
    counts = {"runs": ("seed", "size"), "failed": ("failed", "sum")}
    means = {name: (name, "mean") for name in _MEANS}
    return reports.records(groups.agg(**counts, **means).reset_index())


def write_report(bench: Bench, results: Sequence[Result], folder: Path) -> None:
    """summary.csv, results.json and the figure, beside the results.csv that is there."""
    lines = summarise(results)
    reports.write_lines(folder / "summary.csv", lines)
    content = {"summary": lines, "results": [asdict(result) for result in results]}
    reports.write_results(folder, bench, bench.resolved_device, content)
    reports.save(draw(results), folder, "figure", ("png", "svg"))


def outcome_as_dict(bench: Bench, results: Sequence[Result], resumed: int) -> Line:
    """The outcome for a program."""
    asked = "tasks", "estimators", "rows", "seeds", "confidence"
    return {
        **{name: getattr(bench, name) for name in asked},
        "runs": len(results),
        "resumed": resumed,
        "failed": sum(result.failed for result in results),
        "summary": summarise(results),
        "notes": [
            {name: getattr(result, name) for name in ("task", "rows", "estimator", "seed")}
            | {"failed": result.failed, "reason": result.reason}
            for result in results
            if result.reason
        ],
    }


def text_outcome(bench: Bench, results: Sequence[Result], resumed: int) -> str:
    """The outcome for a person: task by task, then over the tasks, then why there are gaps."""
    place = {task: number for number, task in enumerate(bench.tasks)}
    lines = sorted(summarise(results), key=lambda line: (place[line["task"]], line["rows"]))
    if len(bench.tasks) > 1:
        lines += summarise(results, over_tasks=True)
    for line in lines:
        if line["failed"]:
            line["runs"] = f"{line['runs'] - line['failed']}/{line['runs']}"
    rows = reports.rows_of(lines, _COLUMNS)
    legend = reports.TEXTS["bench legend"].format(confidence=100 * bench.confidence)
    said = [reports.aligned(rows, left=(0, 2)), f"\n{legend}"]
    if resumed:
        said.append(f"{resumed} of {len(results)} runs were there already.")
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for result in results:
        if result.reason:
            reasons.setdefault((result.estimator, result.reason), {})[result.task] = None
    said += [f"{name} on {', '.join(tasks)}: {why}" for (name, why), tasks in reasons.items()]
    return "\n".join(said)


@reports.style()
def draw(results: Sequence[Result]) -> Figure:
    """A panel per number of rows with the errors on each task, and one of error against seconds."""
    rows = sorted({result.rows for result in results})
    tasks = list(dict.fromkeys(result.task for result in results))
    answered = [result for result in results if result.error is not None]
    looks = reports.looks(dict.fromkeys(result.estimator for result in answered))
    height = max(4.0, 1.6 + len(tasks) * max(0.28, 0.07 * len(looks)))
    figure = Figure(figsize=(4.0 * len(rows) + 5.0, height), layout="constrained")
    axes = figure.subplots(1, len(rows) + 1, squeeze=False)[0]
    means = summarise(results)
    for axis, count in zip(axes, rows, strict=False):
        own = [asdict(result) for result in answered if result.rows == count]
        _draw_tasks(axis, own, [line for line in means if line["rows"] == count], tasks, looks)
        axis.set_title(f"{count:,} rows")
        axis.sharex(axes[0])
        axis.tick_params(labelleft=axis is axes[0])
    _draw_seconds(axes[-1], results, looks)
    handles, labels = axes[0].get_legend_handles_labels()
    columns = max(1, min(8, len(labels)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _draw_tasks(
    axis: Axes, runs: list[Line], means: list[Line], tasks: list[str], looks: dict[str, Line]
) -> None:
    """A line per task: the runs as faint dots, their mean as a marker."""
    spread = np.linspace(-0.3, 0.3, len(looks)) if len(looks) > 1 else np.zeros(len(looks))
    for shift, (estimator, look) in zip(spread, looks.items(), strict=True):
        dots: Line = {"s": 6, "alpha": 0.4, "linewidths": 0, "color": look["color"]}
        for lines, how in ((runs, dots), (means, {"s": 26, "label": estimator, **look})):
            own = [line for line in lines if line["estimator"] == estimator]
            places = [tasks.index(line["task"]) + shift for line in own]
            axis.scatter(np.array([line["error"] for line in own], float), places, **how)
    axis.axvline(0.0, color="0.4", linewidth=0.8, zorder=0)
    for boundary in np.arange(len(tasks) - 1) + 0.5:
        axis.axhline(boundary, color="0.9", linewidth=0.6, zorder=0)
    axis.set_yticks(range(len(tasks)), tasks)
    axis.locator_params(axis="x", nbins=6)
    axis.set(ylim=(len(tasks) - 0.5, -0.5), xlabel="error of MI (nats)")


def _draw_seconds(axis: Axes, results: Sequence[Result], looks: dict[str, Line]) -> None:
    """Faint markers are tasks; large ones the mean over them, joined from few rows to many."""
    for over_tasks in (False, True):
        lines = sorted(summarise(results, over_tasks=over_tasks), key=lambda line: line["rows"])
        for k, (estimator, look) in enumerate(looks.items()):
            points = [
                (line["seconds"], max(line["absolute_error"], _LEAST_ERROR), line["rows"])
                for line in lines
                if line["estimator"] == estimator and line["absolute_error"] is not None
            ]
            seconds, errors = [point[0] for point in points], [point[1] for point in points]
            if not over_tasks:
                axis.scatter(seconds, errors, s=14, alpha=0.3, **look)
                continue
            axis.plot(seconds, errors, color=look["color"], linewidth=1)
            axis.scatter(seconds, errors, s=70, zorder=3, **look)
            # The first tells how to read the others, whose numbers would only hide each other.
            for x, y, count in points if len(points) > 1 and k == 0 else ():
                axis.annotate(f"{count:,}", (x, y), xytext=(6, 5), textcoords="offset points")
    reports.log_log(axis)
    axis.set(box_aspect=1, anchor="N")  # beside many tasks it would be a tower
    axis.set(xlabel="seconds of a fit", ylabel="mean absolute error of MI (nats)")
    axis.set_title("small: a task, large: mean over tasks")
