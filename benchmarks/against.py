"""Processor seconds of this version over those of another, in one run, one core.

    git worktree add ../other v0.1.0
    python benchmarks/against.py ../other/src --output benchmarks/results/against.json
    python benchmarks/against.py ../other/src --tasks bmi --repeats 1 --output bmi.json
    python benchmarks/against.py ../other/src --tasks ring wave-3 --lines some.jsonl

Fits of 10,000 rows with default settings, and an audit of 20,000 pairs. Both versions get the same
rows. Each job runs in a process of its own, by turns in both versions, and the least of `--repeats`
times counts: other work on the machine only ever makes it longer. `bmi` is the 40 tasks of that
benchmark, drawn by pointdep's own code; further tasks (`further_tasks.py`) and built-in ones go by
their names. With --lines every finished job is kept, and one that has a line is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from further_tasks import FURTHER
from report import report

from pointdep.data.tasks import TASKS
from pointdep.data.tasks import continuous as c
from pointdep.data.tasks.continuous import Joint, Map, mapped

ROWS = 10_000
FIVE = ("spread-1", "ring", "multiplied-1", "edges-4", "wave-3")
"""A spread, a circle, a product, edges and a sine."""

_FIT = """
import sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
from pointdep import PointwiseDependency
with np.load(sys.argv[1]) as arrays:
    x, y = arrays["x"], arrays["y"]
x, y = (np.char.add("w", s.astype(str)) if s.ndim == 1 and s.dtype.kind in "iu" else s
        for s in (x, y))
model = PointwiseDependency(random_state=0, progress=False)
began = time.process_time()
found = model.fit(x, y).mutual_information(confidence=0.9)
seconds = time.process_time() - began
print(seconds, found.nats, *found.ci, len(model.history_))
"""
_AUDIT = """
import sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from pointdep import audit
with np.load(sys.argv[1]) as arrays:
    x, y = arrays["x"], arrays["y"]
began = time.process_time()
found = audit(x, y, random_state=0, progress=False)
seconds = time.process_time() - began
print(seconds, found.table["pmi"].mean(), 0.0, 0.0, 0)
"""


def bmi_joints() -> dict[str, Joint]:
    """The 40 tasks of bmi; "bimodal" by cube roots, which like its own map only bend each side."""
    normal = {"1v1-normal-0.75": c.gaussian(c.dense_covariance(1, 0.75), 1)}
    sparse = {
        f"{d}-{d}-2-2.0": c.gaussian(c.sparse_covariance(d, 2, 2.0), d) for d in (2, 3, 5, 25)
    }
    dense = {f"{d}-{d}-0.5": c.gaussian(c.dense_covariance(d, 0.5), d) for d in (2, 3, 5, 25, 50)}
    one = normal["1v1-normal-0.75"]
    cdf = mapped(one, x=c.NORMAL_CDF, y=c.NORMAL_CDF)
    root = Map(np.cbrt, lambda x: x**3)
    found = {f"1v1-additive-{width}": c.uniform_noise(width) for width in (0.1, 0.75)}
    found |= normal | {"1v1-bimodal-0.75": mapped(one, x=root, y=root)}
    found |= {"swissroll_x-normal_cdf-1v1-normal-0.75": mapped(cdf, x=c.SWISS_ROLL)}
    found |= {f"multinormal-dense-{name}": joint for name, joint in dense.items()}
    found |= {f"multinormal-sparse-{name}": joint for name, joint in sparse.items()}
    bent = {"half_cube": c.HALF_CUBE, "normal_cdf": c.NORMAL_CDF, "wiggly": c.WIGGLY}
    for word, change in bent.items():
        found[f"{word}-1v1-normal-0.75"] = mapped(one, x=change, y=change)
        for name in ("3-3-2-2.0", "5-5-2-2.0", "25-25-2-2.0") if word != "wiggly" else ():
            found[f"{word}-multinormal-sparse-{name}"] = mapped(sparse[name], x=change, y=change)
    for dim in (3, 5, 25):
        plain, joint = f"multinormal-sparse-{dim}-{dim}-2-2.0", TASKS[f"spiral-{dim}"].joint()
        found[f"spiral-{plain}"] = joint
        turned = {side: spiral(dim, axes) for side, axes in (("x", (0, 1)), ("y", (1, 2)))}
        found[f"spiral-normal_cdf-{plain}"] = mapped(found[f"normal_cdf-{plain}"], **turned)
    for dim, freedom in ((1, 1), (2, 1), (2, 2), (3, 2), (3, 3), (5, 2), (5, 3)):
        joint = c.student(c.dense_covariance(dim, 0.0), dim, freedom)
        found[f"student-identity-{dim}-{dim}-{freedom}"] = joint
        if (dim, freedom) not in ((2, 2), (3, 3), (5, 3)):
            bent_joint = mapped(joint, x=c.ASINH, y=c.ASINH)
            found[f"asinh-student-identity-{dim}-{dim}-{freedom}"] = bent_joint
    return found


def spiral(dim: int, axes: tuple[int, int]) -> Map:
    """Turn the plane of two axes by the squared norm over the number of columns."""
    generator = np.zeros((dim, dim))
    generator[axes], generator[axes[::-1]] = -1.0, 1.0
    return c.spiral(generator, 1 / dim)


def joint_of(name: str) -> Joint:
    if name in FURTHER:
        return FURTHER[name].joint()
    return TASKS[name].joint() if name in TASKS else bmi_joints()[name]


def perform(code: str, src: Path, arrays: str) -> dict[str, Any]:
    """Processor seconds, the estimate, its 90 % interval and how many epochs it took."""
    plain = {"PYTHONPATH": str(src), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", code, arrays]
    out = subprocess.run(command, env=os.environ | plain, check=True, capture_output=True).stdout
    seconds, nats, low, high, epochs = map(float, out.decode().split())
    return {"seconds": round(seconds, 3), "nats": nats, "ci": [low, high], "epochs": int(epochs)}


def compare(name: str, seed: int, versions: dict[str, Path], repeats: int) -> dict[str, Any]:
    """One job in both versions."""
    audits = name == "audit of 20,000"
    joint, rows = joint_of("gaussian-20" if audits else name), 2 * ROWS if audits else ROWS
    task = joint.draw(name, rows, seed)
    line: dict[str, Any] = {"task": name, "seed": seed, "truth": task.mutual_information}
    with tempfile.TemporaryDirectory() as folder:
        arrays = str(Path(folder) / "rows.npz")
        np.savez(arrays, x=task.x, y=task.y)
        run = partial(perform, _AUDIT if audits else _FIT, arrays=arrays)
        turns = [{key: run(src=src) for key, src in versions.items()} for _ in range(repeats)]
    for key in versions:
        line[key] = min((turn[key] for turn in turns), key=lambda one: one["seconds"])
    line["ratio"] = round(line["own"]["seconds"] / line["other"]["seconds"], 3)
    return line


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all fits: time over the other's, errors of both, and how many intervals hold the truth."""
    fits = [line for line in lines if line["own"]["epochs"]]
    found: dict[str, Any] = {"fits": len(fits)}
    if fits:
        ratios = [line["ratio"] for line in fits]
        found |= {"median_ratio": float(np.median(ratios)), "largest_ratio": max(ratios)}
    for key in ("own", "other") if fits else ():
        errors = [abs(line[key]["nats"] - line["truth"]) for line in fits]
        inside = [one[key]["ci"][0] <= one["truth"] <= one[key]["ci"][1] for one in fits]
        seconds = [line[key]["seconds"] for line in fits]
        found[key] = {"mean_error": round(float(np.mean(errors)), 4), "covered": sum(inside)}
        found[key] |= {"median_s": float(np.median(seconds)), "largest_s": max(seconds)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("other", type=Path, help="the folder `src` of the other version")
    parser.add_argument("--tasks", nargs="+", default=["gaussian-20", "spiral-3", "student-5"])
    parser.add_argument("--no-audit", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--lines", type=Path)
    parser.add_argument("--output")
    options = parser.parse_args()
    versions = {"other": options.other, "own": Path(__file__).resolve().parents[1] / "src"}
    names = list(bmi_joints()) if options.tasks == ["bmi"] else [*options.tasks]
    names = list(FIVE) if options.tasks == ["five"] else names
    kept = (
        options.lines.read_text().splitlines() if options.lines and options.lines.exists() else []
    )
    lines = [json.loads(line) for line in kept]
    done = {(line["task"], line["seed"]) for line in lines}
    for name in names if options.no_audit else [*names, "audit of 20,000"]:
        if (name, options.seed) in done:
            continue
        lines.append(compare(name, options.seed, versions, options.repeats))
        print(lines[-1], flush=True)
        if options.lines:
            with options.lines.open("a") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    report("against", {"summary": summary(lines), "jobs": lines}, options.output)


if __name__ == "__main__":
    main()
