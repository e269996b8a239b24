"""What is done to the scores of one block: pure functions, each one kernel or two on a GPU.

scores: (l, r, c); own_x: (l, r) and own_y: (l, c) are added to them; weights broadcast against
them, and are numbers or a mask; None where there is nothing to add or all weights are one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cache, partial
from types import FunctionType
from typing import Any, Protocol

import torch
from torch import Tensor

from pointdep.core.blocked.cells import Elementwise, Sloped

Optional = Tensor | None
Step = Callable[..., Any]


def sum_rows(
    function: Elementwise, scores: Tensor, own_x: Optional, own_y: Optional, weights: Optional
) -> Tensor:
    """The weighted sums of function over each row, (l, r)."""
    return _weighted(function(_with_own(scores, own_x, own_y)), weights).sum(-1)


def sums_and_slopes(
    cell: Sloped, scores: Tensor, own_x: Optional, own_y: Optional, weights: Optional
) -> tuple[Tensor, Tensor, Tensor]:
    """The same of cell, the sums of its slopes, (l, r), and the weighted slopes, (l, r, c)."""
    value, slope = cell(_with_own(scores, own_x, own_y))
    slope = _weighted(slope, weights)
    return _weighted(value, weights).sum(-1), slope.sum(-1), slope


def log_sums(scores: Tensor, own_x: Optional, own_y: Optional, weights: Optional) -> Tensor:
    """log of the weighted sum of exp over each row, (l, r)."""
    scores = _with_own(scores, own_x, own_y)
    if weights is None:
        return torch.logsumexp(scores, -1)
    if weights.dtype != torch.bool:
        scores = scores + torch.where(weights > 0, weights, 1.0).log().to(scores.dtype)
    return torch.logsumexp(torch.where(weights > 0, scores, -math.inf), -1)


def softmax_slopes(
    scores: Tensor,
    own_x: Optional,
    own_y: Optional,
    weights: Optional,
    sums: Tensor,
    gradient: Tensor,
) -> Tensor:
    """The slopes of `log_sums`, given those of whole rows and their gradients, (l, r) each."""
    scores = _with_own(scores, own_x, own_y) - sums.unsqueeze(-1)
    return _weighted(scores.exp() * gradient.unsqueeze(-1), weights)


def _with_own(scores: Tensor, own_x: Optional, own_y: Optional) -> Tensor:
    if own_x is not None:
        scores = scores + own_x.unsqueeze(-1)
    return scores if own_y is None else scores + own_y.unsqueeze(-2)


def _weighted(values: Tensor, weights: Optional) -> Tensor:
    """Times the weights; whatever a cell of weight zero holds is forgotten."""
    if weights is None:
        return values
    if weights.dtype == torch.bool:
        return torch.where(weights, values, 0.0)
    return torch.where(weights > 0, values * weights.to(values.dtype), 0.0)


class _HasSize(Protocol):
    @property
    def compiled(self) -> bool: ...

    @property
    def shape(self) -> tuple[int, int, int]: ...


def fused(step: Step, cell: Elementwise | Sloped | None, block: _HasSize) -> Step:
    """The step, compiled where that pays."""
    if block.compiled:
        return _compiled(step, cell, block.shape)
    return step if cell is None else partial(step, cell)


@cache
def _compiled(
    step: Step, cell: Elementwise | Sloped | None, shape: tuple[int, int, int]
) -> _Compiled:
    return _Compiled(step, cell, shape)


class _Compiled:
    """A step by torch.compile; as it stands, from the day that fails on this machine."""

    def __init__(
        self, step: Step, cell: Elementwise | Sloped | None, shape: tuple[int, int, int]
    ) -> None:
        self.plain = step if cell is None else partial(step, cell)
        # torch counts how often a function was compiled, and gives up at eight: one for each cell
        # and each size of a block.
        name = "_".join(
            [step.__name__, *([] if cell is None else [cell.__name__]), *map(str, shape)]
        )
        own = FunctionType(step.__code__.replace(co_name=name), step.__globals__, name)
        compiled = torch.compile(own, dynamic=False)
        self.compiled: Step | None = compiled if cell is None else partial(compiled, cell)

    def __call__(self, *tensors: Tensor | None) -> Any:
        if self.compiled is None:
            return self.plain(*tensors)
        try:
            return self.compiled(*tensors)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a missing compiler, driver or Triton raises
            lines = str(error).strip().splitlines() or [type(error).__name__]
            warnings.warn(
                f"torch.compile failed ({lines[0]}): large batches are computed without it, more "
                "slowly",
                RuntimeWarning,
                stacklevel=2,
            )
            self.compiled = None
            return self.plain(*tensors)
