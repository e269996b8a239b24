"""Are there rows enough? Mutual information from more and more of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_random_state

from pointdep.data.raw import group_codes
from pointdep.display.html_repr import card, columns
from pointdep.errors import InputError, require_whole
from pointdep.fitting.progress import show
from pointdep.inference.mutual_information import MIEstimate, decimals

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HALVINGS, _FEWEST = 4, 50


@dataclass(frozen=True)
class MIAgainstN:
    """estimates: one for each of rows, which grow; the fewer are among the more."""

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
        return plot_mi_against_n(
            self.rows,
            [one.nats for one in self.estimates],
            [one.ci for one in self.estimates],
            confidence=first.confidence,
            what=first.estimates + unit,
            ax=ax,
        )

    def _repr_html_(self) -> str:
        lines = [
            (f"{n:,}", decimals(one.nats), *(decimals(end) for end in one.ci))
            for n, one in zip(self.rows, self.estimates, strict=True)
        ]
        title = f"{self.estimates[0].estimates.capitalize()} against the number of rows"
        return card(title, table=columns(("rows", "estimate", "from", "to"), lines))

    def __str__(self) -> str:
        return "\n".join(
            f"{n:,} rows: {one}" for n, one in zip(self.rows, self.estimates, strict=True)
        )


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
    """Fit a copy of the model on parts of the rows, each holding the one before.

    sizes: how many rows each; None halves them four times, down to 50. An
    estimate that still rises with the rows is too low; one that has settled needs no more of them.

    groups: (n,), for rows that are not independent draws. Whole groups are drawn then, since it is
    them that an estimate has few or many of: as few as hold so many rows, and without `sizes`
    halves of the groups, down to 50. The rows of a part keep their order, so that a `cv` that goes
    by it, such as TimeSeriesSplit, trains on no later rows than it would.
    """
    total = len(X)
    if len(Y) != total:
        raise InputError(f"X has {total} rows but Y has {len(Y)}")
    codes = np.arange(total) if groups is None else group_codes(groups)
    assert codes is not None
    if len(codes) != total:
        raise InputError(f"groups has {len(codes)} rows but X and Y have {total}")
    parts = _parts(codes, sizes, random_state)
    chosen = tuple(len(part) for part in parts)
    estimates = []
    done = 0
    with show("fitting parts of the rows", enabled=progress, left="about") as shown:
        for part in parts:
            copy = clone(model).set_params(progress=False)
            x, y = (_safe_indexing(side, part) for side in (X, Y))
            copy.fit(x, y, groups=None if groups is None else codes[part])
            estimates.append(copy.mutual_information(confidence=confidence))
            done += len(part)
            shown.update(done, sum(chosen), "rows fitted")
    return MIAgainstN(chosen, tuple(estimates))


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
        _require_sizes(len(codes), sizes)
        counts = {int(n) + 1 for n in np.searchsorted(np.cumsum(held[draws]), list(sizes))}
    return [np.flatnonzero(place < count) for count in sorted(counts)]


def _require_sizes(total: int, sizes: Sequence[int]) -> None:
    for n in sizes:
        require_whole("sizes", n, least=2)
        if n > total:
            raise InputError(f"sizes asks for {n} rows, and there are {total}")
    if not len(sizes):
        raise InputError("sizes must hold at least one number of rows")
