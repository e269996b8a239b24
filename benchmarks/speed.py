"""Error against processor seconds, the share of time per step, and fits next to other work.

    python benchmarks/speed.py --rows 10000 --lines speed.jsonl --output speed.json
    python benchmarks/speed.py --figure docs/figures/speed.svg --lines speed.jsonl
    python benchmarks/speed.py --steps ring 1v1-normal-0.75 --output steps.json
    python benchmarks/speed.py --busy --output busy.json

Estimators: pointdep with each `effort`, its first estimate, its KSG and canonical correlations, and
scikit-learn's KSG, which takes one column a side. Tasks go by the names of `against.py`; the peers
that have an environment of their own are timed by `peers/run.py`. One thread each. --busy fits as
it is, and next to a process for every core that never rests: wall time over wall time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from against import FIVE, joint_of
from report import report
from sklearn.feature_selection import mutual_info_regression

from pointdep import ClassicalDependency, PointwiseDependency
from pointdep.estimators import assembly, pointwise
from pointdep.estimators.first_estimate import first_estimate
from pointdep.fitting.active_replicas import Crew

QUIET: dict[str, Any] = {"random_state": 0, "progress": False}
STEPS = (
    (pointwise.PointwiseDependency, "_read", "reading"),
    (assembly, "fit_closed_form", "closed form"),
    (Crew, "train_epoch", "training steps"),
    (Crew, "evaluate", "held-out score"),
    (pointwise.PointwiseDependency, "_conclude", "answers"),
)


def _networks(effort: str) -> Callable[[Any, Any], float]:
    model = PointwiseDependency(effort=effort, **QUIET)
    return lambda x, y: float(model.fit(x, y).mutual_information().nats)


def _classical(method: str) -> Callable[[Any, Any], float]:
    return lambda x, y: float(
        ClassicalDependency(method, **QUIET).fit(x, y).mutual_information().nats
    )


ESTIMATORS: dict[str, Callable[[Any, Any], float]] = {
    "pointdep": _networks("default"),
    "pointdep, high": _networks("high"),
    "pointdep, quick": _networks("quick"),
    "first estimate": lambda x, y: first_estimate(x, y).nats,
    "ksg": _classical("ksg"),
    "cca": _classical("cca"),
    "scikit-learn": lambda x, y: float(mutual_info_regression(x, y.ravel(), random_state=0)[0]),
}


def rows_of(name: str, rows: int) -> tuple[Any, Any, float]:
    task = joint_of(name).draw(name, rows, 1)
    x, y = (
        np.char.add("w", side.astype(str)) if side.ndim == 1 and side.dtype.kind in "iu" else side
        for side in (task.x, task.y)
    )
    return x, y, task.mutual_information


def measure(name: str, rows: int, estimator: str) -> dict[str, Any]:
    """Error and processor seconds; an estimator that refuses the rows has none."""
    x, y, truth = rows_of(name, rows)
    line: dict[str, Any] = {"task": name, "rows": rows, "estimator": estimator, "truth": truth}
    one_column = all(side.ndim == 2 and side.shape[1] == 1 for side in (x, y))
    if estimator == "scikit-learn" and not one_column:
        return line
    begin = time.process_time()
    try:
        nats = ESTIMATORS[estimator](x, y)
    except ValueError as error:
        return {**line, "refused": str(error)[:80]}
    return {**line, "error": nats - truth, "seconds": round(time.process_time() - begin, 3)}


def steps(name: str, rows: int) -> dict[str, float]:
    """Processor seconds of a fit by step."""
    spent: dict[str, float] = defaultdict(float)
    kept = [(owner, method, getattr(owner, method)) for owner, method, _ in STEPS]
    for owner, method, label in STEPS:
        setattr(owner, method, _timed(getattr(owner, method), spent, label))
    x, y, _ = rows_of(name, rows)
    begin = time.process_time()
    PointwiseDependency(**QUIET).fit(x, y)
    whole = time.process_time() - begin
    for owner, method, plain in kept:
        setattr(owner, method, plain)
    found = dict(spent) | {"rest": whole - sum(spent.values())}
    return {label: round(seconds, 3) for label, seconds in found.items()}


def _timed(function: Callable[..., Any], spent: dict[str, float], label: str) -> Callable[..., Any]:
    def timed(*args: Any, **how: Any) -> Any:
        begin = time.process_time()
        try:
            return function(*args, **how)
        finally:
            spent[label] += time.process_time() - begin

    return timed


def _never_rest() -> None:
    while True:
        pass


def busy(rows: int) -> dict[str, float]:
    """Seconds of wall time of a fit, as the machine is and next to busy processes."""
    x, y, _ = rows_of("gaussian-5", rows)
    found = {"load_before": round(os.getloadavg()[0], 1)}
    others = [
        multiprocessing.Process(target=_never_rest, daemon=True) for _ in range(os.cpu_count() or 1)
    ]
    for name in ("alone_s", "next_to_others_s"):
        begin = time.perf_counter()
        PointwiseDependency(**QUIET).fit(x, y)
        found[name] = round(time.perf_counter() - begin, 2)
        if name == "alone_s":
            for other in others:
                other.start()
    for other in others:
        other.terminate()
    return {**found, "ratio": round(found["next_to_others_s"] / found["alone_s"], 2)}


def draw(lines: list[dict[str, Any]], place: Path) -> None:
    """Mean absolute error against median seconds of each estimator, on the tasks it takes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.8), layout="constrained")
    axes = figure.subplots()
    for name in ESTIMATORS:
        own = [line for line in lines if line["estimator"] == name and "error" in line]
        if own:
            at = np.median([o["seconds"] for o in own]), np.mean([abs(o["error"]) for o in own])
            axes.loglog(*(max(float(value), 1e-3) for value in at), "o")
            axes.annotate(f" {name} ({len(own)})", at)
    axes.set(xlabel="processor seconds, median", ylabel="mean absolute error in nats")
    figure.savefig(place)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(FIVE))
    parser.add_argument("--estimators", nargs="+", default=list(ESTIMATORS), choices=ESTIMATORS)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--steps", nargs="+")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--lines", type=Path, default=Path("speed.jsonl"))
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--output")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.busy:
        report("speed", {"busy": busy(min(options.rows, 2000))}, options.output)
        return
    torch.set_num_threads(1)
    if options.steps:
        found = {name: steps(name, options.rows) for name in options.steps}
        report("speed", {"rows": options.rows, "seconds": found}, options.output)
        return
    kept = options.lines.read_text().splitlines() if options.lines.exists() else []
    lines = [json.loads(line) for line in kept]
    if options.figure:
        draw(lines, options.figure)
        return
    done = {(line["task"], line["rows"], line["estimator"]) for line in lines}
    for name in options.tasks:
        for estimator in options.estimators:
            if (name, options.rows, estimator) not in done:
                lines.append(measure(name, options.rows, estimator))
                print(lines[-1], flush=True)
                with options.lines.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    report("speed", {"lines": lines}, options.output)


if __name__ == "__main__":
    main()
