"""Write the 40 tasks of the bmi benchmark as arrays that every environment can read.

Runs in bmi's own environment::

    envs/bmi/bin/python export_bmi.py [--stacked FOLDER]

For each task and seed, `data/<task>/rows10000_seed<k>.npz` holds `x`, `y` (float32) and `mi`, the
exact mutual information in nats; `data/tasks.json` lists the tasks. A run on fewer rows takes the
first rows of the same arrays. With `--stacked`, one file per seed holds every task's arrays under
the names `<task>|x`, `<task>|y` and `<task>|mi`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).resolve().parent / "data"
ROWS = 10_000


def sample(task: Any, seed: int) -> dict[str, Any]:
    """`ROWS` pairs of one task, with the exact mutual information."""
    x, y = task.sample(ROWS, seed=seed)
    return {
        "x": np.asarray(x, dtype=np.float32),
        "y": np.asarray(y, dtype=np.float32),
        "mi": np.float64(task.mutual_information),
    }


def describe(name: str, task: Any) -> dict[str, Any]:
    """What `tasks.json` says of one task."""
    return {
        "name": name,
        "dim_x": int(task.dim_x),
        "dim_y": int(task.dim_y),
        "mi": float(task.mutual_information),
    }


def main() -> None:
    """Write all tasks for all seeds."""
    from bmi.benchmark import BENCHMARK_TASKS  # type: ignore[import-not-found]

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--stacked", type=Path, help="folder for one file per seed")
    args = parser.parse_args()

    for seed in args.seeds:
        stacked: dict[str, Any] = {}
        for name, task in BENCHMARK_TASKS.items():
            arrays = sample(task, seed)
            folder = DATA / name
            folder.mkdir(parents=True, exist_ok=True)
            np.savez(folder / f"rows{ROWS}_seed{seed}.npz", **arrays)
            stacked |= {f"{name}|{key}": np.float32(value) for key, value in arrays.items()}
        if args.stacked is not None:
            args.stacked.mkdir(parents=True, exist_ok=True)
            np.savez(args.stacked / f"bmi_seed{seed}.npz", **stacked)
    tasks = [describe(name, task) for name, task in BENCHMARK_TASKS.items()]
    (DATA / "tasks.json").write_text(json.dumps(tasks, indent=1) + "\n")


if __name__ == "__main__":
    main()
