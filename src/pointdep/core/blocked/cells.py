"""What is summed over cells, as functions of one score, each with its slope."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Elementwise = Callable[[Tensor], Tensor]
Sloped = Callable[[Tensor], tuple[Tensor, Tensor]]


def softplus(scores: Tensor) -> Tensor:
    """log(1 + exp s), without the shortcut of `F.softplus` that costs float64 its digits."""
    return -F.logsigmoid(-scores)


def _identity(scores: Tensor) -> tuple[Tensor, Tensor]:
    return scores, torch.ones_like(scores)


def _exp(scores: Tensor) -> tuple[Tensor, Tensor]:
    value = scores.exp()
    return value, value


def _softplus(scores: Tensor) -> tuple[Tensor, Tensor]:
    return softplus(scores), torch.sigmoid(scores)


def _logsigmoid(scores: Tensor) -> tuple[Tensor, Tensor]:
    return F.logsigmoid(scores), torch.sigmoid(-scores)


def _square(scores: Tensor) -> tuple[Tensor, Tensor]:
    return scores * scores, 2.0 * scores


_SLOPED: dict[Elementwise | None, Sloped] = {
    None: _identity,
    torch.exp: _exp,
    torch.square: _square,
    F.logsigmoid: _logsigmoid,
    softplus: _softplus,
}


def sloped(function: Elementwise | None) -> Sloped:
    """scores -> (function, its derivative); None stands for the score itself."""
    return _SLOPED[function]


def identity(scores: Tensor) -> Tensor:
    return scores
