"""Whether the network of a default critic earned its place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pointdep.core.critics.closed_form import ClosedFormCritic
from pointdep.core.ratio import RatioModel
from pointdep.fitting.batches import Cells, held_out_cells
from pointdep.fitting.splits import Split

_BLOCK = 16
_PROOF = 2.0  # standard errors
_BUDGET = 1 << 22  # numbers alive at a time


def closed_form_only(model: RatioModel) -> RatioModel:
    """A copy of the model without its network."""
    copy = model.select(range(model.replicas))
    assert isinstance(copy.critic, ClosedFormCritic)
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
    gains, rows = [], []
    for replica, split in enumerate(splits):
        cells, index = held_out_cells(x, y, [split.stop], block=_BLOCK, seed=seed, groups=groups)
        one, other = model.select([replica]), without.select([replica])
        gains.append(_losses(other, cells) - _losses(one, cells))
        rows.append(torch.from_numpy(index[index >= 0]).to(x.device))
    kept = proven(torch.cat(gains), torch.cat(rows), groups)
    if not kept:
        assert isinstance(model.critic, ClosedFormCritic)
        model.critic.silence()
    return kept


def proven(gain: Tensor, rows: Tensor, groups: Tensor | None) -> bool:
    """Whether the mean of gain (n,), of the rows numbered (n,), is above zero beyond chance.

    A row that stops several replicas, or a group of rows, is still one draw.
    """
    error = _error_of_mean(gain, rows if groups is None else groups[rows])
    return float(gain.mean()) > _PROOF * error


def _error_of_mean(gain: Tensor, groups: Tensor) -> float:
    """The standard error of the mean of gain (n,); rows of one group, (n,), are one draw."""
    codes = torch.unique(groups, return_inverse=True)[1]
    count = int(codes.max()) + 1
    sums = gain.new_zeros(count).index_add(0, codes, gain - gain.mean())
    if count < 2:
        return math.inf
    return math.sqrt(count / (count - 1) * float(sums.square().sum())) / len(gain)


def _losses(model: RatioModel, cells: Cells) -> Tensor:
    """The classifier's log-loss of each row: its own pair, and its mean over other rows' y."""
    width = model.critic.cell_width() * cells.x.shape[2] ** 2
    step = max(1, _BUDGET // width)
    scores = torch.cat(
        [
            model.log_ratio_blocks(a, b)
            for a, b in zip(
                torch.split(cells.x, step, 1), torch.split(cells.y, step, 1), strict=True
            )
        ],
        1,
    ).flatten(0, 2)
    return row_losses(scores, cells.joint.flatten(0, 1), cells.product.flatten(0, 1))


def row_losses(scores: Tensor, joint: Tensor, product: Tensor) -> Tensor:
    """Of log r and weights of cells, all (N, b): the losses of the rows that are not padding."""
    others = product.sum(1).clamp(min=1.0)
    shift = others.log().unsqueeze(1)
    own = (F.softplus(shift - scores) * joint).sum(1)
    loss = own + (F.softplus(scores - shift) * product).sum(1)
    return loss[joint.sum(1) > 0]
