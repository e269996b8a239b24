"""RealNVP with additive couplings: invertible encoders, R of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from pointdep.core.critics.layers import ReplicaLinear, ReplicaMLP
from pointdep.errors import InputError, require_whole

KERNEL_SD = 1e-4
"""Standard deviation of the initial kernels, before the cut at two of them."""


class RealNVP(nn.Module):
    """R invertible maps of `dim` numbers: couplings that only shift, a permutation after each.

    A coupling leaves the first half of its input alone and adds to the second half a perceptron of
    the first, so the map keeps volume (its log-determinant is zero) and starts as little more than
    a permutation. Each replica has its own weights and its own permutations. Two encoders of equal
    `dim`, one for each view, run in half the kernels as one ``RealNVP(2 * R, dim)``.

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
        self.reset(generators or [torch.default_generator] * replicas)

    @torch.no_grad()
    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """Draw weights and permutations, replica r from ``generators[r]`` alone.

        The numbers are drawn on the generator's own device, which for many replicas of many
        couplings is worth choosing.
        """
        if len(generators) != self.replicas:
            raise InputError(f"{self.replicas} replicas need as many generators")
        for layer in self._layers():
            if layer.bias is not None:
                layer.bias.zero_()
        for r, generator in enumerate(generators):
            for layer in self._layers():
                kernel = layer.weight[r]
                kernel.copy_(_truncated_normal(kernel.shape, generator.device, generator))
            for permutation in self.permutations[:, r]:
                permutation.copy_(
                    torch.randperm(self.dim, generator=generator, device=generator.device)
                )

    def forward(self, x: Tensor) -> Tensor:
        """x: (R, n, dim), or (n, dim) that all replicas share -> codes (R, n, dim)."""
        x = self._input(x)
        for shift, permutation in zip(self.shifts, self.permutations, strict=True):
            first, second = torch.split(x, self.halves, -1)
            x = _permute(torch.cat([first, second + shift(first)], -1), permutation)
        return x

    def inverse(self, z: Tensor) -> Tensor:
        """The x of which z is the code. z: (R, n, dim) or (n, dim) -> (R, n, dim)."""
        z = self._input(z)
        backwards = self.permutations.argsort(-1).flip(0)
        for shift, permutation in zip(reversed(self.shifts), backwards, strict=True):
            first, second = torch.split(_permute(z, permutation), self.halves, -1)
            z = torch.cat([first, second - shift(first)], -1)
        return z

    def _input(self, x: Tensor) -> Tensor:
        shared, own = x.ndim == 2, x.ndim == 3 and len(x) == self.replicas
        if not (shared or own) or x.shape[-1] != self.dim:
            raise InputError(
                f"RealNVP of {self.replicas} replicas takes (n, {self.dim}) or ({self.replicas}, "
                f"n, {self.dim}), got {tuple(x.shape)}"
            )
        weight = next(self.parameters())
        return x.to(weight.dtype).expand(self.replicas, -1, -1)

    def _layers(self) -> Iterator[ReplicaLinear]:
        return (module for module in self.modules() if isinstance(module, ReplicaLinear))


def _permute(x: Tensor, permutation: Tensor) -> Tensor:
    """Column k of the answer is column permutation[r, k]. x: (R, n, dim), permutation: (R, dim)."""
    # Moves R x n x dim numbers; folded into the weights it would move R x dim x hidden of them.
    return x.gather(-1, permutation.unsqueeze(1).expand_as(x))


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
