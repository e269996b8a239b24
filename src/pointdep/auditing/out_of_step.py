"""Stretches of rows whose y belongs to the x of other rows: shifted, reversed or resorted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.linear import gaussian_log_ratio, gaussian_matrix, whitening
from pointdep.core.ratio import RatioModel
from pointdep.inference.scoring import score_matrix, score_pairs

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

REACH = 5  # rows that y may be early or late
_BLIND = 2 * REACH + 1  # the state of rows that belong to no x nearby, after those of the shifts
_CLIP = 8.0  # nats that one row may say: an extrapolation must not decide for its neighbours
_SURE = 8.0  # nats beyond the logarithm of the rows that a change of state must be worth
_FEWEST = 20  # rows of a reversed or resorted stretch
_ROUNDS = 3
_ASKED = 200  # rows of a stretch that are set against all of its y
_SORTED = 20_000  # rows of a stretch up to which each is told its partner
_FAR = 5.0  # standard errors


@dataclass(frozen=True)
class Stretch:
    """Rows from `first` to `last`, both included, whose y belongs to the x of other rows.

    kind: "shifted": the y of row i + shift belongs to the x of row i, so that y is late where it is
    above 0; "reversed"; or "resorted", in an order that follows no such rule.
    """

    first: int
    last: int
    kind: str
    shift: int = 0

    def __str__(self) -> str:
        rows = f"rows {self.first:,} to {self.last:,}"
        if self.kind != "shifted":
            return f"{rows}: y is in {'reverse' if self.kind == 'reversed' else 'another'} order"
        many = "one row" if abs(self.shift) == 1 else f"{abs(self.shift)} rows"
        return f"{rows}: y is {many} {'late' if self.shift > 0 else 'early'}"


class Scorer(Protocol):
    """log r of any x with any y, by models that saw neither in the pairs that are asked about."""

    def pairs(self, rows: Rows, others: Rows) -> Array:
        """Of x of these rows with y of those, (n,)."""

    def matrix(self, rows: Rows, others: Rows) -> Array:
        """Of each x of these rows with each y of those, (n, m)."""


_COLUMNS, _COLUMNS_OF_MANY, _MANY = 128, 32, 1 << 17  # of a side; more are projected at random
_BLOCK = 64  # rows: every other block is fitted on, the others are scored


class LinearScorer:
    """The closed form for Gaussian pairs, of whichever pairs it is told to believe."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = _whitened(x), _whitened(y)
        self.half = (np.arange(len(x)) // _BLOCK) % 2
        # Of the model fitted on each half: coordinates of all x and of all y, and correlations.
        self.parts: list[tuple[Tensor, Tensor, Tensor]] = []

    def best_shift(self) -> int:
        """The shift that relates the sides most."""
        rows, found = len(self.x), []
        for k in range(-REACH, REACH + 1):
            low, high = max(0, -k), min(rows, rows - k)
            cross = self.x[low:high].T @ self.y[low + k : high + k] / (high - low)
            found.append(float(cross.square().sum()))
        return int(np.argmax(found)) - REACH

    def fit(self, partner: Rows) -> None:
        """On the pairs (i, partner[i]), -1 for none: on each half the directions, on the other half
        how much they are correlated."""
        self.parts = []
        for half in (0, 1):
            own, other = (
                np.flatnonzero((self.half == k) & (partner >= 0)) for k in (half, 1 - half)
            )
            cross = self.x[own].T @ self.y[partner[own]]
            u, _, vt = torch.linalg.svd(cross, full_matrices=False)
            x, y = self.x @ u, self.y @ vt.T
            a, b = x[other], y[partner[other]]
            norms = (a.square().sum(0) * b.square().sum(0)).sqrt().clamp(min=1e-12)
            found = ((a * b).sum(0) / norms).clamp(max=0.99)
            kept = found > 2.0 / math.sqrt(max(len(other), 1))
            self.parts.append((x[:, kept], y[:, kept], found[kept]))

    def pairs(self, rows: Rows, others: Rows) -> Array:
        found = np.zeros(len(rows))
        for half, (x, y, correlations) in enumerate(self.parts):
            own = np.flatnonzero(self.half[rows] != half)
            a, b = x[rows[own]], y[others[own]]
            found[own] = gaussian_log_ratio(a, b, correlations).numpy()
        return found

    def matrix(self, rows: Rows, others: Rows) -> Array:
        found = np.zeros((len(rows), len(others)))
        for half, (x, y, correlations) in enumerate(self.parts):
            own = np.flatnonzero(self.half[rows] != half)
            scores = gaussian_matrix(x[rows[own]][None], y[others][None], correlations[None])
            found[own] = scores[0].numpy()
        return found


def _whitened(side: Tensor) -> Tensor:
    side = side.detach().cpu().double()
    most = _COLUMNS if len(side) <= _MANY else _COLUMNS_OF_MANY
    if side.shape[1] > most:
        mixed = torch.randn(side.shape[1], most, generator=torch.Generator().manual_seed(0))
        side = side @ mixed.double()
    side = side - side.mean(0)
    return (side @ whitening(side.T @ side / len(side), len(side))).float()


@dataclass(frozen=True, eq=False)
class FittedScorer:
    """A fitted model, each x by the replica that did not see it. x: (n, dx); y: (n, dy); fold: (n,)
    as the model takes them."""

    model: RatioModel
    x: Tensor
    y: Tensor
    fold: NDArray[np.int64]

    def pairs(self, rows: Rows, others: Rows) -> Array:
        found = np.zeros(len(rows))
        for replica in np.unique(self.fold[rows]):
            own = np.flatnonzero(self.fold[rows] == replica)
            one = self.model.select([int(replica)])
            found[own] = score_pairs(one, self.x[rows[own]], self.y[others[own]]).cpu().numpy()
        return found

    def matrix(self, rows: Rows, others: Rows) -> Array:
        found = np.zeros((len(rows), len(others)))
        for replica in np.unique(self.fold[rows]):
            own = np.flatnonzero(self.fold[rows] == replica)
            one = self.model.select([int(replica)])
            found[own] = score_matrix(one, self.x[rows[own]], self.y[others])
        return found


def find_by_columns(x: Tensor, y: Tensor) -> tuple[list[Stretch], Rows, float]:
    """Stretches in the pairs x: (n, dx), y: (n, dy) by the linear dependence of their columns.

    And, as `find`, the partner of each row and its mean log r. Which pairs belong together and how
    is learned in turns, from the shift that relates the sides most.
    """
    scorer = LinearScorer(x, y)
    partner = _of_shifts(len(x))[scorer.best_shift() + REACH]
    for _ in range(_ROUNDS):
        scorer.fit(partner)
        found = find(scorer, len(x), doubted=True)
        if not found[0]:
            return found
        before, partner = partner, found[1]
        if np.array_equal(before, partner):
            break
    return find(scorer, len(x))


def find(scorer: Scorer, rows: int, *, doubted: bool = False) -> tuple[list[Stretch], Rows, float]:
    """Stretches of `rows` rows, the row whose y belongs to each x, (n,), -1 where it is unknown,
    and the mean log r of these pairs. doubted: shifts that are not clear as well, to learn from."""
    places = _of_shifts(rows)
    scores = np.full((_BLIND + 1, rows), -_CLIP)
    for state, at in enumerate(places):
        there = np.flatnonzero(at >= 0)
        scores[state, there] = np.clip(scorer.pairs(there, at[there]), -_CLIP, _CLIP)
    scores[_BLIND] = 0.0  # y of any other row: log r is 0 on average where it says nothing
    states = _bridged(_path(scores, math.log(rows) + _SURE))
    partner, stretches = places[REACH].copy(), []
    ends = np.append(np.flatnonzero(np.diff(states)) + 1, rows)
    for first, end in zip(np.append(0, ends[:-1]).tolist(), ends.tolist(), strict=True):
        state, own = int(states[first]), np.arange(first, end)
        if state == _BLIND:
            told = scores[REACH, states == REACH]
            level = float(told.mean()) if len(told) else _CLIP / 2
            if (found := _sorted_anew(scorer, own, rows, level)) is not None:
                stretches.append(found[0])
                partner[own] = found[1]
        elif state != REACH and (doubted or _is_clear(scores[state, own] - scores[REACH, own])):
            stretches.append(Stretch(first, end - 1, "shifted", state - REACH))
            partner[own] = places[state, own]
    paired = np.flatnonzero(partner >= 0)
    mean = float(np.clip(scorer.pairs(paired, partner[paired]), -_CLIP, _CLIP).mean())
    return stretches, partner, mean


def _of_shifts(rows: int) -> Rows:
    """(11, n): row i + k for each shift k, -1 where there is none."""
    at = np.arange(rows) + np.arange(-REACH, REACH + 1)[:, None]
    return np.where((at >= 0) & (at < rows), at, -1)


def _path(scores: Array, penalty: float) -> Rows:
    """The state of each row, (n,), so that the sum of scores (states, n), less `penalty` for each
    change, is largest (Viterbi's algorithm)."""
    states, rows = scores.shape
    if not _worth_a_change(scores, penalty):
        return np.full(rows, REACH)
    best, own = scores[:, 0].copy(), np.arange(states)
    came = np.empty((rows, states), np.int8)
    for row in range(1, rows):
        top = int(best.argmax())
        change = best[top] - penalty
        came[row] = np.where(best >= change, own, top)
        best = np.maximum(best, change) + scores[:, row]
    path = np.empty(rows, np.int64)
    path[-1] = best.argmax()
    for row in range(rows - 1, 0, -1):
        path[row - 1] = came[row, path[row]]
    return path


def _bridged(states: Rows) -> Rows:
    """The same, where a few rows of no x nearby, such as wrong pairs, do not end a stretch: they
    have the state of the rows before them, or at the beginning of those after."""
    starts = np.append(0, np.flatnonzero(np.diff(states)) + 1)
    lengths = np.diff(np.append(starts, len(states)))
    lasting = np.flatnonzero((states[starts] != _BLIND) | (lengths >= _FEWEST))
    if not len(lasting):
        return np.full(len(states), REACH)
    source = np.maximum(np.searchsorted(lasting, np.arange(len(starts)), side="right") - 1, 0)
    return np.repeat(states[starts[lasting[source]]], lengths)


def _worth_a_change(scores: Array, penalty: float) -> bool:
    """Whether some stretch of rows is better off in another state than that of no shift."""
    gains = np.cumsum(scores - scores[REACH], axis=1)
    before = np.minimum.accumulate(np.concatenate([np.zeros((len(gains), 1)), gains], 1), 1)
    return bool(((gains - before[:, :-1]).max(1) > penalty).any())


def _is_clear(gain: Array) -> bool:
    """Whether the mean gain of the rows of a stretch, (n,), lies far above zero.

    Rows in a row may be alike, as in a time series: their gains then count as fewer ones, by the
    time over which they are correlated (the sum of autocorrelations up to the first below zero).
    """
    rest, rows = gain - gain.mean(), len(gain)
    if rows < 2:
        return False
    spectrum = np.fft.rfft(rest, 2 * rows)
    lags = np.fft.irfft(np.abs(spectrum) ** 2)[:rows]
    lags = lags / lags[0] if lags[0] > 0 else np.append(1.0, np.zeros(rows - 1))
    until = int((lags < 0).argmax()) or rows
    error = float(rest.std()) * math.sqrt((2.0 * lags[:until].sum() - 1.0) / rows)
    return float(gain.mean()) > _FAR * error


def _sorted_anew(scorer: Scorer, own: Rows, rows: int, level: float) -> tuple[Stretch, Rows] | None:
    """A stretch whose y belong to its own x in another order, and the partner of each row.

    level: mean log r of rows that are in step. None where the x find no better partners inside than
    among as many rows elsewhere.
    """
    first, last = int(own[0]), int(own[-1])
    asked = own[np.unique(np.linspace(0, len(own) - 1, min(len(own), _ASKED)).astype(np.int64))]
    inside = scorer.matrix(asked, own)
    # Reversed: the y of row c - i belongs to the x of row i.
    sums, counts = np.zeros((2, 2 * len(own) - 1))
    at = (asked[:, None] - first) + (own - first)
    np.add.at(sums, at, np.clip(inside, -_CLIP, _CLIP))
    np.add.at(counts, at, 1)
    means = np.where(counts >= len(asked) / 2, sums / np.maximum(counts, 1), -np.inf)
    partner = int(means.argmax()) + 2 * first - own
    partner[(partner < first) | (partner > last)] = -1
    there = asked[partner[asked - first] >= 0]
    turned = scorer.pairs(there, partner[there - first]) - scorer.pairs(there, there)
    if means.max() > level / 2 and _is_clear(np.clip(turned, -_CLIP, _CLIP)):
        return Stretch(first, last, "reversed"), partner
    elsewhere = np.setdiff1d(np.arange(rows), own)
    random, count = np.random.default_rng(0), min(len(own), len(elsewhere))
    if count < _FEWEST:
        return None
    others = random.choice(elsewhere, count, replace=False)
    near = inside[:, random.permutation(len(own))[:count]]
    best = (np.minimum(side.max(1), _FAR * _CLIP) for side in (near, scorer.matrix(asked, others)))
    gain = np.subtract(*best)
    if gain.mean() < level / 8 or not _is_clear(gain):
        return None
    partner = np.full(len(own), -1, np.int64)
    if len(own) <= _SORTED:
        for start in range(0, len(own), _ASKED):
            part = slice(start, start + _ASKED)
            partner[part] = own[scorer.matrix(own[part], own).argmax(1)]
    return Stretch(first, last, "resorted"), partner
