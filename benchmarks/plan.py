"""Plans against the jobs that they are about: planned / measured, time and memory.

    python benchmarks/plan.py --output benchmarks/results/plan.json

Each job is planned with `pointdep.plan` and then run in a process of its own, on one core or with
--gpu on the GPU. Times are of the command itself, without the start of the process: seconds of the
processor on one core, which other work on the machine hardly lengthens. The jobs are several
times larger than what a dry run tries.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from large_fit import AnonymousMemory, views
from report import report

import pointdep
from pointdep.workflow.plan import COMMANDS, START


@dataclass(frozen=True)
class Job:
    """Rows, columns of each side, epochs, folds, queries, and whether rows are streamed."""

    rows: int
    dim: int
    epochs: int
    folds: int = 5
    queries: int = 2_000
    stream: bool | None = None


CPU = (
    Job(30_000, 8, epochs=3),
    Job(40_000, 64, epochs=4),
    Job(8_000, 512, epochs=2),
    Job(80_000, 64, epochs=3, folds=2, stream=True),
)
GPU = (
    Job(150_000, 8, epochs=4),
    Job(300_000, 64, epochs=4),
    Job(60_000, 512, epochs=4),
    Job(400_000, 512, epochs=4, stream=True),
)


def run(command: str, job: Job, gpu: bool) -> dict[str, float]:
    """Do it in this process, and tell what it took."""
    import torch

    from pointdep import PointwiseDependency
    from pointdep.estimators.pointwise import pair_columns

    warnings.simplefilter("ignore")
    both = views(job.rows, job.dim, seed=0)
    x, y = both[:, : job.dim], both[:, job.dim :]
    options: dict[str, Any] = {
        "folds": job.folds,
        "device": "cuda" if gpu else "cpu",
        "random_state": 0,
    }
    model = PointwiseDependency(
        max_epochs=job.epochs, patience=job.epochs, stream=job.stream, progress=False, **options
    )
    # A small job before it pays what a process pays once.
    few = PointwiseDependency(max_epochs=1, progress=False, **options).fit(x[:500], y[:500])
    if command in ("score", "retrieve"):
        # The layers are those of a fit on all rows, and narrow data take a while to show a network
        # its use, without which a search is much quicker.
        layers: Any = "auto"
        rows, epochs = 3_000, 3
        if job.dim <= 25:
            rows, epochs, layers = 20_000, 8, (256, 64) if job.rows >= 50_000 else (128, 64)
        few.set_params(max_epochs=epochs, hidden=layers).fit(x[:rows], y[:rows])
    else:
        pointdep.audit(x[:500], y[:500], model=few)
    work: dict[str, Callable[[], Any]] = {
        "fit": lambda: model.fit(x, y),
        "score": lambda: pair_columns(few, x, y),
        "audit": lambda: pointdep.audit(x, y, model=model),
        "retrieve": lambda: few.retrieve(x[: job.queries], y),
    }
    clock = time.perf_counter if gpu else time.process_time
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    with AnonymousMemory() as memory:
        began = clock()
        work[command]()
        seconds = clock() - began
    print(few.model_.answered)
    on_gpu = torch.cuda.max_memory_allocated() / 2**30 if gpu else 0.0
    return {"seconds": seconds, "gib": memory.peak, "gpu_gib": on_gpu}


def compared(job: Job, gpu: bool) -> dict[str, Any]:
    """One plan, and the four jobs it is about."""
    began = time.perf_counter()
    asked: dict[str, Any] = {
        "epochs": job.epochs,
        "folds": job.folds,
        "queries": job.queries,
        "stream": job.stream,
    }
    found = pointdep.plan(job.rows, job.dim, gpu=gpu, cores=None if gpu else 1, **asked)
    result: dict[str, Any] = {**asdict(job), "plan_seconds": time.perf_counter() - began}
    for command in COMMANDS:
        cost = found.costs[command]
        planned = {"seconds": cost.seconds - cost.parts[START], "gib": cost.gib}
        if cost.gpu_gib is not None:
            planned["gpu_gib"] = cost.gpu_gib
        text = json.dumps([command, asdict(job), gpu])
        done = subprocess.run(
            [sys.executable, __file__, "--run", text], check=True, stdout=subprocess.PIPE, text=True
        )
        measured = json.loads(done.stdout.splitlines()[-1])
        ratios = {name: planned[name] / measured[name] for name in planned}
        result[command] = {"planned": planned, "measured": measured, "ratio": ratios}
        print(
            command,
            job,
            done.stdout.splitlines()[0],
            {name: round(ratio, 2) for name, ratio in ratios.items()},
            flush=True,
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--run", help="what a process of its own does: command, job, GPU")
    parser.add_argument("--output")
    args = parser.parse_args()
    if args.run:
        command, job, gpu = json.loads(args.run)
        print(json.dumps(run(command, Job(**job), gpu)))
        return
    jobs = [compared(job, args.gpu) for job in (GPU if args.gpu else CPU)]
    report("plan", {"jobs": jobs}, args.output)


if __name__ == "__main__":
    main()
