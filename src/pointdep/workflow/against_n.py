"""Are there rows enough? Mutual information from more and more of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sklearn.base import clone
from sklearn.utils import shuffle

from pointdep.cards import card, columns
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
        from pointdep.plots.rows import plot_mi_against_n

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
    """
    total = len(X)
    if len(Y) != total:
        raise InputError(f"X has {total} rows but Y has {len(Y)}")
    chosen = _sizes(total, sizes)
    X, Y, *rest = shuffle(
        *(side for side in (X, Y, groups) if side is not None), random_state=random_state
    )
    estimates = []
    done = 0
    with show("fitting parts of the rows", enabled=progress, left="about") as shown:
        for n in chosen:
            copy = clone(model).set_params(progress=False)
            copy.fit(X[:n], Y[:n], groups=rest[0][:n] if rest else None)
            estimates.append(copy.mutual_information(confidence=confidence))
            done += n
            shown.update(done, sum(chosen), "rows fitted")
    return MIAgainstN(chosen, tuple(estimates))


def _sizes(total: int, sizes: Sequence[int] | None) -> tuple[int, ...]:
    if sizes is None:
        halves = [total >> k for k in range(_HALVINGS, -1, -1)]
        return tuple(n for n in halves if n >= _FEWEST or n == total)
    for n in sizes:
        require_whole("sizes", n, least=2)
        if n > total:
            raise InputError(f"sizes asks for {n} rows, and there are {total}")
    if not len(sizes):
        raise InputError("sizes must hold at least one number of rows")
    return tuple(sorted({int(n) for n in sizes}))
