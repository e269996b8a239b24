"""Tables of r(x, y) for two columns of many categories: low-rank models and counts, stacked.

Every part of the mixture is a ratio that sums to one under the product of the marginals: r = 1; low
rank, r(x, y) = sum over k of p(k) a_k(x) b_k(y), for several ranks; the relative frequency of a
cell, n N_xy / (N_x N_y); and the same of the rows that a cell has in excess of what it would have
by chance if x and y were independent. The weights of the parts maximise the likelihood of rows that
none of them was fitted on, which is a concave problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.critics.table import Table, TableCritic
from pointdep.fitting.batches import SplitRows
from pointdep.fitting.closed_form import proven
from pointdep.fitting.splits import Rows

RANKS = (4, 8, 16, 32)
# Each low-rank part is the mean of fits from several starts: they end in different places, and
# their mean predicts other rows better than any of them.
_STARTS, _TRIAL_STARTS = 5, 2
_STEPS = 60
# Rows of strength with which p(k | x) is held to p(k): rare categories stay near independence.
_PRIOR = 1.0
_ERRORS = 2.0  # above what independence lets one expect, from which rows of a cell are in excess
_LEAST_SHARE = 0.01  # parts of less weight are left out
_INDEPENDENT_ROWS = 3.0  # that speak for r = 1 before any row is seen
_STACKING_STEPS = 300
_CELLS = 1 << 22  # that are laid out at a time

Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Counts:
    """How often each cell, numbered x * ly + y and sorted, and each category came.

    order: (c,) of the cells, by the row that each first came in.
    """

    cells: Tensor
    of_cells: Tensor
    of_x: Tensor
    of_y: Tensor
    order: Tensor

    @classmethod
    def of(cls, x: Codes, y: Codes, shape: tuple[int, int]) -> _Counts:
        cells, first, counts = np.unique(x * shape[1] + y, return_index=True, return_counts=True)
        order = np.argsort(np.argsort(first))
        sides = [np.bincount(side, minlength=n) for side, n in zip((x, y), shape, strict=True)]
        of_cells, of_x, of_y = (torch.from_numpy(part).float() for part in (counts, *sides))
        return cls(torch.from_numpy(cells), of_cells, of_x, of_y, torch.from_numpy(order))

    @property
    def places(self) -> tuple[Tensor, Tensor]:
        """x and y of the cells, (c,) each."""
        ly = len(self.of_y)
        return self.cells // ly, self.cells % ly


@torch.no_grad()
def fit_tables(critic: TableCritic, rows: SplitRows) -> None:
    """Weigh the parts by the stopping rows of all replicas, then fit each replica again.

    The second time it has its stopping rows too: all but those that it reports.
    """
    x, y = (side.squeeze(1).long().cpu().numpy() for side in (rows.x, rows.y))
    shape = critic.x_factors.shape[1], critic.y_factors.shape[1]
    found = []
    for replica, split in enumerate(rows.splits):
        counts = _Counts.of(x[split.train], y[split.train], shape)
        held = x[split.stop], y[split.stop]
        seed = rows.seed + replica
        found.append(_part_ratios(counts, *held, starts=_TRIAL_STARTS, seed=seed))
    ratios = torch.cat(found)
    shares = stacked(ratios)
    kept = torch.where(shares >= _LEAST_SHARE, shares, 0.0)
    groups = None if rows.groups is None else rows.groups.cpu()
    stop = torch.from_numpy(np.concatenate([split.stop for split in rows.splits]))
    if not proven((ratios.double() @ shares).log(), stop, groups):
        kept.zero_()  # nothing that other rows show beyond chance: independent
    kept[0] += 1.0 - kept.sum()  # r = 1 takes what the others leave
    critic.shares = kept.expand(len(rows.splits), -1).to(critic.shares)
    used = [np.concatenate([split.train, split.stop]) for split in rows.splits]
    every = enumerate(used)
    critic.set_tables([fitted_table(x, y, p, kept, shape, rows.seed + r) for r, p in every])


def fitted_table(
    x: Codes, y: Codes, rows: Rows, shares: Tensor, shape: tuple[int, int], seed: int
) -> Table:
    """The mixture of the parts with these shares, fitted on these rows of x and y, (n,) each."""
    rows = np.sort(rows)
    counts = _Counts.of(x[rows], y[rows], shape)
    independent, frequent, excess, *of_ranks = shares.tolist()
    columns = [
        (a, b * share)
        for rank, share in zip(RANKS, of_ranks, strict=True)
        if share > 0
        for a, b in [low_rank(counts, rank, _STARTS, seed)]
    ]
    # The frequency of a category that did not come says nothing: those pairs keep r = 1.
    new_x, new_y = ((side == 0).float().unsqueeze(1) for side in (counts.of_x, counts.of_y))
    ones_x, ones_y = torch.ones_like(new_x), torch.ones_like(new_y)
    by_count = frequent + excess
    columns += [(ones_x, independent * ones_y), (new_x, by_count * ones_y)]
    columns += [(1 - new_x, by_count * new_y)]
    plain, above = _count_ratios(counts)
    of_x, of_y = (torch.cat(factors, 1) for factors in zip(*columns, strict=True))
    return Table(of_x, of_y, counts.cells, frequent * plain + excess * above)


@torch.no_grad()
def simulated(critic: TableCritic, x: Codes, y: Codes, seed: int) -> tuple[Codes, Codes, Tensor]:
    """As many rows as x and y, (n,), if r were the first table of the critic; and their log r.

    x comes as often as it did, by chance; y given x as often as r and the frequency of y say.
    """
    one = critic.select([0]).cpu()
    # In the order in which categories first came, so that their names do not matter.
    orders, codes = zip(*(_by_appearance(side) for side in (x, y)), strict=True)
    weights = [torch.from_numpy(np.bincount(side)).double() / len(x) for side in codes]
    random = np.random.default_rng([seed, 12])
    drawn_x = np.sort(random.choice(len(weights[0]), len(x), p=weights[0].numpy()))
    level, drawn_y = torch.from_numpy(random.random(len(x))), np.empty(len(x), np.int64)
    log_ratio, marginal = torch.empty(len(x)).double(), torch.zeros_like(weights[1])
    y_codes = torch.from_numpy(orders[1]).view(1, -1, 1)
    some = max(1, _CELLS // len(orders[1]))
    for block in torch.split(torch.arange(len(orders[0])), some):
        x_codes = torch.from_numpy(orders[0])[block].view(1, -1, 1)
        given = one.matrix(x_codes, y_codes)[0].double().exp() * weights[1]
        given /= given.sum(1, keepdim=True)
        marginal += weights[0][block] @ given
        rows = slice(*np.searchsorted(drawn_x, [int(block[0]), int(block[-1]) + 1]))
        own = torch.from_numpy(drawn_x[rows]) - block[0]
        # One ascending line of all categories' quantiles, each above the ones before it.
        ends = given.cumsum(1).clamp(max=1.0) + torch.arange(len(given)).unsqueeze(1)
        found = torch.searchsorted(ends.flatten(), own + level[rows]) - own * len(marginal)
        found = found.clamp(max=len(marginal) - 1)
        drawn_y[rows] = found.numpy()
        log_ratio[rows] = given[own, found].log()
    log_ratio -= marginal.log()[torch.from_numpy(drawn_y)]
    mixed = random.permutation(len(x))
    found_x, found_y = orders[0][drawn_x], orders[1][drawn_y]
    return found_x[mixed], found_y[mixed], log_ratio[torch.from_numpy(mixed)]


def _by_appearance(codes: Codes) -> tuple[Codes, Codes]:
    """The categories that came, first come first; and codes: (n,) as places among them."""
    names, first, places = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return names[order], np.argsort(order)[places]


def low_rank(counts: _Counts, rank: int, starts: int, seed: int) -> tuple[Tensor, Tensor]:
    """Factors a: (lx, starts * rank) and b: (ly, starts * rank), whose products are r.

    Probabilistic latent semantic analysis (Hofmann, 1999) by expectation maximisation, which is
    the factorisation of least Kullback-Leibler divergence, with p(k | x) and p(k | y) shrunken to
    p(k). The mean over the starts.
    """
    i, j = counts.places
    n, columns = counts.of_cells.sum(), starts * rank
    generator = torch.Generator().manual_seed(seed)
    # Drawn in the order of the rows, so that names of categories do not matter.
    drawn = torch.rand(len(i), columns, generator=generator)[counts.order]
    belongs = -drawn.clamp(min=1e-7).log()
    a = b = share = torch.empty(0)
    for step in range(_STEPS + 1):
        each = belongs.view(-1, starts, rank)
        weighed = (each * (counts.of_cells.view(-1, 1, 1) / each.sum(-1, keepdim=True))).flatten(1)
        share = (weighed.sum(0) / n).clamp(min=1e-9)
        sides = []
        for at, total in ((i, counts.of_x), (j, counts.of_y)):
            own = weighed.new_zeros(len(total), columns).index_add_(0, at, weighed)
            sides.append((own + _PRIOR * share) / (total + _PRIOR).unsqueeze(1))
        a, b = sides
        if step < _STEPS:
            belongs = a[i] * (b / share)[j]
    # Normalised exactly, whatever the shrinking did to the sums.
    a, b = (side / ((total / n) @ side) for side, total in ((a, counts.of_x), (b, counts.of_y)))
    return a, b * (share / starts)


def _count_ratios(counts: _Counts) -> tuple[Tensor, Tensor]:
    """n N_xy / (N_x N_y) of the cells that came, (c,), and the same of the rows in excess."""
    i, j = counts.places
    product, n = counts.of_x[i] * counts.of_y[j], counts.of_cells.sum()
    expected = product / n
    excess = (counts.of_cells - 1 - expected - _ERRORS * expected.sqrt()).clamp(min=0.0)
    whole = excess.sum()
    if whole == 0:  # nothing is in excess: the same part twice
        excess, whole = counts.of_cells, n
    return n * counts.of_cells / product, n * n / whole * excess / product


def _part_ratios(counts: _Counts, x: Codes, y: Codes, *, starts: int, seed: int) -> Tensor:
    """r by each part of the pairs x, y: (n,) -> (n, 3 + ranks)."""
    a, b = torch.from_numpy(x), torch.from_numpy(y)
    wanted = a * len(counts.of_y) + b
    at = torch.searchsorted(counts.cells, wanted).clamp(max=len(counts.cells) - 1)
    came, known = counts.cells[at] == wanted, (counts.of_x[a] > 0) & (counts.of_y[b] > 0)
    parts = [torch.ones(len(a))]
    parts += [torch.where(known, values[at] * came, 1.0) for values in _count_ratios(counts)]
    for rank in RANKS:
        of_x, of_y = low_rank(counts, rank, starts, seed)
        parts.append((of_x[a] * of_y[b]).sum(1))
    return torch.stack(parts, 1)


def stacked(ratios: Tensor) -> Tensor:
    """Weights (m,) of the parts with the largest mean log of their mixture; ratios: (n, m).

    The first part is r = 1, for which a few rows speak beforehand.
    """
    ratios = ratios.double()
    prior = torch.zeros(ratios.shape[1], dtype=ratios.dtype)
    prior[0] = _INDEPENDENT_ROWS
    weights = torch.full_like(prior, 1.0 / len(prior))
    for _ in range(_STACKING_STEPS):
        each = ratios * weights
        total = (each / each.sum(1, keepdim=True)).sum(0) + prior
        weights = total / total.sum()
    return weights
