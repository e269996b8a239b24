"""Every estimator on every task: fit, compare with the exact answer, and keep what is finished."""

from __future__ import annotations

import csv
import io
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import pointdep
from pointdep.data.tasks import QUICK, TASKS, make_task
from pointdep.errors import InputError, PointdepError, require_whole, unknown_name
from pointdep.experiments.reports import command_line, make_distinct, prepare_folder, require_known
from pointdep.fitting.progress import Progress, Silent
from pointdep.fitting.rendezvous import pick_device

if TYPE_CHECKING:
    from pointdep.inference.mutual_information import MIEstimate

Array = NDArray[np.float64]
_Answer = TypeVar("_Answer")

FRESH_ROWS = 5000
_FRESH_SEED = 1_000_000  # far from the seeds of the rows that are fitted


def check_estimator(name: str) -> None:
    """Refuse a name that is not `METHOD`, `METHOD:CRITIC` or a classical method."""
    from pointdep.core.critics import CRITICS
    from pointdep.core.methods import METHODS
    from pointdep.estimators.classical.catalogue import CLASSICAL

    method, colon, critic = name.partition(":")
    if method not in METHODS and (colon or method not in CLASSICAL):
        raise unknown_name("estimator", method, METHODS if colon else (*METHODS, *CLASSICAL))
    if colon and critic not in CRITICS:
        raise unknown_name(f"critic of {name!r}:", critic, CRITICS)


def make_estimator(name: str, *, seed: int, device: str = "auto") -> Any:
    """The estimator of this name with its default settings, not fitted."""
    from pointdep.estimators.classical.catalogue import CLASSICAL
    from pointdep.estimators.classical.estimator import ClassicalDependency
    from pointdep.estimators.pointwise import PointwiseDependency

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
        require_known("task", self.tasks, TASKS)
        for name in self.estimators:
            check_estimator(name)
        for rows in self.rows:
            require_whole("rows", rows)
        require_whole("seeds", self.seeds)
        if not 0 < self.confidence < 1:
            raise InputError(f"confidence={self.confidence!r} must lie between 0 and 1")
        _ = self.resolved_device  # refuses one that is not there
        make_distinct(self, "tasks", "estimators", "rows")

    @property
    def resolved_device(self) -> str:
        """The device that is used: what "auto" stands for here."""
        return str(pick_device(self.device))

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        return command_line("bench", **vars(self))

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
        result = known.get(run) or measure(run)
        if run not in known and kept is not None:
            kept.add(result)
        results.append(result)
    return Outcome(results, sum(run in known for run in runs))


def measure(run: Run) -> Result:
    """Fit and compare; an estimator that fails gives a result with the reason."""
    from pointdep.estimators.classical.catalogue import CLASSICAL

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


def compare_pmi(
    found: Array, true: Array, reasons: list[str], *, nats: bool = True
) -> dict[str, Any]:
    """The columns of the PMI: found and true are (n,); reasons receives why one is missing.

    Without nats, found is a score that goes with PMI, whose distance from it means nothing.
    """
    from scipy.stats import rankdata

    if np.isnan(found).any():
        reasons.append(f"{int(np.isnan(found).sum())} of {len(found)} PMI are NaN")
        return {}
    # Ranks need no finite numbers: -inf, for pairs never seen together, is the lowest.
    columns: dict[str, Any] = {"pmi_spearman": _correlation(rankdata(found), rankdata(true))}
    infinite = int(np.isinf(found).sum())
    if infinite:
        reasons.append(f"{infinite} of {len(found)} PMI are infinite")
        return columns
    if nats:
        columns["pmi_rmse"] = float(np.sqrt(np.mean(np.square(found - true))))
    columns["pmi_pearson"] = _correlation(found, true)
    return columns


def _correlation(found: Array, true: Array) -> float | None:
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


class ResultFile:
    """A CSV file to which each result is added when its run ends; results: by what was asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: dict[Run, Result] = {}
        if path.exists():
            self._read()

    def add(self, result: Result) -> None:
        """Write one line, whole, so that a run that is ended leaves those before it."""
        new = not self.path.exists() or self.path.stat().st_size == 0
        lines: list[Sequence[Any]] = [COLUMNS] if new else []
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows([*lines, astuple(result)])
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(written.getvalue())
        self.results[result.run] = result

    def _read(self) -> None:
        # A run that was killed while writing may have left half a line at the end.
        content = self.path.read_bytes()
        if content and not content.endswith(b"\n"):
            with self.path.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
        with self.path.open(encoding="utf-8", newline="") as file:
            lines = csv.reader(file)
            if tuple(next(lines, COLUMNS)) != COLUMNS:
                raise InputError(
                    f"{self.path} has other columns than this version writes: choose another folder"
                )
            for cells in lines:
                result = self._parse(cells, lines.line_num)
                self.results[result.run] = result

    def _parse(self, cells: list[str], line: int) -> Result:
        try:
            pairs = zip(COLUMNS, cells, strict=True)
            return Result(**{name: _PARSERS[name](cell) for name, cell in pairs})
        except (KeyError, ValueError):
            raise InputError(
                f"{self.path}, line {line}, is not a result: delete the line or choose another "
                "folder"
            ) from None


def open_folder(folder: Path) -> None:
    """Make the folder, or refuse it, or the results that it holds, before anything is run."""
    prepare_folder(folder)
    ResultFile(folder / "results.csv")
