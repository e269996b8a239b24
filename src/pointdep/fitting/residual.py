"""Whether the default critic's network earned its place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pointdep.core.critics.residual import ResidualCritic
from pointdep.core.ratio import RatioModel
from pointdep.fitting.batches import Cells, held_out_cells
from pointdep.fitting.splits import Split

_BLOCK = 16
_PROOF = 2.0  # standard errors


def closed_form_only(model: RatioModel) -> RatioModel:
    """A copy of the model without its network."""
    copy = model.select(range(model.replicas))
    assert isinstance(copy.critic, ResidualCritic)
    copy.critic.silence()
    return copy


@torch.no_grad()
def drop_unproven_network(
    model: RatioModel,
    x: Tensor,
    y: Tensor,
    splits: Sequence[Split],
    *,
    seed: int,
    groups: Tensor | None = None,
) -> bool:
    """Silence the networks of all replicas unless, on the stopping rows, they help beyond chance.

    Early stopping keeps the best of many epochs, so some network always looks better than none by
    a little; what it then adds to the closed form is noise. Compared is the log-loss per row of the
    implied classifier, with and without the network, over the stopping rows of all replicas.
    Returns whether the network stays.
    """
    without = closed_form_only(model)
    gains = []
    for replica, split in enumerate(splits):
        cells, _ = held_out_cells(x, y, [split.stop], block=_BLOCK, seed=seed, groups=groups)
        one, other = model.select([replica]), without.select([replica])
        gains.append(_losses(other, cells) - _losses(one, cells))
    gain = torch.cat(gains)
    error = float(gain.std()) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    kept = float(gain.mean()) > _PROOF * error
    if not kept:
        assert isinstance(model.critic, ResidualCritic)
        model.critic.silence()
    return kept


def _losses(model: RatioModel, cells: Cells) -> Tensor:
    """The classifier's log-loss of each row: its own pair, and its mean over other rows' y."""
    scores = model.log_ratio_blocks(cells.x, cells.y).flatten(0, 2)
    joint, product = cells.joint.flatten(0, 1), cells.product.flatten(0, 1)
    others = product.sum(1).clamp(min=1.0)
    shift = others.log().unsqueeze(1)
    own = (F.softplus(shift - scores) * joint).sum(1)
    loss = own + (F.softplus(scores - shift) * product).sum(1)
    return loss[joint.sum(1) > 0]
