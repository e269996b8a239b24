"""pointdep on the tasks of the bmi benchmark, on the arrays the peers get (see peers/README.md).

    python benchmarks/bmi_tasks.py --rows 10000 --seeds 0 1 2
    python benchmarks/bmi_tasks.py --rows 1000 --estimators pointdep pointdep-concat
    python benchmarks/bmi_tasks.py --summary --results benchmarks/results/bmi_present.jsonl \
        --against benchmarks/results/bmi_0.1.0.jsonl

One JSON line a run, in the form of the peers' lines, with the interval and what was taken off for
fitting; runs that have a line already are skipped. `peers/table.py` joins both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DATA = HERE / "peers" / "data"
RESULTS = HERE / "results" / "pointdep.jsonl"
OPTIONS: dict[str, dict[str, Any]] = {
    "pointdep": {},
    "pointdep-concat": {"critic": "concat"},
    "pointdep-no-curve": {"curve": False},
}


def run(job: dict[str, Any], threads: int) -> dict[str, Any]:
    """One fit with default settings and its estimate."""
    import numpy as np
    import torch

    import pointdep
    from pointdep import PointwiseDependency

    torch.set_num_threads(threads)
    with np.load(DATA / job["task"] / f"rows10000_seed{job['seed']}.npz") as arrays:
        x, y, mi = arrays["x"][: job["rows"]], arrays["y"][: job["rows"]], float(arrays["mi"])
    options = OPTIONS[job["estimator"]]
    model = PointwiseDependency(random_state=job["seed"], progress=False, **options)
    begin, cpu = time.perf_counter(), time.process_time()
    found = model.fit(x, y).mutual_information(confidence=0.9)
    return {
        "mi": mi,
        "error": found.nats - mi,
        "estimate": found.nats,
        "seconds": round(time.perf_counter() - begin, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "failed": False,
        "why": "",
        "versions": {"pointdep": pointdep.__version__, "torch": torch.__version__},
        "stderr": found.stderr,
        "covered": found.ci[0] <= mi <= found.ci[1],
        "correction": found.correction,
        "flags": [flag.name for flag in model.flags_],
        "epochs": len(model.history_),
        "threads": threads,
        "device": str(model.model_.constant.device),
        "commit": _commit(),
    }


def summarise(results: Path, against: Path | None) -> None:
    """Errors, coverage of the 90 % interval, flags; and processor time over that of other lines."""
    import numpy as np

    def read(path: Path) -> dict[str, dict[str, Any]]:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return {f"{line['task']} {line['rows']} {line['seed']}": line for line in lines}

    lines = read(results)
    errors = np.abs([line["error"] for line in lines.values()])
    covered = sum(line["covered"] for line in lines.values())
    flags = [set(line["flags"]) & {"rises_with_rows", "alarm"} for line in lines.values()]
    print(f"{len(lines)} fits: mean absolute error {errors.mean():.4f}, worst {errors.max():.4f};")
    print(f"90 % interval covers {covered}; flagged as too low {sum(map(bool, flags))}")
    if against is not None:
        other = read(against)
        both = [(lines[key], other[key]) for key in lines if key in other]
        ours, theirs = (np.array([pair[k]["cpu_seconds"] for pair in both]) for k in (0, 1))
        whole, middle = ours.sum() / theirs.sum(), np.median(ours / theirs)
        print(f"processor time of {len(both)} fits over {against.name}: {whole:.2f} in all,")
        print(f"{middle:.2f} in the median")


def _commit() -> str:
    told = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return told.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="*", help="names; all when not given")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000])
    parser.add_argument("--estimators", nargs="+", default=["pointdep"], choices=OPTIONS)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--summary", action="store_true", help="summarise the results and stop")
    parser.add_argument("--against", type=Path, help="lines of another version, for their time")
    args = parser.parse_args()
    if args.summary:
        summarise(args.results, args.against)
        return
    warnings.simplefilter("ignore")
    names = args.tasks or [t["name"] for t in json.loads((DATA / "tasks.json").read_text())]
    args.results.touch()
    keys = ("task", "rows", "seed", "estimator")
    lines = [json.loads(line) for line in args.results.read_text().splitlines()]
    done = {tuple(line[key] for key in keys) for line in lines}
    for rows in args.rows:
        for seed in args.seeds:
            for estimator in args.estimators:
                for task in names:
                    job = {"task": task, "rows": rows, "seed": seed, "estimator": estimator}
                    if tuple(job.values()) in done:
                        continue
                    line = job | run(job, args.threads)
                    with args.results.open("a") as results:
                        results.write(json.dumps(line) + "\n")
                    print(
                        *job.values(), f"{line['error']:+.4f} {line['seconds']:.1f} s", flush=True
                    )


if __name__ == "__main__":
    main()
