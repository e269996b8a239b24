"""An audit of 100,000 pairs of 100 + 100 dimensions on a CPU: time, memory, and what it finds.

    python benchmarks/audit_speed.py --output benchmarks/results/audit_speed.json

x and y are noisy non-linear views of 20 shared factors, 2 % of the pairs mismatched. The fit is the
default one, with nothing cut short for the time.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from datasets import Array, plant
from report import report
from sklearn.metrics import roc_auc_score

from pointdep import audit

FACTORS, NOISE = 20, 1.5


def views(rows: int, dim: int, seed: int) -> tuple[Array, Array]:
    """Two views of the same factors, (rows, dim) each."""
    random = np.random.default_rng(seed)
    factors = random.normal(size=(rows, FACTORS))
    sides = []
    for _ in range(2):
        hidden = np.tanh(factors @ random.normal(size=(FACTORS, 2 * FACTORS)) / FACTORS**0.5)
        clean = hidden @ random.normal(size=(2 * FACTORS, dim)) / FACTORS**0.5
        sides.append((clean + NOISE * random.normal(size=(rows, dim))).astype(np.float32))
    return sides[0], sides[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--output")
    options = parser.parse_args()
    x, y = views(options.rows, options.dim, seed=0)
    y, planted = plant(y, 0.02, seed=0)
    started = time.perf_counter()
    found = audit(x, y, random_state=0)
    elapsed = time.perf_counter() - started
    suspect = found.table["suspect"].to_numpy()
    result = {
        "rows": options.rows,
        "columns": [options.dim, options.dim],
        "seconds": elapsed,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "auroc": float(roc_auc_score(planted, -found.table["pmi"])),
        "false_discovery_proportion": float((~planted[suspect]).mean()),
        "recall": float(suspect[planted].mean()),
    }
    report("audit_speed", result, options.output)


if __name__ == "__main__":
    main()
