"""What a check found, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pointdep.core.methods import METHODS
from pointdep.inference.moment_tests import Recalibration

# What to do about a log r that a check has rejected, by where it comes from.

_COMPARE = "a smaller critic or weight decay only where score() on unseen rows rises"


@dataclass(frozen=True)
class Origin:
    """Where log r comes from.

    method: key of `METHODS`, or "" where it is not known. learned_by: "network", "closed form"
    where that alone answers, or "calibrated" of a model trained elsewhere. given: the rows of the
    check are not those of the fit.
    """

    method: str = ""
    learned_by: str = "network"
    given: bool = False

    @property
    def lacks(self) -> str:
        """What its scores lack to be log r: "none", "constant", "row" (of x), or "" unknown."""
        return METHODS[self.method].reference if self.method in METHODS else ""


def after_stretched(origin: Origin, wrong_pairs: bool) -> str:
    """Why differences may be too large, and what helps; goes on after a bracket."""
    causes = {
        "network": "as those of an over-fitted critic are on fresh rows",
        "closed form": "as those of a closed form fitted on few rows for its columns are",
        "calibrated": "as of logits that promise more than they hold on these pairs",
    }
    words = f", {causes[origin.learned_by]}"
    if origin.given:
        words += ", or these rows are less dependent than those of the fit"
    if wrong_pairs:
        words += ", or a share of the pairs is wrong (what an audit looks for)"
    more = "More rows like these in the fit" if origin.given else "More rows"
    helps = {
        "network": f"{more} help; {_COMPARE}.",
        "closed form": f"{more} or fewer columns help; critic='concat' is a network alone.",
        "calibrated": "Calibrate on more pairs, or on pairs like these.",
    }
    return f"{words}. {helps[origin.learned_by]}"


def after_compressed(origin: Origin) -> str:
    """What helps where differences are too small."""
    if origin.learned_by == "calibrated":
        return "Calibrate on more pairs, or on pairs like these."
    if origin.learned_by == "closed form":
        return "The closed form misses something: more rows, or critic='concat', a network alone."
    ceiling = "" if origin.method == "pc" else ", or a method without a ceiling, such as 'pc'"
    return f"Train longer or with a larger critic{ceiling}."


def after_offset(origin: Origin) -> str:
    """What helps where log r is off by a constant."""
    if origin.learned_by == "calibrated":
        return "Calibrate on more pairs, or on pairs like these."
    if origin.lacks != "none":
        return "The constant of the read-out is missing or off: add it, or use method='pc'."
    return "Ranks are right; take it off where the size of log r matters, or fit on more rows."


def after_depends(origin: Origin, side: str) -> str:
    """What helps where log r is off by a function of one side."""
    other = {"x": "y", "y": "x"}[side]
    if origin.learned_by == "calibrated":
        return (
            f"Where the model's softmax ran over {other} alone, loss='softmax_one_sided' with "
            f"queries='{side}' removes that; otherwise more pairs help."
        )
    if origin.learned_by == "closed form":
        return f"The closed form does not suit {side}: more rows, or critic='concat', may help."
    if origin.lacks in ("", "row"):
        return (
            f"The score lacks its read-out over {other} (as of cpc), or the critic is over-fitted "
            f"to {side}: method='pc' needs no read-out."
        )
    return f"The critic is over-fitted to {side}, or too small to follow it: more rows help."


def after_uneven(origin: Origin, wrong_pairs: bool) -> str:
    """What helps where neither a constant nor a factor mends it."""
    words = "A share of the pairs may be wrong (what an audit looks for). " if wrong_pairs else ""
    helps = {
        "network": "more rows or another critic may help",
        "closed form": "more rows, or critic='concat', a network alone, may help",
        "calibrated": "more pairs, or another loss, may help",
    }
    return f"{words}Look at the plot; {helps[origin.learned_by]}."


FAULTS = ("offset", "stretched", "compressed", "depends_on_x", "depends_on_y", "uneven")
_CLEAR = 2.6  # standard errors from which a single number is named as the fault
_SLOPE = 0.07  # a slope this close to one is not what is wrong
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


@dataclass(frozen=True)
class Context:
    """What the sentences need beside the tests.

    ends: log r of a low and of a high pair. wrong_pairs: many more pairs lie far below zero than
    log r allows. origin: where log r comes from.
    """

    ends: tuple[float, float]
    wrong_pairs: bool
    origin: Origin


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
    if fit is not None and _clear(fit.shift, fit.shift_stderr, 0.0):
        return "offset"
    return "uneven"


def put_into_words(
    fault: str,
    balances: Sequence[BalanceResult],
    fit: Recalibration | None,
    context: Context,
    *,
    rows: int,
    p_value: float,
) -> str:
    """A few sentences: whether log r passes; if not, what is wrong, how large, what to do."""
    if fault == "cannot_tell":
        return (
            f"Cannot tell: the {rows} held-out rows leave too few pairs of either kind where joint "
            "and product pairs overlap. Give more rows."
        )
    if fault == "none":
        size = "" if fit is None else f", {_size(fit)}"
        return f"Passes: {rows} held-out rows show no fault in log r (p = {p_value:.2g}{size})."
    if fault == "uneven":
        return f"Fails: {_uneven(balances, context)}"
    if fault.startswith("depends_on"):
        return f"Fails: {_depends(fault[-1], balances, context)}"
    assert fit is not None
    sentences = {"offset": _offset, "stretched": _stretched, "compressed": _compressed}
    return f"Fails: {sentences[fault](fit, context)}"


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


def _size(fit: Recalibration) -> str:
    return (
        f"offset {-fit.shift:.2f} +- {fit.shift_stderr:.2f} nats, "
        f"slope {fit.slope:.2f} +- {fit.slope_stderr:.2f}"
    )


def _example(fit: Recalibration, ends: tuple[float, float]) -> str:
    """In brackets, at the end of the range where the line changes most; "" where it hardly does."""
    read = max(ends, key=lambda end: abs(_mended(fit, end) - end))
    digits = 1 if abs(_mended(fit, read) - read) >= _SEEN else 2
    said, right = f"{read:.{digits}f}", f"{_mended(fit, read):.{digits}f}"
    return "" if said == right else f" (log r of {said} should read {right})"


def _mended(fit: Recalibration, log_ratio: float) -> float:
    return fit.center + fit.shift + fit.slope * (log_ratio - fit.center)


def _offset(fit: Recalibration, context: Context) -> str:
    way = "low" if fit.shift > 0 else "high"
    return (
        f"log r is too {way} by {abs(fit.shift):.2f} +- {fit.shift_stderr:.2f} nats, much the same "
        f"for all pairs. {after_offset(context.origin)}"
    )


def _stretched(fit: Recalibration, context: Context) -> str:
    much = f"{1 / fit.slope:.2f} times too large" if fit.slope > 0.1 else "far too large"
    why = after_stretched(context.origin, context.wrong_pairs)
    return f"differences of log r are {much}{_example(fit, context.ends)}{why}"


def _compressed(fit: Recalibration, context: Context) -> str:
    return (
        f"differences of log r are too small, {1 / fit.slope:.2f} times what they should be"
        f"{_example(fit, context.ends)}. {after_compressed(context.origin)}"
    )


def _depends(side: str, balances: Sequence[BalanceResult], context: Context) -> str:
    found = next(one for one in balances if one.name == side)
    return (
        f"log r is off by an amount that depends on {side}, {abs(found.offset):.2f} +- "
        f"{found.stderr:.2f} nats between halves of the {side}. "
        f"{after_depends(context.origin, side)}"
    )


def _uneven(balances: Sequence[BalanceResult], context: Context) -> str:
    worst = max(balances, key=lambda one: abs(one.offset))
    way = "high" if worst.offset > 0 else "low"
    return (
        f"log r is off in a way that no constant or factor mends, most around log r = "
        f"{worst.threshold:.1f}, where it is too {way} by {abs(worst.offset):.2f} +- "
        f"{worst.stderr:.2f} nats. {after_uneven(context.origin, context.wrong_pairs)}"
    )
