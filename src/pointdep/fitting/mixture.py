"""How much of the closed form and how much of the towers is right, by rows that trained neither."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pointdep.core.critics.towers import TowersCritic
from pointdep.core.ratio import RatioModel
from pointdep.fitting.batches import held_out_cells
from pointdep.fitting.residual import proven, row_losses
from pointdep.fitting.splits import Rows, Split

_BLOCK = 64
_MOST_ROWS = 4_000  # per replica
_REACH = 30.0  # nats: farther out a cell has no more say in the fit
_LEAST_SHARE = 0.05  # of each: less helps few pairs, and may ruin those far out
_PRIOR = 1.0  # one over the variance of the weights before any cell is seen
_STEPS, _LONGEST_STEP, _PRECISION = 100, 0.5, 1e-8


@torch.no_grad()
def fit_mixture(
    model: RatioModel,
    x: Tensor,
    y: Tensor,
    splits: Sequence[Split],
    *,
    seed: int,
    groups: Tensor | None = None,
) -> None:
    """Set log r = a closed form + b towers + c, the same in all replicas, by the stopping rows.

    Logistic regression of belonging together on the two parts. The closed form takes part where it
    helps beyond chance; b below 1 takes back what the towers are too sure of. Where the parts tell
    all pairs from all others, as of very dependent rows, they are left as large as they are.
    """
    critic = model.critic
    assert isinstance(critic, TowersCritic)
    parts = [
        _parts(model.select([replica]), x, y, split.stop, seed, groups)
        for replica, split in enumerate(splits)
    ]
    closed, towers, joint, product = (
        torch.cat(part) for part in zip(*(p[:4] for p in parts), strict=True)
    )
    rows = torch.cat([part[4] for part in parts])
    used = (joint + product) > 0
    target = joint[used].cpu()
    shift = (product.sum() / joint.sum()).log().cpu()
    columns = torch.stack([part[used] for part in (closed, towers, torch.ones_like(closed))], 1)
    columns = columns.clamp(-_REACH, _REACH).cpu().double()  # not every device has float64
    alone = _logistic(columns[:, 1:], target, shift)
    both = _logistic(columns, target, shift)
    chosen = (0.0, *alone)
    if min(both[:2]) >= _LEAST_SHARE:
        losses = [
            row_losses(a * closed + b * towers + c, joint, product) for a, b, c in (chosen, both)
        ]
        if proven(losses[0] - losses[1], rows, groups):
            chosen = both
    critic.set_mixture(*chosen)


def _parts(
    model: RatioModel,
    x: Tensor,
    y: Tensor,
    stop: Rows,
    seed: int,
    groups: Tensor | None,
) -> tuple[Tensor, ...]:
    """Both parts of log r, joint and product weights, (N, b) each, and the rows' numbers, (n,).

    model: of one replica.
    """
    critic = model.critic
    assert isinstance(critic, TowersCritic)
    some = np.random.default_rng([seed, 8]).permutation(stop)[:_MOST_ROWS]
    cells, index = held_out_cells(x, y, [some], block=_BLOCK, seed=seed, groups=groups)
    u, v = model.x_map(cells.x), model.y_map(cells.y)
    scores = (critic.closed_form(u, v), critic.towers.matrix(u, v))
    closed, towers = (part.flatten(0, 2) for part in scores)
    rows = torch.from_numpy(index[index >= 0]).to(x.device)
    # Of fewer rows than make a block, replicas may have unequally many.
    parts = (closed, towers, cells.joint[0], cells.product[0])
    return *(F.pad(part, (0, _BLOCK - part.shape[1])) for part in parts), rows


def _logistic(columns: Tensor, target: Tensor, shift: Tensor) -> tuple[float, ...]:
    """Weights of the columns (N, k) of log r, by the cells' being pairs or not, target: (N,).

    The last column is of ones. A prior holds the weights where the parts have equal shares of 1: it
    decides where no cell does, because all pairs score above all others and any larger weights
    would separate them better.
    """
    held = columns.new_zeros(columns.shape[1])
    held[:-1] = 1.0 / (len(held) - 1)
    prior = _PRIOR * torch.eye(len(held), dtype=columns.dtype)
    weights = held.clone()
    for _ in range(_STEPS):
        belongs = torch.sigmoid(columns @ weights - shift)
        gradient = columns.T @ (belongs - target) + prior @ (weights - held)
        spread = columns * (belongs * (1 - belongs)).unsqueeze(1)
        step = torch.linalg.solve(columns.T @ spread + prior, gradient)
        # Bounded, so that the first steps do not overshoot.
        step = step / max(1.0, float(step.abs().max()) / _LONGEST_STEP)
        weights = weights - step
        if float(step.abs().max()) < _PRECISION:
            break
    return tuple(weights.tolist())
