"""What fitting, scoring, auditing and retrieving cost: measured on a grid of rows and columns.

    python benchmarks/cost_model.py measure --output benchmarks/results/cost_model_cpu.json
    python benchmarks/cost_model.py measure --device cuda \\
        --output benchmarks/results/cost_model_gpu.json
    python benchmarks/cost_model.py measure --threads 2 \\
        --output benchmarks/results/cost_model_cores.json

On a CPU one core is measured, and a few jobs with two. Each job runs in a process of its own
(`cost_measure.py`), on a GPU all in one, which starts once; the output is written after every job,
and what it holds is not measured again. The largest jobs are held out: the constants are fitted to
the others, by `cost_fit.py`, and must predict these.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from cost_jobs import Job, jobs, make_job
from report import report

WIDE, NARROW, PLANTED = (20, 1.5), (3, 0.5), 0.01  # factors and noise of data of many columns, few
WRITTEN = 1 << 18  # rows made at a time


def write(folder: Path, rows: int, dims: Sequence[int], device: str) -> None:
    """x.npy and y.npy, float16: noisy views of shared factors, 1 % of the pairs mismatched."""
    folder.mkdir(parents=True)
    factor_count, noise = WIDE if max(dims) > 25 else NARROW
    draw = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw, device=device)

    places = [
        np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float16, (rows, dim))
        for name, dim in zip("xy", dims, strict=True)
    ]
    maps = [
        (normal(factor_count, 40) / factor_count**0.5, normal(40, dim) / factor_count**0.5)
        for dim in dims
    ]
    for first in range(0, rows, WRITTEN):
        count = min(WRITTEN, rows - first)
        factors = normal(count, factor_count)
        wrong = torch.rand(count, generator=draw, device=device) < PLANTED
        for side, (place, (inner, outer)) in enumerate(zip(places, maps, strict=True)):
            values = torch.tanh(2 * factors @ inner) @ outer
            values = values + noise * normal(count, dims[side])
            if side:
                values[wrong] = values[wrong].roll(1, 0)
            place[first : first + count] = values.half().cpu().numpy()


class Waiting:
    """A process that has imported everything and waits for jobs."""

    def __init__(self, args: argparse.Namespace) -> None:
        script = Path(__file__).with_name("cost_measure.py")
        threads = {"OMP_NUM_THREADS": str(args.threads)} if args.threads else {}
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, str(script), args.device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **threads},
        )
        self.said, self.told = _pipe(self.process.stdout), _pipe(self.process.stdin)
        if self.said.readline().strip() != "ready":
            raise RuntimeError("the measuring process did not start")
        self.start_seconds = time.perf_counter() - began

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        self.told.close()
        self.process.wait()

    def do(self, job: Job) -> Job | None:
        """What was measured, or None where the job failed, with its error on standard error."""
        self.told.write(json.dumps(job) + "\n")
        self.told.flush()
        line = self.said.readline()
        print(line.strip() or f"ended in the job {job}", file=sys.stderr, flush=True)
        found: Job = json.loads(line) if line else {"error": "ended"}
        return None if "error" in found else found


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def done_apart(todo: Sequence[Job], args: argparse.Namespace) -> Iterator[Job]:
    """Each job in a process of its own, or with `--together` all in one, as long as it lives."""
    left = list(todo)
    while left:
        with Waiting(args) as process:
            while left and process.process.poll() is None:
                found = process.do(left.pop(0))
                if found is not None:
                    yield {**found, "start_seconds": process.start_seconds}
                if not args.together:
                    break


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All jobs of the grid, or those that are asked for, and that the output does not hold."""
    todo = jobs(args.device, args.threads, args.scale)
    if args.only:
        todo = [job for job in todo if job["what"] in args.only.split(",")]
    before = _measured_before(args.output)
    todo = [job for job in todo if not any(_is(job, old) for old in before["jobs"])]
    shutil.rmtree(args.folder, ignore_errors=True)
    began = time.perf_counter()
    result: dict[str, Any] = {
        "machine": args.machine,
        "cores": args.threads or torch.get_num_threads(),
        "faiss": find_spec("faiss") is not None,
        "first_seconds": before.get("first_seconds", 0.0),
        "jobs": before["jobs"],
    }
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, args.folder, ignore_errors=True)
        _prepare(todo, args)
        first = _first_jobs(todo[0]) if args.together and todo else []
        trial: list[Job] = []
        for found in done_apart([*first, *_models(todo, args), *todo], args):
            purpose = found.get("purpose")
            if purpose == "first":
                trial.append(found)
                result["first_seconds"] = trial[0]["seconds"] - found["seconds"]
            elif purpose is None:
                result["jobs"].append(found)
            if args.output:  # so that what is done is not lost if the rest is cut off
                Path(args.output).write_text(json.dumps(result), "utf-8")
    return {**result, "total_seconds": time.perf_counter() - began}


def _first_jobs(job: Job) -> list[Job]:
    """A small audit of the job's files, twice, to see what is paid once in a process; then of
    streamed rows, so that no job pays what the first of those does."""
    made = make_job("audit", 2000, (job["dims"][0], job["dims"][1]), {"epochs": 1})
    made |= {"device": job["device"], "files": job["files"], "purpose": "first"}
    return [made, made, made | {"stream": True, "purpose": "warming"}]


def _prepare(todo: Sequence[Job], args: argparse.Namespace) -> None:
    """Write the files that the jobs read, and tell them where."""
    for dims in {tuple(job["dims"]) for job in todo}:
        rows = max(20_000, *(job["rows"] for job in todo if tuple(job["dims"]) == dims))
        write(args.folder / _name(dims), rows, dims, args.device)
    for job in todo:
        job |= {"device": args.device, "files": str(args.folder / _name(job["dims"]))}


def _measured_before(output: str | None) -> dict[str, Any]:
    """What the output holds already."""
    if output is None or not Path(output).exists():
        return {"jobs": []}
    found: dict[str, Any] = json.loads(Path(output).read_text("utf-8"))
    return found


def _is(job: Job, old: Job) -> bool:
    return all(old.get(name) == value for name, value in job.items())


def _models(todo: Sequence[Job], args: argparse.Namespace) -> list[Job]:
    """Fits that save the models which jobs need; the jobs are told where."""
    fits: dict[str, Job] = {}
    for job in todo:
        if job["what"] not in ("score", "retrieve"):
            continue
        name = f"model-{_name(job['dims'])}-{job['folds']}-{job.get('hidden', 'auto')}"
        job["model"] = str(args.folder / name)
        own: Job = {key: job[key] for key in ("hidden", "embedding_dim") if key in job}
        narrow = max(job["dims"]) <= 25
        made = make_job("fit", 20_000 if narrow else 4_000, (job["dims"][0], job["dims"][1]), own)
        made |= {"epochs": 6 if narrow else 1, "folds": job["folds"], "device": args.device}
        fits[name] = made | {"files": job["files"], "save": job["model"], "purpose": "model"}
    return list(fits.values())


def _name(dims: Sequence[int]) -> str:
    return "x".join(map(str, dims))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("measure",))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--machine", default="one core of a cloud machine", help="in words")
    parser.add_argument("--threads", type=int, default=None, help="1 on a CPU, all beside a GPU")
    parser.add_argument("--together", action="store_true", help="all jobs in one process")
    parser.add_argument("--folder", type=Path, default=Path("cost_model_files"))
    parser.add_argument("--scale", type=float, default=1.0, help="of all rows, for a trial")
    parser.add_argument("--only", help="audit, score or retrieve, comma separated")
    parser.add_argument("--output", help="what it holds already is not measured again")
    args = parser.parse_args()
    on_gpu = args.device == "cuda"
    args.threads = (0 if on_gpu else 1) if args.threads is None else args.threads
    args.together |= on_gpu  # where a process takes long to start
    report("cost_model", measure(args), args.output)


if __name__ == "__main__":
    main()
