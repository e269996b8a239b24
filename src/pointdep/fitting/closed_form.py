"""The part of the default critics that is not trained: canonical coordinates and correlations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pointdep.core import objectives
from pointdep.core.canonical import Canonical, canonical_correlations
from pointdep.core.critics.closed_form import ClosedFormCritic
from pointdep.core.critics.towers import TowersCritic
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import CanonicalMap
from pointdep.fitting.batches import held_out_cells
from pointdep.fitting.splits import Split

_SCALES = (1.0, 0.97, 0.9, 0.75, 0.5, 0.25, 0.0)
_BLOCK = 32
_SMALLEST_GAIN = 1e-4
_WIDEST = 64  # columns: with more, their features cost more than they give
_WORTHWHILE = 0.1  # correlation


@torch.no_grad()
def fit_closed_form(
    model: RatioModel,
    x: Tensor,
    y: Tensor,
    splits: Sequence[Split],
    *,
    seed: int,
    groups: Tensor | None = None,
    canonical: Sequence[Canonical] | None = None,
) -> None:
    """Fit each replica's coordinates and correlations on its training rows.

    How far the correlations are to be trusted is decided on the stopping rows: they are all scaled
    down together as long as that makes the implied classifier better there, to zero where the data
    are nothing like Gaussian. canonical: the coordinates of each replica, where they are known.
    """
    critic = model.critic
    assert isinstance(critic, ClosedFormCritic)
    for replica, split in enumerate(splits):
        if canonical is not None:
            _set(model, replica, canonical[replica])
            continue
        train = torch.from_numpy(split.train).to(x.device)
        own = None if groups is None else groups[train]
        _set(model, replica, canonical_correlations(x[train].cpu(), y[train].cpu(), own))
    if isinstance(model.x_map, CanonicalMap) and isinstance(model.y_map, CanonicalMap):
        _fit_modulated(model.x_map, model.y_map, x, y, splits, groups)
    rows = [split.stop for split in splits]
    cells, _ = held_out_cells(x, y, rows, block=_BLOCK, seed=seed, groups=groups)
    u, v = model.x_map(cells.x), model.y_map(cells.y)
    full = critic.correlations.clone()
    best_value, best = None, full
    for scale in _SCALES:
        critic.correlations = scale * full
        value = objectives.pc(
            critic.closed_form(u, v).flatten(1, 2), joint=cells.joint, product=cells.product
        )
        if best_value is None:
            best_value, best = value, critic.correlations
            continue
        better = value > best_value + _SMALLEST_GAIN * best_value.abs()
        best = torch.where(better.unsqueeze(1), critic.correlations, best)
        best_value = torch.where(better, value, best_value)
    critic.correlations = best


def _set(model: RatioModel, replica: int, found: Canonical) -> None:
    """Give a replica its coordinates and correlations, where its critic looks for them."""
    critic, x_map, y_map = model.critic, model.x_map, model.y_map
    if isinstance(critic, TowersCritic):
        critic.set_canonical(replica, found)
        return
    assert isinstance(critic, ClosedFormCritic)
    assert isinstance(x_map, CanonicalMap)
    assert isinstance(y_map, CanonicalMap)
    x_map.set_linear(replica, found.x_mean, found.x_weight)
    y_map.set_linear(replica, found.y_mean, found.y_weight)
    critic.correlations[replica] = 0.0
    critic.correlations[replica, : len(found.correlations)] = found.correlations.to(
        critic.correlations
    )


def _fit_modulated(
    x_map: CanonicalMap,
    y_map: CanonicalMap,
    x: Tensor,
    y: Tensor,
    splits: Sequence[Split],
    groups: Tensor | None,
) -> None:
    """Coordinates of the features [u, q, t, q u] that are correlated across the sides.

    They show the network what turns or grows with the size of the other coordinates, which it finds
    late or never when there are many of them.
    """
    if max(x.shape[1], y.shape[1]) > _WIDEST:
        return
    for replica, split in enumerate(splits):
        train = torch.from_numpy(split.train).to(x.device)
        a, b = (
            side_map.select([replica]).features(side[train].unsqueeze(0))[0].cpu()
            for side_map, side in ((x_map, x), (y_map, y))
        )
        found = canonical_correlations(a, b, None if groups is None else groups[train])
        kept = (found.correlations > _WORTHWHILE).to(found.x_weight)
        x_map.set_modulated(replica, found.x_mean, found.x_weight[:, : len(kept)] * kept)
        y_map.set_modulated(replica, found.y_mean, found.y_weight[:, : len(kept)] * kept)
