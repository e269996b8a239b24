"""Run the peers on the benchmark's arrays and append one JSON line per run.

    .venv/bin/python benchmarks/peers/run.py --rows 10000 --seeds 0 --peers bmi-cca sbi

A run is one (task, seed, rows, estimator). Runs that have a line already are skipped, so a stopped
call goes on where it was. Each peer works in a process of its own environment, one thread; a run
past `--timeout` seconds loses its process and is recorded as failed.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
RESULTS = HERE.parent / "results" / "peers.jsonl"

# Which environment runs which estimator; the order is the order of the runs.
PEERS = {
    "bmi-cca": "bmi",
    "sbi-nre-c": "sbi",
    "sbi-nre-a": "sbi",
    "torch-mist-smile": "torch_mist",
    "torch-mist-js": "torch_mist",
    "torch-mist-smile-heldout": "torch_mist",
    "torch-mist-js-heldout": "torch_mist",
    "bmi-infonce": "bmi",
    "bmi-mine": "bmi",
    "bmi-ksg": "bmi",
    "latentmi": "latentmi",
    "neuralmi": "neuralmi",
    "mist-statinf": "mist_statinf",
}
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}
START_SECONDS = 180
# Our folder comes last on the path, so that nothing in it hides a package of the peer.
START = """
import runpy, sys
sys.path.append(sys.argv[1])
runpy.run_module(sys.argv[2], run_name="__main__")
"""


def processor_seconds(pid: int) -> float:
    """Processor time a process has used, which on a busy machine is less than the wall clock."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Worker:
    """A process in one peer's environment that answers jobs."""

    def __init__(self, environment: str, log: Path) -> None:
        self.environment = environment
        python = HERE / "envs" / environment / "bin" / "python"
        # Some peers write logs where they stand.
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        with log.open("a") as errors:
            self.process = subprocess.Popen(
                [python, "-c", START, HERE.parent, f"peers.{environment}_worker"],
                env=os.environ | ONE_THREAD,
                cwd=self.folder.name,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
            )
        if self.read(START_SECONDS) != "ready":
            self.close()
            raise RuntimeError(f"the environment {environment} did not start: see {log}")

    def read(self, seconds: float) -> str | None:
        """The next line, or None when none came in time."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return None
        return self.process.stdout.readline().decode().strip()

    def ask(self, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send one job; a worker that is late or dies has failed the run and is closed."""
        assert self.process.stdin is not None
        before = processor_seconds(self.process.pid)
        self.process.stdin.write((json.dumps(job) + "\n").encode())
        line = self.read(seconds)
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        late = line is None
        used = round(processor_seconds(self.process.pid) - before, 3) if late else None
        self.close()
        return {
            "estimate": None,
            "seconds": seconds if late else None,
            "cpu_seconds": used,
            "failed": True,
            "why": f"timeout after {seconds:g} s" if late else "the process died",
            "versions": {},
        }

    def close(self) -> None:
        """End the process and remove its folder."""
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    @property
    def alive(self) -> bool:
        """Whether it can take another job."""
        return self.process.poll() is None


def jobs(args: argparse.Namespace, tasks: list[str]) -> Iterator[dict[str, Any]]:
    """All runs asked for, in order."""
    for rows in args.rows:
        for seed in args.seeds:
            for estimator, environment in PEERS.items():
                if args.peers and not {estimator, environment} & set(args.peers):
                    continue
                for task in tasks:
                    yield {"task": task, "rows": rows, "seed": seed, "estimator": estimator}


def key(line: dict[str, Any]) -> tuple[Any, ...]:
    """What makes a run the same run."""
    return line["task"], line["rows"], line["seed"], line["estimator"]


def main() -> None:
    """Run what has no line yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="*", help="names; all when not given")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 1_000])
    parser.add_argument("--peers", nargs="*", help="estimators or environments; all by default")
    parser.add_argument("--limit", type=int, help="at most so many runs in this call")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one run")
    parser.add_argument("--until", help="start no run after this time, hh:mm UTC")
    parser.add_argument("--core", type=int, help="the one processor core to run on")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()

    if args.core is not None:
        os.sched_setaffinity(0, {args.core})
    truth = {task["name"]: task["mi"] for task in json.loads((DATA / "tasks.json").read_text())}
    args.results.parent.mkdir(exist_ok=True)
    args.results.touch()
    done = {key(json.loads(line)) for line in args.results.read_text().splitlines()}
    open_jobs = [job for job in jobs(args, args.tasks or list(truth)) if key(job) not in done]

    worker: Worker | None = None
    for job in open_jobs[: args.limit]:
        if args.until and f"{datetime.now(timezone.utc):%H:%M}" >= args.until:
            break
        environment = PEERS[job["estimator"]]
        if worker is None or not worker.alive or worker.environment != environment:
            if worker is not None:
                worker.close()
            worker = Worker(environment, DATA / "workers.log")
        path = DATA / job["task"] / f"rows10000_seed{job['seed']}.npz"
        answer = worker.ask(job | {"path": str(path)}, args.timeout)
        mi = truth[job["task"]]
        error = None if answer["failed"] else answer["estimate"] - mi
        with args.results.open("a") as results:
            results.write(json.dumps(job | {"mi": mi, "error": error} | answer) + "\n")
        print(*job.values(), f"{mi:.3f}", answer["estimate"], answer["seconds"], answer["why"])
    if worker is not None:
        worker.close()


if __name__ == "__main__":
    main()
