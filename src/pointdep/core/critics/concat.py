"""The concat critic g([x, y]) of the paper.

With two hidden layers of ReLU, the part that runs once per cell has a backward pass written by
hand. The score of row i and column j, all with a leading replica dimension, is

    h1 = relu(hx_i + hy_j),   z = W'h1 + b,   s = w . relu(z) + c.

Its gradient needs little of what the forward pass made. With d = dL/ds, one number per cell, and
the gate g = [z > 0], the gradient of z is d w g: only the gate is left of z. So

    G = sum over cells of h1 (d g)',   dW = G w',   dw = column sums of W * G + b (sum of d g),
    dh1 = (d g) (w W)',

two products, whose operands are h1 and d g, instead of two products and passes over z, over
relu(z) and over its gradient.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor

from pointdep.core.critics.base import (
    ACTIVATIONS,
    Critic,
    ReplicaLinear,
    ReplicaMLP,
    SideNet,
    reset_layers,
)

_CACHED = 1 << 18  # numbers, a megabyte
_POOL: ContextVar[ThreadPoolExecutor | None] = ContextVar("_POOL", default=None)


class ConcatCritic(Critic):
    """A perceptron on [x, y].

    Its first layer is linear in [x, y], so W[x; y] = Wx x + Wy y: the halves are computed once per
    row and added once per cell, and the cost per cell starts at the second layer.
    """

    x_half: ReplicaLinear | SideNet
    y_half: ReplicaLinear | SideNet

    def __init__(
        self,
        replicas: int,
        x_dim: int,
        y_dim: int,
        *,
        hidden: Sequence[int] = (256, 256),
        activation: str = "silu",
    ) -> None:
        super().__init__(replicas)
        fan_in = x_dim + y_dim
        self.activation = ACTIVATIONS[activation]
        self.x_half = ReplicaLinear(replicas, x_dim, hidden[0], fan_in=fan_in)
        self.y_half = ReplicaLinear(replicas, y_dim, hidden[0], bias=False, fan_in=fan_in)
        self.rest = ReplicaMLP(replicas, [*hidden, 1], activation)
        self.fusable = len(hidden) == 2 and activation == "relu"
        self._width = sum(hidden)

    reset = reset_layers

    @torch.no_grad()
    def raise_scores(self, amounts: Tensor) -> None:
        bias = self.rest.layers[-1].bias
        assert isinstance(bias, Tensor)
        bias.add_(amounts.view(-1, 1, 1))

    def cell_width(self) -> int:
        return self._width

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        return self._finish(self.x_half(x) + self.y_half(y))

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        hx, hy = self.x_half(x), self.y_half(y)
        if self.fusable and self.pair_dtype is not None and x.ndim == 3:
            # Their order is that of the layers: weight, bias, weight, bias.
            return pair_scores(self.pair_dtype, hx, hy, *self.rest.parameters())
        # (R, ..., n, 1, h) + (R, ..., 1, m, h) -> (R, ..., n, m, h)
        return self._finish(hx.unsqueeze(-2) + hy.unsqueeze(-3))

    def _finish(self, first: Tensor) -> Tensor:
        """From the first layer's sums, (..., h), to scores, (...,)."""
        scores: Tensor = self.rest(self.activation(first))
        return scores.squeeze(-1)


def pair_scores(dtype: torch.dtype, hx: Tensor, hy: Tensor, *weights: Tensor) -> Tensor:
    """Scores (R, n, m) of hx: (R, n, h), hy: (R, m, h), products in `dtype`, sums in hx's own.

    weights: W (R, h, k), b (R, 1, k), w (R, k, 1), c (R, 1, 1).
    """
    way: Any = _AllAtOnce if hx.device.type == "cuda" else _FewByFew
    scores: Tensor = way.apply(dtype, hx, hy, *weights)
    return scores


class _FewByFew(torch.autograd.Function):
    """A few replicas after another: their layers fit a CPU's caches, those of all do not."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        parts = [(dtype, *part) for part in _few_by_few(tensors, *tensors[:2])]
        done = _of_each(_forward, parts)
        ctx.layers = [layers for _, *layers in done]
        return torch.cat([scores for scores, *_ in done])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        hx, hy = ctx.saved_tensors[:2]
        parts = _few_by_few([*grads, *ctx.saved_tensors], hx, hy)
        whole = [(*part, *layers) for part, layers in zip(parts, ctx.layers, strict=True)]
        done = _of_each(_backward, whole)
        return None, *(torch.cat(column) for column in zip(*done, strict=True))


class _AllAtOnce(torch.autograd.Function):
    """All replicas in one product, and what is between the products compiled."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        scores: Tensor
        scores, *ctx.layers = _compiled(_forward)(dtype, *tensors)
        return scores

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        return None, *_compiled(_backward)(*grads, *ctx.saved_tensors, *ctx.layers)


def _few_by_few(tensors: Sequence[Tensor], hx: Tensor, hy: Tensor) -> Iterator[list[Any]]:
    """The tensors, cut along the replicas so that a part's first layer is `_CACHED` numbers."""
    few = max(1, _CACHED // (hx.shape[1] * hy.shape[1] * hx.shape[2]))
    for first in range(0, len(hx), few):
        yield [tensor[first : first + few] for tensor in tensors]


def _forward(
    dtype: torch.dtype, hx: Tensor, hy: Tensor, *weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, and the two hidden layers, (R, n m, h) and (R, n m, k)."""
    weight, bias, last_weight, last_bias = weights
    first = (hx.unsqueeze(2) + hy.unsqueeze(1)).relu_().to(dtype).flatten(1, 2)
    second = torch.bmm(first, weight.to(dtype)).add_(bias).relu_()
    if len(hx) > 1 and hx.device.type == "cpu":
        # A batch of matrix-vector products is several times slower on a CPU than this.
        scores = (second * last_weight.transpose(1, 2)).sum(-1, keepdim=True) + last_bias
    else:
        scores = torch.bmm(second, last_weight.to(dtype)).to(hx.dtype) + last_bias
    return scores.view(len(hx), hx.shape[1], hy.shape[1]), first, second


def _backward(grad: Tensor, hx: Tensor, hy: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    """The gradients of the six inputs; rest: the weights, and both layers."""
    weight, bias, last_weight, _, first, second = rest
    last_row = last_weight.transpose(1, 2)
    spread = grad.flatten(1).unsqueeze(-1).to(first.dtype).expand_as(second)
    gated = _where_positive(spread, second)
    back = (weight * last_row).to(first.dtype).transpose(1, 2)
    cells = _where_positive(torch.bmm(gated, back), first)
    cells = cells.view(len(hx), hx.shape[1], hy.shape[1], -1)
    grad_x, grad_y = cells.sum(2, dtype=hx.dtype), cells.sum(1, dtype=hx.dtype)
    product = torch.bmm(first.transpose(1, 2), gated).to(hx.dtype)
    total = gated.sum(1, keepdim=True, dtype=hx.dtype)
    grad_last = (weight * product).sum(1, keepdim=True) + bias * total
    of_last = grad_last.transpose(1, 2), grad.sum((1, 2)).view(-1, 1, 1)
    return grad_x, grad_y, product * last_row, total * last_row, *of_last


def _where_positive(values: Tensor, gate: Tensor) -> Tensor:
    """The values where the gate is above zero, else zero: the gradient of relu."""
    kept: Tensor = torch.ops.aten.threshold_backward(values, gate, 0.0)
    return kept


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile, once for each function."""
    return torch.compile(function, dynamic=False)


@contextmanager
def one_part_a_thread() -> Iterator[None]:
    """Within it torch works on one thread, and `_of_each` on as many as torch had before.

    Threads that share the work of one small operation wait for each other at its end; where other
    work keeps one of them from running, that takes ten times as long. Threads with work of their
    own do not.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(before, "pair-layers", _keep_to_one_thread) as pool:
            token = _POOL.set(pool if before > 1 else None)
            try:
                yield
            finally:
                _POOL.reset(token)
    finally:
        torch.set_num_threads(before)


def _keep_to_one_thread() -> None:
    torch.get_num_threads()  # the first question in a thread sets the number to that of all
    torch.set_num_threads(1)


def _of_each(
    function: Callable[..., tuple[Tensor, ...]], parts: Sequence[tuple[Any, ...]]
) -> list[tuple[Tensor, ...]]:
    """function(*part) of each part, without gradients where the parts have threads of their own."""
    pool = _POOL.get()
    if pool is None:
        return [function(*part) for part in parts]

    def without_grad(part: tuple[Any, ...]) -> tuple[Tensor, ...]:
        with torch.no_grad():  # which is set for each thread by itself
            return function(*part)

    return list(pool.map(without_grad, parts))
