"""The inference column of Table 1, where it is not the objective itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from pointdep.core import objectives
from pointdep.core.weights import joint_mean


def mean_of(read_out: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """E_J[read_out(s)], Eq. (7): the plug-in estimate, with the options of the read-out."""

    def plug_in(
        scores: Tensor,
        *,
        joint: Tensor | None = None,
        product: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        del product  # part of the common signature; the plug-in needs joint samples only
        return joint_mean(read_out(scores, **options), joint)

    # Methods bind the options that a function names, so the read-out's are named here too.
    own = list(inspect.signature(plug_in).parameters.values())[:-1]
    options = list(inspect.signature(read_out).parameters.values())[1:]
    plug_in.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
    return plug_in


def js(scores: Tensor, *, joint: Tensor | None = None, product: Tensor | None = None) -> Tensor:
    """NWJ on s + 1: 1 + E_J[s] - E_M[exp s]."""
    return objectives.nwj(scores + 1.0, joint=joint, product=product)
