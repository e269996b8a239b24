"""What all estimators share: how scikit-learn and a notebook see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from pointdep.data import sides
from pointdep.data.raw import group_codes
from pointdep.data.sides import RawSide, SideEncoder
from pointdep.display.html_repr import card
from pointdep.errors import FitWarning, Flag, InputError, warn_caller

if TYPE_CHECKING:
    from sklearn.utils import Tags


def read_pairs(
    X: Any, Y: Any, groups: Any, discrete: tuple[bool | None, bool | None]
) -> tuple[RawSide, RawSide, NDArray[np.int64] | None]:
    """Rows to fit on: both sides, as many of each, and their groups as numbers."""
    raw_x = sides.as_side(X, "X", discrete=discrete[0])
    raw_y = sides.as_side(Y, "Y", discrete=discrete[1])
    sides.warn_of_other_order(X, Y)
    codes = group_codes(groups)
    sides.require_same_length(raw_x, raw_y, codes)
    return raw_x, raw_y, codes


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
        for note in self._notes:
            warn_caller(note, FitWarning)

    def _set_features(self, encoder: SideEncoder) -> None:
        """scikit-learn's attributes of X."""
        self.n_features_in_ = len(encoder.names)
        if encoder.named:
            self.feature_names_in_ = np.asarray(encoder.names, dtype=object)
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
