"""RealNVP with additive couplings: invertible encoders, R of them at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
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
        couplings: int = 30,
        hidden: Sequence[int] = (512, 512),
        generators: Sequence[torch.Generator] | None = None,
    ) -> None:
        """generators: as `reset` takes them; None draws from torch's global one."""
        super().__init__()
        require_whole("replicas", replicas)
        require_whole("dim", dim, least=2)
        require_whole("couplings", couplings)
        self.replicas, self.dim, self.feature_dim = replicas, dim, dim
        self.halves = [dim // 2, dim - dim // 2]
        widths = [self.halves[0], *hidden, self.halves[1]]
        self.shifts = nn.ModuleList(ReplicaMLP(replicas, widths, "relu") for _ in range(couplings))
        # In a buffer, as the weights mean nothing without them: (couplings, R, dim).
        order = torch.arange(dim).expand(couplings, replicas, dim)
        self.register_buffer("permutations", order.clone())
        self._couple = _couple
        self.reset(generators or [torch.default_generator] * replicas)

    @torch.no_grad()
    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """Draw weights and permutations, replica r from ``generators[r]`` alone, in parallel.

        A generator that several replicas share makes them wait for one another. The numbers are
        drawn on the generator's own device, which for many replicas is worth choosing.
        """
        if len(generators) != self.replicas:
            raise InputError(f"{self.replicas} replicas need as many generators")
        for layer in self._layers():
            if layer.bias is not None:
                layer.bias.zero_()
        own = len(set(map(id, generators))) == len(generators)
        with ThreadPoolExecutor(min(len(generators), os.cpu_count() or 1) if own else 1) as pool:
            list(pool.map(self._draw, range(self.replicas), generators))

    @torch.no_grad()
    def _draw(self, replica: int, generator: torch.Generator) -> None:
        """In a thread of its own: a generator on the CPU is slow, and replicas may be many."""
        for layer in self._layers():
            kernel = layer.weight[replica]
            kernel.copy_(_truncated_normal(kernel.shape, generator.device, generator))
        for permutation in self.permutations[:, replica]:
            permutation.copy_(
                torch.randperm(self.dim, generator=generator, device=generator.device)
            )

    def forward(self, x: Tensor, replicas: slice = _ALL) -> Tensor:
        """x: (R, n, dim), or (n, dim) that all replicas share -> codes (R, n, dim).

        replicas: those of which there are R; all of them unless you say so.
        """
        permutations = self.permutations[:, replicas]
        x = self._input(x, permutations.shape[1])
        couple = self._couple if self.training else _couple
        for shift, permutation, inverse in zip(
            self.shifts, permutations, _inverse(permutations), strict=True
        ):
            assert isinstance(shift, ReplicaMLP)
            x = couple(x, _weights(shift, replicas), permutation, inverse)
        return x

    def inverse(self, z: Tensor) -> Tensor:
        """The x of which z is the code. z: (R, n, dim) or (n, dim) -> (R, n, dim)."""
        z = self._input(z, self.replicas)
        couplings = zip(self.shifts, self.permutations, _inverse(self.permutations), strict=True)
        for shift, permutation, inverse in reversed(list(couplings)):
            assert isinstance(shift, ReplicaMLP)
            first, second = torch.split(_permute(z, inverse, permutation), self.halves, -1)
            z = torch.cat([first, second - _shift(first, _weights(shift, _ALL))], -1)
        return z

    def compile_coupling(self) -> None:
        """Have the coupling compiled at its first use in training, for all of them together."""
        self._couple = torch.compile(_couple, dynamic=False)

    def _input(self, x: Tensor, replicas: int) -> Tensor:
        shared, own = x.ndim == 2, x.ndim == 3 and len(x) == replicas
        if not (shared or own) or x.shape[-1] != self.dim:
            raise InputError(
                f"RealNVP of {replicas} replicas takes (n, {self.dim}) or ({replicas}, "
                f"n, {self.dim}), got {tuple(x.shape)}"
            )
        weight = next(self.parameters())
        return x.to(weight.dtype).expand(replicas, -1, -1)

    def _layers(self) -> Iterator[ReplicaLinear]:
        return (module for module in self.modules() if isinstance(module, ReplicaLinear))


_Weights = tuple[tuple[Tensor, Tensor], ...]


def _weights(shift: ReplicaMLP, replicas: slice) -> _Weights:
    """(weight, bias) of each layer, of some of the replicas."""
    found = []
    for layer in shift.layers:
        assert isinstance(layer, ReplicaLinear)
        assert layer.bias is not None
        whole = replicas == _ALL
        own = (part if whole else part[replicas] for part in (layer.weight, layer.bias))
        found.append((next(own), next(own)))
    return tuple(found)


def _couple(x: Tensor, weights: _Weights, permutation: Tensor, inverse: Tensor) -> Tensor:
    """One coupling and the permutation after it. x: (R, n, dim)."""
    width = weights[0][0].shape[1]
    first, second = x[..., :width], x[..., width:]
    shifted = second + _shift(first, weights)
    return _permute(torch.cat([first, shifted], -1), permutation, inverse)


def _shift(first: Tensor, weights: _Weights) -> Tensor:
    """The perceptron of a coupling, its biases added in what its products come in."""
    for position, (weight, bias) in enumerate(weights):
        product = torch.bmm(first.relu() if position else first, weight)
        first = product + bias.to(product.dtype)
    return first


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


def _truncated_normal(
    shape: torch.Size, device: torch.device, generator: torch.Generator | None = None
) -> Tensor:
    """Normal numbers, those beyond two standard deviations drawn again."""
    drawn = torch.randn(shape, generator=generator, device=device)
    numbers = drawn.view(-1)
    beyond = (numbers.abs() > 2.0).nonzero().squeeze(1)
    while len(beyond):
        again = torch.randn(len(beyond), generator=generator, device=device)
        numbers[beyond] = again
        beyond = beyond[again.abs() > 2.0]
    return drawn.mul_(KERNEL_SD)
