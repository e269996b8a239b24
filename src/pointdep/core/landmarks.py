"""Many columns that go together as few features: principal scores, and where a row lies."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pointdep.core.transforms import RankMap

_SCORES, _PLACES = 64, 40
_LANDMARKS, _ROWS_EACH = 1_000, 4  # rows per landmark, at least
_NEAREST, _UNIT = 10, 5  # landmarks, and the one whose distance is the unit of a row
_ROUNDS, _POWER_STEPS, _OVERSAMPLED = 6, 3, 16
_ROWS_TO_FIT = 20_000
_PART = 1 << 24  # numbers at a time
_TINY = 1e-30


class LandmarkMap(RankMap):
    """Standardised features that stand for many columns of one side.

    The features are principal scores of the columns' normal scores, and the region in which a row
    lies, by diffusion between landmarks: rows of one cluster, or close to each other on a curved
    surface, have similar values, also if no straight line tells them from others.

    columns: the `RankMap` of the columns. mean: (dim,) and directions: (dim, scores), of the
    principal scores. landmarks: (m, scores), of which `used`, (m,), are in use; places: (m,
    places), their values.
    """

    width = _SCORES + _PLACES

    def __init__(self, dim: int) -> None:
        super().__init__(self.width)
        self.columns = RankMap(dim)
        self.mean: Tensor = nn.Buffer(torch.zeros(dim))
        self.directions: Tensor = nn.Buffer(torch.zeros(dim, _SCORES))
        self.landmarks: Tensor = nn.Buffer(torch.zeros(_LANDMARKS, _SCORES))
        self.used: Tensor = nn.Buffer(torch.zeros(_LANDMARKS, dtype=torch.bool))
        self.places: Tensor = nn.Buffer(torch.zeros(_LANDMARKS, _PLACES))

    @torch.no_grad()
    def fit(self, rows: Tensor, numeric: Tensor) -> LandmarkMap:
        """Fit on rows: (n, dim), all of them numbers."""
        self.columns.fit(rows, numeric)
        step = 1 + len(rows) // _ROWS_TO_FIT
        mapped = self.columns(rows[::step])
        self.mean.copy_(mapped.mean(0))
        mapped -= self.mean
        self.directions.copy_(principal_directions(mapped, _SCORES))
        scores = mapped @ self.directions
        count = min(_LANDMARKS, max(2, len(scores) // _ROWS_EACH))
        self.used.copy_(torch.arange(_LANDMARKS) < count)
        self.landmarks[:count] = _centres(scores, count)
        self.places[:count] = _diffused(self._shares(scores))
        found = self.features(rows)
        self.fit_plain(found, torch.ones(self.width, dtype=torch.bool))
        return self

    def features(self, x: Tensor) -> Tensor:
        """(n, dim) -> (n, width)."""
        found = []
        for part in torch.split(x, max(1, _PART // max(len(self.mean), _LANDMARKS))):
            scores = (self.columns(part) - self.mean) @ self.directions
            found.append(torch.cat([scores, self._shares(scores) @ self.places[self.used]], 1))
        return torch.cat(found)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.features(x))

    def _shares(self, scores: Tensor) -> Tensor:
        """How far rows belong to the landmarks, (n, scores) -> (n, used); they add up to one."""
        square = torch.cdist(scores, self.landmarks[self.used]).square()
        near, which = square.topk(min(_NEAREST, square.shape[1]), largest=False)
        unit = near[:, min(_UNIT, near.shape[1] - 1), None].clamp(min=_TINY)
        return torch.zeros_like(square).scatter(1, which, torch.softmax(-near / unit, 1))


def principal_directions(centred: Tensor, count: int) -> Tensor:
    """The leading principal directions of centred rows, (n, d) -> (d, count).

    By subspace iteration: the eigenvectors of the covariance would take minutes for many columns.
    """
    wanted = min(count + _OVERSAMPLED, *centred.shape)
    basis = torch.randn(centred.shape[1], wanted, generator=_seeded()).to(centred)
    for _ in range(_POWER_STEPS):
        basis = torch.linalg.qr(centred.T @ (centred @ basis))[0]
    scores = centred @ basis
    vectors = torch.linalg.eigh((scores.T @ scores).cpu().double())[1].flip(1)[:, :count]
    return F.pad(basis @ vectors.to(basis), (0, count - vectors.shape[1]))


def _centres(rows: Tensor, count: int) -> Tensor:
    """Centres of `count` clusters, (n, k) -> (count, k), by a few rounds of Lloyd's algorithm."""
    order = torch.randperm(len(rows), generator=_seeded()).to(rows.device)
    centres = rows[order[:count]]
    for _ in range(_ROUNDS):
        own = torch.cdist(rows, centres).argmin(1)
        sums = torch.zeros_like(centres).index_add(0, own, rows)
        sizes = torch.bincount(own, minlength=count).unsqueeze(1)
        centres = torch.where(sizes > 0, sums / sizes.clamp(min=1), centres)
    return centres


def _diffused(shares: Tensor) -> Tensor:
    """Values of landmarks that change least between rows that share them, (n, m) -> (m, places).

    The leading eigenvectors of the walk from a landmark to a row and on to a landmark, but for the
    first, which is constant.
    """
    scale = shares.sum(0).clamp(min=_TINY).rsqrt()
    walk = shares * scale
    vectors = torch.linalg.eigh((walk.T @ walk).cpu().double())[1].flip(1)[:, 1 : _PLACES + 1]
    found = vectors.to(shares) * scale.unsqueeze(1)
    return F.pad(found, (0, _PLACES - found.shape[1]))


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


# Whether few features stand for the columns of a side.

_LEAST_COLUMNS, _LEAST_ROWS = 256, 1_000
_SOME_ROWS, _SOME_COLUMNS = 10_000, 512
_LEAST_SHARE, _BEYOND_CHANCE = 0.3, 1.5  # of the variance in the scores, and times chance
_PAIR_ROWS, _LEAST_SPREAD = 2_000, 0.5
_LOST = 0.3  # correlation of two columns beside the scores


@torch.no_grad()
def can_be_reduced(
    x: Tensor, y: Tensor, numeric: tuple[bool, bool], used: Tensor | None = None
) -> tuple[bool, bool]:
    """Of which sides, x: (n, dx) and y: (n, dy), a `LandmarkMap` keeps what the rows share.

    Of those with many columns whose principal scores hold much more of the variance than they would
    by chance; but of none if what these leave out is strongly correlated between columns of the two
    sides. numeric: whether all columns of x, and of y, are numbers. used: numbers of the rows in
    which both sides may be seen together.
    """
    found = [known and _go_together(side) for known, side in zip(numeric, (x, y), strict=True)]
    if any(found):
        index = torch.arange(len(x)) if used is None else used
        pairs = (side[index[:_PAIR_ROWS].to(side.device)] for side in (x, y))
        rests = [_rest(side, reduced) for side, reduced in zip(pairs, found, strict=True)]
        if float((rests[0].T @ rests[1]).abs().max()) > _LOST:
            return False, False
    return found[0], found[1]


def _go_together(rows: Tensor) -> bool:
    """Whether the leading principal scores of rows, (n, d), hold much of their variance."""
    if rows.shape[1] < _LEAST_COLUMNS or len(rows) < _LEAST_ROWS:
        return False
    centred = _scores(rows[:_SOME_ROWS, :: 1 + (rows.shape[1] - 1) // _SOME_COLUMNS])
    held = (centred @ principal_directions(centred, _SCORES)).square().sum()
    share = float(held / centred.square().sum().clamp(min=_TINY))
    # Of independent columns: the largest eigenvalues of a sample covariance exceed the mean.
    count, columns = centred.shape
    chance = _SCORES / columns * (1 + math.sqrt(columns / count)) ** 2
    return share > max(_LEAST_SHARE, _BEYOND_CHANCE * chance)


def _rest(rows: Tensor, reduced: bool) -> Tensor:
    """Columns (n, d) of length one or less, without the scores that are to stand for them."""
    centred = _scores(rows)
    # Against the whole column: what is left of most columns is little, and does not count. One
    # whose values are nearly all alike has a few large scores, which meet by chance.
    whole = centred.norm(dim=0).clamp(min=_LEAST_SPREAD * math.sqrt(len(rows)))
    if reduced:
        directions = principal_directions(centred, _SCORES)
        centred -= (centred @ directions) @ directions.T
    found: Tensor = centred / whole
    return found


def _scores(rows: Tensor) -> Tensor:
    """Centred normal scores of rows, (n, d)."""
    mapped = RankMap(rows.shape[1]).fit(rows, torch.ones(rows.shape[1]) > 0).to(rows.device)(rows)
    found: Tensor = mapped - mapped.mean(0)
    return found
