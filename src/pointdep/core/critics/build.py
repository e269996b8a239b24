"""From what a user writes as ``critic=`` to a critic with R replicas."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from operator import index
from typing import Any

import torch
from torch import nn

from pointdep.core.critics import CRITICS
from pointdep.core.critics.base import Critic
from pointdep.core.critics.layers import ACTIVATIONS
from pointdep.core.critics.user import EncoderCritic, ModuleCritic
from pointdep.errors import InputError, require_whole, unknown_name


def critic_class(critic: Any, *, wide: bool = False) -> type[Critic]:
    """The class of a critic as users choose it: by name, import path, class or modules.

    wide: whether the data have many columns.
    """
    if isinstance(critic, Critic):
        raise InputError(f"give the class, critic={type(critic).__name__}, not an object of it")
    if isinstance(critic, nn.Module):
        return ModuleCritic
    if isinstance(critic, tuple | list):
        if len(critic) != 2 or not all(isinstance(part, nn.Module) for part in critic):
            raise InputError("critic=(encoder_x, encoder_y) takes exactly two torch modules")
        return EncoderCritic
    if isinstance(critic, type) and issubclass(critic, Critic):
        return critic.for_data(wide=wide)
    if callable(critic):
        raise InputError(
            "a critic of your own must be a torch.nn.Module or a subclass of pointdep.Critic"
        )
    return CRITICS.find(critic).for_data(wide=wide)


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
    """A critic by name or class, the user's module, or the product of the user's two encoders.

    wide: make "auto" the default critic of data with many columns.
    """
    kind: Any = critic_class(critic, wide=wide)
    if not isinstance(critic, str | type):
        modules = (critic,) if isinstance(critic, nn.Module) else critic
        own: Critic = kind(replicas, *modules).float()
        if not any(p.requires_grad for p in own.parameters()):
            raise InputError("the critic has no parameters to train")
        return own
    if activation not in ACTIVATIONS:
        raise unknown_name("activation", activation, ACTIVATIONS)
    options: dict[str, Any] = {
        "hidden": _widths(hidden),
        "embedding_dim": embedding_dim,
        "activation": activation,
    }
    takes = inspect.signature(kind).parameters
    options = {n: value for n, value in options.items() if n in takes and value is not None}
    if "embedding_dim" in options:
        require_whole("embedding_dim", embedding_dim)
    made: Critic = kind(replicas, x_dim, y_dim, **options)
    return made


def replica_generators(seed: int, replicas: int) -> list[torch.Generator]:
    """One generator per replica, so that its initial weights do not depend on the others."""
    return [torch.Generator().manual_seed(seed * 1_000_003 + r) for r in range(replicas)]


def _widths(hidden: Sequence[int] | str) -> list[int] | None:
    """Layer widths as whole numbers; None where they are left to the critic."""
    if isinstance(hidden, str):
        if hidden != "auto":
            raise InputError(f"hidden={hidden!r} must be 'auto' or layer widths such as (256, 64)")
        return None
    try:
        widths = [index(width) for width in hidden]
    except TypeError:
        raise InputError(
            f"hidden={hidden!r} must be a sequence of layer widths, such as (256, 256)"
        ) from None
    if not widths or min(widths) < 1:
        raise InputError(f"hidden={hidden!r} must name at least one layer of at least one unit")
    return widths
