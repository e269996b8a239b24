"""What a check found, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pointdep.core.methods import METHODS
from pointdep.inference.moment_tests import Recalibration


@dataclass(frozen=True)
class Origin:
    """Where log r comes from.

    method: key of `METHODS`, or "" where it is not known. learned_by: "network", "closed form"
    where that alone answers, "table" of a low-rank table and counts, or "calibrated" of a model
    trained elsewhere. given: the rows of the check are not those of the fit.
    """

    method: str = ""
    learned_by: str = "network"
    given: bool = False

    @property
    def lacks(self) -> str:
        """What its scores lack to be log r: "none", "constant", "row" (of x), or "" unknown."""
        return METHODS[self.method].reference if self.method in METHODS else ""


# What to do about a log r that a check has rejected, by what has learned it. {more}: rows, {side}:
# of a fault that depends on one, {other}: the other side, {ceiling}: of a method that has one.

_COUNTED = "Rare categories are known from few rows: more rows, or merged categories, help."
_AGAIN = "Calibrate on more pairs, or on pairs like these."
_RANKS = "Ranks are right; correct for it where the size of log r matters, or fit on more rows."
_ADVICE = {
    "network": {
        "offset": _RANKS,
        "stretched": "{more} help; a smaller critic or weight decay only where score() on unseen "
        "rows rises.",
        "compressed": "Train longer or with a larger critic{ceiling}.",
        "depends": "The critic is over-fitted to {side}, or too small for it: more rows help.",
        "uneven": "Look at the plot; more rows or another critic may help.",
    },
    "closed form": {
        "offset": _RANKS,
        "stretched": "{more} or fewer columns help; critic='concat' is a network alone.",
        "compressed": "The rows are too few for so many columns, or the closed form misses "
        "something: more rows, or critic='concat', may help.",
        "depends": "The closed form does not suit {side}: more rows, or critic='concat', may help.",
        "uneven": "Look at the plot; more rows, or critic='concat', a network alone, may help.",
    },
    "table": dict.fromkeys(("offset", "stretched", "compressed", "depends", "uneven"), _COUNTED),
    "calibrated": {
        "offset": _AGAIN,
        "stretched": _AGAIN,
        "compressed": _AGAIN,
        "depends": "Where the model's softmax ran over {other} alone, loss='softmax_one_sided' "
        "with queries='{side}' removes that; otherwise more pairs help.",
        "uneven": "Look at the plot; more pairs, or another loss, may help.",
    },
}
_WHY_STRETCHED = {
    "network": "as those of an over-fitted critic are on fresh rows",
    "closed form": "as those of a closed form fitted on few rows for its columns are",
    "table": "as counts of rare categories are",
    "calibrated": "as of logits that promise more than they hold on these pairs",
}


def _advice(fault: str, origin: Origin, side: str = "") -> str:
    """What helps; fault: a key of the table above."""
    advice = _ADVICE[origin.learned_by][fault]
    if fault == "offset" and origin.learned_by != "calibrated" and origin.lacks != "none":
        advice = "The constant of the read-out is missing or off: add it, or use method='pc'."
    if fault == "depends" and origin.learned_by == "network" and origin.lacks in ("", "row"):
        advice = (
            "The score lacks its read-out over {other} (as of cpc), or the critic is over-fitted "
            "to {side}: method='pc' needs no read-out."
        )
    return advice.format(
        side=side,
        other="y" if side == "x" else "x",
        more="More rows like these in the fit" if origin.given else "More rows",
        ceiling="" if origin.method == "pc" else ", or a method without a ceiling, such as 'pc'",
    )


FAULTS = ("offset", "stretched", "compressed", "depends_on_x", "depends_on_y", "uneven")
_CLEAR = 2.6  # standard errors from which a single number is named as the fault
_SLOPE = 0.07  # a slope this close to one is not what is wrong
_SHIFT = 0.05  # nats: nor is a constant this small
_SIDE = 0.1  # nats between the halves of a side
_OTHER_SIDE = 2.5  # how many times the difference on the other side it must be
_MANY = 0.01  # share of pairs worth a sentence
_SEEN = 0.1  # nats: a change that one decimal shows


@dataclass(frozen=True)
class BalanceResult:
    """One test: how far log r is too high, in nats, among pairs around the threshold.

    name: "all", or "x" or "y" for the difference of that offset between the x (y) of high and of
    low mean log-ratio. p_value: of this test alone; rows: the independent draws that carry it.
    """

    name: str
    threshold: float
    offset: float
    stderr: float
    p_value: float
    rows: float


# Flags of a fit that tell of dependence which the model missed. A ratio that is right as far as it
# goes, r' = E[r | what the model sees], holds every balance, so that the test cannot tell.
MISSED = {
    "rises_with_rows": "more rows would find more",
    "alarm": "a nearest-neighbour estimate lies clearly above the model's",
}
_LOWER = "read the mutual information as a lower limit"


def name_fault(balances: Sequence[BalanceResult], fit: Recalibration | None) -> str:
    """The simplest account of a rejected log r: one of `FAULTS`."""
    sides = {one.name: one for one in balances if one.name != "all"}
    for name, other in (("x", "y"), ("y", "x")):
        if name in sides and _clear(sides[name].offset, sides[name].stderr, _SIDE):
            beside = sides[other].offset if other in sides else 0.0
            if abs(sides[name].offset) > _OTHER_SIDE * abs(beside):
                return f"depends_on_{name}"
    if fit is not None and _clear(fit.slope - 1, fit.slope_stderr, _SLOPE):
        return "stretched" if fit.slope < 1 else "compressed"
    if fit is not None and _clear(fit.shift, fit.shift_stderr, _SHIFT):
        return "offset"
    return "uneven"


def put_into_words(
    fault: str,
    balances: Sequence[BalanceResult],
    fit: Recalibration | None,
    *,
    ends: tuple[float, float],
    wrong_pairs: bool,
    origin: Origin,
    rows: int,
    p_value: float,
    tolerance: float = 0.05,
    missed: Sequence[str] = (),
) -> str:
    """A few sentences: whether log r passes; if not, what is wrong, how large, what to do.

    ends: log r of a low and of a high pair. wrong_pairs: many more pairs lie far below zero than
    log r allows. origin: where log r comes from. missed: keys of `MISSED`.
    """
    reasons = " and ".join(MISSED[name] for name in missed)
    if fault == "none":
        size = ""
        if fit is not None:
            size = f", offset {-fit.shift:.2f} +- {fit.shift_stderr:.2f} nats"
            size += f", slope {fit.slope:.2f} +- {fit.slope_stderr:.2f}"
        found = f"{rows} held-out rows show no fault above {2 * tolerance:g} nats in log r"
        found += f" (p = {p_value:.2g}{size})."
        if reasons:
            return f"Passes as far as it can see, but {reasons}: {_LOWER}. The {found}"
        return f"Passes: {found} It cannot see dependence that the model missed."
    words = _fault_in_words(fault, balances, fit, ends, wrong_pairs, origin, rows)
    return f"{words} Also, {reasons}: {_LOWER}." if reasons else words


def _fault_in_words(
    fault: str,
    balances: Sequence[BalanceResult],
    fit: Recalibration | None,
    ends: tuple[float, float],
    wrong_pairs: bool,
    origin: Origin,
    rows: int,
) -> str:
    """Of a log r that does not pass."""
    if fault == "cannot_tell":
        return (
            f"Cannot tell: among the {rows} held-out rows, too few shuffled pairs look like real "
            "ones, or real ones like shuffled ones. That is no sign of a fault: with many nats of "
            "mutual information it takes more rows to tell."
        )
    if fault.startswith("depends_on"):
        side = fault[-1]
        found = next(one for one in balances if one.name == side)
        size = f"{abs(found.offset):.2f} +- {found.stderr:.2f} nats between halves of the {side}"
        words = f"log r is off by an amount that depends on {side}, {size}."
        return f"Fails: {words} {_advice('depends', origin, side)}"
    if fault == "uneven":
        worst = min(balances, key=lambda one: (one.p_value, -abs(one.offset)))
        way = "high" if worst.offset > 0 else "low"
        words = (
            f"log r is off in a way that no constant or factor mends, most around log r = "
            f"{worst.threshold:.1f}, where it is too {way} by {abs(worst.offset):.2f} +- "
            f"{worst.stderr:.2f} nats."
        )
        if wrong_pairs:
            words += " A share of the pairs may be wrong (what an audit looks for)."
        return f"Fails: {words} {_advice(fault, origin)}"
    assert fit is not None
    if fault == "offset":
        way = "low" if fit.shift > 0 else "high"
        size = f"too {way} by {abs(fit.shift):.2f} +- {fit.shift_stderr:.2f} nats"
        words = f"log r is {size}, much the same for all pairs"
    elif fault == "compressed":
        much = f"too small, {1 / fit.slope:.2f} times what they should be"
        words = f"differences of log r are {much}{_example(fit, ends)}"
    else:
        much = f"{1 / fit.slope:.2f} times too large" if fit.slope > 0.1 else "far too large"
        words = f"differences of log r are {much}{_example(fit, ends)}"
        words += f", {_WHY_STRETCHED[origin.learned_by]}"
        if origin.given:
            words += ", or these rows are less dependent than those of the fit"
        if wrong_pairs:
            words += ", or a share of the pairs is wrong (what an audit looks for)"
    return f"Fails: {words}. {_advice(fault, origin)}"


def limits_in_words(at_limit: float, outside: float) -> str:
    """A sentence for each share of pairs that is worth one, else nothing."""
    words = ""
    if at_limit > _MANY:
        words += f" {at_limit:.0%} of pairs sit at a limit of the read-out, not at their own log r."
    if outside > _MANY:
        words += f" {outside:.0%} of pairs are unlike the training rows: do not trust their size."
    return words


def _clear(value: float, stderr: float, least: float) -> bool:
    return abs(value) > max(least, _CLEAR * stderr)


def _example(fit: Recalibration, ends: tuple[float, float]) -> str:
    """In brackets, at the end of the range where the line changes most; "" where it hardly does."""
    mended = {end: fit.center + fit.shift + fit.slope * (end - fit.center) for end in ends}
    read, right = max(mended.items(), key=lambda both: abs(both[1] - both[0]))
    digits = 1 if abs(right - read) >= _SEEN else 2
    said, wanted = f"{read:.{digits}f}", f"{right:.{digits}f}"
    return "" if said == wanted else f" (log r of {said} should read {wanted})"
