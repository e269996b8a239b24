"""Values of 1e6 to 1e37 in a few rows: the estimate, and whether they are told.

    python benchmarks/outliers.py --output benchmarks/results/outliers.json

Each estimate is set against that of the same rows without outliers. Heavy-tailed columns without
any show how often the flag would be wrong. The rule was chosen on Gaussian pairs of another seed,
and on columns of other distributions than most of these.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from report import report

from pointdep import PointwiseDependency
from pointdep.data.encoder import SideEncoder
from pointdep.data.sides import as_side
from pointdep.errors import PointdepWarning

Array = NDArray[np.float64]
Pairs = tuple[Array, Array]
ROWS = 1000
COUNTS = (1, 5, ROWS // 100)
PLACES = "one column of x", "all of x", "all of x and of y"
VALUES: tuple[float | None, ...] = (1e6, -1e12, 1e37, None)  # None: each drawn in 1e6 to 1e37


def gaussian(random: np.random.Generator) -> Pairs:
    x = random.normal(size=(ROWS, 2))
    return x, 0.6 * x + 0.8 * random.normal(size=(ROWS, 2))


def curved(random: np.random.Generator) -> Pairs:
    x = random.uniform(-2, 2, size=(ROWS, 1))
    return np.hstack([x, random.normal(size=(ROWS, 2))]), x**2 + 0.5 * random.normal(size=(ROWS, 1))


def heavy(random: np.random.Generator) -> Pairs:
    x, noise = random.normal(size=(2, ROWS, 2))
    return np.sinh(2 * x), np.exp(0.7 * x + 0.7 * noise)


def student(random: np.random.Generator) -> Pairs:
    scale = np.sqrt(random.chisquare(3, size=(ROWS, 1)) / 3)
    x, noise = random.normal(size=(2, ROWS, 2))
    return x / scale, (0.7 * x + 0.7 * noise) / scale


TASKS: dict[str, Callable[[np.random.Generator], Pairs]] = {
    "Gaussian": gaussian,
    "curved": curved,
    "sinh and exp of Gaussian": heavy,
    "Student t, 3 degrees": student,
}
TAILS: dict[str, Callable[[np.random.Generator, tuple[int, int]], NDArray[Any]]] = {
    "Cauchy": lambda random, shape: random.standard_cauchy(shape),
    "Student t, 1.5 degrees": lambda random, shape: random.standard_t(1.5, shape),
    "Student t, 3 degrees": lambda random, shape: random.standard_t(3, shape),
    "log-normal, sigma 2.5": lambda random, shape: random.lognormal(0.0, 2.5, shape),
    "Pareto, index 1": lambda random, shape: random.pareto(1.0, shape),
    "Weibull, shape 0.3": lambda random, shape: random.weibull(0.3, shape),
    "negative binomial": lambda random, shape: 1.0 * random.negative_binomial(0.1, 0.001, shape),
}


def estimate(x: Array, y: Array) -> tuple[float, list[str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PointdepWarning)
        model = PointwiseDependency(random_state=0, progress=False, curve=False).fit(x, y)
    return model.mutual_information().nats, [flag.name for flag in model.flags_]


def spoilt(side: Array, count: int, value: float | None, columns: slice, seed: int) -> Array:
    """A copy with outliers in `count` rows."""
    random = np.random.default_rng(seed)
    found, rows = side.copy(), random.permutation(ROWS)[:count]
    found[rows, columns] = value or 10 ** random.uniform(6, 37, (count, 1))
    return found


def spoilt_pairs(x: Array, y: Array) -> Iterator[tuple[str, Pairs]]:
    """Each number of rows with each value, in changing places, and how they are called."""
    cases = [(count, value) for count in COUNTS for value in VALUES]
    for number, (count, value) in enumerate(cases):
        where = PLACES[(number + number // 4) % len(PLACES)]  # each with each count
        columns = slice(0, 1) if where == PLACES[0] else slice(None)
        pairs = spoilt(x, count, value, columns, number), y
        if where == PLACES[2]:
            pairs = pairs[0], spoilt(y, count, value, columns, number + 99)
        said = "1e6 to 1e37" if value is None else f"{value:g}"
        yield f"{count} row(s) of {said} in {where}", pairs


def measure(name: str, seed: int, known: dict[str, list[Any]]) -> Iterator[tuple[str, list[Any]]]:
    """Nats without outliers, error with them, and whether they are flagged; known: measured."""
    x, y = TASKS[name](np.random.default_rng(seed))
    usual = None
    for said, pairs in spoilt_pairs(x, y):
        key = f"seed {seed}, {said}"
        if key in known:
            continue
        if usual is None:
            usual, flags = estimate(x, y)
            assert "outliers" not in flags
        found, flags = estimate(*pairs)
        yield key, [round(usual, 4), round(found - usual, 4), "outliers" in flags]


def false_flags(name: str, rows: int, columns: int) -> dict[str, Any]:
    """How many columns without outliers would be flagged."""
    values = TAILS[name](np.random.default_rng(rows), (rows, columns))
    found = SideEncoder.fit(as_side(values, "X", discrete=False), "X")
    return {"columns of": name, "rows": rows, "columns": columns, "flagged": len(found.limits)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default="benchmarks/results/outliers.json")
    parser.add_argument("--seeds", type=int, nargs="+", default=[11])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    options = parser.parse_args()
    tails = [
        false_flags(name, rows, columns)
        for name in TAILS
        for rows, columns in ((200, 5000), (2000, 1000), (50_000, 100))
    ]
    runs: dict[str, dict[str, list[Any]]] = {name: {} for name in TASKS}
    if Path(options.output).exists():  # what was measured before is kept
        runs |= json.loads(Path(options.output).read_text("utf-8"))["runs"]
    for name in options.tasks:
        for seed in options.seeds:
            for key, row in measure(name, seed, runs[name]):
                runs[name][key] = row
                summary = {
                    task: {
                        "fits": f"{len(rows)} of {len(COUNTS) * len(VALUES) * len(options.seeds)}",
                        "flagged": sum(flagged for _, _, flagged in rows.values()),
                        "largest_error": max(abs(error) for _, error, _ in rows.values()),
                    }
                    for task, rows in runs.items()
                    if rows
                }
                found = {"rows": ROWS, "summary": summary, "false_flags": tails, "runs": runs}
                report("outliers", found, options.output)


if __name__ == "__main__":
    main()
