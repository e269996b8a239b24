"""Fit the constants of `pointdep plan` to what `cost_model.py measure` has measured.

    python benchmarks/cost_fit.py constants            # write them into the package
    python benchmarks/cost_fit.py check                # how well they predict every job
    python benchmarks/cost_fit.py page                 # the tables and the figure of docs/plan.md

Each part of a command is a sum of non-negative constants times counted work. They are fitted by
least squares of the part's relative error, or where it is small of its error as a share of the
whole, to all jobs but the largest, which are held out: on these the model is judged.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from pointdep.planning import memory, work
from pointdep.planning.plan import part_seconds
from pointdep.planning.shape import Shape

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results"
CONSTANTS = ROOT / "src/pointdep/planning/constants.json"
SMALL = 0.05  # of the whole: below it a part may be wrong by more
GIB = 2.0**30
# Bytes, counted in the code (docs/large.md): too few to be measured here.
BYTES = {"fit": {"rows": 45.0}, "score": {"rows": 25.0}, "audit": {"rows": 150.0}}
GPU_BYTES = {"rows": 0.0, "resident": 4.0}
PARTS = {  # of the plan, by those that are measured
    "read": "reading",
    "rest of the fit": "preparation",
    "equal copies": "deciding",
    "outside": "reading",
    "all pairs": "search",
    "length of the lists": "known answers",
    "recall": "known answers",
    "rest": "preparation",
}
FIT_PARTS = set(work.fit(Shape(1000, 2, 2, 1)))

Job = dict[str, Any]


def results(device: str) -> dict[str, Any]:
    """What was measured on "cpu" or "gpu", or with two "cores"."""
    found: dict[str, Any] = json.loads((RESULTS / f"cost_model_{device}.json").read_text("utf-8"))
    return found


def shape_of(job: Job, *, listed: bool = False) -> Shape:
    """What the plan is asked for; listed: and how many candidates of each query were scored."""
    said = re.match(r"PMI of (\d+) each", job.get("searched", "")) if listed else None
    x_dim, y_dim = job["dims"]
    return Shape(
        job["rows"],
        x_dim,
        y_dim,
        epochs=job.get("epochs", 1),
        folds=job["folds"],
        queries=job.get("queries", 1),
        hidden=tuple(job["hidden"]) if "hidden" in job else None,
        embedding=job.get("embedding_dim", 64),
        stream=job.get("stream"),
        listed=int(said[1]) if said else None,
        keeping=job.get("device") == "cuda" and job.get("keeping", True),
    )


def seconds_of(job: Job, faiss: bool = True) -> dict[str, dict[str, float]]:
    """By command and part; an audit is also a fit. Near copies without FAISS are left out."""
    found: dict[str, dict[str, float]] = {}
    for measured, seconds in job["parts"].items():
        command, part = job["what"], PARTS.get(measured, measured)
        if command == "audit":
            part = "deciding" if measured == "rest" else part
            command = "fit" if part in FIT_PARTS else "audit"
        if measured == "near copies" and not faiss:
            continue
        parts = found.setdefault(command, {})
        parts[part] = parts.get(part, 0.0) + seconds
    return found


def gib_of(job: Job) -> dict[str, float]:
    """Peak anonymous memory by command."""
    found = {job["what"]: job["rss_anon_peak_gib"]}
    if job["what"] == "audit":
        found["fit"] = job["fit_rss_anon_peak_gib"]
    return found


def gpu_gib_of(job: Job) -> dict[str, float]:
    """The same of the GPU, where there was one."""
    if job["gpu_peak_gib"] is None:
        return {}
    found = {job["what"]: job["gpu_peak_gib"]}
    if job["what"] == "audit":
        found["fit"] = job["fit_gpu_peak_gib"]
    return found


def solved(
    rows: Sequence[Mapping[str, float]], values: Sequence[float], scale: Sequence[float]
) -> dict[str, float]:
    """Non-negative constants of the kinds of work in the rows; scale: of the errors."""
    names = sorted({name for row in rows for name, count in row.items() if count})
    if not names:
        return {}
    weights = 1 / np.asarray(scale)
    matrix = np.array([[row.get(name, 0.0) for name in names] for row in rows]) * weights[:, None]
    size = matrix.max(0)
    found = nnls(matrix / size, np.asarray(values) * weights)[0] / size
    return {name: float(value) for name, value in zip(names, found, strict=True) if value > 0}


def fitted(result: dict[str, Any]) -> dict[str, Any]:
    """seconds: by command, part and kind of work; bytes, gpu_bytes: by command and kind."""
    jobs = [job for job in result["jobs"] if not job["held_out"]]
    return {
        "seconds": {name: _fitted_seconds(name, jobs, result["faiss"]) for name in work.COMMANDS},
        "bytes": {name: _fitted_bytes(name, jobs, gib_of) for name in work.COMMANDS},
        "gpu_bytes": {name: _fitted_bytes(name, jobs, gpu_gib_of) for name in work.COMMANDS},
    }


def _fitted_seconds(command: str, jobs: Iterable[Job], faiss: bool) -> dict[str, Any]:
    measured = [
        (work.COMMANDS[command](shape_of(job, listed=True)), parts)
        for job in jobs
        if (parts := seconds_of(job, faiss).get(command))
    ]
    found = {}
    for name in sorted({part for _, parts in measured for part in parts}):
        own = [(counts[name], parts) for counts, parts in measured if name in parts]
        values = [parts[name] for _, parts in own]
        scale = [
            max(value, SMALL * sum(parts.values()))
            for value, (_, parts) in zip(values, own, strict=True)
        ]
        found[name] = solved([counts for counts, _ in own], values, scale)
    return found


def _fitted_bytes(command: str, jobs: Iterable[Job], peaks: Any) -> dict[str, float]:
    own = [(job, peaks(job)[command] * GIB) for job in jobs if command in peaks(job)]
    if not own:
        return {}
    held = memory.of_host if peaks is gib_of else memory.of_gpu
    counts = [held(command, shape_of(job)) for job, _ in own]
    amounts = [amount for _, amount in own]
    known = BYTES.get(command, {}) if peaks is gib_of else GPU_BYTES
    others = [
        amount - sum(bytes_each * one.pop(kind, 0.0) for kind, bytes_each in known.items())
        for amount, one in zip(amounts, counts, strict=True)
    ]
    return {**solved(counts, others, amounts), **known}


def predicted_seconds(
    known: Mapping[str, Any], command: str, shape: Shape, parts: Iterable[str]
) -> float:
    """Of these parts of a command."""
    told = part_seconds(known, command, shape)
    return sum(told[part] for part in parts)


def predicted_bytes(rates: Mapping[str, float], counts: Mapping[str, float]) -> float:
    return sum(rates.get(kind, 0.0) * count for kind, count in counts.items())


def ratios(result: dict[str, Any], known: dict[str, Any]) -> list[dict[str, Any]]:
    """Predicted over measured: seconds, bytes and bytes of the GPU of each job and command."""
    found = []
    for job in result["jobs"]:
        shape = shape_of(job)
        for command, parts in seconds_of(job, result["faiss"]).items():
            total = sum(parts.values())
            one = {"job": job, "command": command, "measured": total, "gib": None}
            one["seconds"] = predicted_seconds(known, command, shape, parts) / total
            for name, peaks, held in (
                ("bytes", gib_of(job), memory.of_host),
                ("gpu_bytes", gpu_gib_of(job), memory.of_gpu),
            ):
                one[name] = None
                if command in peaks:
                    amount = predicted_bytes(known[name][command], held(command, shape))
                    one[name] = amount / (GIB * peaks[command])
            found.append(one)
    return found


def within(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By command, the largest factor between predicted and measured, of the held-out jobs.

    Of all jobs of a command, where none was held out.
    """
    found: dict[str, dict[str, float]] = {}
    for command in work.COMMANDS:
        every = [row for row in rows if row["command"] == command]
        own = [row for row in every if row["job"]["held_out"]] or every
        found[command] = {
            name: max(max(row[name], 1 / row[name]) for row in own if row[name])
            for name in ("seconds", "bytes", "gpu_bytes")
            if any(row[name] for row in own)
        }
    return found


def start_seconds(result: dict[str, Any]) -> float:
    """From the start of a process until it can begin.

    Where all jobs had one process, with what a first job takes more than the same again.
    """
    starts = [job["start_seconds"] for job in result["jobs"] if "start_seconds" in job]
    start = float(np.median(starts)) if starts else float(result["start_seconds"])
    return start + max(0.0, float(result["first_seconds"]))


def parallel(one: dict[str, Any], two: dict[str, Any]) -> dict[str, float]:
    """By command, the share of the time that cores divide: from jobs with one and two threads."""
    shares: dict[str, list[float]] = {}
    for job in two["jobs"]:
        same = next(old for old in one["jobs"] if _same(old, job))
        before, after = seconds_of(same), seconds_of(job)
        for command in before:
            left = sum(after[command].values()) / sum(before[command].values())
            shares.setdefault(command, []).append(2 * (1 - left))
    return {name: float(np.clip(np.median(found), 0, 1)) for name, found in shares.items()}


def _parallel(result: dict[str, Any]) -> dict[str, float]:
    measured = (RESULTS / "cost_model_cores.json").exists()
    return parallel(result, results("cores")) if measured else {}


def _same(old: Job, job: Job) -> bool:
    names = ("what", "rows", "dims", "folds", "epochs", "queries", "stream", "hidden")
    return all(old.get(name) == job.get(name) for name in names)


def constants() -> dict[str, Any]:
    """Of all that was measured."""
    found: dict[str, Any] = {}
    for device in ("cpu", "gpu"):
        if not (RESULTS / f"cost_model_{device}.json").exists():
            continue
        result = results(device)
        known = fitted(result)
        if not result["faiss"]:  # which searches on the CPU in any case
            known["seconds"]["audit"]["near copies"] = found["cpu"]["seconds"]["audit"][
                "near copies"
            ]
        found[device] = {
            "machine": result["machine"],
            "start_seconds": start_seconds(result),
            "parallel": _parallel(result) if device == "cpu" else {},
            "within": within(ratios(result, known)),
            **known,
        }
    return found


def check() -> None:
    """Print every job, predicted over measured."""
    known = json.loads(CONSTANTS.read_text("utf-8"))
    for device, own in known.items():
        for row in ratios(results(device), own):
            job, shape = row["job"], shape_of(row["job"])
            told = [f"{row[name] or 0:5.2f}" for name in ("seconds", "bytes", "gpu_bytes")]
            print(
                f"{device} {'held out' if job['held_out'] else '':8} {row['command']:8} "
                f"{job['rows']:>8} x {job['dims']!s:10} {'stream' if shape.streamed else '':6} "
                f"{row['measured']:8.2f} s, predicted / measured: {' '.join(told)}"
            )
        print(json.dumps(own["within"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("constants", "check", "page"))
    what = parser.parse_args().what
    if what == "constants":
        CONSTANTS.write_text(json.dumps(constants(), indent=1) + "\n", "utf-8")
    if what == "page":
        from cost_page import write_page

        write_page()
    else:
        check()


if __name__ == "__main__":
    main()
