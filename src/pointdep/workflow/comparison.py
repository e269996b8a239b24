"""Estimates side by side: of two models on the same rows, and of growing parts of the rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from pointdep.data.raw import group_codes
from pointdep.display.html_repr import card, columns
from pointdep.errors import DataWarning, InputError, require_whole
from pointdep.estimators import pointwise
from pointdep.estimators.base import plain_copy
from pointdep.estimators.classical import estimator as classical
from pointdep.estimators.classical.estimator import ClassicalDependency
from pointdep.estimators.fit_rows import streams
from pointdep.estimators.pointwise import PointwiseDependency
from pointdep.fitting.progress import show
from pointdep.fitting.splits import Rows, random_of
from pointdep.inference import mutual_information as inference
from pointdep.inference.mutual_information import MIEstimate, RowValues, decimals

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class MIDifference:
    """Mutual information of the first model minus that of the second.

    Attributes
    ----------
    nats : float
        The difference, in nats.
    stderr : float
        Standard error of the mean of the rows' differences, joined with that of the bias of both
        fits (which is unknown for `ClassicalDependency`, and left out). It is smaller than the
        error of two separate estimates if the models agree on which rows are likely.
    ci : tuple of float
        The normal interval at `confidence`.
    confidence : float
        Its level.
    p_value : float
        Two-sided p-value of no difference.
    rows : int
        Number of rows that both models answered.
    first, second : float
        Mutual information by each model, in nats.
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
        interval = " to ".join(map(decimals, self.ci))
        rows = [
            (f"{100 * self.confidence:g}% interval", f"{interval} nats"),
            ("p-value of no difference", f"{self.p_value:.2g}"),
            ("first, second", f"{decimals(self.first)}, {decimals(self.second)} nats"),
            ("from", f"{self.rows:,} rows that both have answered"),
        ]
        return card(f"Difference of mutual information {decimals(self.nats)} nats", rows)

    def __str__(self) -> str:
        interval = " to ".join(map(decimals, self.ci))
        said = f"{decimals(self.first)} - {decimals(self.second)} = {decimals(self.nats)} nats"
        return f"{said}, {100 * self.confidence:g}% interval {interval}"


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
    """Mutual information of model_a minus that of model_b, on the same rows in the same order.

    Without rows, the models are compared on those of their fits, each out of fold. These must be
    the same rows, for example with two sets of features and the same y.

    Parameters
    ----------
    model_a, model_b : PointwiseDependency or ClassicalDependency
        Fitted models.
    X, Y : array-like, optional
        Other rows, for both models.
    X_b, Y_b : array-like, optional
        The same rows for the second model, if it takes other columns.
    groups : array-like, (n,), optional
        Groups of the rows of X and Y, if these are not independent draws.
    confidence : float
        Level of the interval.

    Returns
    -------
    MIDifference
        The difference in nats, with its standard error, interval and p-value.

    Examples
    --------
    >>> import numpy as np
    >>> from pointdep import ClassicalDependency, compare
    >>> x = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = x.sum(1) + np.random.default_rng(1).normal(size=300)
    >>> both = ClassicalDependency("cca", progress=False).fit(x, y)
    >>> one = ClassicalDependency("cca", progress=False).fit(x[:, :1], y)
    >>> compare(both, one).p_value < 0.01
    True
    """
    width = inference.normal_quantile(confidence)
    if (X is None) != (Y is None):
        raise InputError("both X and Y are needed: a pair has two sides")
    _require_comparable(model_a, model_b)
    if X is None and any(one is not None for one in (X_b, Y_b, groups)):
        raise InputError("X_b, Y_b and groups go with X and Y: give those too, or none of them")
    if X is None:
        a, b = _values(model_a), _values(model_b)
    else:
        a = _values(model_a, X, Y, groups)
        b = _values(model_b, X if X_b is None else X_b, Y if Y_b is None else Y_b, groups)
    _require_same_rows(a, b, given=X is not None)
    known = ~np.isnan(a.values) & ~np.isnan(b.values)
    differences = a.values[known] - b.values[known]
    if len(differences) < 2:
        raise InputError(f"only {len(differences)} row(s) are answered by both models")
    if not np.isfinite(differences).all():
        raise InputError("PMI of some rows is infinite: set smoothing above 0 in method_options")
    means = (float(one.values[known].mean()) + one.correction for one in (a, b))
    first, second = (min(mean, one.ceiling) for mean, one in zip(means, (a, b), strict=True))
    nats = float(differences.mean()) + a.correction - b.correction
    of_rows = inference.standard_error(differences, None if a.groups is None else a.groups[known])
    stderr = math.hypot(max(a.inflation, b.inflation) * of_rows, a.doubt, b.doubt)
    p_value = math.erfc(abs(nats) / stderr / math.sqrt(2)) if stderr > 0 else float(nats == 0)
    ci = nats - width * stderr, nats + width * stderr
    rows, level = len(differences), float(confidence)
    return MIDifference(nats, stderr, ci, level, p_value, rows, first, second)


def _values(model: Any, *rows: Any) -> RowValues:
    if isinstance(model, PointwiseDependency):
        return pointwise.row_values(model, *rows)
    return classical.row_values(model, *rows)


def _require_comparable(*models: Any) -> None:
    """Refuse what is not a fitted model, and models that estimate different things."""
    units = []
    for model in models:
        if not isinstance(model, PointwiseDependency | ClassicalDependency):
            what = f"{type(model).__name__} cannot be compared: give a fitted"
            raise InputError(f"{what} PointwiseDependency or ClassicalDependency")
        check_is_fitted(model)
        trained = isinstance(model, PointwiseDependency)
        units.append((model.model_.methods[0] if trained else model.method_).estimates)
    if len({*units}) > 1 or not units[0]:
        named = " and ".join(unit or "nothing in nats" for unit in units)
        raise InputError(f"the models estimate {named}, which do not compare")


def _require_same_rows(a: RowValues, b: RowValues, *, given: bool) -> None:
    if len(a.values) != len(b.values):
        what = f"the models answer {len(a.values)} and {len(b.values)} rows"
        raise InputError(f"{what}: fit both on the same rows, or give X and Y, X_b and Y_b")
    if given:
        return
    if not np.array_equal(_by_appearance(a.groups), _by_appearance(b.groups)):
        raise InputError("the models were fitted with different groups: fit both with the same")
    # Two sets of features of the same rows share a side; rows in another order share none. Streamed
    # fits and models trained elsewhere have no digests to recognise their rows by.
    first, second = a.digests, b.digests
    if first and second and first[0] != second[0] and first[1] != second[1]:
        message = (
            "the models were fitted on other X and on other Y, and their rows are compared by "
            "position: fit both on the same pairs in the same order, or give X and Y"
        )
        warnings.warn(message, DataWarning, stacklevel=3)


def _by_appearance(codes: Rows | None) -> Rows:
    """Groups numbered as they first come, whatever they were called; (0,) without groups."""
    if codes is None:
        return np.empty(0, np.int64)
    _, first, own = np.unique(codes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[own]


_HALVINGS, _FEWEST = 4, 50


@dataclass(frozen=True)
class MIAgainstN:
    """Mutual information estimated from growing parts of the rows, each holding the one before.

    Attributes
    ----------
    rows : tuple of int
        Number of rows in each part, ascending.
    estimates : tuple of MIEstimate
        One estimate per part.
    """

    rows: tuple[int, ...]
    estimates: tuple[MIEstimate, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {"rows": list(self.rows), "estimates": [one.to_dict() for one in self.estimates]}

    def plot_mi(self, ax: Axes | None = None) -> Axes:
        """The estimates with their intervals, against the number of rows."""
        from pointdep.display.plots import plot_mi_against_n

        first = self.estimates[0]
        unit = " in nats" if first.estimates == "mutual information" else ""
        nats, intervals = zip(*((one.nats, one.ci) for one in self.estimates), strict=True)
        name = f"estimate, {100 * first.confidence:g} % interval"
        how: Any = {"name": name, "what": first.estimates + unit, "ax": ax}
        return plot_mi_against_n(self.rows, nats, intervals, **how)

    def _repr_html_(self) -> str:
        both = zip(self.rows, self.estimates, strict=True)
        lines = [(f"{n:,}", *map(decimals, (one.nats, *one.ci))) for n, one in both]
        title = f"{self.estimates[0].estimates.capitalize()} against the number of rows"
        return card(title, table=columns(("rows", "estimate", "from", "to"), lines))

    def __str__(self) -> str:
        both = zip(self.rows, self.estimates, strict=True)
        return "\n".join(f"{n:,} rows: {one.headline}" for n, one in both)


def mi_against_n(
    model: Any,
    X: Any,
    Y: Any,
    *,
    groups: Any = None,
    sizes: Sequence[int] | None = None,
    confidence: float = 0.95,
    random_state: Any = 0,
    progress: bool = True,
) -> MIAgainstN:
    """Fit a copy of the model on growing parts of the rows, each holding the one before.

    An estimate that still rises with the rows is too low; one that has settled needs no more. The
    models of a `PointwiseDependency` that holds its rows in memory are all trained in one run, as
    those of its learning curve are: the ranks of the columns, the critic, its layers and the batch
    size are then chosen from all rows. Parts too small for that batch are fitted alone. No part has
    a learning curve, so that all have the same correction.

    Parameters
    ----------
    model : estimator
        With `fit(X, Y, groups=)` and `mutual_information(confidence=)`; it is cloned.
    X, Y : array-like
        Paired rows.
    groups : array-like, (n,), optional
        For rows that are not independent draws. Whole groups are drawn then: as few as hold the
        rows of a part, and without `sizes` halves of the groups, down to 50.
    sizes : sequence of int, optional
        Rows of each part. By default the rows are halved four times, down to 50.
    confidence : float
        Level of the intervals.
    random_state : int
        Seed of the draw. The rows of a part keep their order, so that a `cv` that depends on it,
        such as TimeSeriesSplit, trains on no later rows than it would.
    progress : bool
        Show progress on standard error.

    Returns
    -------
    MIAgainstN
        The estimates, with `plot_mi()`.

    Examples
    --------
    >>> import numpy as np
    >>> from pointdep import ClassicalDependency, mi_against_n
    >>> x = np.random.default_rng(0).normal(size=(400, 1))
    >>> mi_against_n(ClassicalDependency("cca"), x, x**3, progress=False).rows
    (50, 100, 200, 400)
    """
    codes = np.arange(len(X)) if groups is None else group_codes(groups)
    assert codes is not None
    for name, values in (("Y", Y), ("groups", codes)):
        if len(values) != len(X):
            raise InputError(f"X has {len(X)} rows but {name} has {len(values)}")
    parts = _parts(codes, sizes, random_state)
    chosen = tuple(len(part) for part in parts)

    def fitted(part: Rows, inner: Sequence[Rows] = ()) -> list[Any]:
        """The model of a part, after those of parts of it that can be fitted in the same run."""
        copy = plain_copy(model, progress=False)
        x, y = (_safe_indexing(side, part) for side in (X, Y))
        own = None if groups is None else codes[part]
        if inner:
            places = [np.searchsorted(part, p) for p in inner]
            return [*pointwise.fit_parts(copy, x, y, own, places), copy]
        return [copy.fit(x, y, groups=own)]

    with show("fitting parts of the rows", enabled=progress, left="about") as shown:
        together = _rides(model, X, Y)
        models = fitted(parts[-1], parts[:-1]) if together else [None] * len(parts)
        estimates = []
        for part, one in zip(parts, models, strict=True):
            answering = fitted(part)[0] if one is None else one
            estimates.append(answering.mutual_information(confidence=confidence))
            shown.update(sum(chosen[: len(estimates)]), sum(chosen), "rows fitted")
    return MIAgainstN(chosen, tuple(estimates))


def _rides(model: Any, X: Any, Y: Any) -> bool:
    """Whether models of parts can be fitted in the run of the model of all, as its curve is."""
    if type(model) is not PointwiseDependency or model.distributed or model.checkpoint is not None:
        return False
    return not streams(model.stream, model.cv, X, Y)


def _parts(codes: Rows, sizes: Sequence[int] | None, random_state: Any) -> list[Rows]:
    """Numbers of the rows of each part, sorted; codes: (n,) group of each row, its own at least."""
    held = np.bincount(codes)
    draws = random_of(random_state).permutation(len(held))
    place = np.argsort(draws)[codes]
    if sizes is None:
        halves = [len(held) >> k for k in range(_HALVINGS, -1, -1)]
        counts = {n for n in halves if n >= _FEWEST or n == len(held)}
    else:
        for n in sizes:
            require_whole("sizes", n, least=2)
            if n > len(codes):
                raise InputError(f"sizes asks for {n} rows, and there are {len(codes)}")
        if not len(sizes):
            raise InputError("sizes must hold at least one number of rows")
        counts = {int(n) + 1 for n in np.searchsorted(np.cumsum(held[draws]), list(sizes))}
    return [np.flatnonzero(place < count) for count in sorted(counts)]
