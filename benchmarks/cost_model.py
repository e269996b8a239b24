"""What fitting, scoring, auditing and retrieving cost: measured on a grid of rows and columns.

    python benchmarks/cost_model.py measure --output benchmarks/results/cost_model_cpu.json
    python benchmarks/cost_model.py measure --device cuda \\
        --output benchmarks/results/cost_model_gpu.json

Each job runs in a process of its own (`cost_measure.py`), which is started, with all imports done,
before its turn comes. The largest jobs are held out: the constants are fitted to the others, by
`cost_fit.py`, and must predict these.
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
from report import report

WIDE, NARROW, PLANTED = (20, 1.5), (3, 0.5), 0.01  # factors and noise of data of many columns, few
WRITTEN = 1 << 18  # rows made at a time
SMALL = {"hidden": [32], "embedding_dim": 16, "folds": 2}

Job = dict[str, Any]


def jobs(device: str, scale: float = 1.0) -> list[Job]:
    """The grid; scale: of all rows, for a trial."""
    made = _gpu_jobs() if device == "cuda" else _cpu_jobs()
    for job in made:
        job["rows"] = max(2000, int(job["rows"] * scale))
    return made


def _cpu_jobs() -> list[Job]:
    fits = [
        _audit(5e3, 8, 3),
        _audit(2e4, 8, 2),
        _audit(6e4, 8, 1),
        _audit(5e3, 32, 3),
        _audit(6e4, 32, 1),
        _audit(2e4, 64, 2),
        _audit(2e4, 256, 1),
        _audit(1e4, (512, 64), 1),
        _audit(4e3, 512, 2),
        _audit(5e4, 64, 2, stream=True),
        _audit(5e4, 64, 3, stream=True, **SMALL),
        _audit(2e4, 512, 1, stream=True, folds=2),
        _audit(3e5, 64, 1, stream=True, **SMALL),
        _audit(1e5, 8, 1, stream=True, folds=2),
        _audit(1.5e5, 8, 1, held_out=True),
        _audit(1.2e5, 64, 1, held_out=True),
        _audit(3e4, 512, 1, held_out=True),
        _audit(6e4, 512, 1, stream=True, folds=2, held_out=True),
        _audit(8e5, 64, 2, stream=True, held_out=True, **SMALL),
    ]
    scores = [
        *(_score(rows, 8) for rows in (1e4, 1e5)),
        *(_score(rows, 64) for rows in (1e4, 1e5)),
        *(_score(rows, 512) for rows in (5e3, 3e4)),
        _score(2e5, 64, **SMALL),
        _score(4e5, 8, held_out=True),
        _score(8e4, 512, held_out=True),
        _score(1.1e6, 64, held_out=True, **SMALL),
    ]
    searches = [
        *(_retrieve(rows, 8, queries) for rows, queries in ((1e4, 1e3), (3e4, 1e3), (2e4, 3e3))),
        *(_retrieve(rows, 64, queries) for rows, queries in ((1e4, 1e3), (1e5, 1e3), (5e4, 5e3))),
        *(_retrieve(rows, 512, queries) for rows, queries in ((5e3, 500), (3e4, 1e3))),
        _retrieve(2e5, 64, 3e3, held_out=True),
        _retrieve(1e5, 8, 1e3, held_out=True),
    ]
    return fits + scores + searches


def _gpu_jobs() -> list[Job]:
    fits = [
        _audit(1e4, 8, 3),
        _audit(1e5, 8, 1),
        _audit(1e4, 64, 3),
        _audit(6e4, 64, 2),
        _audit(2e4, 512, 2),
        _audit(1e5, 64, 2, stream=True),
        _audit(4e5, 64, 2, stream=True, **SMALL),
        _audit(5e4, 512, 2, stream=True),
        _audit(2e5, 512, 2, stream=True),
        _audit(2e5, 8, 2, stream=True),
        _fit(1e5, 64, 200, stream=True, patience=8),
        _audit(1e5, 64, 3, held_out=True),
        _audit(1.1e6, 64, 2, held_out=True),
        _audit(5e5, 512, 2, held_out=True),
    ]
    scores = [
        *(_score(rows, 8) for rows in (1e5, 1e6)),
        *(_score(rows, 64) for rows in (1e5, 1e6)),
        *(_score(rows, 512) for rows in (2e4, 1.2e5)),
        _score(2e6, 64, held_out=True),
        _score(1e6, 512, held_out=True),
    ]
    searches = [
        *(_retrieve(rows, 8, queries) for rows, queries in ((5e4, 1e3), (2e5, 3e3))),
        *(_retrieve(rows, 64, queries) for rows, queries in ((1e5, 1e3), (5e5, 1e4))),
        _retrieve(5e4, 512, 1e3),
        _retrieve(2e5, 512, 1e4),
        _retrieve(2e6, 64, 1e4, held_out=True),
        _retrieve(4e5, 512, 1e4, held_out=True),
    ]
    return fits + scores + searches


def _job(what: str, rows: float, dims: int | tuple[int, int], more: Job) -> Job:
    both = list(dims) if isinstance(dims, tuple) else [dims, dims]
    return {"what": what, "rows": int(rows), "dims": both, "folds": 5, "held_out": False, **more}


def _audit(rows: float, dims: int | tuple[int, int], epochs: int, **more: Any) -> Job:
    return _job("audit", rows, dims, {"epochs": epochs, **more})


def _fit(rows: float, dims: int, epochs: int, **more: Any) -> Job:
    return _job("fit", rows, dims, {"epochs": epochs, **more})


def _score(rows: float, dims: int, **more: Any) -> Job:
    return _job("score", rows, dims, more)


def _retrieve(rows: float, dims: int, queries: float, **more: Any) -> Job:
    return _job("retrieve", rows, dims, {"queries": int(queries), **more})


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
    """A process that has imported everything and waits for its job."""

    def __init__(self, device: str, threads: int) -> None:
        script = Path(__file__).with_name("cost_measure.py")
        environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, str(script), device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.said, self.told = self._pipe(self.process.stdout), self._pipe(self.process.stdin)

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe

    def ready(self) -> float:
        """Wait until it is; the seconds since it was started."""
        if self.said.readline().strip() != "ready":
            raise RuntimeError("a measuring process did not start")
        return time.perf_counter() - self.began

    def do(self, job: Job) -> dict[str, Any]:
        self.told.write(json.dumps(job) + "\n")
        self.told.flush()
        line = self.said.readline()
        self.told.close()
        if self.process.wait() or not line:
            raise RuntimeError(f"the job failed: {job}")
        found: dict[str, Any] = json.loads(line)
        return found


def done_apart(todo: Sequence[Job], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Each job in a process of its own, so many of which are made ready at a time.

    One that fails is left out, with its error on standard error.
    """
    for first in range(0, len(todo), args.ahead):
        some = todo[first : first + args.ahead]
        waiting = [Waiting(args.device, args.threads) for _ in some]
        for one in waiting:
            one.ready()
        for one, job in zip(waiting, some, strict=True):
            try:
                found = one.do(job)
            except (RuntimeError, OSError) as error:
                print(error, file=sys.stderr)
                continue
            print(json.dumps(found), file=sys.stderr, flush=True)
            yield found


def start_seconds(args: argparse.Namespace) -> float:
    """From the start of a process until it can begin, with the files of the imports in memory."""
    for _ in range(2):
        one = Waiting(args.device, args.threads)
        seconds = one.ready()
        one.told.close()
        one.process.wait()
    return seconds


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All jobs of the grid, or those that are asked for."""
    todo = jobs(args.device, args.scale)
    if args.only:
        todo = [job for job in todo if job["what"] in args.only.split(",")]
    if args.jobs:
        todo = [todo[int(number)] for number in args.jobs.split(",")]
    shutil.rmtree(args.folder, ignore_errors=True)
    began = time.perf_counter()
    start = start_seconds(args)
    for dims in {tuple(job["dims"]) for job in todo}:
        rows = max(job["rows"] for job in todo if tuple(job["dims"]) == dims)
        write(args.folder / _name(dims), rows, dims, args.device)
    models = _models(todo, args)
    for job in todo:
        job |= {"device": args.device, "files": str(args.folder / _name(job["dims"]))}
        if job["what"] in ("score", "retrieve"):
            job["model"] = models[_network(job)]
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, args.folder)
        measured = list(done_apart(todo, args))
    return {
        "machine": args.machine,
        "cores": args.threads or torch.get_num_threads(),
        "faiss": find_spec("faiss") is not None,
        "start_seconds": start,
        "total_seconds": time.perf_counter() - began,
        "jobs": measured,
    }


def _models(todo: Sequence[Job], args: argparse.Namespace) -> dict[str, str]:
    """Saved models for the jobs that need one, by what `_network` says."""
    needed = {_network(job): job for job in todo if job["what"] in ("score", "retrieve")}
    fits = []
    for name, job in needed.items():
        own = {key: job[key] for key in ("hidden", "embedding_dim") if key in job}
        narrow = max(job["dims"]) <= 25
        made = _job("fit", 20_000 if narrow else 4_000, (job["dims"][0], job["dims"][1]), own)
        made |= {"epochs": 6 if narrow else 1, "folds": job["folds"], "device": args.device}
        made |= {"files": str(args.folder / _name(job["dims"]))}
        fits.append(made | {"save": str(args.folder / name)})
    list(done_apart(fits, args))
    return {name: str(args.folder / name) for name in needed}


def _name(dims: Sequence[int]) -> str:
    return "x".join(map(str, dims))


def _network(job: Job) -> str:
    return f"model-{_name(job['dims'])}-{job['folds']}-{job.get('hidden', 'auto')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("measure",))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--machine", default="2 cores of a cloud machine", help="in words")
    parser.add_argument("--threads", type=int, default=None, help="1 on a CPU, all beside a GPU")
    parser.add_argument("--ahead", type=int, default=None, help="processes ready at a time")
    parser.add_argument("--folder", type=Path, default=Path("cost_model_files"))
    parser.add_argument("--scale", type=float, default=1.0, help="of all rows, for a trial")
    parser.add_argument("--only", help="audit, score or retrieve, comma separated")
    parser.add_argument("--jobs", help="numbers of jobs, comma separated, from 0")
    parser.add_argument("--output")
    args = parser.parse_args()
    on_gpu = args.device == "cuda"
    args.threads = (0 if on_gpu else 1) if args.threads is None else args.threads
    args.ahead = (12 if on_gpu else 1) if args.ahead is None else args.ahead
    report(f"cost_model_{'gpu' if on_gpu else 'cpu'}", measure(args), args.output)


if __name__ == "__main__":
    main()
