"""Are there enough rows? Mutual information from growing parts of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing, check_random_state

from pointdep.data.raw import group_codes
from pointdep.display.html_repr import card, columns
from pointdep.errors import InputError, require_whole
from pointdep.estimators.base import plain_copy
from pointdep.estimators.fit_rows import streams
from pointdep.estimators.pointwise import PointwiseDependency, fit_parts
from pointdep.fitting.progress import show
from pointdep.inference.mutual_information import MIEstimate, decimals

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    those of its learning curve are.

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

    def fitted(part: NDArray[np.int64], inner: Sequence[NDArray[np.int64]] = ()) -> list[Any]:
        """The model of a part, after those of parts of it that can be fitted in the same run."""
        copy = plain_copy(model, progress=False)
        x, y = (_safe_indexing(side, part) for side in (X, Y))
        own = None if groups is None else codes[part]
        if inner:
            return [*fit_parts(copy, x, y, own, [np.searchsorted(part, p) for p in inner]), copy]
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


def _parts(
    codes: NDArray[np.int64], sizes: Sequence[int] | None, random_state: Any
) -> list[NDArray[np.int64]]:
    """Numbers of the rows of each part, sorted; codes: (n,) group of each row, its own at least."""
    held = np.bincount(codes)
    draws = check_random_state(random_state).permutation(len(held))
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
