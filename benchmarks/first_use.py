"""What a new user waits for: `pointdep --help`, and `import pointdep` beside `import torch`.

    python benchmarks/first_use.py --output benchmarks/results/first_use.json

Each is a process of its own, the two imports by turns, so that what else the machine does falls on
both; the time of a Python that does nothing is taken off the imports. The first round is not
counted: it fills the caches of the file system.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from report import report


def seconds(*command: str) -> float:
    """Of a process."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output")
    args = parser.parse_args()
    asked = {
        "nothing": ("-c", "pass"),
        "import_pointdep": ("-c", "import pointdep"),
        "import_torch": ("-c", "import torch"),
        "help": ("-m", "pointdep", "--help"),
    }
    times: dict[str, list[float]] = {name: [] for name in asked}
    for turn in range(args.rounds + 1):
        for name, command in asked.items():
            taken = seconds(*command)
            if turn:
                times[name].append(taken)
    middle = {name: statistics.median(found) for name, found in times.items()}
    ours, theirs = (middle[f"import_{name}"] - middle["nothing"] for name in ("pointdep", "torch"))
    result = {
        "rounds": args.rounds,
        "help_s": round(middle["help"], 3),
        "help_best_s": round(min(times["help"]), 3),
        "import_pointdep_s": round(ours, 4),
        "import_torch_s": round(theirs, 3),
        "import_over_torch": round(ours / theirs, 4),
    }
    report("first_use", result, args.output)


if __name__ == "__main__":
    main()
