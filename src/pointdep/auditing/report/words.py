"""What an audit found, in words: the sentence, the cards and the figures of the page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pointdep.inference.mutual_information import decimals

if TYPE_CHECKING:
    from pointdep.auditing.result import Audit, Contamination

_BINS = 80


def finding(audit: Audit) -> str:
    """The answer in one sentence."""
    rows, count = len(audit.table), int(audit.table["suspect"].sum())
    if count == 0:
        return (
            f"None of the {rows:,} pairs is a suspect: no pairs could be named of which only "
            f"{percent(audit.fdr)} would be right."
        )
    verb = "is a suspect" if count == 1 else "are suspects"
    expected = "it looks as if x and y came together by chance"
    if count > 1:
        expected = f"about {percent(audit.fdr)} of these are expected to be right"
    return f"{count:,} of {rows:,} pairs {verb}: {expected}."


def cards(audit: Audit) -> list[dict[str, str]]:
    """name, value and note of each number worth seeing first."""
    found, table = audit.mutual_information, audit.table
    low, high = found.ci
    level = f"{100 * found.confidence:g}% interval {decimals(low)} to {decimals(high)}"
    if found.estimates == "mutual information":
        value = f"{decimals(found.nats)} nats"
        low, high = found.ci_bits
        level += f" nats; {decimals(found.bits)} bits ({decimals(low)} to {decimals(high)})"
    else:
        value = decimals(found.nats)
    rows, suspects = len(table), int(table["suspect"].sum())
    how = f"{audit.folds} folds, method {audit.method}"
    below = int(table["below_zero"].sum())
    return [
        {"name": found.estimates.capitalize(), "value": value, "note": level},
        {"name": "Rows", "value": f"{rows:,}", "note": how},
        {
            "name": "Suspects",
            "value": f"{suspects:,}",
            "note": f"{percent(suspects / rows)} of the rows, at a false discovery rate of "
            f"{percent(audit.fdr)}",
        },
        {
            "name": "PMI below zero",
            "value": f"{below:,}",
            "note": f"{percent(below / rows)} of the rows: together less often than chance",
        },
        {
            "name": "Chance pairs",
            "value": percent(audit.contamination.share),
            "note": share_in_words(audit.contamination),
        },
    ]


def share_in_words(contamination: Contamination) -> str:
    """Where the share of chance pairs comes from."""
    if contamination.given:
        return "share of pairs that came together by chance, as given"
    error = contamination.stderr
    reach = "" if error is None else f" ± {percent(error)}"
    return (
        f"estimated share of pairs that came together by chance{reach}; lower where right pairs "
        "look like chance too"
    )


def percent(share: float) -> str:
    """Two digits that say something, and no decimals where there are whole percents enough."""
    value = 100 * share
    if value and abs(value) < 0.1:
        return f"{value:.2g}%"
    return f"{value:.1f}%".replace(".0%", "%") if value < 10 else f"{value:.0f}%"


def histogram(pmi: Any, bins: int = _BINS) -> dict[str, list[float]]:
    """edges and counts of PMI, with an edge at zero; values far out are in the last bins.

    The outer edges stay where most of the values are, or a few outliers would leave one bar.
    """
    values = np.asarray(pmi, dtype=np.float64)
    values = values[np.isfinite(values)]
    if not len(values):
        return {"edges": [], "counts": []}
    far_low, low, high, far_high = np.quantile(values, (0.0, 0.005, 0.995, 1.0))
    reach = max(high - low, 1e-3)
    low, high = max(far_low, low - reach), min(far_high, high + reach)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    width = (high - low) / bins
    first, last = math.floor(low / width), math.ceil(high / width)
    edges = np.arange(first, last + 1) * width
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    return {"edges": edges.round(9).tolist(), "counts": counts.tolist()}
