"""What an audit found, in words: the sentence, the cards and the figures of the page."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointdep.auditing.result import Audit, Contamination

_BINS = 80
_REACH = 6.0  # spreads of the middle half beyond it that the bars reach
_STAND = (
    "Suspects are judged against mismatched pairs, so an error in the size of PMI matters little."
)
_UNSURE = "The fit is uncertain: more of the suspects may be right pairs than expected."


def finding(audit: Audit) -> str:
    """The answer in one sentence."""
    rows, count = len(audit.table), int(audit.table["suspect"].sum())
    if not audit.named:
        return (
            f"No suspects are named: one by one the {rows:,} pairs cannot be told from chance "
            "pairs. There are too few rows, or x and y depend too little on each other."
        )
    if count == 0:
        what = f"None of the {rows:,} pairs is a suspect"
        return f"{what}: no pairs could be named of which only {percent(audit.fdr)} would be right."
    if count == 1:
        said = "is a suspect: it looks as if x and y came together by chance"
    else:
        # The share of good pairs among the suspects is the largest of their q-values.
        largest = float(audit.suspects["q_value"].max())
        right = "under 0.1%" if largest < 0.001 else f"about {percent(largest)}"
        said = f"are suspects: {right} of these are expected to be right"
    return f"{count:,} of {rows:,} pairs {said}."


def share_in_words(contamination: Contamination) -> str:
    """Where the share of chance pairs comes from."""
    if contamination.given:
        return "share of pairs that came together by chance, as given"
    reach = "" if contamination.stderr is None else f" ± {percent(contamination.stderr)}"
    said = f"estimated share of pairs that came together by chance{reach}"
    return f"{said}; too high where some right pairs look like chance too"


def more_by_chance(audit: Audit) -> str:
    """That chance pairs are more than the suspects, where they are, or ""."""
    rows, suspects = len(audit.table), int(audit.table["suspect"].sum())
    number = unlisted(audit.contamination, rows, suspects) if audit.named else 0
    if not number:
        return ""
    more = in_round_numbers(number)
    return f"; {more} more pairs than are suspects, which PMI cannot tell from right ones"


def in_round_numbers(number: int) -> str:
    """Two digits of it, as "about 150"."""
    return f"about {round(number, 2 - len(str(number))):,}"


def unlisted(contamination: Contamination, rows: int, suspects: int) -> int:
    """Pairs that came by chance beyond the suspects, where they are more beyond doubt."""
    share, doubt = contamination.share, 2 * (contamination.stderr or 0.0)
    return max(round(rows * share) - suspects, 0) if rows * (share - doubt) > suspects else 0


def caveat(audit: Audit) -> str:
    """What a check that does not pass means for the suspects, or "" if there are none."""
    if audit.check.passed or not audit.table["suspect"].any():
        return ""
    return _UNSURE if any(flag.name == "wide_interval" for flag in audit.flags) else _STAND


def probability(value: float | None) -> str:
    """Three decimals, or "-" where it is missing."""
    if value is None:
        return "-"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def percent(share: float) -> str:
    """Two digits that say something, and no decimals where there are whole percents enough."""
    value = 100 * share
    if value and abs(value) < 0.1:
        return f"{value:.2g}%"
    return f"{value:.1f}%".replace(".0%", "%") if value < 10 else f"{value:.0f}%"


def histogram(pmi: Any, bins: int = _BINS) -> dict[str, Any]:
    """edges and counts of PMI, with an edge at zero; values far out are in the outer bins.

    The outer edges stay where most of the values are, or a few outliers would leave one bar.
    beyond: how many values lie below the first edge and above the last.
    """
    values = np.asarray(pmi, dtype=np.float64)
    values = values[np.isfinite(values)]
    if not len(values):
        return {"edges": [], "counts": [], "beyond": [0, 0]}
    low, high = _middle(values)
    width = (high - low) / bins
    first, last = math.floor(low / width), math.floor(high / width) + 1
    edges = (np.arange(first, last + 1) * width).round(9)
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    beyond = [int((values < edges[0]).sum()), int((values > edges[-1]).sum())]
    return {"edges": edges.tolist(), "counts": counts.tolist(), "beyond": beyond}


def _middle(values: NDArray[np.float64]) -> tuple[float, float]:
    """Where most of the values are. By quartiles, which a tenth of rows far out does not move."""
    shares = (0.0, 0.1, 0.25, 0.75, 0.9, 1.0)
    least, tenth, low, high, ninetieth, most = np.quantile(values, shares, method="inverted_cdf")
    # Where half of the rows have one value, as with few categories, the quartiles are one, too.
    reach = _REACH * max(high - low, (ninetieth - tenth) / 4) or most - least
    low, high = max(least, low - reach), min(most, high + reach)
    if high - low < 1e-3:
        low, high = low - 0.5, high + 0.5
    room = (high - low) / 20  # for what lies on the other side of zero
    low = min(low, max(least, -room)) if least < 0 else low
    high = max(high, min(most, room)) if most > 0 else high
    return float(low), float(high)


def outer_bars(bars: dict[str, Any]) -> list[str]:
    """What the outer bars of `histogram` hold beside their own rows, in words."""
    places = ("below", "first", 0), ("above", "last", -1)
    return [
        f"{count:,} {'row' if count == 1 else 'rows'} {side} {bars['edges'][edge]:.1f} "
        f"{'is' if count == 1 else 'are'} in the {name} bar."
        for count, (side, name, edge) in zip(bars["beyond"], places, strict=True)
        if count
    ]
