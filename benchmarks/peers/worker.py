"""The loop every peer's worker runs: one job per line in, one result per line out.

A worker lives in its peer's own environment, so this file needs nothing but numpy. A job is a JSON
object with `path`, `rows`, `seed` and `estimator`; the answer holds `estimate` (nats), `seconds`
(wall clock), `cpu_seconds` (this process), `failed`, `why` and `versions`. The clock covers the
estimator's own work, compilation included, but neither the imports nor reading the file.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Estimator = Callable[[Array, Array, int], float]


def held_out(rows: int) -> int:
    """Where the held-out rows begin: the last fifth, for peers that do not split by themselves."""
    return rows - rows // 5


def measure(estimator: Estimator, x: Array, y: Array, seed: int) -> dict[str, Any]:
    """Run one estimator; a failure is a result as well."""
    estimate: float | None = None
    why = ""
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        value = float(estimator(x, y, seed))
        if math.isfinite(value):
            estimate = value
        else:
            why = f"the estimate is {value}"
    except Exception as error:  # whatever a peer raises is what we want to write down
        why = f"{type(error).__name__}: {error}"[:300]
    return {
        "estimate": estimate,
        "seconds": round(time.perf_counter() - wall, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "failed": estimate is None,
        "why": why,
    }


def serve(estimators: dict[str, Estimator], packages: list[str]) -> None:
    """Answer jobs until standard input closes."""
    # The peers print as they train; only answers may reach the original standard output.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    versions = {name: version(name) for name in packages}
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        with np.load(job["path"]) as arrays:
            x, y = arrays["x"][: job["rows"]], arrays["y"][: job["rows"]]
        result = measure(estimators[job["estimator"]], x, y, job["seed"])
        print(json.dumps(result | {"versions": versions}), file=answers, flush=True)
