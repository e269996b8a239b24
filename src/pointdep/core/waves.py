"""Which waves of the ranks are worth showing to a network: those the other side answers to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product

import numpy as np
import torch
from numpy.polynomial import hermite_e
from numpy.typing import NDArray
from scipy import special, stats
from torch import Tensor

# Set on the tuning half of the further tasks (benchmarks/further.py), where more waves of a column,
# or products of more columns, cost chance finds without adding to what is seen.
_SINGLES, _ALL_SINGLES = 16, 64  # frequencies of a column, and of all columns together
_MOST_PAIRED, _MOST_TRIPLED = 25, 6  # columns a side whose pairs and triples are looked at
_CANDIDATES = 200  # that are looked at one after another
_ROWS = 2_500  # enough to tell a correlation of 0.1 from chance among so many
_MARGIN = 6.0  # above the square that the largest of so many chance correlations reaches
_LEAST_VARIANCE = 0.2  # of what is left of a wave beyond those already chosen


Waves = tuple[Tensor, Tensor]
"""Frequencies, (dim, k), and phases, (k,)."""


@torch.no_grad()
def find_waves(x: Tensor, y: Tensor, most: int) -> tuple[Waves, Waves]:
    """The waves of x and those of y, k <= most of each, best first.

    x: (n, dx), y: (n, dy), paired rows as normal scores of ranks. A wave is chosen if it is
    correlated with some column of the other side, or a wave of one, beyond what chance gives among
    so many, and each adds to the columns themselves and to those chosen before it.
    """
    if len(x) > _ROWS:  # rows are in no order that matters, but ordered files are
        some = torch.linspace(0, len(x) - 1, _ROWS, device=x.device).round().long()
        x, y = x[some], y[some]
    sides = [side.cpu().float() for side in (x, y)]
    waves = [_dictionary(side) for side in sides]
    shown, partners = [], []
    for side, (frequencies, phases) in zip(sides, waves, strict=True):
        shown.append(_standard(wave_values(side, frequencies, phases)))
        single = (frequencies != 0).sum(0) == 1
        partners.append(torch.cat([_standard(side), shown[-1][:, single]], 1))
    found = []
    for own, other in ((0, 1), (1, 0)):
        chosen = _pursue(shown[own], sides[own], partners[other], most)
        found.append((waves[own][0][:, chosen], waves[own][1][chosen]))
    return found[0], found[1]


def wave_values(x: Tensor, frequencies: Tensor, phases: Tensor) -> Tensor:
    """cos(pi (p . frequencies + phases)) of the ranks p = ndtr(x): (n, dim) -> (n, k)."""
    return torch.cos(math.pi * (torch.special.ndtr(x) @ frequencies + phases))


def _dictionary(x: Tensor) -> Waves:
    """The waves to choose from: of single columns, of pairs and of triples of them."""
    dim = x.shape[1]
    varied = [c for c in range(dim) if len(torch.unique(x[:, c])) > 2]  # two values are one step
    rows: list[dict[int, int]] = []
    if varied:
        highest = max(2, min(_SINGLES, _ALL_SINGLES // len(varied)))
        rows += [{c: k} for k in range(1, highest + 1) for c in varied]
    for size, limit in ((2, _MOST_PAIRED), (3, _MOST_TRIPLED)):
        if size <= len(varied) <= limit:
            steps = (1, 2) if size == 2 and len(varied) <= _MOST_TRIPLED else (1,)
            for ks in product(steps, *[(*steps, *(-k for k in steps))] * (size - 1)):
                rows += [dict(zip(cs, ks, strict=True)) for cs in combinations(varied, size)]
    frequencies = np.zeros((dim, len(rows)), np.float32)
    for number, row in enumerate(rows):
        for column, k in row.items():
            frequencies[column, number] = k
    both = torch.from_numpy(frequencies).to(x.dtype).repeat(1, 2)
    return both, both.new_tensor([0.0, -0.5]).repeat_interleave(len(rows))


def _standard(values: Tensor) -> Tensor:
    centred = values - values.mean(0)
    return centred / centred.square().mean(0).sqrt().clamp(min=1e-6)


def _pursue(waves: Tensor, columns: Tensor, other: Tensor, most: int) -> Tensor:
    """Orthogonal matching pursuit: numbers of the chosen waves (n, F), best first."""
    n = len(waves)
    basis, _ = torch.linalg.qr(_standard(columns))
    left = waves - basis @ (basis.T @ waves)
    bar = 2.0 * math.log(max(1, waves.shape[1] * other.shape[1])) + _MARGIN
    cross = left.T @ other / n
    numbers = _scores(left, cross).topk(min(_CANDIDATES, waves.shape[1])).indices
    left, cross = left[:, numbers], cross[numbers]
    chosen: list[int] = []
    while len(chosen) < min(most, len(numbers)):
        score = _scores(left, cross)
        best = int(score.argmax())
        if float(score[best]) < bar:
            break
        chosen.append(best)
        direction = left[:, best] / left[:, best].norm()
        share = direction @ left
        left = left - direction.unsqueeze(1) * share
        cross = cross - torch.outer(share, direction @ other) / n
    return numbers[chosen]


def _scores(waves: Tensor, cross: Tensor) -> Tensor:
    """Rows times the largest squared correlation of each wave; of a wave that is used up, zero."""
    variance = waves.square().mean(0)
    score = cross.square().amax(1) / variance.clamp(min=_LEAST_VARIANCE) * len(waves)
    return torch.where(variance < _LEAST_VARIANCE, 0.0, score)


# In wide data: which pairs of single columns share more than Gaussian pairs of their correlation.

_HIGH, _LOW = 8, 2  # frequencies of a column, and of the column of the other side they meet
_MOST_ROWS = 5_000
MOST_PAIRS = 1 << 20
"""Columns of x times columns of y, beyond which their waves are not looked at."""

_DEGREE = 60  # of the Hermite series of a wave, which a correlation of 0.95 damps to 0.05
_GRID = 4_000


@dataclass(frozen=True)
class ColumnPairs:
    """How strongly column i of x and column j of y depend on each other: (dx, dy) each.

    linear: by the correlation of their normal scores; other: by waves of their ranks, beyond what a
    Gaussian pair of that correlation has. Above 1 is beyond chance among so many.
    """

    linear: NDArray[np.float64]
    other: NDArray[np.float64]

    def columns(self, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of the columns of x, and of y, that depend on any: the strongest first.

        At most `most` of a side, and all columns of one that has no more.
        """
        x, y = (
            np.array([c for c in np.argsort(-own)[:most] if len(own) <= most or own[c] > 1.0], int)
            for own in self._strengths
        )
        return x, y

    def few(self, most: int) -> bool:
        """Whether waves show a dependence, and at most `most` columns of a wide side have any."""
        return bool((self.other > 1.0).any()) and not self.many(most)

    def many(self, most: int) -> bool:
        """Whether more columns of a side than `most` depend on any of the other."""
        wide = [own for own in self._strengths if len(own) > most]
        return any(int((own > 1.0).sum()) > most for own in wide)

    @property
    def _strengths(self) -> list[NDArray[np.float64]]:
        both = np.maximum(self.linear, self.other)
        return [np.asarray(both.max(axis)) for axis in (1, 0)]


def column_pairs(x: Tensor, y: Tensor, most: int) -> ColumnPairs:
    """Of paired rows x: (n, dx), y: (n, dy), independent draws.

    Waves are not looked at where correlations alone show more than `most` columns of a side, nor
    of so many columns that their products would take long.
    """
    if len(x) > _MOST_ROWS:
        some = torch.linspace(0, len(x) - 1, _MOST_ROWS, device=x.device).round().long()
        x, y = x[some], y[some]
    n = len(x)
    ranks = [(stats.rankdata(side.cpu().numpy(), axis=0) - 0.5) / n for side in (x, y)]
    scores = [_standard(torch.from_numpy(special.ndtri(side))).float() for side in ranks]
    rho = (scores[0].T @ scores[1] / n).double().numpy()
    bar = (2.0 * math.log((1 + 2 * _HIGH * _LOW) * rho.size) + _MARGIN) / n
    found = ColumnPairs(rho**2 / bar, np.zeros_like(rho))
    if rho.size > MOST_PAIRS or found.many(most):
        return found
    waves = [
        [_standard(torch.from_numpy(np.cos(math.pi * k * side))).float() for side in ranks]
        for k in range(1, _HIGH + 1)
    ]
    series = _hermite_series()
    for a, b in product(range(_HIGH), range(_HIGH)):
        if min(a, b) >= _LOW:
            continue
        shared = (waves[a][0].T @ waves[b][1] / n).double().numpy()
        at = np.nonzero(shared**2 > bar / 4)  # less is not far from any Gaussian pair
        excess = np.zeros_like(rho)
        excess[at] = shared[at] - np.polynomial.polynomial.polyval(rho[at], series[a] * series[b])
        np.maximum(found.other, excess**2 / bar, out=found.other)
    return found


@cache
def _hermite_series() -> NDArray[np.float64]:
    """Of the standardised waves, (_HIGH, _DEGREE + 1): by it Mehler's formula gives correlations.

    Waves a and b of a Gaussian pair have the correlation sum_m series[a, m] series[b, m] rho^m.
    """
    p = (np.arange(_GRID) + 0.5) / _GRID
    powers = hermite_e.hermevander(special.ndtri(p), _DEGREE)
    powers /= np.exp(0.5 * special.gammaln(np.arange(_DEGREE + 1) + 1))
    waves = math.sqrt(2) * np.cos(math.pi * np.outer(np.arange(1, _HIGH + 1), p))
    return np.asarray(waves @ powers / _GRID)
