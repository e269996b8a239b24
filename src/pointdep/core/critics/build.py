"""From what a user writes as ``critic=`` to a critic with R replicas."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import torch
from torch import nn

from pointdep.core.critics.base import Critic
from pointdep.core.critics.concat import ConcatCritic
from pointdep.core.critics.inner import BilinearCritic, InnerProductCritic, SeparableCritic
from pointdep.core.critics.layers import ACTIVATIONS
from pointdep.core.critics.residual import ResidualCritic
from pointdep.core.critics.towers import TowersCritic
from pointdep.core.critics.user import EncoderCritic, ModuleCritic
from pointdep.errors import InputError, require_whole, unknown_name

CRITICS = ("auto", "concat", "separable", "bilinear", "inner")
"""The names `PointwiseDependency(critic=...)` takes."""

# The default critic has more layers on each side, and less to learn: its pairs need fewer units.
_HIDDEN, _HIDDEN_AUTO = (256, 256), (256, 64)


def build_critic(
    critic: Any,
    replicas: int,
    x_dim: int,
    y_dim: int,
    *,
    hidden: Sequence[int] | str = "auto",
    embedding_dim: int = 64,
    activation: str = "silu",
    wide: bool = False,
) -> Critic:
    """A named critic, the user's module, or the inner product of the user's two encoders.

    wide: make "auto" the default critic of data with many columns.
    """
    if isinstance(critic, nn.Module):
        return _trainable(ModuleCritic(replicas, critic))
    if isinstance(critic, tuple | list):
        if len(critic) != 2 or not all(isinstance(part, nn.Module) for part in critic):
            raise InputError("critic=(encoder_x, encoder_y) takes exactly two torch modules")
        return _trainable(EncoderCritic(replicas, critic[0], critic[1]))
    if callable(critic):
        raise InputError("a critic of your own must be a torch.nn.Module")
    if not isinstance(critic, str) or critic not in CRITICS:
        raise unknown_name("critic", critic, CRITICS)
    if activation not in ACTIVATIONS:
        raise unknown_name("activation", activation, ACTIVATIONS)
    widths = _widths(_HIDDEN_AUTO if critic == "auto" else _HIDDEN, hidden)
    if critic == "separable" or (critic == "auto" and wide):
        require_whole("embedding_dim", embedding_dim)
        towers = SeparableCritic if critic == "separable" else TowersCritic
        return towers(
            replicas,
            x_dim,
            y_dim,
            hidden=widths,
            embedding_dim=embedding_dim,
            activation=activation,
        )
    if critic in {"auto", "concat"}:
        kind = ResidualCritic if critic == "auto" else ConcatCritic
        return kind(replicas, x_dim, y_dim, hidden=widths, activation=activation)
    if critic == "bilinear":
        return BilinearCritic(replicas, x_dim, y_dim)
    if x_dim != y_dim:
        raise InputError(
            f"critic='inner' needs x and y of one dimension, got {x_dim} and {y_dim}: "
            "use 'bilinear' or 'separable'"
        )
    return InnerProductCritic(replicas, x_dim)


def replica_generators(seed: int, replicas: int) -> list[torch.Generator]:
    """One generator per replica, so that its initial weights do not depend on the others."""
    return [torch.Generator().manual_seed(seed * 1_000_003 + r) for r in range(replicas)]


def _widths(default: Sequence[int], hidden: Sequence[int] | str) -> list[int]:
    if isinstance(hidden, str):
        if hidden != "auto":
            raise InputError(f"hidden={hidden!r} must be 'auto' or layer widths such as (256, 64)")
        return list(default)
    try:
        widths = [index(width) for width in hidden]
    except TypeError:
        raise InputError(
            f"hidden={hidden!r} must be a sequence of layer widths, such as (256, 256)"
        ) from None
    if not widths or min(widths) < 1:
        raise InputError(f"hidden={hidden!r} must name at least one layer of at least one unit")
    return widths


def _trainable(critic: Critic) -> Critic:
    critic.float()
    if not any(p.requires_grad for p in critic.parameters()):
        raise InputError("the critic has no parameters to train")
    return critic
