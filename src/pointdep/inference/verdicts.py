"""What a check found, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pointdep.inference.advice import (
    Origin,
    after_compressed,
    after_depends,
    after_offset,
    after_stretched,
    after_uneven,
)
from pointdep.inference.recalibration import Recalibration

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
