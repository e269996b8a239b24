"""The default critic on 20 + 20 dimensional Gaussians and their cubes, at 2, 6 and 10 nats.

    python benchmarks/default_critic.py --output benchmarks/results/default_critic.json

Error of the MI beside what sampling alone allows, 1.5 sd(PMI)/sqrt(n) + 0.02, and RMSE of PMI on
fresh pairs; and what independent pairs of 5 + 5 dimensions give.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np
from report import report

from pointdep.data.tasks import Task, correlated_gaussians, make_task
from pointdep.estimators.pointwise import PointwiseDependency

ROWS, FRESH = 10_000, 10_000


def measure(task: Task, fresh: Task, seed: int) -> dict[str, Any]:
    """Fit on the rows of one task, read PMI on those of the other."""
    model = PointwiseDependency(random_state=seed, progress=False)
    begin = time.perf_counter()
    found = model.fit(task.x, task.y).mutual_information(confidence=0.9)
    seconds = time.perf_counter() - begin
    pmi = model.pmi(fresh.x, fresh.y)
    return {
        "task": task.name,
        "seed": seed,
        "error": found.nats - task.mutual_information,
        "allowed": 1.5 * float(np.std(task.pmi)) / math.sqrt(len(task.x)) + 0.02,
        "sample_error": float(np.mean(task.pmi)) - task.mutual_information,
        "stderr": found.stderr,
        "pmi_rmse": float(np.sqrt(np.mean(np.square(pmi - fresh.pmi)))),
        "pmi_stderr": float(np.mean(model.pmi_stderr(fresh.x[:1000], fresh.y[:1000]))),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--output")
    args = parser.parse_args()
    runs = []
    for seed in args.seeds:
        for cubic in (False, True):
            for nats in (2.0, 6.0, 10.0):
                task, fresh = (
                    correlated_gaussians(rows, 20, nats, cubic=cubic, seed=s)
                    for rows, s in ((ROWS, seed), (FRESH, 1_000 + seed))
                )
                runs.append(measure(task, fresh, seed))
        runs.append(
            measure(
                make_task("independent", ROWS, seed), make_task("independent", FRESH, 1000), seed
            )
        )
    report("default critic", {"rows": ROWS, "runs": runs}, args.output)


if __name__ == "__main__":
    main()
