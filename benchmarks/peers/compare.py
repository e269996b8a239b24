"""Ours and the peers in one table: results/bmi.csv, docs/bmi.md and docs/figures/bmi.png.

    .venv/bin/python benchmarks/peers/compare.py

Reads results/peers.jsonl (peers/run.py) and results/pointdep.jsonl (bmi_tasks.py).
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("agg")
import matplotlib.pyplot as plt

RESULTS = Path(__file__).resolve().parent.parent / "results"
DOCS = Path(__file__).resolve().parents[2] / "docs"
OURS = "pointdep"
COLUMNS = ["task", "rows", "seed", "estimator", "mi", "estimate", "error", "cpu_seconds"]
COLUMNS += ["seconds", "stderr"]


def read() -> pd.DataFrame:
    """Every run, one row each; failed ones have no estimate."""
    parts = [pd.read_json(RESULTS / f"{name}.jsonl", lines=True) for name in ("peers", "pointdep")]
    table = pd.concat(parts, ignore_index=True).reindex(columns=COLUMNS)
    sizes = table.loc[table["estimator"] == OURS, "rows"]
    table = table[table["rows"].isin(sizes)]
    return table.sort_values(["rows", "estimator", "task", "seed"], ignore_index=True)


def per_task(table: pd.DataFrame, rows: int) -> pd.DataFrame:
    """Mean over seeds by task and estimator: error, absolute error, seconds, stderr."""
    part = table[(table["rows"] == rows) & table["estimate"].notna()]
    part = part.assign(absolute=part["error"].abs())
    return part.groupby(["task", "estimator"]).agg(
        mi=("mi", "first"),
        error=("error", "mean"),
        absolute=("absolute", "mean"),
        seconds=("cpu_seconds", "median"),
        stderr=("stderr", "mean"),
        seeds=("seed", "nunique"),
    )


def beaten(means: pd.DataFrame, peer: str) -> tuple[int, int]:
    """Tasks on which ours is nearer by over two standard errors, of the tasks both have."""
    ours, other = (means.xs(name, level="estimator") for name in (OURS, peer))
    both = ours.index.intersection(other.index)
    lead = other.loc[both, "absolute"] - ours.loc[both, "absolute"]
    return int((lead > 2 * ours.loc[both, "stderr"]).sum()), len(both)


def off_front(means: pd.DataFrame, errors: float = 0.0) -> list[str]:
    """Tasks on which another estimator is faster, and nearer by so many standard errors of ours."""
    found = []
    for task, group in means.groupby(level="task"):
        lines = group.droplevel("task")
        if OURS not in lines.index:
            continue
        own = lines.loc[OURS]
        others = lines.drop(index=[n for n in lines.index if n.startswith(OURS)])
        nearer = others["absolute"] < own["absolute"] - errors * own["stderr"]
        better = others[nearer & (others["seconds"] < own["seconds"])]
        if len(better):
            names = ", ".join(better.index)
            found.append(
                f"{task} ({own['absolute']:.3f} against {better['absolute'].min():.3f}, {names})"
            )
    return found


def tasks_tried(table: pd.DataFrame, rows: int) -> pd.Series[int]:
    """How many tasks each estimator was run on, failed runs included."""
    return table[table["rows"] == rows].groupby("estimator")["task"].nunique()


def on_every_task(table: pd.DataFrame, rows: int) -> pd.DataFrame:
    """`per_task` of the estimators that were run on all tasks, whose means can be compared."""
    means, tried = per_task(table, rows), tasks_tried(table, rows)
    every = tried.index[tried == tried.max()]
    return means[means.index.get_level_values("estimator").isin(every)]


def few_tasks(table: pd.DataFrame, rows: int) -> str:
    """The markdown table of estimators that were run on some tasks only, next to ours on these."""
    means, tried = per_task(table, rows), tasks_tried(table, rows)
    ours = means.xs(OURS, level="estimator")["absolute"]
    lines = []
    for name in tried.index[tried < tried.max()]:
        if name not in means.index.get_level_values("estimator"):
            continue
        own = means.xs(name, level="estimator")
        lines.append(
            f"| {name} | {', '.join(own.index.astype(str))} | {own['absolute'].mean():.3f} | "
            f"{ours.reindex(own.index).mean():.3f} | {own['seconds'].median():.1f} |"
        )
    if not lines:
        return ""
    head = "| estimator, on a few tasks only | tasks | mean absolute error | ours there | seconds |"
    return "\n".join([head, "|---|---|---|---|---|", *lines])


def summary(table: pd.DataFrame, rows: int) -> str:
    """The markdown table of the estimators that were run on every task at this number of rows."""
    tried = tasks_tried(table, rows)
    means = on_every_task(table, rows)
    lines = [
        "| estimator | tasks | seeds | mean absolute error | worst task | median seconds | "
        "ours nearer by over 2 se |",
        "|---|---|---|---|---|---|---|",
    ]
    order = means.groupby(level="estimator")["absolute"].mean().sort_values().index
    for name in order:
        own = means.xs(name, level="estimator")
        lead = "" if name.startswith(OURS) else "{} of {}".format(*beaten(means, name))
        lines.append(
            f"| {name} | {len(own)} of {tried[name]} | {own['seeds'].max()} | "
            f"{own['absolute'].mean():.3f} | {own['absolute'].max():.2f} | "
            f"{own['seconds'].median():.1f} | {lead} |"
        )
    return "\n".join(lines)


def by_task(table: pd.DataFrame, rows: int) -> str:
    """The markdown table of mean errors, a row a task and a column an estimator."""
    means = per_task(table, rows).reset_index()
    wide = means.pivot_table(index="task", columns="estimator", values="error")
    first = [name for name in wide.columns if name.startswith(OURS)]
    wide = wide.reindex(columns=first + [name for name in wide.columns if name not in first])
    exact = means.groupby("task")["mi"].first()
    lines = [
        "| task | MI | " + " | ".join(wide.columns) + " |",
        "|---" * (len(wide.columns) + 2) + "|",
    ]
    for task in wide.index.astype(str):
        row = wide.loc[task].tolist()
        cells = ["" if pd.isna(value) else f"{value:+.3f}" for value in row]
        lines.append(f"| {task} | {exact[task]:.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page(table: pd.DataFrame) -> str:
    """docs/bmi.md."""
    parts = [
        "# The 40 tasks of bmi, beside other libraries",
        "",
        "Every estimator gets the same arrays and its own defaults, on one core; seconds are "
        "processor time. Made by `benchmarks/peers/run.py`, `benchmarks/bmi_tasks.py` and "
        "`benchmarks/peers/compare.py`; what each peer is scored on is in "
        "`benchmarks/peers/README.md`. Errors are in nats, mean over the seeds there are; absolute "
        "errors are taken before the mean. A lead counts when it is more than twice the standard "
        "error that our own estimate states.",
        "",
        "![error against seconds](figures/bmi.png)",
    ]
    for rows in sorted(table["rows"].unique(), reverse=True):
        means = per_task(table, rows)
        missed = off_front(means)
        parts += ["", f"## {rows:,} rows", "", summary(table, rows), "", few_tasks(table, rows), ""]
        known = means.index.get_level_values("estimator")
        if OURS in known:
            count = int((known == OURS).sum())
            parts.append(
                f"Ours is on the front of error against seconds on {count - len(missed)} of "
                f"{count} tasks. Elsewhere, nearer and faster: {'; '.join(missed) or 'none'}. By "
                f"more than two standard errors: {'; '.join(off_front(means, 2.0)) or 'none'}."
            )
        parts += ["", "Mean error by task:", "", by_task(table, rows)]
    return "\n".join(parts) + "\n"


def fill(path: Path, table: pd.DataFrame) -> None:
    """Write the summaries between the marks of a page."""
    begin, end = "<!-- results:bmi -->", "<!-- /results:bmi -->"
    text = path.read_text("utf-8")
    parts = []
    for rows in sorted(table["rows"].unique(), reverse=True):
        parts += [f"The 40 tasks of bmi, {rows:,} rows:", "", summary(table, rows), ""]
        if few := few_tasks(table, rows):
            parts += [few, ""]
    head, rest = text.split(begin)
    tail = rest.split(end)[1]
    path.write_text(head + "\n".join([begin, "", *parts, end]) + tail, "utf-8")


def figure(table: pd.DataFrame) -> None:
    """Mean absolute error against median seconds, a panel for each number of rows."""
    sizes = sorted(table["rows"].unique(), reverse=True)
    plot, axes = plt.subplots(1, len(sizes), figsize=(5 * len(sizes), 4), squeeze=False)
    for axis, rows in zip(axes[0], sizes, strict=True):
        means = on_every_task(table, rows).groupby(level="estimator")
        error, seconds = means["absolute"].mean(), means["seconds"].median()
        colours = ["C3" if name.startswith(OURS) else "C0" for name in error.index]
        axis.scatter(seconds, error, c=colours)
        for name in error.index:
            axis.annotate(
                name,
                (seconds[name], error[name]),
                xytext=(5, 3),
                textcoords="offset points",
                fontsize=8,
            )
        axis.set(
            xscale="log", yscale="log", xlabel="seconds, median over tasks", title=f"{rows:,} rows"
        )
        axis.set_ylabel("mean absolute error, nats")
        axis.margins(x=0.25)
    plot.tight_layout()
    (DOCS / "figures").mkdir(exist_ok=True)
    plot.savefig(DOCS / "figures" / "bmi.png", dpi=110)


def main() -> None:
    """Write the table, the page and the figure; print the summaries."""
    table = read()
    table.to_csv(RESULTS / "bmi.csv", index=False, float_format="%.6g")
    (DOCS / "bmi.md").write_text(page(table), "utf-8")
    fill(DOCS / "choosing.md", table)
    figure(table)
    for rows in sorted(table["rows"].unique(), reverse=True):
        print(rows, summary(table, rows), sep="\n")
        print("off the front:", off_front(per_task(table, rows)))


if __name__ == "__main__":
    main()
