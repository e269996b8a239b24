"""Which of two fitted models finds more? The difference of their MI on the same rows."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from pointdep.data.raw import group_codes
from pointdep.display.html_repr import card
from pointdep.errors import DataWarning, InputError
from pointdep.estimators.classical.estimator import ClassicalDependency
from pointdep.estimators.pointwise import PointwiseDependency
from pointdep.inference.mutual_information import decimals, standard_error

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MIDifference:
    """Mutual information of the first model less that of the second, in nats.

    `stderr` is that of the mean of the differences of the rows, which is smaller than that of two
    separate estimates where the models agree on which rows are likely, joined with the doubt about
    the bias of both fits (that of a `ClassicalDependency` is not known, and not in it). `ci` is the
    normal interval at `confidence`; `p_value` that of no difference, two-sided.
    """

    nats: float
    stderr: float
    ci: tuple[float, float]
    confidence: float
    p_value: float
    rows: int
    first: float
    second: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return asdict(self) | {"ci": list(self.ci)}

    def _repr_html_(self) -> str:
        low, high = self.ci
        return card(
            f"Difference of mutual information {decimals(self.nats)} nats",
            [
                (
                    f"{100 * self.confidence:g}% interval",
                    f"{decimals(low)} to {decimals(high)} nats",
                ),
                ("p-value of no difference", f"{self.p_value:.2g}"),
                ("first, second", f"{decimals(self.first)}, {decimals(self.second)} nats"),
                ("from", f"{self.rows:,} rows that both have answered"),
            ],
        )

    def __str__(self) -> str:
        low, high = self.ci
        return (
            f"{decimals(self.first)} - {decimals(self.second)} = {decimals(self.nats)} nats, "
            f"{100 * self.confidence:g}% interval {decimals(low)} to {decimals(high)}"
        )


@dataclass(frozen=True)
class _Values:
    """values: (n,) whose mean is the MI of a model, NaN where it has none, and what it lacks."""

    values: Array
    groups: NDArray[np.int64] | None
    correction: float
    doubt: float


def compare(
    model_a: Any,
    model_b: Any,
    X: Any = None,
    Y: Any = None,
    *,
    X_b: Any = None,
    Y_b: Any = None,
    groups: Any = None,
    confidence: float = 0.95,
) -> MIDifference:
    """Mutual information of model_a less that of model_b, on the same rows in the same order.

    model_a, model_b: fitted `PointwiseDependency` or `ClassicalDependency`. Without rows, on those
    of their fits, which must be the same ones (each out of fold): such as two sets of features with
    the same y. X, Y, groups: other rows, for both models; X_b, Y_b: the same rows as the second
    model takes them, where it takes other columns.
    """
    if not isinstance(confidence, int | float) or not 0.0 < confidence < 1.0:
        raise InputError(f"confidence={confidence!r} must lie between 0 and 1")
    if (X is None) != (Y is None):
        raise InputError("both X and Y are needed: a pair has two sides")
    _require_comparable(model_a, model_b)
    if X is None:
        if X_b is not None or Y_b is not None or groups is not None:
            raise InputError("X_b, Y_b and groups go with X and Y: give those too, or none of them")
        a, b = _of_fit(model_a), _of_fit(model_b)
        _require_same_rows(a, b)
        _warn_of_other_rows(model_a, model_b)
    else:
        a = _of_rows(model_a, X, Y, groups)
        b = _of_rows(model_b, X if X_b is None else X_b, Y if Y_b is None else Y_b, groups)
        if len(a.values) != len(b.values):
            raise InputError(
                f"X and Y have {len(a.values)} rows but X_b and Y_b {len(b.values)}: the second "
                "model must be asked about the same rows"
            )
    return _difference(a, b, float(confidence))


def _difference(a: _Values, b: _Values, confidence: float) -> MIDifference:
    known = ~np.isnan(a.values) & ~np.isnan(b.values)
    differences = a.values[known] - b.values[known]
    if len(differences) < 2:
        raise InputError(f"only {len(differences)} row(s) are answered by both models")
    if not np.isfinite(differences).all():
        raise InputError("PMI of some rows is infinite: set smoothing above 0 in method_options")
    groups = None if a.groups is None else a.groups[known]
    first = float(a.values[known].mean()) + a.correction
    second = float(b.values[known].mean()) + b.correction
    nats = float(differences.mean()) + a.correction - b.correction
    stderr = math.hypot(standard_error(differences, groups), a.doubt, b.doubt)
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) * stderr
    return MIDifference(
        nats=nats,
        stderr=stderr,
        ci=(nats - reach, nats + reach),
        confidence=confidence,
        p_value=math.erfc(abs(nats) / stderr / math.sqrt(2)) if stderr > 0 else float(nats == 0),
        rows=len(differences),
        first=first,
        second=second,
    )


def _of_fit(model: Any) -> _Values:
    """What a model says of the rows of its fit."""
    if isinstance(model, ClassicalDependency):
        assert model.mi_values_ is not None
        return _Values(model.mi_values_, model.groups_, 0.0, 0.0)
    return _Values(model.oof_values_, model.groups_, model.bias_.correction, model.bias_.stderr)


def _of_rows(model: Any, X: Any, Y: Any, groups: Any) -> _Values:
    """What a model says of other rows."""
    if isinstance(model, ClassicalDependency):
        return _Values(*model._of_rows(X, Y, groups), 0.0, 0.0)
    values = model._inferred(X, Y, groups)
    return _Values(values, group_codes(groups), 0.0, model._doubt(X, Y))


def _require_comparable(*models: Any) -> None:
    """Refuse what is no fitted model, and models that estimate different things."""
    units = []
    for model in models:
        if not isinstance(model, PointwiseDependency | ClassicalDependency):
            raise InputError(
                f"{type(model).__name__} cannot be compared: give two fitted PointwiseDependency "
                "or ClassicalDependency (of a pipeline, its last step)"
            )
        check_is_fitted(model)
        classical = isinstance(model, ClassicalDependency)
        units.append((model.method_ if classical else model.model_.methods[0]).estimates)
    if units[0] != units[1] or not units[0]:
        named = " and ".join(unit or "nothing in nats" for unit in units)
        raise InputError(f"the models estimate {named}, which do not compare")


def _require_same_rows(a: _Values, b: _Values) -> None:
    if len(a.values) != len(b.values):
        raise InputError(
            f"the models were fitted on {len(a.values)} and {len(b.values)} rows: fit both on the "
            "same ones, or give rows as compare(model_a, model_b, X, Y)"
        )
    first, second = (_by_appearance(of.groups) for of in (a, b))
    if not np.array_equal(first, second):
        raise InputError("the models were fitted with different groups: fit both with the same")


def _by_appearance(codes: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Groups numbered as they first come, whatever they were called; (0,) without groups."""
    if codes is None:
        return np.empty(0, np.int64)
    _, first, own = np.unique(codes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[own]


def _warn_of_other_rows(model_a: Any, model_b: Any) -> None:
    """Two sets of features of the same rows share a side; rows in another order share none.

    A fit that did not hold its rows, and a model trained elsewhere, which takes its own embeddings
    of both sides, have nothing to tell them by.
    """
    first, second = (getattr(model, "digests_", None) for model in (model_a, model_b))
    if first is None or second is None:
        return
    if first[0] != second[0] and first[1] != second[1]:
        warnings.warn(
            "the models were fitted on other X and on other Y, and their rows are compared by "
            "position: fit both on the same pairs in the same order, or give rows as "
            "compare(model_a, model_b, X, Y)",
            DataWarning,
            stacklevel=3,
        )
