"""A first estimate of mutual information, in a second or two and before torch has loaded.

Categories on both sides are counted. Up to three columns a side go to their nearest neighbours, and
more to the closed form of Gaussian pairs. Numbers are replaced by normal scores of their ranks,
ties in random order. That leaves the mutual information as it is, or lowers it, and hides gaps and
ties from the search of neighbours, which would take them for dependence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from pointdep.data.encoder import CategoryColumn, require_repeats
from pointdep.data.raw import Array, RawSide, require_same_length
from pointdep.data.row_source import RowSource
from pointdep.data.sides import as_side
from pointdep.data.stored_pairs import sampled
from pointdep.errors import InputError

FEWEST_ROWS = 10
_MOST_ROWS, _MOST_COUNTED = 10_000, 5_000  # of more, some
_NEIGHBOUR_COLUMNS, _NEIGHBOURS = 3, 3  # of more columns, neighbours lie too far away
# The spread of the terms of nearest neighbours makes the error of their mean a third too small.
_SHARED = 1.5
_MOST_QUICK = 256  # columns of both sides
_MOST_LEVELS = 256  # of a side of categories that the closed form takes as columns of 0 and 1
_LARGEST = 1.0 - 1e-6  # squared correlation


@dataclass(frozen=True)
class FirstEstimate:
    """Nats with a standard error, and what it comes from: "counting", "ksg" or "cca".

    rows: those that were looked at; of: how many there are.
    """

    nats: float
    stderr: float
    method: str
    rows: int
    of: int

    def interval(self, confidence: float) -> tuple[float, float]:
        """Both ends, in nats."""
        reach = NormalDist().inv_cdf(0.5 + confidence / 2) * self.stderr
        return max(0.0, self.nats - reach), self.nats + reach

    @property
    def source(self) -> str:
        """The method in words."""
        words = {"counting": "counts", "ksg": "nearest neighbours", "cca": "Gaussian closed form"}
        some = "" if self.rows == self.of else f" of {self.rows:,} rows"
        return words[self.method] + some


def first_estimate(
    x: Any,
    y: Any,
    *,
    discrete: tuple[bool | None, bool | None] = (None, None),
    missing: str = "error",
    seed: int = 0,
) -> FirstEstimate:
    """The estimate of paired rows, as `PointwiseDependency.fit` takes them.

    Rows with missing numbers are left out, unless `missing` is "error".
    """
    random = np.random.default_rng([seed, 12])
    of = len(x)
    if of > _MOST_ROWS and len(y) == of:
        chosen = np.sort(random.choice(of, _MOST_ROWS, replace=False))
        x, y = (
            side.iloc[chosen] if hasattr(side, "iloc") else sampled(side, chosen) for side in (x, y)
        )
    named = zip((x, y), "XY", discrete, strict=True)
    sides = [as_side(side, name, discrete=d, missing=missing) for side, name, d in named]
    for side, name in zip(sides, "XY", strict=True):
        require_repeats(
            [CategoryColumn.count(*column) for column in side.categorical], side.rows, name
        )
    require_same_length(*sides)
    sides = _complete(sides)
    rows = sides[0].rows
    if rows < FEWEST_ROWS:
        raise InputError(f"{rows} row(s) are too few for an estimate: give at least {FEWEST_ROWS}")
    if all(side.numeric is None for side in sides):
        nats, stderr, method = *_counted(*map(_codes, sides)), "counting"
    elif all(not side.categorical and side.width <= _NEIGHBOUR_COLUMNS for side in sides):
        scores = [_scores(side, random) for side in sides]
        if max(side.shape[1] for side in scores) > 1:  # counts in several columns take long
            step = math.ceil(rows / _MOST_COUNTED)
            scores = [side[::step] for side in scores]
        rows = len(scores[0])
        nats, stderr, method = *_neighbours(*scores), "ksg"
    else:
        nats, stderr, method = *_gaussian(*(_scores(side, random) for side in sides)), "cca"
    return FirstEstimate(nats, stderr, method, rows, of)


def _complete(sides: list[RawSide]) -> list[RawSide]:
    """The rows that have all their numbers."""
    numbers = [side.numeric for side in sides if side.numeric is not None]
    known = np.ones(sides[0].rows, bool)
    for values in numbers:
        known &= np.isfinite(np.asarray(values, np.float64)).all(1)
    if known.all():
        return sides
    return [
        replace(
            side,
            numeric=None if side.numeric is None else side.numeric[known],
            categorical=tuple((name, values[known]) for name, values in side.categorical),
            rows=int(known.sum()),
        )
        for side in sides
    ]


def _counted(x: Array, y: Array) -> tuple[float, float]:
    """Of codes x, y: (n,), with Miller's and Madow's correction of each entropy."""
    cells = np.unique(np.stack([x, y]), axis=1, return_inverse=True, return_counts=True)
    of_x, of_y = np.bincount(x), np.bincount(y)
    log_ratio = np.log(cells[2][cells[1].ravel()] * len(x) / (of_x[x] * of_y[y]))
    excess = (len(cells[2]) - len(of_x) - len(of_y) + 1) / (2 * len(x))
    return max(0.0, float(log_ratio.mean()) - excess), float(log_ratio.std() / math.sqrt(len(x)))


def _neighbours(x: Array, y: Array) -> tuple[float, float]:
    """Kraskov's first estimator of x: (n, dx) and y: (n, dy)."""
    from scipy.spatial import cKDTree
    from scipy.special import digamma

    joint = np.hstack([x, y])
    distances: Any = cKDTree(joint).query(joint, _NEIGHBOURS + 1, p=np.inf)[0]
    reach: Array = distances[:, -1]
    near_x, near_y = (digamma(_nearer(side, reach)) for side in (x, y))
    terms = digamma(_NEIGHBOURS) + digamma(len(x)) - near_x - near_y
    return max(0.0, float(terms.mean())), _SHARED * float(terms.std() / math.sqrt(len(x)))


def _nearer(side: Array, reach: Array) -> Array:
    """How many rows of side: (n, d) are nearer to each row than reach: (n,), itself included."""
    from scipy.spatial import cKDTree

    # Short of the neighbour at the reach itself, whatever its distance is rounded to.
    radius = reach * (1 - 1e-12)
    if side.shape[1] == 1:
        ordered = np.sort(side[:, 0])
        last = np.searchsorted(ordered, side[:, 0] + radius, side="right")
        counts: Any = last - np.searchsorted(ordered, side[:, 0] - radius, side="left")
    else:
        counts = cKDTree(side).query_ball_point(side, radius, p=np.inf, return_length=True)
    found: Array = np.maximum(counts, 1)
    return found


def _gaussian(x: Array, y: Array) -> tuple[float, float]:
    """-1/2 sum log(1 - rho^2) of the canonical correlations, less what it is too high by.

    The mean of log det of a Wishart matrix gives the excess, whatever the correlations are.
    """
    from scipy.special import digamma

    bases = [_basis(side) for side in (x, y)]
    (n, dx), dy = bases[0].shape, bases[1].shape[1]
    if n < dx + dy + 2:
        raise InputError(f"{n} rows are too few for a first estimate of {dx + dy} columns")
    squares = np.linalg.svd(bases[0].T @ bases[1], compute_uv=False) ** 2
    squares = np.minimum(squares, _LARGEST)

    def log_det(columns: int) -> float:
        return float(digamma((n - np.arange(1, columns + 1)) / 2).sum())

    excess = 0.5 * (log_det(dx) + log_det(dy) - log_det(dx + dy))
    error = math.sqrt(float(squares.sum()) / n + dx * dy / (2 * n * n))
    return max(0.0, -0.5 * float(np.log1p(-squares).sum()) - excess), error


def _basis(side: Array) -> Array:
    """An orthonormal basis of the centred columns of side, (n, rank)."""
    left, sizes, _ = np.linalg.svd(side - side.mean(0), full_matrices=False)
    basis: Array = left[:, sizes > 1e-9 * max(float(sizes[0]), 1e-300)]
    return basis


def ranks_by_chance(values: Array, random: np.random.Generator) -> Array:
    """(n, d) -> (n, d) from 0 to 1, by column, ties in random order."""
    by_chance = random.random(values.shape)
    places = np.empty(values.shape)
    for column in range(values.shape[1]):
        order = np.lexsort((by_chance[:, column], values[:, column]))
        places[order, column] = (np.arange(len(values)) + 0.5) / len(values)
    return places


def _scores(side: RawSide, random: np.random.Generator) -> Array:
    """Normal scores of the numbers, and columns of 0 and 1 for the most frequent categories."""
    from scipy.special import ndtri

    parts = (
        [] if side.numeric is None else [ndtri(ranks_by_chance(np.asarray(side.numeric), random))]
    )
    for _, values in side.categorical:
        levels, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
        kept = np.argsort(-counts, kind="stable")[: min(_MOST_LEVELS, len(levels) - 1)]
        parts.append((codes.reshape(-1, 1) == kept).astype(np.float64))
    return np.hstack(parts)


def _codes(side: RawSide) -> Array:
    """(n,) the number of each row's combination of categories."""
    columns = [np.unique(values, return_inverse=True)[1].ravel() for _, values in side.categorical]
    return np.unique(np.stack(columns), axis=1, return_inverse=True)[1].ravel()


def is_quick(x: Any, y: Any) -> bool:
    """Whether an estimate takes no pass over files, and a second at most."""
    shapes = [getattr(side, "shape", (0, _MOST_QUICK + 1)) for side in (x, y)]
    columns = sum(math.prod(shape[1:]) for shape in shapes)
    return columns <= _MOST_QUICK and not any(isinstance(side, RowSource) for side in (x, y))
