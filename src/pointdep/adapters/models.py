"""From a calibration to a model that answers, and what the calibration leaves in doubt."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pointdep.adapters.calibrating import Calibration, summed_stderr
from pointdep.adapters.critic import CalibratedCritic, Unchanged
from pointdep.adapters.sources import Source
from pointdep.assembly import PairedRows
from pointdep.core.methods import get_method
from pointdep.core.ratio import RatioModel
from pointdep.inference.bias import FittingBias


def calibrated_model(
    source: Source, found: Calibration, rows: PairedRows, side: str | None
) -> RatioModel:
    """side: the queries, "x" or "y", whose levels are taken over the rows' other side; or None."""
    candidates = rows.x if side == "y" else rows.y
    kept = slice(None if side is not None else 0)
    critic = CalibratedCritic(
        source,
        found.weights.float(),
        candidates[torch.from_numpy(found.rows[kept]).to(candidates.device)],
        torch.from_numpy(found.fold[kept]),
        found.influence.weights.float(),
        torch.from_numpy(found.names),
        queries=side,
        temperature=found.temperature,
    )
    return assembled(critic, rows.x.shape[1], rows.y.shape[1]).to(rows.x.device)


def assembled(critic: CalibratedCritic, x_dim: int, y_dim: int) -> RatioModel:
    """A model of this critic, on rows as they are."""
    count = critic.replicas
    model = RatioModel(
        critic,
        Unchanged(count, x_dim),
        Unchanged(count, y_dim),
        [get_method("pc")] * count,
        "log_ratio",
    )
    return model.eval().requires_grad_(False)


def critic_of(model: RatioModel) -> CalibratedCritic:
    """What `assembled` was given."""
    assert isinstance(model.critic, CalibratedCritic)
    return model.critic


def bias_of(found: Calibration, count: int) -> FittingBias:
    """count: independent draws, rows or groups, that calibrated."""
    resolution = math.sqrt(found.weights.shape[1] / 2) / count
    return FittingBias(closed_form=max(found.gap, 0.0), resolution=resolution)


def stderr_of(influences: Tensor, critic: CalibratedCritic) -> float:
    """Of what the calibration rows have these influences on, (m,)."""
    return summed_stderr(influences.cpu(), critic.names.cpu().numpy())
