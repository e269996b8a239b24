"""The tables and the figure of docs/plan.md, from the packaged constants and what was measured."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from cost_fit import ROOT, ratios, results

from pointdep.cli.plan import print_plan
from pointdep.planning.advice import duration, size
from pointdep.planning.constants import COMMANDS, measured
from pointdep.planning.plan import Cost, plan

PAGE = ROOT / "docs/plan.md"
FIGURE = ROOT / "docs/figures/plan.png"
SIZES = tuple(10**power for power in range(4, 10))
DIMS = 512
FACTOR = 1.5
COLOURS = dict(zip(COMMANDS, ("C0", "C1", "C2", "C3"), strict=True))


def write_page() -> None:
    """Put the tables between their marks, and draw the figure."""
    text = PAGE.read_text("utf-8")
    made = {
        "printed": printed(),
        "held": held(),
        "cpu": extrapolated(gpu=False),
        "gpu": extrapolated(gpu=True),
    }
    for name, part in made.items():
        before, rest = text.split(f"<!-- {name} -->\n")
        after = rest.split(f"<!-- end of {name} -->")[1]
        text = f"{before}<!-- {name} -->\n{part}\n<!-- end of {name} -->{after}"
    PAGE.write_text(text, "utf-8")
    draw(FIGURE)


def printed() -> str:
    """What the command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print_plan(plan(10**6, DIMS, cores=1))
    return f"```text\n{out.getvalue().rstrip()}\n```"


def extrapolated(*, gpu: bool) -> str:
    """Time, memory and bottleneck of every command, a row for each number of pairs."""
    lines = ["| pairs | fit | score | audit | retrieve |", "|---|---|---|---|---|"]
    for rows in SIZES:
        costs = plan(rows, DIMS, gpu=gpu, cores=1).costs
        power = len(str(rows)) - 1
        lines.append(
            "| " + " | ".join([f"10^{power}", *(_cell(costs[c]) for c in COMMANDS)]) + " |"
        )
    return "\n".join(lines)


def _cell(one: Cost) -> str:
    memory = size(one.gib) + ("" if one.gpu_gib is None else f" + {size(one.gpu_gib)}")
    return f"{duration(one.seconds)}, {memory}: {one.bottleneck} {one.share:.0%}"


def held() -> str:
    """The held-out jobs, predicted over measured."""
    lines = [
        "| on | command | pairs | columns | measured | predicted / measured | memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for device, known in measured().items():
        for row in ratios(results(device), known):
            if row["job"]["held_out"]:
                lines.append(_held_line(device, row))
    return "\n".join(lines)


def _held_line(device: str, row: dict[str, Any]) -> str:
    job = row["job"]
    columns = " + ".join(map(str, job["dims"]))
    held = "" if row["bytes"] is None else f"{row['bytes']:.2f}"
    name = row["command"] if row["command"] != "audit" else "audit, beside its fit"
    name += "" if job.get("keeping", True) else "; rows not kept in the GPU"
    times = f"{duration(row['measured'])} | {row['seconds']:.2f}"
    return f"| {device.upper()} | {name} | {job['rows']:,} | {columns} | {times} | {held} |"


def draw(path: Path) -> None:
    """Predicted against measured, and the extrapolation."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    for device, known in measured().items():
        for row in ratios(results(device), known):
            left.plot(
                row["measured"],
                row["seconds"] * row["measured"],
                marker="o" if device == "cpu" else "^",
                color=COLOURS[row["command"]],
                fillstyle="full" if row["job"]["held_out"] else "none",
                linestyle="",
            )
    ends = [0.03, 1000]
    left.plot(ends, ends, color="grey", linewidth=0.8)
    left.fill_between(ends, [e / FACTOR for e in ends], [e * FACTOR for e in ends], color="0.92")
    left.set(xscale="log", yscale="log", xlabel="measured, s", ylabel="predicted, s")
    left.set_title(
        "grey: within 1.5; circles: one core, triangles: GPU; filled: held out", fontsize=9
    )
    for device in measured():
        for command in COMMANDS:
            times = [
                plan(rows, DIMS, gpu=device == "gpu", cores=1).costs[command].seconds
                for rows in SIZES
            ]
            style = "-" if device == "cpu" else "--"
            label = f"{command}, {'one core' if device == 'cpu' else 'GPU'}"
            right.plot(SIZES, times, style, color=COLOURS[command], label=label)
    for seconds, name in ((60, "1 min"), (3600, "1 h"), (86_400, "1 day"), (31_557_600, "1 year")):
        right.axhline(seconds, color="0.85", linewidth=0.8, zorder=0)
        right.text(SIZES[0], seconds * 1.15, name, fontsize=8, color="0.4")
    right.set(xscale="log", yscale="log", xlabel=f"pairs of {DIMS} + {DIMS} columns", ylabel="s")
    right.legend(fontsize=8, ncols=2, loc="lower right")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
