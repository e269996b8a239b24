"""What to do about a log r that a check has rejected, by where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from pointdep.core.methods import METHODS

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
