"""Gaussian pairs, and the default critic fitted to them without a network."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from pointdep.core.critics import build_critic, replica_generators
from pointdep.core.methods import METHODS
from pointdep.core.ratio import RatioModel
from pointdep.fitting.batches import SplitRows
from pointdep.fitting.closed_form import fit_closed_form
from pointdep.fitting.splits import Split


def gaussians(n: int, dim: int = 2, rho: float = 0.8, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Column k of x and column k of y correlate by rho, float64."""
    x, noise = np.random.default_rng(seed).standard_normal((2, n, dim))
    return torch.from_numpy(x), torch.from_numpy(rho * x + np.sqrt(1 - rho**2) * noise)


def split_of(*sizes: int, start: int = 0) -> Split:
    """So many rows to train, to stop and to report, one after the other."""
    ends = np.cumsum([start, *sizes])
    return Split(*(np.arange(a, b) for a, b in pairwise(ends)))


def default_model(
    replicas: int, x_dim: int, y_dim: int, *, seed: int = 0, label: str = ""
) -> RatioModel:
    critic = build_critic("auto", replicas, x_dim, y_dim, hidden=(8, 4), label=label)
    critic.reset(replica_generators(seed, replicas))
    maps = critic.side_map(replicas, x_dim), critic.side_map(replicas, y_dim)
    return RatioModel(critic, *maps, [METHODS["pc"]] * replicas, "log_ratio").double()


def closed_form(x: Tensor, y: Tensor, splits: Sequence[Split], label: str = "") -> RatioModel:
    model = default_model(len(splits), x.shape[1], y.shape[1], label=label)
    fit_closed_form(model, SplitRows(x, y, splits))
    return model


def shout(model: RatioModel, replica: int, size: float, *, seed: int = 0) -> None:
    """Give one replica's network a last layer of drawn weights."""
    last, generator = model.critic.net.rest.layers[-1].weight, torch.Generator().manual_seed(seed)
    last.data[replica] = size * torch.randn(last[0].shape, generator=generator, dtype=last.dtype)
