"""What all estimators share: how scikit-learn and a notebook see them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from pointdep.data import sides
from pointdep.data.encoder import part_of
from pointdep.data.raw import Fault, group_codes
from pointdep.data.sides import RawSide, SideEncoder
from pointdep.display.html_repr import card
from pointdep.errors import (
    DataWarning,
    FitWarning,
    Flag,
    InputError,
    all_of,
    require_missing,
    warn_caller,
)

if TYPE_CHECKING:
    from sklearn.utils import Tags


def read_pairs(
    X: Any,
    Y: Any,
    groups: Any,
    discrete: tuple[bool | None, bool | None],
    missing: str = "error",
) -> tuple[RawSide, RawSide, NDArray[np.int64] | None]:
    """Rows to fit on: both sides, as many of each, and their groups as numbers."""
    require_missing(missing)
    raw_x, raw_y = all_of(
        partial(sides.as_side, values, name, discrete=own, missing=missing)
        for values, name, own in zip((X, Y), "XY", discrete, strict=True)
    )
    sides.warn_of_other_order(X, Y)
    codes = group_codes(groups)
    sides.require_same_length(raw_x, raw_y, codes)
    return raw_x, raw_y, codes


def fit_encoders(
    raw_x: RawSide, raw_y: RawSide, missing: str = "error"
) -> tuple[SideEncoder, SideEncoder]:
    """The encoders of both sides."""
    of_x, of_y = all_of(
        partial(SideEncoder.fit, raw, name, missing)
        for raw, name in zip((raw_x, raw_y), "XY", strict=True)
    )
    return of_x, of_y


def without_gaps(
    raw_x: RawSide, raw_y: RawSide, codes: NDArray[np.int64] | None, missing: str
) -> tuple[RawSide, RawSide, NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """The pairs that can be used, and which these are, or None if all can.

    Pairs with a missing value are left out with missing="drop", and always those with a text, a
    picture or a sound that cannot be read.
    """
    gaps = np.zeros(raw_x.rows, dtype=bool)
    if missing == "drop":
        gaps = raw_x.gaps() | raw_y.gaps()
        if gaps.any():
            said = f"dropped {gaps.sum()} of {len(gaps)} row(s) with missing values"
            warn_caller(said, DataWarning)
    if reasons := left_out_rows(raw_x, raw_y):
        gaps[list(reasons)] = True
        warn_caller(f"left out {len(reasons)} row(s): {some_reasons(reasons)}", DataWarning)
    if not gaps.any():
        return raw_x, raw_y, codes, None
    kept = np.flatnonzero(~gaps)
    if not len(kept):
        raise InputError("no row is left: every row has a missing value or cannot be read")
    own = None if codes is None else codes[kept]
    return part_of(raw_x, kept), part_of(raw_y, kept), own, kept


def reasons_of(faults: Iterable[Fault], rows: int) -> NDArray[np.object_]:
    """(rows,) why each row cannot be used, "" if it can."""
    reasons = np.full(rows, "", dtype=object)
    for fault in faults:
        told = np.where(reasons == "", "", reasons + "; ") + fault.reason
        reasons = np.where(fault.rows, told, reasons)
    return reasons


def can_be_scored(reasons: NDArray[np.object_]) -> bool:
    """Whether there are rows enough for `score`, with a warning if some are left out.

    reasons: (n,) why a row cannot be scored, "" if it can.
    """
    fine = reasons == ""
    if not fine.all():
        told = "; ".join(sorted(set(reasons[~fine]))[:3])
        said = (
            f"{(~fine).sum()} of {len(fine)} row(s) are left out of the score ({told}): split rows"
        )
        said += " of labels by StratifiedKFold, or shuffle them, as with KFold(3, shuffle=True)"
        warn_caller(said, DataWarning, once="left out of the score")
    return int(fine.sum()) > 1


NO_BETTER = -math.log(2.0)
"""The score of calling everything independent."""


def left_out_rows(*sides_of: RawSide) -> dict[int, str]:
    """Rows that cannot be read, and why."""
    found: dict[int, str] = {}
    for fault in (fault for side in sides_of for fault in side.faults):
        for row in np.flatnonzero(fault.rows).tolist():
            found[row] = f"{found[row]}; {fault.reason}" if row in found else fault.reason
    return dict(sorted(found.items()))


def some_reasons(reasons: Mapping[int, str], most: int = 5) -> str:
    """The first rows and their reasons, in words."""
    shown = [f"row {row} ({why})" for row, why in list(reasons.items())[:most]]
    return ", ".join(shown) + (", ..." if len(reasons) > most else "")


def plain_copy(model: Any, **changed: Any) -> Any:
    """A copy to be fitted as a part of something larger, with these options changed.

    It fits no learning curve, which nobody would see.
    """
    if "curve" in model.get_params(deep=False):
        changed["curve"] = False
    return clone(model).set_params(**changed)


class DependencyEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of the estimators: fit(X, Y), then answers about pairs."""

    n_rows_: int
    n_features_in_: int
    flags_: tuple[Flag, ...]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags

    def _require_y(self, Y: Any) -> None:
        if Y is None:
            fault = f"{type(self).__name__} requires y to be passed, but the target y is None"
            raise InputError(f"{fault}: call fit(X, Y) with two arrays of paired rows")

    @property
    def _notes(self) -> tuple[str, ...]:
        return tuple(str(flag) for flag in self.flags_)

    def _warn_of_flags(self) -> None:
        for flag, note in zip(self.flags_, self._notes, strict=True):
            warn_caller(note, FitWarning, once=flag.name)

    def _set_features(self, encoder: SideEncoder) -> None:
        """scikit-learn's attributes of X."""
        names = encoder.given_names
        self.n_features_in_ = len(names)
        if encoder.named:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit

    def _found(self) -> list[tuple[str, object]]:
        """Names and values of what a fitted one has found."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        name = type(self).__name__
        options = ("options", " ".join(repr(self).split())[len(name) + 1 : -1] or "defaults")
        if not hasattr(self, "n_rows_"):
            return card(f"{name}, not fitted", [options])
        of_y = getattr(getattr(self, "encoder_y_", None), "names", ())
        columns = f"{self.n_features_in_} columns of X"
        columns += f", {len(of_y)} of Y" if of_y else ""
        of = ("fitted on", f"{self.n_rows_:,} rows, {columns}")
        return card(name, [of, *self._found(), options], notes=self._notes)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Before `_repr_html_`, where a notebook asks for it; scikit-learn has one of its own."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
