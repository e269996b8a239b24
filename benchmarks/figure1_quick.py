"""`pointdep reproduce figure1 --quick` beside the full run: how long, and whether it agrees.

    python benchmarks/figure1_quick.py --output benchmarks/results/figure1_quick.json

The rank correlation of the absolute biases at the first two levels, over methods and tasks, with
those of the full run in docs/figure1/figure1.json.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from report import report
from scipy.stats import spearmanr

from pointdep.experiments.figure1 import Figure1, halves, run_figure1, summarise
from pointdep.fitting.progress import show

FULL = Path(__file__).parents[1] / "docs" / "figure1" / "figure1.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output")
    options = parser.parse_args()
    full = {
        (line["task"], line["method"], line["level"]): line["bias"]
        for line in json.loads(FULL.read_text("utf-8"))["summary"]
    }
    with show("quick", left="about") as progress:
        curves = run_figure1(replace(Figure1().quick(), seed=options.seed, device="cpu"), progress)
    first = curves.settings.levels[:2]
    lines = [line for line in summarise(halves(curves)) if line["level"] in first]
    quick = {(line["task"], line["method"], line["level"]): line["bias"] for line in lines}
    sizes = {key: abs(bias) for key, bias in quick.items() if bias is not None}
    result = {
        "seed": options.seed,
        "train_seconds": curves.train_seconds,
        "compared": len(sizes),
        "spearman": float(
            spearmanr(list(sizes.values()), [abs(full[key]) for key in sizes]).statistic
        ),
        "biases": [
            {"task": key[0], "method": key[1], "level": key[2], "quick": bias, "full": full[key]}
            for key, bias in quick.items()
        ],
    }
    report("figure1_quick", result, options.output)


if __name__ == "__main__":
    main()
