"""Critics: networks that score pairs, with a leading replica dimension on every weight."""

from __future__ import annotations

from pointdep.core.critics.base import Critic
from pointdep.core.critics.build import CRITICS, build_critic, replica_generators
from pointdep.core.critics.concat import ConcatCritic
from pointdep.core.critics.inner import BilinearCritic, InnerProductCritic, SeparableCritic
from pointdep.core.critics.layers import ACTIVATIONS, ReplicaLinear, ReplicaMLP
from pointdep.core.critics.user import EncoderCritic, ModuleCritic

__all__ = [
    "ACTIVATIONS",
    "CRITICS",
    "BilinearCritic",
    "ConcatCritic",
    "Critic",
    "EncoderCritic",
    "InnerProductCritic",
    "ModuleCritic",
    "ReplicaLinear",
    "ReplicaMLP",
    "SeparableCritic",
    "build_critic",
    "replica_generators",
]
