"""Maps of x alone or of y alone. All but `LandmarkMap` are invertible and leave r(x,y) as it is."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from typing import Self

_NO_SPREAD = 1e-12
_FAR = 10.0  # standard deviations beyond which values are drawn in
KNOTS = 1024
"""Points kept of each column's map; columns with fewer distinct values keep them all."""


class _ReplicaMap(nn.Module):
    """A map with one set of numbers per replica, in its buffers."""

    def select(self, replicas: list[int]) -> Self:
        """A copy that holds only these replicas."""
        chosen = copy.copy(self)
        chosen._buffers = {name: buffer[replicas] for name, buffer in self.named_buffers()}
        return chosen


class Standardizer(_ReplicaMap):
    """Per replica: subtract the mean and divide by the standard deviation of each column.

    Beyond 10 standard deviations of the training rows, values grow like their logarithm: still an
    invertible map, and a lone outlier among new rows does not send the critic far off.
    """

    def __init__(self, replicas: int, dim: int) -> None:
        super().__init__()
        self.mean: Tensor = nn.Buffer(torch.zeros(replicas, dim))
        self.scale: Tensor = nn.Buffer(torch.ones(replicas, dim))
        self.far: Tensor = nn.Buffer(torch.full((replicas, dim), torch.inf))

    def fit_replica(self, replica: int, rows: Tensor, numeric: Tensor) -> None:
        """Fit replica r on rows: (n, dim); columns where `numeric` is false stay as they are."""
        rows64 = rows.double()
        spread = rows64.std(0, correction=0)
        usable = numeric.to(rows.device) & (spread > _NO_SPREAD)
        self.mean[replica] = torch.where(usable, rows64.mean(0), 0.0).to(self.mean.dtype)
        self.far[replica] = torch.where(usable, _FAR, torch.inf).to(self.far.dtype)
        self.scale[replica] = torch.where(usable, spread, 1.0).to(self.scale.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x: (R, ..., dim) -> the same shape."""
        shape = (self.mean.shape[0], *[1] * (x.ndim - 2), self.mean.shape[1])
        z = (x - self.mean.view(shape)) / self.scale.view(shape)
        far = self.far.view(shape)
        near = z.clamp(-far, far)
        past = z - near
        return near + past.sign() * past.abs().log1p()

    def beyond(self, rows: Tensor) -> Tensor:
        """(n, dim) -> (n,) boolean: 10 standard deviations out for every replica."""
        z = self(rows.unsqueeze(0).expand(len(self.mean), *rows.shape)).abs()
        found: Tensor = (z > self.far.unsqueeze(1)).any(-1).all(0)
        return found


class CanonicalMap(_ReplicaMap):
    """Per replica: canonical coordinates u of one side, its size, and canonical features of it.

    (R, ..., dim) -> (R, ..., dim + 2 + extra): u = (x - mean) weight, (R, dim, dim), unused
    directions being columns of zeros; two measures of size, q, the centred mean square of u, and t,
    the log-mean of exp(x^2/2), which grows like the logarithm of the norm of heavy-tailed rows that
    were brought to normal scores x; and canonical coordinates of the features [u, q, t, q u, w], by
    `modulated`, (R, 2 dim + 2 + waves, extra). This class has no waves; see `WaveMap`.
    """

    extra, waves = 4, 0

    def __init__(self, replicas: int, dim: int) -> None:
        super().__init__()
        features, waves, extra = 2 * dim + 2 + self.waves, self.waves, self.extra
        self.mean: Tensor = nn.Buffer(torch.zeros(replicas, dim))
        self.weight: Tensor = nn.Buffer(torch.eye(dim).repeat(replicas, 1, 1))
        self.feature_mean: Tensor = nn.Buffer(torch.zeros(replicas, features))
        self.modulated: Tensor = nn.Buffer(torch.zeros(replicas, features, extra))
        if waves:
            self.frequencies: Tensor = nn.Buffer(torch.zeros(replicas, dim, waves))
            self.phases: Tensor = nn.Buffer(torch.zeros(replicas, 1, waves))

    @classmethod
    def kept(cls, dim: int) -> int:
        """How many of `dim` columns are looked at."""
        return dim

    @classmethod
    def out_dim(cls, dim: int) -> int:
        """Columns that `dim` columns become."""
        return cls.kept(dim) + 2 + cls.extra

    def pick(self, x: Tensor) -> Tensor:
        """The columns that are looked at: (R, n, dim) -> (R, n, kept)."""
        return x

    def set_linear(self, replica: int, mean: Tensor, weight: Tensor) -> None:
        """mean: (dim,), weight: (dim, at most dim)."""
        fill(self.mean[replica], mean)
        fill(self.weight[replica], weight)

    def set_waves(self, replica: int, frequencies: Tensor, phases: Tensor) -> None:
        """frequencies: (dim, any), phases: (any,): the leading ones are kept."""
        fill(self.frequencies[replica], frequencies[:, : self.waves])
        fill(self.phases[replica], phases[None, : self.waves])

    def set_modulated(self, replica: int, mean: Tensor, weight: Tensor) -> None:
        """mean: (features,), weight: (features, any): the leading columns are kept."""
        fill(self.feature_mean[replica], mean)
        fill(self.modulated[replica], weight[:, : self.modulated.shape[2]])

    def features(self, x: Tensor) -> Tensor:
        """[u, q, t, q u, w] of x, as `pick` gives it: (R, n, dim) -> (R, n, 2 dim + 2 + waves)."""
        u = torch.bmm(x - self.mean.unsqueeze(1), self.weight)
        size = (u.square().mean(-1, keepdim=True) - 1.0) * (u.shape[-1] / 2.0) ** 0.5
        size = 3.0 * torch.tanh(size / 3.0)
        tail = torch.logsumexp(0.5 * x.square().clamp(max=2 * _FAR), -1, keepdim=True)
        tail = tail - math.log(x.shape[-1]) - 1.0
        found = [u, size, tail, size * u]
        if self.waves:
            angle = torch.baddbmm(self.phases, torch.special.ndtr(x), self.frequencies)
            found.append(torch.cos(math.pi * angle))
        return torch.cat(found, -1)

    def forward(self, x: Tensor) -> Tensor:
        features = self.features(self.pick(x.reshape(x.shape[0], -1, x.shape[-1])))
        extra = torch.bmm(features - self.feature_mean.unsqueeze(1), self.modulated)
        found = torch.cat([features[..., : self.mean.shape[1] + 2], extra], -1)
        return found.view(*x.shape[:-1], -1)


class WaveMap(CanonicalMap):
    """A `CanonicalMap` with waves of the ranks p = ndtr(x), each in (0, 1), among its features.

    w = cos(pi (p . frequencies + phase)), (R, dim, waves) and (R, 1, waves), sees what oscillates,
    what has edges, what only spreads, and products of columns, because
    cos a cos b = (cos(a + b) + cos(a - b)) / 2.
    """

    extra, waves = 8, 24


class PickedMap(WaveMap):
    """A `WaveMap` of a few of many columns, which each replica picks for itself.

    picked: (R, dim, kept), indicators of the columns; places that are not needed are zeros.
    """

    most = 24

    def __init__(self, replicas: int, dim: int) -> None:
        super().__init__(replicas, self.kept(dim))
        self.picked: Tensor = nn.Buffer(torch.zeros(replicas, dim, self.kept(dim)))

    @classmethod
    def kept(cls, dim: int) -> int:
        return min(dim, cls.most)

    def set_picked(self, replica: int, columns: Tensor) -> None:
        """columns: (at most kept,), numbers of the columns."""
        self.picked[replica].zero_()
        self.picked[replica, columns, torch.arange(len(columns))] = 1.0

    def pick(self, x: Tensor) -> Tensor:
        return torch.bmm(x, self.picked)


def fill(place: Tensor, values: Tensor) -> None:
    """Write values into the leading columns, and zeros after them."""
    place.zero_()
    place[..., : values.shape[-1]] = values.to(place)


class CodeMap(nn.Module):
    """One-hot rows (n, categories) as the number of each row's category, (n, 1)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.argmax(-1, keepdim=True).to(x.dtype)


class RankMap(nn.Module):
    """Per column: the normal score of a value's rank, linear between the kept values.

    Tied values share their middle rank. Beyond the values seen in fitting the map goes on growing,
    but slowly: it stays one to one, and a lone outlier among new rows does not go far. Columns that
    are not numeric (indicators of categories) stay as they are.
    """

    def __init__(self, dim: int, knots: int = KNOTS) -> None:
        super().__init__()
        self.values: Tensor = nn.Buffer(torch.full((dim, knots), torch.inf))
        self.scores: Tensor = nn.Buffer(torch.zeros(dim, knots))
        self.count: Tensor = nn.Buffer(torch.zeros(dim, dtype=torch.long))  # 0: left as it is
        self.reach: Tensor = nn.Buffer(torch.ones(dim))

    @torch.no_grad()
    def fit(self, rows: Tensor, numeric: Tensor) -> RankMap:
        """Fit on rows: (n, dim); columns where `numeric` is false stay as they are."""
        knots = self.values.shape[1]
        self.values.fill_(torch.inf)
        self.count.zero_()
        # A GPU sorts all columns in the time that a CPU takes for one.
        ordered = rows.float().sort(0).values.T.cpu() if rows.is_cuda else None
        for column in torch.nonzero(numeric).flatten().tolist():
            column_rows = rows[:, column].float().cpu()
            if ordered is None:
                distinct, counts = torch.unique(column_rows, return_counts=True)
            else:
                distinct, counts = torch.unique_consecutive(ordered[column], return_counts=True)
            if len(distinct) < 2:
                continue
            share = (counts.cumsum(0).double() - 0.5 * counts) / len(rows)
            normal = torch.special.ndtri(share)
            kept = _spaced(share, normal, knots)
            size = len(kept)
            self.values[column, :size] = distinct[kept]
            self.scores[column, :size] = normal[kept].float()
            self.count[column] = size
            self.reach[column] = column_rows.std(correction=0).clamp(min=1e-30)
        return self

    @torch.no_grad()
    def fit_plain(self, rows: Tensor, numeric: Tensor) -> RankMap:
        """The same, with standardised values instead of scores: straight from end to end.

        Values farther than 10 standard deviations out are drawn in like those past the ends.
        """
        rows64 = rows.double()
        mean, spread = rows64.mean(0), rows64.std(0, correction=0)
        usable = numeric.to(rows.device) & (spread > _NO_SPREAD)
        spread = torch.where(usable, spread, 1.0)
        ends = torch.stack([rows64.amin(0), rows64.amax(0)], 1)
        scores = ((ends - mean.unsqueeze(1)) / spread.unsqueeze(1)).clamp(-_FAR, _FAR)
        self.values.fill_(torch.inf)
        self.values[:, :2] = (mean.unsqueeze(1) + scores * spread.unsqueeze(1)).to(self.values)
        self.scores[:, :2] = scores.to(self.scores)
        self.count.copy_(torch.where(usable, 2, 0))
        self.reach.copy_(spread)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """x: (n, dim) -> the same shape."""
        mapped = self.count > 0
        if not bool(mapped.any()):
            return x
        columns = x.T.contiguous()
        last = (self.count - 1).clamp(min=1).unsqueeze(1)
        right = torch.searchsorted(self.values, columns).clamp(min=1).minimum(last)
        left = right - 1
        low, high = self.values.gather(1, left), self.values.gather(1, right)
        start, end = self.scores.gather(1, left), self.scores.gather(1, right)
        inside = columns.clamp(low, high)
        found = start + (end - start) * ((inside - low) / (high - low))
        # Past the ends the score grows with the logarithm of the distance in standard deviations.
        past = (columns - inside) / self.reach.unsqueeze(1)
        found = found + past.sign() * past.abs().log1p()
        return torch.where(mapped.unsqueeze(1), found, columns).T.contiguous()

    def beyond(self, mapped: Tensor, margin: float) -> Tensor:
        """Mapped rows (n, dim) -> (n,) boolean: a score `margin` or more past those of fitting."""
        last = (self.count - 1).clamp(min=0).unsqueeze(1)
        low, high = self.scores[:, 0], self.scores.gather(1, last).squeeze(1)
        far = (mapped < low - margin) | (mapped > high + margin)
        return (far & (self.count > 0)).any(1)


def _spaced(share: Tensor, normal: Tensor, knots: int) -> Tensor:
    """Positions of at most `knots` distinct values: even in order and in score, ends kept."""
    if len(share) <= knots:
        return torch.arange(len(share))
    half = knots // 2
    by_rank = torch.linspace(0, len(share) - 1, half).round().long()
    wanted = torch.linspace(float(normal[0]), float(normal[-1]), knots - half, dtype=normal.dtype)
    by_score = torch.searchsorted(normal, wanted).clamp(max=len(share) - 1)
    positions: Tensor = torch.unique(torch.cat([by_rank, by_score]))
    return positions


# Many columns that go together as few features.

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

# With fewer columns the encoders take all of them, in a time that can be borne.
_LEAST_COLUMNS, _LEAST_ROWS = 1_000, 1_000
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
    centred = _centred_scores(rows[:_SOME_ROWS, :: 1 + (rows.shape[1] - 1) // _SOME_COLUMNS])
    held = (centred @ principal_directions(centred, _SCORES)).square().sum()
    share = float(held / centred.square().sum().clamp(min=_TINY))
    # Of independent columns: the largest eigenvalues of a sample covariance exceed the mean.
    count, columns = centred.shape
    chance = _SCORES / columns * (1 + math.sqrt(columns / count)) ** 2
    return share > max(_LEAST_SHARE, _BEYOND_CHANCE * chance)


def _rest(rows: Tensor, reduced: bool) -> Tensor:
    """Columns (n, d) of length one or less, without the scores that are to stand for them."""
    centred = _centred_scores(rows)
    # Against the whole column: what is left of most columns is little, and does not count. One
    # whose values are nearly all alike has a few large scores, which meet by chance.
    whole = centred.norm(dim=0).clamp(min=_LEAST_SPREAD * math.sqrt(len(rows)))
    if reduced:
        directions = principal_directions(centred, _SCORES)
        centred -= (centred @ directions) @ directions.T
    found: Tensor = centred / whole
    return found


def _centred_scores(rows: Tensor) -> Tensor:
    """Centred normal scores of rows, (n, d)."""
    mapped = RankMap(rows.shape[1]).fit(rows, torch.ones(rows.shape[1]) > 0).to(rows.device)(rows)
    found: Tensor = mapped - mapped.mean(0)
    return found
