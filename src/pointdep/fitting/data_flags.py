"""What is wrong with the data rather than with the training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.data.raw import column_label
from pointdep.data.sides import SideEncoder
from pointdep.errors import MEANINGS, Flag
from pointdep.fitting.fold_plan import scrambled

_DETERMINED = 0.9999  # canonical correlation
_DISTINCT, _REPEATED = 0.3, 0.01  # shares: distinct pairs of all rows, repeated pairs of those
_KEYED = 1 << 14  # rows at a time
_FEW = 100  # rows
_MOST_TOLD = 3  # columns with outliers
_ALIKE = 64  # rows in which columns must agree before all rows are compared
_ONE_SIDE = 0.9  # share of the distinct pairs that are distinct in one of their sides already


def few_rows_flags(rows: int) -> list[Flag]:
    """Whether there are fewer rows than an answer can be had from."""
    if rows >= _FEW:
        return []
    message = f"{MEANINGS['few_rows']} ({rows}, of {_FEW} at least). Give more rows"
    return [Flag("few_rows", (), message)]


def outlier_flags(encoders: Iterable[SideEncoder]) -> list[Flag]:
    """Whether columns of the fit hold values that cannot be of the same kind as the others."""
    odd = [sentence for encoder in encoders for sentence in encoder.odd]
    if not odd:
        return []
    more = f"; and so in {len(odd) - _MOST_TOLD} more columns" if len(odd) > _MOST_TOLD else ""
    told = "; ".join(odd[:_MOST_TOLD]) + more
    return [Flag("outliers", (), f"{MEANINGS['outliers']}: {told}. Mend or drop these rows")]


def determined_flags(model: RatioModel, pairs: Callable[[], str] | None = None) -> list[Flag]:
    """Whether some direction of y is a function of x up to rounding; for sides of numbers.

    pairs: names columns that both sides share, "" where none is found; asked where it is so.
    """
    critic = model.critic
    if not critic.has_closed_form or float(critic.correlations.max()) < _DETERMINED:
        return []
    known = pairs() if pairs is not None else ""
    message = f"{MEANINGS['determined']}; the estimate is a lower bound. " + (
        f"{known}: leave one out" if known else "Look for a column that both sides share"
    )
    return [Flag("determined", (), message)]


def shared_column(x: Tensor, y: Tensor, encoders: tuple[SideEncoder, SideEncoder]) -> str:
    """A column of numbers that x: (n, dx) and y: (n, dy), encoded, have in common, in words.

    Rows in the default critic's encoding, by rank: columns are alike where their orders are.
    """
    starts = [side[:_ALIKE].T.contiguous().cpu().numpy() for side in (x, y)]
    of_y = {column.tobytes(): j for j, column in enumerate(starts[1])}
    for i, at in enumerate(encoders[0].numeric_at):
        j = of_y.get(starts[0][i].tobytes(), len(encoders[1].numeric_at))
        if j < len(encoders[1].numeric_at) and torch.equal(x[:, i], y[:, j]):
            names = encoders[0].names[at], encoders[1].names[encoders[1].numeric_at[j]]
            one, other = (column_label(side, name) for side, name in zip("XY", names, strict=True))
            return f"{one} and {other} have the same values, or the same order of them"
    return ""


def duplicate_flags(x: Tensor, y: Tensor) -> list[Flag]:
    """Whether equal pairs leak from training rows into the rows that report.

    Pairs of few distinct values repeat by nature, and so do pairs of categories or of rounded
    numbers that meet again by chance; pairs of numbers that are otherwise all distinct do not.
    """
    counts = _occurrences(torch.cat([x, y], 1))
    if int((counts > 1).sum()) <= _REPEATED * len(counts):
        return []
    of_x, of_y = (_occurrences(side) for side in (x, y))
    sides = [Repeats(len(c), 1 - len(c) / len(x), _meeting(c)) for c in (of_x, of_y)]
    return copies_flag(counts, len(x), sides[0], sides[1])


class Repeats(NamedTuple):
    """How values of a side repeat.

    distinct: how many there are; surplus: share of rows that are not the first of their value;
    meeting: probability that two rows have the same one.
    """

    distinct: float
    surplus: float
    meeting: float


def copies_flag(
    counts: NDArray[np.int64], rows: int, x: Repeats, y: Repeats, scale: float = 1.0
) -> list[Flag]:
    """counts: how often each distinct pair occurs, or each of a sample of one in `scale`."""
    repeated = int((counts > 1).sum())
    one_side = max(x.distinct, y.distinct)
    if repeated <= _REPEATED * len(counts) or by_nature(scale * len(counts), rows, one_side):
        return []
    if _by_chance(1 - len(counts) / int(counts.sum()), x, y):
        return []
    number = f"{repeated}" if scale == 1.0 else f"about {scale * repeated:.0f}"
    message = (
        f"{MEANINGS['duplicated_rows']}: {number} distinct pairs occur more than once, so the "
        "models have seen rows they report on. Drop the copies, or give groups="
    )
    return [Flag("duplicated_rows", (), message)]


def _by_chance(surplus: float, x: Repeats, y: Repeats) -> bool:
    """Whether values of both sides repeat so often that this surplus of pairs is no surprise.

    A copied row repeats on both sides at once. Rows that only happen to share the value of the side
    that repeats less share the other one with probability `meeting` if the sides are independent,
    and more often if they are not: its fourth root is taken as the most that is plausible. Pairs
    are copies if they repeat more often than halfway from there to every time.
    """
    rare, other = sorted((x, y), key=lambda side: side.surplus)
    plausible: float = other.meeting**0.25
    return surplus <= rare.surplus * (1 + plausible) / 2


def _meeting(counts: NDArray[np.int64]) -> float:
    """The probability that two different rows have the same value, by how often each occurs."""
    rows = float(counts.sum())
    return float((counts * (counts - 1.0)).sum() / max(rows * (rows - 1), 1.0))


def repeat_by_nature(x: Tensor, y: Tensor) -> bool:
    """Whether equal pairs are no copies: there are few distinct ones, or they meet by chance."""
    pairs = len(_occurrences(torch.cat([x, y], 1)))
    return by_nature(pairs, len(x), max(len(_occurrences(x)), len(_occurrences(y))))


def by_nature(pairs: float, rows: int, one_side: float) -> bool:
    """The same by the numbers of distinct pairs, of rows, and of distinct x or y."""
    return pairs < _DISTINCT * rows or one_side < _ONE_SIDE * pairs


def row_keys(rows: Tensor) -> NDArray[np.float64]:
    """(n,): equal for equal rows of (n, d), and for hardly any others."""
    rows = rows if rows.is_cuda else rows.cpu()  # other devices have no float64
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(rows.shape[1], generator=generator, dtype=torch.float64).to(rows.device)
    # Not a matrix product, which may round equal rows differently by where they stand.
    parts = [(part.double() * weights).sum(1) for part in torch.split(rows, _KEYED)]
    return torch.cat(parts).cpu().numpy()


def _occurrences(rows: Tensor) -> NDArray[np.int64]:
    """How often each distinct row of (n, d) occurs."""
    return np.unique(row_keys(rows), return_counts=True)[1]


# Whether pairs occur more than once, by a sample of the distinct ones.

_MOST = 1 << 18  # rows of sampled values
_DRAWN = 1 << 12  # rows drawn to learn how often two of them meet
Keys = NDArray[np.uint64]


class DistinctSample:
    """Distinct values are sampled, and of those in the sample every copy is counted.

    A value is in it when its scrambled key is below a limit, which is halved whenever over 262,144
    rows are in it: the share of values that repeat has an error of about 0.002.
    """

    def __init__(self) -> None:
        self.limit, self.keys = 1 << 64, np.empty(0, np.uint64)

    def add(self, keys: Keys) -> None:
        """(n,) scrambled keys of rows."""
        if self.limit < 1 << 64:
            keys = keys[keys < np.uint64(self.limit)]
        self.keys = np.concatenate([self.keys, keys])
        while len(self.keys) > _MOST and self.limit > 1:
            self.limit //= 2
            self.keys = self.keys[self.keys < np.uint64(self.limit)]

    def merge(self, other: DistinctSample) -> None:
        """Take in what another has seen."""
        self.limit = min(self.limit, other.limit)
        kept, self.keys = self.keys, np.empty(0, np.uint64)
        for keys in (kept, other.keys):
            self.add(keys)

    def distinct(self) -> float:
        """Distinct values in all rows, about."""
        return len(np.unique(self.keys)) * (2.0**64 / self.limit)

    def surplus(self) -> float:
        """Share of rows that are not the first of their value; 1 if no value is in the sample."""
        return 1.0 - len(np.unique(self.keys)) / max(1, len(self.keys))


class CopyCount:
    """Fed with the rows piece by piece, says what `duplicate_flags` says of all of them."""

    def __init__(self) -> None:
        self.rows = 0
        self.x, self.y, self.pairs = DistinctSample(), DistinctSample(), DistinctSample()
        self.digest = np.uint64(0)  # of all rows, each in its place
        self.drawn = np.empty((3, 0), np.uint64)  # scrambled places, x and y of rows at random

    def add(self, x: Tensor, y: Tensor, first: int = 0) -> None:
        """x: (n, dx), y: (n, dy), float64; first: the number of the first of them."""
        x_keys, y_keys = (scrambled(row_keys(side).view(np.uint64)) for side in (x, y))
        both = scrambled(x_keys ^ scrambled(y_keys))
        self.rows += len(x)
        for sample, keys in ((self.x, x_keys), (self.y, y_keys), (self.pairs, both)):
            sample.add(keys)
        places = scrambled(np.arange(first, first + len(both), dtype=np.uint64))
        self.digest = self.digest ^ np.bitwise_xor.reduce(scrambled(both ^ places))
        self._draw(np.stack([places, x_keys, y_keys]))

    def _draw(self, rows: Keys) -> None:
        """(3, n): of all that were given, those of the lowest scrambled places are kept."""
        rows = np.concatenate([self.drawn, rows], 1)
        if rows.shape[1] > _DRAWN:
            rows = rows[:, np.argpartition(rows[0], _DRAWN)[:_DRAWN]]
        self.drawn = rows

    def merge(self, other: CopyCount) -> None:
        """Take in what another has seen."""
        self.rows += other.rows
        self.digest = self.digest ^ other.digest
        self._draw(other.drawn)
        for own, more in ((self.x, other.x), (self.y, other.y), (self.pairs, other.pairs)):
            own.merge(more)

    def flags(self) -> list[Flag]:
        """The flag of pairs that occur more than once where they should not, or none."""
        x, y = (
            Repeats(side.distinct(), side.surplus(), _meeting(np.unique(k, return_counts=True)[1]))
            for side, k in ((self.x, self.drawn[1]), (self.y, self.drawn[2]))
        )
        counts = np.unique(self.pairs.keys, return_counts=True)[1]
        return copies_flag(counts, self.rows, x, y, 2.0**64 / self.pairs.limit)
