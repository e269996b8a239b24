"""Do the intervals cover, and are the null p-values uniform? On fresh data sets of known MI.

    python benchmarks/coverage.py --output benchmarks/results/coverage.json
    python benchmarks/coverage.py --part null --output benchmarks/results/null.json

The data sets of one task are fitted together (see together.py); meant for a GPU.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from report import report
from scipy import stats

from pointdep.data.tasks import Task, correlated_gaussians, make_task
from pointdep.estimators.fit_rows import prepare
from pointdep.inference.bias import FittingBias

TASKS: dict[str, Callable[[int, int], Task]] = {
    "gaussian, 20-d, MI 2": lambda rows, seed: correlated_gaussians(rows, 20, 2.0, seed=seed),
    "cubic, 5-d, MI 2": lambda rows, seed: correlated_gaussians(
        rows, 5, 2.0, cubic=True, seed=seed
    ),
    **{
        name: lambda rows, seed, name=name: make_task(name, rows, seed)  # type: ignore[misc]
        for name in ("student-3", "uniform-0.75", "table", "mixture-cross", "mixture-clusters")
    },
}
Z90 = float(stats.norm.ppf(0.95))


def cover(job: tuple[str, int, list[int]]) -> list[dict[str, Any]]:
    """Fit the data sets of these seeds together; what each interval was."""
    from together import fit_together

    name, rows, seeds = job
    warnings.simplefilter("ignore")
    begin = time.monotonic()
    drawn = [TASKS[name](rows, seed) for seed in seeds]
    fitted = fit_together([(task.x, task.y) for task in drawn], seeds)
    print(f"{name}: {len(seeds)} fits in {time.monotonic() - begin:.0f} s", file=sys.stderr)
    lines = []
    for seed, task, model in zip(seeds, drawn, fitted, strict=True):
        found, truth = model.mutual_information(confidence=0.9), task.mutual_information
        lines.append(
            {
                "task": name,
                "seed": seed,
                "error": found.nats - truth,
                "stderr": found.stderr,
                "covered": bool(found.ci[0] <= truth <= found.ci[1]),
                "row_stderr": math.sqrt(max(found.stderr**2 - model.bias_.stderr**2, 0.0)),
                "resolution": model.bias_.resolution,
                "gain": model.bias_.gain,
                "gap_closed": model.bias_.closed_form,
                "gap_network": model.bias_.network,
                "plug_in": found.nats - found.correction - truth,
                "sample": float(np.mean(task.pmi)) - truth,
            }
        )
    return lines


def null(job: tuple[int, int, int]) -> dict[str, Any]:
    """The p-value of one independent data set."""
    from pointdep.core.methods import get_method
    from pointdep.estimators import assembly
    from pointdep.estimators.permutation import p_value, permutation_null
    from pointdep.estimators.pointwise import PointwiseDependency
    from pointdep.fitting.progress import Silent

    seed, rows, shuffles = job
    task = make_task("independent", rows, seed)
    model = PointwiseDependency(random_state=seed, progress=False)
    # The null needs the prepared rows only, so that the fit itself is left out.
    read = model._read(task.x, task.y, None, model._seed()).paired
    settings = model._critic_settings(rows, 5)
    front = assembly.make_model(settings, get_method("pc"), 5, 5, 5)
    prepared = prepare(front, read)
    found = permutation_null(settings, prepared, shuffles, Silent())
    return {"seed": seed, "p": p_value(found), "observed": found[0]}


def again(path: str) -> list[dict[str, Any]]:
    """The lines of an earlier run, with the correction and its doubt as they are now.

    The fits do not depend on them, only what is made of their parts.
    """
    table = pd.read_csv(path)
    lines = []
    for row in table.to_dict("records"):
        bias = FittingBias(
            row["gap_closed"], row["gap_network"], row["resolution"], gain=row["gain"]
        )
        error, stderr = row["plug_in"] + bias.correction, math.hypot(row["row_stderr"], bias.stderr)
        covered = abs(error) <= Z90 * stderr
        lines.append({**row, "error": error, "stderr": stderr, "covered": covered})
    return [{str(key): value for key, value in line.items()} for line in lines]


def summarise(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Coverage, bias, and spread against the stated error, per task."""
    found = {}
    for name in dict.fromkeys(line["task"] for line in lines):
        part = [line for line in lines if line["task"] == name]
        errors = np.array([line["error"] for line in part])
        found[name] = {
            "data_sets": len(part),
            "coverage": float(np.mean([line["covered"] for line in part])),
            "bias": float(errors.mean()),
            "spread": float(errors.std(ddof=1)),
            "stated_stderr": float(np.mean([line["stderr"] for line in part])),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("coverage", "null"), default="coverage")
    parser.add_argument("--data-sets", type=int, default=100)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--shuffles", type=int, default=39)
    parser.add_argument("--together", type=int, default=25)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--again", help="the .csv of an earlier run, whose fits are taken over")
    parser.add_argument("--output")
    args = parser.parse_args()
    if args.again:
        report(
            "coverage of the 90 % interval", {"summary": summarise(again(args.again))}, args.output
        )
        return
    seeds = list(range(args.first_seed, args.first_seed + args.data_sets))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.jobs, context) as pool:
        if args.part == "coverage":
            parts = [seeds[i : i + args.together] for i in range(0, len(seeds), args.together)]
            jobs = [(name, args.rows or 2000, part) for part in parts for name in args.tasks]
            lines = []
            for part in as_completed([pool.submit(cover, job) for job in jobs]):
                lines += part.result()
                if args.output:
                    table = pd.DataFrame(lines).sort_values(["task", "seed"])
                    path = Path(args.output).with_suffix(".csv")
                    table.to_csv(path, index=False, float_format="%.5g")
            report("coverage of the 90 % interval", {"summary": summarise(lines)}, args.output)
            return
        runs = list(pool.map(null, [(s, args.rows or 1000, args.shuffles) for s in seeds]))
    p = np.array([run["p"] for run in runs])
    test = stats.kstest(p, "uniform")
    result = {
        "p_values": p.tolist(),
        "kolmogorov_smirnov": float(test.statistic),
        "kolmogorov_smirnov_p": float(test.pvalue),
        "share_below_0.1": float((p <= 0.1).mean()),
    }
    report("permutation null on independent pairs", result, args.output)


if __name__ == "__main__":
    main()
