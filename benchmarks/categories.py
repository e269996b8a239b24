"""Two columns of many categories: MI, its 90 % interval and PMI, beside smoothed counting.

    python benchmarks/categories.py --output benchmarks/results/categories.json
    python benchmarks/categories.py --label 6000 --output benchmarks/results/label.json

Tables are drawn at random, and PMI and MI are exact. Topics: each has its own distribution of the
categories of x and of y. Partners: y is the partner of x with some probability, else independent.
The constants of the estimator were fitted on tables with other sizes and parameters.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from report import report

from pointdep import ClassicalDependency, PointwiseDependency
from pointdep.data.tasks.discrete import outcomes
from pointdep.errors import PointdepWarning

Array = NDArray[np.float64]


def topics(categories: int, count: int, shape: float, seed: int, zipf: float = 0.0) -> Array:
    """p(x, y), (categories, categories), of `count` topics; shape: of the gamma distribution."""
    random = np.random.default_rng(seed)
    base = np.arange(1, categories + 1) ** -zipf
    sides = random.gamma(shape, size=(2, count, categories)) * base
    x, y = sides / sides.sum(2, keepdims=True)
    table: Array = np.einsum("t,ti,tj->ij", random.dirichlet(np.full(count, 5.0)), x, y)
    table /= table.sum()
    return table


def partners(categories: int, share: float, zipf: float = 0.0) -> Array:
    """p(x, y), where y = x in a share of the pairs."""
    base = np.arange(1, categories + 1) ** -zipf
    base /= base.sum()
    table: Array = (1 - share) * np.outer(base, base) + share * np.diag(base)
    return table


# Name, table, rows, seeds.
TASKS: list[tuple[str, Array, int, int]] = [
    ("500 categories, 8 topics", topics(500, 8, 0.07, 1), 2_000, 10),
    ("500 categories, 8 topics", topics(500, 8, 0.07, 1), 10_000, 3),
    ("300 categories, 30 topics", topics(300, 30, 0.03, 1), 5_000, 3),
    ("2,000 Zipf categories, 10 topics", topics(2_000, 10, 0.04, 1, 1.0), 2_000, 3),
    ("2,000 Zipf categories, 10 topics", topics(2_000, 10, 0.04, 1, 1.0), 10_000, 3),
    ("2,000 Zipf categories, partners", partners(2_000, 0.5, 1.1), 500, 3),
    ("2,000 Zipf categories, partners", partners(2_000, 0.5, 1.1), 2_000, 3),
    ("2,000 Zipf categories, partners", partners(2_000, 0.5, 1.1), 10_000, 3),
    ("400 categories, partners", partners(400, 0.3), 3_000, 3),
    ("40 categories, partners", partners(40, 0.3), 2_000, 3),
    ("500 categories, independent", partners(500, 0.0), 3_000, 3),
    ("6,000 categories, 20 topics", topics(6_000, 20, 0.05, 1), 18_000, 1),
]


def measure(name: str, table: Array, rows: int, seed: int) -> dict[str, Any]:
    joint = outcomes(table)
    truth = max(joint.mutual_information, 0.0)  # rounding leaves independent tables below zero
    x, y, pmi = joint.sample(rows, np.random.default_rng(seed))
    sides = [np.char.add("c", side.astype(str)) for side in (x, y)]
    started = time.process_time()
    model = PointwiseDependency(random_state=0, progress=False).fit(*sides)
    seconds = time.process_time() - started
    found = model.mutual_information(confidence=0.9)
    counted = ClassicalDependency("counting", random_state=0, progress=False).fit(*sides)

    def error(oof: NDArray[np.float32]) -> float:
        return float(np.sqrt(np.square(oof - pmi).mean()))

    return {
        "task": name,
        "rows": rows,
        "seed": seed,
        "truth": truth,
        "estimate": found.nats,
        "interval": list(found.ci),
        "covered": found.ci[0] <= truth <= found.ci[1],
        "flags": [flag.name for flag in model.flags_],
        "rmse_pmi": error(model.oof_pmi_),
        "rmse_pmi_counting": error(counted.oof_pmi_),
        "processor_s": seconds,
    }


def measure_label(categories: int, rows: int, seed: int) -> dict[str, Any]:
    """A label with three numbers, which are normal around a mean of each category."""
    random = np.random.default_rng(seed)
    label, means = random.integers(categories, size=rows), random.normal(size=(categories, 3))
    y = means[label] + random.normal(size=(rows, 3))
    started = time.process_time()
    model = PointwiseDependency(max_epochs=2, random_state=0, progress=False)
    model.fit(np.char.add("c", label.astype(str)), y)
    found = model.mutual_information(confidence=0.9)
    return {
        "task": f"{categories:,} categories with 3 numbers, 2 epochs",
        "rows": rows,
        "seed": seed,
        "truth": 1.5 * float(np.log(2.0)),  # of very many categories: y is normal with variance 2
        "estimate": found.nats,
        "interval": list(found.ci),
        "flags": [flag.name for flag in model.flags_],
        "processor_s": time.process_time() - started,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--label", type=int, help="categories of a label: only that with numbers")
    parser.add_argument("--output")
    options = parser.parse_args()
    warnings.simplefilter("ignore", PointdepWarning)
    runs: list[dict[str, Any]] = []
    if options.label:
        runs = [measure_label(options.label, 3 * options.label, 0)]
        print(runs[0])
        return report("label", {"confidence": 0.9, "runs": runs}, options.output)
    for name, table, rows, seeds in TASKS:
        for seed in range(seeds):
            one = measure(name, table, rows, seed)
            runs.append(one)
            low, high = one["interval"]
            print(
                f"{name:34} {rows:6} rows  MI {one['truth']:.2f}  {one['estimate']:.2f} "
                f"({low:.2f} to {high:.2f})  RMSE of PMI {one['rmse_pmi']:.2f}, counting "
                f"{one['rmse_pmi_counting']:.2f}  {one['processor_s']:.1f} s",
                flush=True,
            )
    return report("categories", {"confidence": 0.9, "runs": runs}, options.output)


if __name__ == "__main__":
    main()
