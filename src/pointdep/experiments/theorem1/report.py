"""What a run of Theorem 1 leaves: files in a folder, and a table with its reading for a person."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pointdep.data.writers import write_table
from pointdep.experiments.environment import environment
from pointdep.experiments.text import aligned
from pointdep.experiments.theorem1.figure import write_figure
from pointdep.experiments.theorem1.run import Outcome
from pointdep.experiments.theorem1.slopes import Slope, Summary, slopes, summarise

_COLUMNS = {
    "method": "method",
    "rows": "rows",
    "rmse": "RMSE",
    "bias": "bias",
    "sd": "sd",
    "in_sample_rmse": "in-sample RMSE",
    "in_sample_bias": "its bias",
    "exact_rmse": "exact RMSE",
    "exact_sd": "exact sd",
    "at_limit": "at limit",
}
_FORMATS = {"rows": ",", "bias": "+.4f", "in_sample_bias": "+.4f", "at_limit": ".2%"}

LEGEND = (
    "In nats. RMSE, bias, sd: of the mean of log r over all rows, each by a network that did not "
    "see it (by chance the bias is about sd / sqrt(seeds) even where there is none); in-sample: by "
    "each network over the rows that it trained on, the plug-in of which the theorem speaks, but "
    "with 2 folds a network has half of the n rows, and trains on 85% of these; exact RMSE, exact "
    "sd: of the mean of the exact PMI over the same rows, measured and sd(PMI) / sqrt(n); at "
    "limit: share of held-out pairs at a limit of the read-out."
)
KNOWN = (
    "Intervals: from leaving out one seed after the other, with Student's t. The theorem says that "
    "some network has an error of at most this order, not that training finds it. What can make "
    "the exponent another: the network is the same at every n, and what it cannot represent stays; "
    "training stops early and at a constant learning rate, which leaves something unlearned; the "
    "bias of well-fitted weights falls like 1/n, faster than the noise of a mean; a ratio that is "
    "fitted as a number (drf) may fall to its floor, whose logarithm is far off."
)
_VERDICTS = {
    "agrees": "-1/2 lies in it",
    "steeper": "steeper than -1/2, which is no contradiction: the theorem bounds from above",
    "shallower": "shallower than -1/2",
}
_FEW_AT_LIMIT = 5e-4


def write_report(outcome: Outcome, folder: Path) -> None:
    """runs.csv, summary.csv, results.json and the figure."""
    lines, found = summarise(outcome), slopes(outcome)
    _write_csv(folder / "runs.csv", [asdict(run) for run in outcome.runs])
    _write_csv(folder / "summary.csv", [asdict(line) for line in lines])
    content = {
        "command": outcome.settings.command,
        **environment(outcome.device),
        "settings": asdict(outcome.settings),
        "weights": outcome.weights,
        "seconds": dict(zip(map(str, outcome.settings.rows), outcome.seconds, strict=True)),
        "slopes": [slope_as_dict(slope) for slope in found],
        "reading": reading(lines, found),
        "summary": [asdict(line) for line in lines],
        "runs": [asdict(run) for run in outcome.runs],
    }
    text = json.dumps(content, indent=1, allow_nan=False)
    (folder / "results.json").write_text(text + "\n", "utf-8")
    write_figure(outcome, folder)


def slope_as_dict(slope: Slope) -> dict[str, Any]:
    """The slope with its verdict."""
    return {**asdict(slope), "verdict": slope.verdict}


def text_table(lines: Sequence[Summary]) -> str:
    """The summary as aligned columns."""
    cells = [list(_COLUMNS.values())]
    cells += [[_cell(name, getattr(line, name)) for name in _COLUMNS] for line in lines]
    return aligned(cells)


def reading(lines: Sequence[Summary], found: Sequence[Slope]) -> list[str]:
    """What the numbers say, a paragraph a method."""
    held = {slope.method: slope for slope in found if slope.quantity == "held_out"}
    seen = {slope.method: slope for slope in found if slope.quantity == "in_sample"}
    return [
        _read(held[method], seen[method], [line for line in lines if line.method == method])
        for method in held
    ]


def _read(held: Slope, seen: Slope, lines: Sequence[Summary]) -> str:
    first, before, last = lines[0], lines[-2], lines[-1]
    said = [
        f"{held.method}: the held-out RMSE falls like n^{held.value:.2f}, 95% interval "
        f"{held.low:.2f} to {held.high:.2f}: {_VERDICTS[held.verdict]}.",
        f"From {before.rows:,} to {last.rows:,} rows alone the exponent is {held.last:.2f} "
        f"({held.last_low:.2f} to {held.last_high:.2f}).",
        f"In sample it is {seen.value:.2f} ({seen.low:.2f} to {seen.high:.2f}): "
        f"{_VERDICTS[seen.verdict]}.",
        f"Bias makes up {first.bias_share:.0%} of the squared held-out error at {first.rows:,} "
        f"rows and {last.bias_share:.0%} at {last.rows:,}.",
    ]
    if last.at_limit > _FEW_AT_LIMIT:
        said.append(
            f"At {last.rows:,} rows {last.at_limit:.1%} of the held-out pairs are at a limit of "
            f"the read-out; they alone make {last.limit_error:+.4f} nats of the bias of "
            f"{last.bias:+.4f}."
        )
    ended = sum(line.ended_early for line in lines)
    if ended:
        said.append(f"{ended} network(s) did not train to their end.")
    return " ".join(said)


def _cell(name: str, value: Any) -> str:
    return value if isinstance(value, str) else format(value, _FORMATS.get(name, ".4f"))


def _write_csv(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    write_table(path, {name: np.array([line[name] for line in lines]) for name in lines[0]})
