"""Every method on correlated Gaussians of known MI: error of the MI and of the PMI, out of fold.

    python benchmarks/gaussians.py --output benchmarks/results/gaussians.json

10,000 rows of 20 + 20 dimensions with MI 2, the plain concat critic and default settings otherwise.
The MI is each method's own inference, without the correction for the bias of fitting.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from report import report

from pointdep import PointwiseDependency
from pointdep.core.methods import PAPER_METHODS
from pointdep.data.tasks import correlated_gaussians

TOLERANCE = {
    **dict.fromkeys(("pc", "js", "smile", "variational", "dm2"), 0.3),
    **dict.fromkeys(("nwj", "dv", "dm1"), 0.5),
    **dict.fromkeys(("drf", "cpc"), 0.6),
}


def measure(method: str, arguments: argparse.Namespace) -> dict[str, Any]:
    task = correlated_gaussians(arguments.rows, 20, arguments.mi, seed=arguments.seed)
    model = PointwiseDependency(
        method=method,
        critic="concat",
        device=arguments.device,
        random_state=arguments.seed,
        progress=False,
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(task.x, task.y)
    seconds = time.perf_counter() - start
    found = model.mutual_information()
    pmi = model.oof_pmi_
    inferred = found.nats - found.correction
    error = inferred - task.mutual_information
    return {
        "method": method,
        "mi": round(inferred, 3),
        "error": round(error, 3),
        "stderr": round(found.stderr, 3),
        "tolerance": TOLERANCE.get(method),
        "within": abs(error) <= TOLERANCE.get(method, np.inf),
        "pmi_rmse": round(float(np.sqrt(np.mean((pmi - task.pmi) ** 2))), 3),
        "pmi_correlation": round(float(np.corrcoef(pmi, task.pmi)[0, 1]), 3),
        "epochs": len(model.history_),
        "seconds": round(seconds, 1),
        "flags": [flag.name for flag in model.flags_],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join(PAPER_METHODS))
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--mi", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    results = []
    for method in arguments.methods.split(","):
        results.append(measure(method, arguments))
        print(results[-1], flush=True)
    settings = {"rows": arguments.rows, "true_mi": arguments.mi, "seed": arguments.seed}
    report("gaussians", {**settings, "results": results}, arguments.output)


if __name__ == "__main__":
    main()
