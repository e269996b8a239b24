"""Figure 1 with bf16 and with float32 matrix products: the same seeds, the same samples.

    python benchmarks/figure1_precision.py --output benchmarks/results/figure1_precision.json

The first three levels, of the methods that do not blow up. Made for a GPU: minutes there, days on a
CPU.
"""

from __future__ import annotations

import argparse

from report import report

from pointdep.experiments.figure1 import Figure1, halves, run_figure1, summarise
from pointdep.fitting.progress import show

METHODS = ("cpc", "variational", "pc", "dm2", "drf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=12_000)
    parser.add_argument("--tasks", nargs="+", default=["gaussian", "cubic"])
    parser.add_argument("--output")
    options = parser.parse_args()
    biases: dict[str, dict[tuple[str, str, float], float]] = {}
    seconds = {}
    for precision in ("bf16", "float32"):
        settings = Figure1(
            methods=METHODS,
            tasks=tuple(options.tasks),
            levels=(2.0, 4.0, 6.0),
            iterations=options.iterations,
            seeds=options.seeds,
            precision=precision,
        )
        with show(precision) as progress:
            curves = run_figure1(settings, progress)
        seconds[precision] = curves.train_seconds
        print(precision, f"{curves.train_seconds:.1f} s", flush=True)
        lines = summarise(halves(curves))
        biases[precision] = {
            (line["task"], line["method"], line["level"]): line["bias"]
            for line in lines
            if line["bias"] is not None
        }
    lines_out = [
        {
            "task": key[0],
            "method": key[1],
            "level": key[2],
            "bf16": value,
            "float32": biases["float32"][key],
            "difference": value - biases["float32"][key],
        }
        for key, value in biases["bf16"].items()
    ]
    result = {
        "seeds": options.seeds,
        "train_seconds": seconds,
        "largest_difference": max(abs(line["difference"]) for line in lines_out),  # type: ignore[arg-type]
        "biases": lines_out,
    }
    report("figure1_precision", result, options.output)


if __name__ == "__main__":
    main()
