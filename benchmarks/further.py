"""Intervals, lower bounds and flags on the further tasks (`further_tasks.py`).

    python benchmarks/further.py --half tune --rows 500 2000 --seeds 20 --jobs 2 --output tune.json
    python benchmarks/further.py --half tune --rows 2000 --stability --output stability.json
    python benchmarks/further.py --again tune.jsonl --against older.jsonl
    python benchmarks/further.py --src OTHER/src --half report --output older.json

Settings are tuned on the half "tune" alone. Every run is appended to a .jsonl file beside the
output as it finishes; runs that have a line there are skipped. With --src the fits are by another
version of pointdep; the rows are always drawn by this one. --stability fits the same rows again,
with another seed and in another order: how far does the estimate move, and does it leave its
interval?
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

Line = dict[str, Any]
# The flags that say on which side of the estimate the truth lies: +1 for above it.
DIRECTIONS = {"rises_with_rows": 1, "alarm": 1}
KEY = ("task", "rows", "seed")
OTHERS = ("other_seed", "other_order")  # fits of the same rows


def start(src: str | None) -> None:
    """Begin a worker process: one thread, and the version of pointdep that is asked for."""
    if src:
        sys.path.insert(0, src)
    import torch

    import pointdep

    torch.set_num_threads(1)
    if src and Path(src).resolve() not in Path(pointdep.__file__).resolve().parents:
        raise RuntimeError(f"pointdep comes from {pointdep.__file__}, not from {src}")


def run(
    job: Line, x: Any, y: Any, pmi: Any, options: Line, check: bool, stability: bool = False
) -> Line:
    """One fit and what it says; a fit that fails gives a line that says so."""
    import pointdep

    warnings.simplefilter("ignore")
    begin = time.process_time()
    try:
        model = pointdep.PointwiseDependency(random_state=job["seed"], progress=False, **options)
        found = model.fit(x, y).mutual_information(confidence=0.9)
        known = np.isfinite(model.oof_pmi_) & np.isfinite(pmi)
        away = (model.oof_pmi_ - pmi)[known]
        line = {
            **job,
            "pmi_rmse": float(np.sqrt(np.mean(away**2))),
            "nats": found.nats,
            "stderr": found.stderr,
            "ci": list(found.ci),
            "correction": found.correction,
            "flags": [flag.name for flag in model.flags_],
            "lower": _lower(model, found),
            "curve": found.to_dict().get("curve"),
            "seconds": round(time.process_time() - begin, 3),
        }
        if check:
            line["check_passed"] = model.check().passed
        if stability:
            model.set_params(random_state=job["seed"] + 1000)
            line["other_seed"] = model.fit(x, y).mutual_information().nats
            order = np.random.default_rng(job["seed"]).permutation(len(x))
            model.set_params(random_state=job["seed"])
            line["other_order"] = model.fit(x[order], y[order]).mutual_information().nats
    except Exception as error:  # one failure must not end a run of hours
        return {**job, "failed": f"{type(error).__name__}: {error}"}
    return {**line, "version": pointdep.__version__}


def _lower(model: Any, found: Any) -> float | None:
    """The lower bound at 95 %, in versions that give one."""
    if not hasattr(found, "lower"):
        return None
    bound = model.mutual_information(confidence=0.95).lower
    return float(bound() if callable(bound) else bound)


def runs(args: argparse.Namespace, lines: list[Line]) -> Iterator[Line]:
    """The lines of the runs that are still missing, as they finish."""
    from further_tasks import FURTHER, make_task

    done = {tuple(line[key] for key in KEY) for line in lines if "failed" not in line}
    missing: list[Line] = []
    cost: dict[str, int] = {}
    for task in FURTHER.values():
        if args.half not in ("all", task.half) or (args.tasks and task.name not in args.tasks):
            continue
        one = make_task(task.name, 1)
        cost[task.name] = 50 + one.x.size + one.y.size
        about = {"task": task.name, "kind": task.kind, "half": task.half}
        seeds = range(args.first_seed, args.first_seed + args.seeds)
        for rows, seed in ((rows, seed) for rows in args.rows for seed in seeds):
            job = {**about, "rows": rows, "seed": seed, "truth": one.mutual_information}
            if tuple(job[key] for key in KEY) not in done:
                missing.append(job)
    # The longest first, but a seed at a time: what is cut short has all tasks.
    missing.sort(key=lambda job: (job["seed"], -job["rows"] * cost[job["task"]]))
    begin, jobs, asked = time.monotonic(), deque(missing), (args.check, args.stability)
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.jobs, context, initializer=start, initargs=(args.src,)) as pool:
        under_way: set[Future[Line]] = set()
        while True:
            # Few at a time: the rows of a job are drawn when it is handed out.
            while len(under_way) < args.jobs + 1:
                late = args.limit_s is not None and time.monotonic() - begin > args.limit_s
                if late or not jobs:
                    break
                job = jobs.popleft()
                drawn = make_task(job["task"], job["rows"], job["seed"])
                x, y = _as_words(drawn.x), _as_words(drawn.y)
                under_way.add(pool.submit(run, job, x, y, drawn.pmi, args.options, *asked))
            if not under_way:
                return
            finished, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in finished:
                yield future.result()


def _as_words(side: Any) -> Any:
    """Outcomes as a user would have them, in words: numbers may be measurements."""
    import numpy as np

    whole = side.ndim == 1 and side.dtype.kind in "iu"
    return np.char.add("w", side.astype(str)) if whole else side


def flagged(line: Line) -> int:
    """+1 or -1 if a flag says that the truth is above or below the estimate, otherwise 0."""
    return next((DIRECTIONS[name] for name in line["flags"] if name in DIRECTIONS), 0)


def covers(line: Line) -> bool:
    return bool(line["ci"][0] <= line["truth"] <= line["ci"][1])


def right(line: Line) -> bool:
    """Covered, or the flags warn of the side that the truth is on."""
    return covers(line) or flagged(line) * (line["truth"] - line["nats"]) > 0


def width(line: Line) -> float:
    return float(line["ci"][1] - line["ci"][0])


def summary(lines: list[Line]) -> Line:
    """What a set of runs says; shares and medians are None where there is nothing to count."""

    def mean(value: Callable[[Line], float], of: list[Line] = lines) -> float | None:
        return round(float(np.mean([value(line) for line in of])), 4) if of else None

    def median(value: Callable[[Line], float], of: list[Line] = lines) -> float | None:
        return round(float(np.median([value(line) for line in of])), 4) if of else None

    bounded = [line for line in lines if line["lower"] is not None]
    found = {
        "runs": len(lines),
        "coverage": mean(covers),
        "flagged": mean(lambda line: flagged(line) != 0),
        "right": mean(right),
        "coverage_unflagged": mean(covers, [line for line in lines if not flagged(line)]),
        "lower_below_truth": mean(lambda line: line["lower"] <= line["truth"] + 1e-9, bounded),
        "lower_over_truth": median(
            lambda line: line["lower"] / line["truth"],
            [line for line in bounded if line["truth"] > 0.1],
        ),
        "width": median(width),
        "bias": mean(lambda line: line["nats"] - line["truth"]),
        "pmi_rmse": median(lambda line: line["pmi_rmse"]),
        "seconds": median(lambda line: line["seconds"]),
    }
    checked = [line for line in lines if "check_passed" in line]
    found |= {"check_passed": mean(lambda line: line["check_passed"], checked)}
    again = [{**line, "again": line[name]} for line in lines for name in OTHERS if name in line]
    found["moved"] = median(lambda line: abs(line["again"] - line["nats"]), again)
    found["moved_at_most"] = max(
        (abs(line["again"] - line["nats"]) for line in again), default=None
    )
    found["stays_inside"] = mean(
        lambda line: line["ci"][0] <= line["again"] <= line["ci"][1], again
    )
    return found


def by(lines: list[Line], key: str) -> dict[Any, list[Line]]:
    return {
        value: [line for line in lines if line[key] == value]
        for value in sorted({line[key] for line in lines})
    }


def summaries(lines: list[Line]) -> Line:
    """Per number of rows: of all runs, of each half, and of each task."""
    found: Line = {}
    for rows, some in by(lines, "rows").items():
        tasks = {
            name: {"kind": part[0]["kind"], "truth": round(part[0]["truth"], 4), **summary(part)}
            for name, part in by(some, "task").items()
        }
        halves = {half: summary(part) for half, part in by(some, "half").items()}
        found[str(rows)] = {"all": summary(some), "halves": halves, "tasks": tasks}
    return found


def compared(lines: list[Line], others: list[Line]) -> Line:
    """Ratio of the median widths to another version's, on the runs whose truth that one covers."""
    other = {tuple(line[key] for key in KEY): line for line in others}
    pairs = [
        (line, other[key])
        for line in lines
        if (key := tuple(line[k] for k in KEY)) in other and covers(other[key])
    ]

    def ratio(part: list[tuple[Line, Line]]) -> Line:
        ours, theirs = (np.median([width(pair[i]) for pair in part]) for i in (0, 1))
        return {"runs": len(part), "width_ratio": round(float(ours / theirs), 4)}

    found: Line = {}
    for rows in sorted({line["rows"] for line, _ in pairs}):
        part = [pair for pair in pairs if pair[0]["rows"] == rows]
        names = sorted({line["task"] for line, _ in part})
        found[str(rows)] = {
            "all": ratio(part),
            "tasks": {name: ratio([p for p in part if p[0]["task"] == name]) for name in names},
        }
    return found


def read(path: str | Path | None) -> list[Line]:
    if path is None or not Path(path).exists():
        return []
    return [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--half", choices=("tune", "report", "all"), default="all")
    parser.add_argument("--tasks", nargs="*", help="names; all of the half when not given")
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 2000, 10_000])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="worker processes, a thread each")
    parser.add_argument("--limit-s", type=float, help="no new runs after as many seconds")
    parser.add_argument("--options", type=json.loads, default={}, help="of the estimator, in JSON")
    parser.add_argument("--check", action="store_true", help="also run the check of each fit")
    parser.add_argument("--stability", action="store_true", help="also fit the same rows again")
    parser.add_argument("--src", help="the src folder of another version, which makes the fits")
    parser.add_argument("--again", help="a .jsonl of earlier runs: summarised, nothing is run")
    parser.add_argument("--against", help="a .jsonl of another version, whose widths are compared")
    parser.add_argument("--output")
    args = parser.parse_args()
    kept = Path(args.output).with_suffix(".jsonl") if args.output else None
    lines = read(args.again or kept)
    if not args.again:
        for line in runs(args, lines):
            lines.append(line)
            text = json.dumps(line, default=float)
            told = line.get("failed") or f"{line['nats']:.3f} of {line['truth']:.3f} nats"
            print(*(line[key] for key in KEY), told, file=sys.stderr, flush=True)
            if kept:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(text + "\n")
    good = {tuple(line[key] for key in KEY): line for line in lines if "failed" not in line}
    failed = [line for line in lines if tuple(line[key] for key in KEY) not in good]
    result: Line = {"summary": summaries(list(good.values())), "failed": failed}
    if args.against:
        others = [line for line in read(args.against) if "failed" not in line]
        result["against"] = compared(list(good.values()), others)
    # Only here: worker processes read this file too, before they choose their version of pointdep.
    from report import report

    report("intervals on the further tasks", result, args.output)


if __name__ == "__main__":
    main()
