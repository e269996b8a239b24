"""Which rows train, stop and report, where a list of them for each replica would be too long."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pointdep.errors import InputError, require_whole
from pointdep.fitting.splits import Rows, Split, require_fraction, require_groups, require_rows

Folds = NDArray[np.int8]
_REPORTED = 0.2  # by a single model
_MOST_FOLDS = 127


@dataclass(frozen=True, eq=False)
class FoldPlan:
    """Two bytes a row: its fold, and whether it is held back to decide when to stop.

    fold: (n,), the replica that reports the row, -1 for none. held: (n,), rows that no replica
    trains on; each stops the replicas that do not report it. kept: (m,), a uniform sample of row
    numbers, sorted, the held ones among them: what is small enough to be in memory. codes: (n,)
    group of each row, or None.
    """

    fold: Folds
    held: NDArray[np.bool_]
    kept: Rows
    replicas: int
    seed: int
    codes: NDArray[np.int64] | None = None

    def trains(self, replica: int, numbers: Rows) -> NDArray[np.bool_]:
        """Which of these rows a replica trains on."""
        found: NDArray[np.bool_] = (self.fold[numbers] != replica) & ~self.held[numbers]
        return found

    def training_rows(self) -> list[int]:
        """How many rows each replica trains on."""
        free = int((~self.held).sum())
        return [free - int(((self.fold == r) & ~self.held).sum()) for r in range(self.replicas)]

    def draws(self, replica: int) -> int:
        """Independent rows, or groups of them, that a replica trains on."""
        if self.codes is None:
            return self.training_rows()[replica]
        return len(np.unique(self.codes[(self.fold != replica) & ~self.held]))

    def splits(self) -> list[Split]:
        """The same of the kept rows alone, by their positions among these."""
        fold, held = self.fold[self.kept], self.held[self.kept]
        found = []
        for r in range(self.replicas):
            parts = (fold != r) & ~held, (fold != r) & held, fold == r
            found.append(Split(*(np.flatnonzero(part).astype(np.int64) for part in parts)))
        return found

    def parts(self, numbers: Rows, count: int) -> NDArray[np.int64]:
        """A part of each of these rows, from 0 to count - 1; rows of a group have one."""
        units = numbers if self.codes is None else self.codes[numbers]
        return (scrambled(units.astype(np.uint64) + np.uint64(self.seed)) % count).astype(np.int64)


def make_plan(
    rows: int,
    *,
    folds: int,
    stop_fraction: float,
    most_stop: int,
    most_kept: int,
    codes: NDArray[np.int64] | None,
    seed: int,
) -> FoldPlan:
    """Folds of equal size at random, `stop_fraction` of the rows or at most `most_stop` held back,
    and `most_kept` rows kept; a group is wholly in one fold, and wholly held back or not."""
    require_fraction(stop_fraction)
    require_whole("folds", folds)
    if folds > _MOST_FOLDS:
        raise InputError(f"folds={folds}: rows that are streamed take at most {_MOST_FOLDS}")
    require_rows(rows, folds, stop_fraction)
    random = np.random.default_rng([seed, 21])
    units = rows if codes is None else int(codes.max()) + 1
    if codes is not None:
        require_groups(units, folds)
    of_unit = _folds_of(units, folds, random)
    fold = of_unit if codes is None else of_unit[codes]
    kept = np.arange(rows)
    if rows > most_kept:
        kept = np.sort(random.choice(rows, most_kept, replace=False, shuffle=False))
    held = np.zeros(rows, bool)
    wanted = max(4, min(most_stop, round(rows * stop_fraction)))
    if codes is None:
        free = kept if folds > 1 else kept[fold[kept] < 0]
        order = random.permutation(free)
        held[order[: _enough(fold[order], wanted, folds)]] = True
    else:
        held = _held_groups(np.bincount(codes), of_unit, wanted, folds, random)[codes]
        kept = np.union1d(kept, np.flatnonzero(held))
    return FoldPlan(fold, held, kept.astype(np.int64), folds, seed, codes)


def scrambled(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """(n,) whole numbers that look random, one to one (the finisher of splitmix64)."""
    with np.errstate(over="ignore"):
        z = numbers + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _folds_of(units: int, folds: int, random: np.random.Generator) -> Folds:
    if folds == 1:
        found = np.full(units, -1, np.int8)
        found[: max(1, round(_REPORTED * units))] = 0
    else:
        found = np.resize(np.arange(folds, dtype=np.int8), units)
    random.shuffle(found)
    return found


def _held_groups(
    sizes: NDArray[np.int64], of_unit: Folds, wanted: int, folds: int, random: np.random.Generator
) -> NDArray[np.bool_]:
    """Groups of about `wanted` rows together, at least two for each replica, which trains on two.

    sizes, of_unit: rows and fold of each group, (groups,).
    """
    order: Rows = random.permutation(len(sizes))
    if folds == 1:
        order = order[of_unit[order] < 0]
    chosen = np.zeros(len(sizes), bool)
    chosen[order[np.cumsum(sizes[order]) <= wanted]] = True
    for replica in range(folds):
        chosen[order[of_unit[order] != replica][:2]] = True
    for replica in range(folds):
        train = int(((of_unit != replica) & ~chosen).sum())
        if train < 2:
            raise InputError(
                f"groups has {len(sizes)} distinct values, of which split {replica} has {train} to "
                "train on beside those that decide when to stop: give more groups or more folds"
            )
    return chosen


def _enough(fold: Folds, wanted: int, folds: int) -> int:
    """How many of these rows, (n,) in their order, are held back: `wanted`, or more until every
    replica has two that it does not report."""
    for replica in range(folds):
        stops = np.flatnonzero(fold != replica)[:2]
        if len(stops) == 2:
            wanted = max(wanted, int(stops[1]) + 1)
    return wanted
