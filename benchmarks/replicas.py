"""What training replicas together saves: 5 folds in one run against 5 fits one after another.

    python benchmarks/replicas.py [--output benchmarks/results/replicas.json]

Both sides fit the same splits for the same number of epochs; each round times both, and the ratio
of the medians is reported.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from typing import Any

from report import report
from sklearn.model_selection import KFold, PredefinedSplit

from pointdep import PointwiseDependency
from pointdep.data.tasks import correlated_gaussians

ROWS, DIM, FOLDS = 2000, 10, 5


def fit(cv: Any, epochs: int, x: Any, y: Any) -> float:
    model = PointwiseDependency(
        critic="concat",
        hidden=(256, 256),
        cv=cv,
        max_epochs=epochs,
        patience=epochs,
        random_state=0,
        progress=False,
        device="cpu",
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, y)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--output")
    arguments = parser.parse_args()
    task = correlated_gaussians(ROWS, DIM, 2.0, seed=0)
    folds = KFold(FOLDS, shuffle=True, random_state=0)
    single = []
    for _, held in folds.split(task.x):
        test_fold = [-1] * ROWS
        for row in held:
            test_fold[row] = 0
        single.append(PredefinedSplit(test_fold))
    fit(folds, 1, task.x, task.y)
    together, apart = [], []
    for _ in range(arguments.rounds):
        together.append(fit(folds, arguments.epochs, task.x, task.y))
        apart.append(sum(fit(cv, arguments.epochs, task.x, task.y) for cv in single))
    ratio = statistics.median(together) / statistics.median(apart)
    report(
        "replicas",
        {
            "rows": ROWS,
            "dims": [DIM, DIM],
            "epochs": arguments.epochs,
            "together_s": [round(t, 3) for t in together],
            "one_after_another_s": [round(t, 3) for t in apart],
            "ratio": round(ratio, 3),
            "target": 0.6,
        },
        arguments.output,
    )


if __name__ == "__main__":
    main()
