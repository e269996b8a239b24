"""Linear layers and perceptrons with one set of weights per replica."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {"silu": F.silu, "relu": F.relu, "gelu": F.gelu, "tanh": torch.tanh, "elu": F.elu}
)


class ReplicaLinear(nn.Module):
    """x: (R, ..., in) -> (R, ..., out), replica r with its own weight and bias.

    `fan_in` sets the scale of the initial weights where the layer is one half of a wider one.
    """

    def __init__(
        self, replicas: int, inputs: int, outputs: int, *, bias: bool = True, fan_in: int = 0
    ) -> None:
        super().__init__()
        self.fan_in = fan_in or inputs
        self.weight = nn.Parameter(torch.zeros(replicas, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(replicas, 1, outputs)) if bias else None

    @torch.no_grad()
    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """PyTorch's own default for a linear layer, uniform within +-1/sqrt(fan_in)."""
        bound = 1.0 / math.sqrt(self.fan_in)
        for parameter in self.parameters():
            for slice_, generator in zip(parameter, generators, strict=True):
                drawn = torch.rand(slice_.shape, generator=generator, dtype=torch.float32)
                slice_.copy_((2.0 * drawn - 1.0) * bound)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(x.shape[0], -1, x.shape[-1])
        replicas, _, outputs = self.weight.shape
        if outputs == 1 and replicas > 1 and self.bias is not None and flat.device.type == "cpu":
            # A batch of matrix-vector products is several times slower on a CPU than this.
            out = (flat * self.weight.transpose(1, 2)).sum(-1, keepdim=True) + self.bias
        elif self.bias is None:
            out = torch.bmm(flat, self.weight)
        else:
            out = torch.baddbmm(self.bias, flat, self.weight)
        return out.view(*x.shape[:-1], outputs)


def reset_layers(module: nn.Module, generators: Sequence[torch.Generator]) -> None:
    """Draw every layer of the module, in their order, replica r from its own generator."""
    for layer in module.modules():
        if isinstance(layer, ReplicaLinear):
            layer.reset(generators)


class ReplicaMLP(nn.Module):
    """A perceptron through `widths`, the activation between its layers and not after the last."""

    def __init__(self, replicas: int, widths: Sequence[int], activation: str) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.layers = nn.ModuleList(ReplicaLinear(replicas, a, b) for a, b in pairwise(widths))

    reset = reset_layers

    def forward(self, x: Tensor) -> Tensor:
        for position, layer in enumerate(self.layers):
            x = layer(self.activation(x) if position else x)
        return x


class SideNet(nn.Module):
    """One side on its way into the first layer: linear, and a hidden layer beside it.

    It runs once per row where the layers after it run once per pair, so depth is cheap here.
    """

    def __init__(self, replicas: int, dim: int, width: int, fan_in: int, activation: str) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.straight = ReplicaLinear(replicas, dim, width, fan_in=fan_in)
        self.first = ReplicaLinear(replicas, dim, width)
        self.second = ReplicaLinear(replicas, width, width, bias=False)

    reset = reset_layers

    def forward(self, x: Tensor) -> Tensor:
        beside = self.second(self.activation(self.first(x)))
        whole: Tensor = self.straight(x) + beside
        return whole
