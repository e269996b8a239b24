"""How often the interval of a calibrated model's mutual information holds the truth.

    python benchmarks/adapters_coverage.py --output benchmarks/results/adapters_coverage.json

Gaussian pairs whose log r is known, and logits that are log r up to a factor and what the loss
leaves open, so that a calibration can find the truth and errs by chance alone. Rows of groups are
copies of a pair with a little noise. "fresh" is of other pairs than those that calibrated. Beside
the standard error: the spread of the estimates that it is to tell, and what it would be without
the error of the calibration.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from report import report

from pointdep import from_logits
from pointdep.inference.mutual_information import standard_error

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """Of `rows` pairs in `dim` dimensions, in groups of so many; fresh: pairs asked about."""

    name: str
    rows: int
    dim: int
    mi: float
    loss: str = "sigmoid"
    group: int = 1
    fresh: int = 0

    @property
    def square(self) -> float:
        """Of the correlation of each dimension."""
        return 1 - math.exp(-2 * self.mi / self.dim)


CASES = [
    Case("1-d, 0.51 nats", 400, 1, 0.51),
    Case("5-d, 4.15 nats", 400, 5, 4.15),
    Case("5-d, 2.5 nats, 5,000 fresh pairs", 300, 5, 2.5, fresh=5_000),
    Case("5-d, 2.5 nats, groups of 4", 1_200, 5, 2.5, group=4),
    Case("one-sided, 1-d, 0.51 nats", 400, 1, 0.51, "softmax_one_sided"),
    Case("one-sided, 5-d, 2.5 nats", 400, 5, 2.5, "softmax_one_sided"),
    Case(
        "one-sided, 1-d, 0.51 nats, 5,000 fresh pairs", 300, 1, 0.51, "softmax_one_sided", 1, 5_000
    ),
]


def draw(case: Case, rows: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Pairs (rows, dim); those of a group share x, and y up to a correlation of 0.9."""
    shape = rows // case.group, 1, case.dim
    x, shared = random.normal(size=(2, *shape))
    own = random.normal(size=(shape[0], case.group, case.dim))
    noise = own if case.group == 1 else math.sqrt(0.9) * shared + math.sqrt(0.1) * own
    x = np.broadcast_to(x, noise.shape)
    y = math.sqrt(case.square) * x + math.sqrt(1 - case.square) * noise
    return x.reshape(-1, case.dim), y.reshape(-1, case.dim)


def logits_of(case: Case) -> Callable[[Any, Any], Any]:
    """Three times log r, less 4, and with a one-sided loss a function of x on top."""
    c = case.square

    def logits(x: Any, y: Any) -> Any:
        own = [-c * (side**2).sum(1) / (2 * (1 - c)) for side in (x, y)]
        free = (x**2).sum(1) if case.loss == "softmax_one_sided" else 0 * own[0]
        cross = math.sqrt(c) / (1 - c) * x @ y.T
        return 3 * ((own[0] + free)[:, None] + own[1] + cross) - 4

    return logits


def once(case: Case, seed: int) -> tuple[float, float, float, bool]:
    """The estimate, its standard error, that of the rows alone, and whether it holds the truth."""
    random = np.random.default_rng([seed, 8])
    x, y = draw(case, case.rows, random)
    groups = None if case.group == 1 else np.repeat(np.arange(len(x) // case.group), case.group)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = from_logits(
            logits_of(case), x, y, loss=case.loss, groups=groups, random_state=seed, progress=False
        )
        if case.fresh:
            others = draw(case, case.fresh, random)
            found, values = model.mutual_information(*others), model.pmi(*others)
        else:
            found, values = model.mutual_information(), model.oof_pmi_
    alone = math.hypot(
        standard_error(values.astype(np.float64), None if case.fresh else groups),
        model.bias_.stderr,
    )
    low, high = found.ci
    return found.nats, found.stderr, alone, low <= case.mi <= high


def measure(case: Case, repetitions: int) -> dict[str, Any]:
    start = time.perf_counter()
    runs = [once(case, seed) for seed in range(repetitions)]
    nats, stderr, alone = np.array([run[:3] for run in runs]).T
    return {
        "rows": case.rows,
        "true_mi": case.mi,
        "loss": case.loss,
        "coverage": float(np.mean([run[3] for run in runs])),
        "bias": round(float(nats.mean() - case.mi), 4),
        "spread": round(float(nats.std(ddof=1)), 4),
        "rms_error": round(float(np.sqrt(np.mean(np.square(nats - case.mi)))), 4),
        "stderr": round(float(stderr.mean()), 4),
        "stderr_of_the_rows_alone": round(float(alone.mean()), 4),
        "seconds": round(time.perf_counter() - start, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--output")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for case in CASES:
        found[case.name] = measure(case, arguments.repetitions)
        print(case.name, found[case.name], flush=True)
    settings = {"repetitions": arguments.repetitions, "confidence": 0.95}
    report("adapters_coverage", {**settings, "summary": found}, arguments.output)


if __name__ == "__main__":
    main()
