"""Which rows train, which stop and which report, for every replica."""

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, GroupShuffleSplit, KFold, ShuffleSplit
from sklearn.utils import check_random_state

from pointdep.errors import InputError, require_whole

Rows = NDArray[np.int64]

MIN_TRAIN, MIN_STOP = 4, 2


@dataclass(frozen=True)
class Split:
    """Row numbers of one replica; the three parts are disjoint, and so are their groups."""

    train: Rows
    stop: Rows
    report: Rows


def random_of(state: Any) -> np.random.RandomState:
    """The generator that `random_state` means; InputError for what is no seed."""
    try:
        made: np.random.RandomState = check_random_state(state)
    except (ValueError, TypeError):
        wanted = "a whole number from 0 to 2**32 - 1, a RandomState or None"
        raise InputError(f"random_state={state!r} must be {wanted}") from None
    return made


def make_splits(
    rows: int,
    *,
    folds: int = 5,
    cv: Any = None,
    groups: NDArray[Any] | None = None,
    stop_fraction: float = 0.15,
    seed: int = 0,
) -> list[Split]:
    """One split per replica.

    `cv`, a scikit-learn splitter, decides the report rows; otherwise `folds` parts, each reported
    by the replica that did not see it; ``folds=1`` is one replica that reports a fifth of them.
    """
    require_fraction(stop_fraction)
    if cv is None:
        require_whole("folds", folds)
    require_rows(rows, folds if cv is None else 2, stop_fraction)
    outer = _outer(rows, folds, cv, groups, seed)
    return [_inner(number, both, groups, stop_fraction, seed) for number, both in enumerate(outer)]


CURVE_SHARES = (0.25, 0.5)
"""Shares of the rows from which the earlier points of a learning curve are fitted."""

_CURVE_SPLITS = 2  # replicas per share: with fewer, one unlucky draw bends the curve
_FULL_CURVE = 4  # replicas in all, below which that would double the time, and one must do
_CURVE_ROWS = 40  # to train on, below which there is no point


def curve_splits(
    splits: Sequence[Split], *, groups: NDArray[Any] | None, seed: int, least: int
) -> list[list[Split]]:
    """Per share of `CURVE_SHARES` the splits of replicas that see that share of the rows.

    Each takes its share of the training and of the stopping rows of one of the given splits, and
    reports all other rows. Empty where a replica would train on fewer rows than a batch, `least`,
    or than tell anything, and then for smaller shares too: a curve has no gaps.
    """
    found: list[list[Split]] = []
    used = splits[: _CURVE_SPLITS if len(splits) >= _FULL_CURVE else 1]
    for share in reversed(CURVE_SHARES):
        parts = []
        for number, split in enumerate(used):
            random = np.random.default_rng([seed, number, round(100 * share), 9])
            train, stop = (_part(rows, share, groups, random) for rows in (split.train, split.stop))
            seen = np.concatenate([split.train, split.stop])
            left = np.setdiff1d(seen, np.concatenate([train, stop]))
            parts.append(Split(train, stop, np.union1d(split.report, left)))
        enough = min(len(part.train) for part in parts) >= max(least, _CURVE_ROWS)
        enough = enough and min(len(part.stop) for part in parts) > 1 and all(found)
        found.insert(0, parts if enough else [])
    return found


def part_splits(
    parts: Sequence[Rows], codes: NDArray[np.int64] | None, *, least: int, **how: Any
) -> list[list[Split]]:
    """Splits of each part of the rows, by `make_splits(**how)`, in numbers of all rows.

    codes: (n,) group of each row, or None. Empty where a replica would train on fewer than `least`.
    """
    found = []
    for part in parts:
        own = make_splits(len(part), groups=None if codes is None else codes[part], **how)
        splits = [Split(part[s.train], part[s.stop], part[s.report]) for s in own]
        found.append(splits if min(len(s.train) for s in splits) >= least else [])
    return found


def _part(
    rows: Rows, share: float, groups: NDArray[Any] | None, random: np.random.Generator
) -> Rows:
    """A share of the rows, sorted, or of their groups, of which two at least."""
    codes = rows if groups is None else groups[rows]
    distinct = np.unique(codes)
    kept = random.permutation(distinct)[: max(2, round(share * len(distinct)))]
    return rows[np.isin(codes, kept)]


def require_fraction(stop_fraction: float) -> None:
    """Refuse a share of stopping rows that is none."""
    if not isinstance(stop_fraction, numbers.Real) or not 0.0 < stop_fraction < 0.9:
        raise InputError(f"stop_fraction={stop_fraction!r} must lie between 0 and 0.9")


def require_rows(rows: int, folds: int, stop_fraction: float) -> None:
    """Refuse too few rows for so many folds."""
    held = 0.2 if folds == 1 else 1.0 / folds
    fit = int(rows * (1 - held))
    stop = max(MIN_STOP, round(fit * stop_fraction))
    if rows < 2 * max(folds, 1) or fit - stop < MIN_TRAIN:
        raise InputError(
            f"Found {rows} sample(s) while more are required: each of {folds} fold(s) must leave "
            f"at least {MIN_TRAIN} rows to train and {MIN_STOP} to stop early. n_samples = {rows}; "
            "give more rows (10 are enough for 5 folds, 100 for an answer) or fewer folds"
        )


def require_groups(distinct: int, folds: int) -> None:
    """Refuse fewer groups than folds, or than one to train, one to stop and one to report."""
    need = max(3, folds)
    if distinct < need:
        raise InputError(
            f"groups has {distinct} distinct value(s) but at least {need} are needed: a group "
            "stays on one side of every split"
        )


def _outer(
    rows: int, folds: int, cv: Any, groups: NDArray[Any] | None, seed: int
) -> list[tuple[Rows, Rows]]:
    index = np.arange(rows)
    if groups is not None:
        require_groups(len(np.unique(groups)), folds if cv is None else 3)
    if cv is not None:
        if not hasattr(cv, "split"):
            raise InputError(f"cv={cv!r} is not a splitter: give one of sklearn.model_selection")
        try:
            pairs = list(cv.split(index[:, None], None, groups))
        except (TypeError, ValueError) as error:
            raise InputError(f"cv={cv!r} cannot split these rows: {error}") from None
        if not pairs:
            raise InputError(f"cv={cv!r} gave no split")
        return [_checked(cv, rows, fit, report) for fit, report in pairs]
    if folds == 1:
        one_fold = ShuffleSplit if groups is None else GroupShuffleSplit
        splitter: Any = one_fold(1, test_size=0.2, random_state=seed)
    elif groups is None:
        splitter = KFold(folds, shuffle=True, random_state=seed)
    else:
        splitter = GroupKFold(folds)
    return list(splitter.split(index, None, groups))


def _checked(cv: Any, rows: int, fit: Any, report: Any) -> tuple[Rows, Rows]:
    """What a splitter of the user's own gave, if it is what a splitter should give."""
    # A row that a splitter gives twice would end up both in training and in stopping.
    parts = np.unique(np.asarray(fit)), np.unique(np.asarray(report))
    for part in parts:
        if len(part) and (part.dtype.kind not in "iu" or part.min() < 0 or part.max() >= rows):
            raise InputError(f"cv={cv!r} must give row numbers, from 0 to {rows - 1}")
    shared = np.intersect1d(*parts)
    if len(shared):
        raise InputError(f"cv={cv!r} puts row {shared[0]} on both sides of a split")
    return parts[0].astype(np.int64), parts[1].astype(np.int64)


def require_product_rows(splits: Sequence[Split], groups: NDArray[Any] | None, method: str) -> None:
    """Refuse, before training, splits whose report rows cannot be set against each other."""
    for number, split in enumerate(splits):
        kinds = split.report if groups is None else groups[split.report]
        if len(np.unique(kinds)) < 2:
            raise InputError(
                f"method {method!r} infers from pairs of different rows (and groups), and split "
                f"{number} reports only one: use method='pc', or fewer folds"
            )


def _inner(
    number: int, outer: tuple[Rows, Rows], groups: NDArray[Any] | None, share: float, seed: int
) -> Split:
    """Take a share of stopping rows out of those that the outer split left for fitting."""
    fit, report = outer
    if groups is not None:
        shared = np.intersect1d(groups[fit], groups[report])
        if len(shared):
            one, other = (part[groups[part] == shared[0]][0] for part in (fit, report))
            raise InputError(
                f"the splitter puts rows {one} and {other}, of one group, on different sides of "
                f"split {number}: use one that keeps groups together, such as GroupKFold"
            )
    need = MIN_TRAIN + MIN_STOP
    if len(fit) < need or len(report) == 0:
        raise InputError(
            f"split {number} has {len(fit)} rows to fit and {len(report)} to report; it needs at "
            f"least {need} and 1"
        )
    size = max(MIN_STOP, round(len(fit) * share))
    if groups is None:
        shuffled = np.random.default_rng([seed, number, 1]).permutation(fit)
        stop, train = shuffled[:size], shuffled[size:]
    else:
        distinct = len(np.unique(groups[fit]))
        held_groups = max(2, round(distinct * share))
        if distinct - held_groups < 2:
            raise InputError(
                f"split {number} has {distinct} group(s) to fit, too few to train and to stop "
                "early: at least two of each are needed; give more groups or more folds"
            )
        inner = GroupShuffleSplit(1, test_size=held_groups, random_state=seed + number)
        kept, held = next(inner.split(fit, None, groups[fit]))
        train, stop = fit[kept], fit[held]
    if len(train) < MIN_TRAIN:
        raise InputError(
            f"split {number} has {len(fit)} rows to fit, of which {len(stop)} would decide when to "
            f"stop and {len(train)} train; at least {MIN_TRAIN} must train"
        )
    return Split(np.sort(train), np.sort(stop), np.sort(report))
