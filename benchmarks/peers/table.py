"""Turn the peers' JSON lines into one long table and print a summary.

    .venv/bin/python benchmarks/peers/table.py

`results/peers.csv` has one row per run that produced an estimate or failed: task, rows, seed,
estimator, mi, estimate, error (estimate minus exact value), seconds, cpu_seconds and why it failed.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

RESULTS = Path(__file__).resolve().parent.parent / "results"
COLUMNS = ["task", "rows", "seed", "estimator", "mi", "estimate", "error", "seconds"]
COLUMNS += ["cpu_seconds", "why"]


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Errors and times by rows and estimator; errors leave failed runs out."""
    runs = table.assign(absolute=table["error"].abs(), failed=table["estimate"].isna())
    return (
        runs.groupby(["rows", "estimator"])
        .agg(
            runs=("task", "size"),
            failed=("failed", "sum"),
            mean_abs_error=("absolute", "mean"),
            median_abs_error=("absolute", "median"),
            mean_error=("error", "mean"),
            worst=("absolute", "max"),
            seconds=("seconds", "mean"),
            cpu_seconds=("cpu_seconds", "mean"),
        )
        .round(4)
    )


def main() -> None:
    """Write the table, print the summary."""
    lines = pd.read_json(RESULTS / "peers.jsonl", lines=True)
    table = lines[COLUMNS].sort_values(["rows", "estimator", "task", "seed"])
    table.to_csv(RESULTS / "peers.csv", index=False, float_format="%.6g")
    print(summary(table).to_string())


if __name__ == "__main__":
    main()
