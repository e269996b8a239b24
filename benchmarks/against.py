"""Processor seconds of this version over those of another, in one run, one core.

    git worktree add ../other v0.1.0
    python benchmarks/against.py ../other/src --output benchmarks/results/against.json

Fits of 10,000 rows of three tasks and an audit of 20,000 pairs. Each job runs in a process of its
own, by turns in both versions, and the least of `--repeats` times counts: other work on the machine
only ever makes it longer.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from report import report

_FIT = """
import time
from pointdep import PointwiseDependency
from pointdep.data.tasks import make_task
task = make_task({name!r}, 10_000, seed=1)
model = PointwiseDependency(random_state=0, progress=False)
began = time.process_time()
model.fit(task.x, task.y)
print(time.process_time() - began, model.mutual_information().nats)
"""
_AUDIT = """
import time
from pointdep import audit
from pointdep.data.tasks import make_task
task = make_task("gaussian-20", 20_000, seed=1)
began = time.process_time()
found = audit(task.x, task.y, random_state=0, progress=False)
print(time.process_time() - began, found.table["pmi"].mean())
"""
JOBS = {name: _FIT.format(name=name) for name in ("gaussian-20", "spiral-3", "student-5")}
JOBS["audit of 20,000"] = _AUDIT


def perform(job: str, src: Path) -> tuple[float, float]:
    """Processor seconds, and a number that tells whether both versions did the same."""
    plain = {"PYTHONPATH": str(src), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", job]
    out = subprocess.run(command, env=os.environ | plain, check=True, capture_output=True).stdout
    seconds, value = out.decode().split()
    return float(seconds), float(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("other", type=Path, help="the folder `src` of the other version")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--output")
    options = parser.parse_args()
    here = Path(__file__).resolve().parents[1] / "src"
    jobs = {}
    for name, job in JOBS.items():
        versions = (options.other, here)
        turns = [[perform(job, src) for src in versions] for _ in range(options.repeats)]
        other, own = (min(turn[k][0] for turn in turns) for k in (0, 1))
        values = [turns[0][k][1] for k in (0, 1)]
        jobs[name] = {"other_s": other, "seconds": own, "ratio": own / other, "values": values}
        print(name, jobs[name], flush=True)
    report("against", {"jobs": jobs}, options.output)


if __name__ == "__main__":
    main()
