"""RealNVP with additive couplings: invertible encoders, R of them at once."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from pointdep.core.critics.base import ReplicaLinear, ReplicaMLP
from pointdep.errors import InputError, require_whole

KERNEL_SD = 1e-4
"""Standard deviation of the initial kernels, before the cut at two of them."""

_ALL = slice(None)


class RealNVP(nn.Module):
    """R invertible maps of `dim` numbers: couplings that only shift, a permutation after each.

    A coupling leaves the first half of its input alone and adds to the second half a perceptron of
    the first, so the map keeps volume (its log-determinant is zero) and starts as little more than
    a permutation. Each replica has its own weights and its own permutations. Two encoders of equal
    `dim`, one for each view, run in half the kernels as one ``RealNVP(2 * R, dim)``, and `forward`
    takes a slice of replicas to run one of the two alone.

    Under autocast the perceptrons run in half precision; what they are added to stays as it is.
    """

    permutations: Tensor

    def __init__(
        self,
        replicas: int,
        dim: int,
        *,
        couplings: int,
        hidden: Sequence[int],
        generators: Sequence[torch.Generator],
    ) -> None:
        """generators: one per replica, which draws its weights and permutations alone."""
        super().__init__()
        require_whole("dim", dim, least=2)
        self.dim = dim
        widths = [dim // 2, *hidden, dim - dim // 2]
        self.shifts = nn.ModuleList(ReplicaMLP(replicas, widths, "relu") for _ in range(couplings))
        # In a buffer, as the weights mean nothing without them: (couplings, R, dim).
        order = torch.arange(dim).expand(couplings, replicas, dim)
        self.register_buffer("permutations", order.clone())
        self._couple = _couple
        # A generator on the CPU is slow, and replicas may be many.
        with ThreadPoolExecutor(min(replicas, os.cpu_count() or 1)) as pool:
            list(pool.map(self._draw, range(replicas), generators))

    @torch.no_grad()
    def _draw(self, replica: int, generator: torch.Generator) -> None:
        """Weights and permutations of one replica, in a thread of its own; biases are zero."""
        for layer in self.modules():
            if isinstance(layer, ReplicaLinear):
                kernel = layer.weight[replica]
                kernel.copy_(_truncated_normal(kernel.shape, generator))
                if layer.bias is not None:
                    layer.bias[replica] = 0.0
        for permutation in self.permutations[:, replica]:
            permutation.copy_(torch.randperm(self.dim, generator=generator))

    def forward(self, x: Tensor, replicas: slice = _ALL) -> Tensor:
        """x: (R, n, dim), or (n, dim) that all replicas share -> codes (R, n, dim).

        replicas: those of which there are R; all of them unless you say so.
        """
        permutations = self.permutations[:, replicas]
        count = permutations.shape[1]
        shared, own = x.ndim == 2, x.ndim == 3 and len(x) == count
        if not (shared or own) or x.shape[-1] != self.dim:
            raise InputError(f"RealNVP of {count} takes (..., n, {self.dim}), got {tuple(x.shape)}")
        x = x.to(next(self.parameters()).dtype).expand(count, -1, -1)
        couple = self._couple if self.training else _couple
        couplings = zip(self.shifts, permutations, _inverse(permutations), strict=True)
        for shift, permutation, inverse in couplings:
            assert isinstance(shift, ReplicaMLP)
            x = couple(x, _weights(shift, replicas), permutation, inverse)
        return x

    def compile_coupling(self) -> None:
        """Have the coupling compiled at its first use in training, for all of them together."""
        self._couple = torch.compile(_couple, dynamic=False)


_Weights = tuple[tuple[Tensor, Tensor], ...]


def _weights(shift: ReplicaMLP, replicas: slice) -> _Weights:
    """(weight, bias) of each layer, of some of the replicas."""
    found = []
    for layer in shift.layers:
        assert isinstance(layer, ReplicaLinear)
        assert layer.bias is not None
        own = layer.weight, layer.bias
        # A slice of all of them would cost a copy in the backward pass.
        found.append(own if replicas == _ALL else (own[0][replicas], own[1][replicas]))
    return tuple(found)


def _couple(x: Tensor, weights: _Weights, permutation: Tensor, inverse: Tensor) -> Tensor:
    """One coupling and the permutation after it. x: (R, n, dim)."""
    width = weights[0][0].shape[1]
    first, second = x[..., :width], x[..., width:]
    shift = first
    for position, (weight, bias) in enumerate(weights):
        product = torch.bmm(shift.relu() if position else shift, weight)
        shift = product + bias.to(product.dtype)  # in what the products come in
    return _permute(torch.cat([first, second + shift], -1), permutation, inverse)


class _Permute(torch.autograd.Function):
    """Columns by index; their gradients by the inverse index, not by adding them up in turns."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, permutation: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(permutation, inverse)
        # Moves R x n x dim numbers; in the weights it would move R x dim x hidden of them.
        return x.gather(-1, permutation.unsqueeze(1).expand_as(x))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        permutation, inverse = ctx.saved_tensors
        return _permute(gradients[0], inverse, permutation), None, None


def _permute(x: Tensor, permutation: Tensor, inverse: Tensor) -> Tensor:
    """Column k of the answer is column permutation[r, k]. x: (R, n, dim), permutation: (R, dim)."""
    moved: Tensor = _Permute.apply(x, permutation, inverse)  # type: ignore[no-untyped-call]
    return moved


def _inverse(permutations: Tensor) -> Tensor:
    """Of each row in the last dimension."""
    order = torch.arange(permutations.shape[-1], device=permutations.device)
    return torch.empty_like(permutations).scatter_(-1, permutations, order.expand_as(permutations))


def _truncated_normal(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Normal numbers, those beyond two standard deviations drawn again."""
    drawn = torch.randn(shape, generator=generator)
    numbers = drawn.view(-1)
    beyond = (numbers.abs() > 2.0).nonzero().squeeze(1)
    while len(beyond):
        again = torch.randn(len(beyond), generator=generator)
        numbers[beyond] = again
        beyond = beyond[again.abs() > 2.0]
    return drawn.mul_(KERNEL_SD)
