"""What every critic offers: scores, the handling of its replicas, and what it can do."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pointdep.core.transforms import CanonicalMap, Standardizer

if TYPE_CHECKING:
    from pointdep.core.linear import Canonical

Factors = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
"""Vectors of x and of y, whose inner products are scores, and the terms of x and of y alone."""


class Critic(nn.Module):
    """R critics in one: x and y carry a leading replica dimension, and so does every parameter.

    A subclass is made as ``cls(replicas, x_dim, y_dim)``, with those of ``hidden``,
    ``embedding_dim`` and ``activation`` that its ``__init__`` names. It gives `reset`, and either
    `pairs` and `matrix` or, where the score is an inner product, `inner_x` and `inner_y`. Its
    parameters and buffers either all have the replica dimension first (``stacked = True``) or lie
    in ``self.copies``, one module per replica. The class attributes below declare what it can do;
    the rest of the library asks them and nothing else.

    Parameters
    ----------
    replicas : int
        How many critics are trained side by side.

    Examples
    --------
    A critic that scores pairs by the distance of their embeddings:

    >>> import torch
    >>> from pointdep import Critic
    >>> from pointdep.core.critics import ReplicaMLP
    >>> class Distance(Critic):
    ...     def __init__(self, replicas, x_dim, y_dim, *, hidden=(64,)):
    ...         super().__init__(replicas)
    ...         self.x_net = ReplicaMLP(replicas, [x_dim, *hidden, 8], "silu")
    ...         self.y_net = ReplicaMLP(replicas, [y_dim, *hidden, 8], "silu")
    ...     def reset(self, generators):
    ...         self.x_net.reset(generators)
    ...         self.y_net.reset(generators)
    ...     def pairs(self, x, y):
    ...         return -(self.x_net(x) - self.y_net(y)).square().sum(-1)
    ...     def matrix(self, x, y):
    ...         return -torch.cdist(self.x_net(x), self.y_net(y)).square()
    >>> Distance(2, 3, 5).matrix(torch.zeros(2, 4, 3), torch.zeros(2, 6, 5)).shape
    torch.Size([2, 4, 6])
    """

    ranked = False  # it is given columns as normal scores of their ranks
    side_map: type[Standardizer] | type[CanonicalMap] = Standardizer
    """How the columns of each side are prepared."""
    # What it is and gives.
    models_log_ratio = False  # whatever the method, its output is log r
    default_activation = "silu"  # where it is left to the critic
    wide = False  # made for data with many columns
    stacked = True
    draws = False  # may use random numbers in training, as dropout does
    informed = False  # the weights it starts from are an estimate already
    has_inner = False  # `inner_x` and `inner_y` are there: it can be searched
    separable = False  # `factors` are there, in training too: all pairs cost one matrix product
    has_closed_form = False  # `closed_form`, `silence`, `set_canonical` and `correlations` are
    label = ""  # "x" or "y" if that side is one column of categories and the other has numbers
    shrunk = False  # its correlations are smaller than those of the data, which are not Gaussian
    screened = False  # its closed form leaves out columns uncorrelated with the other side
    is_table = False  # of two columns of categories, which come as numbers; nothing is trained
    is_mixture = False  # `set_mixture` weighs closed form and network after training
    fusable = False  # `pair_dtype` sets the type of the matrix products of `matrix`
    pair_dtype: torch.dtype | None = None
    # Of a batch that several processes share: its rows, and which of them are given here.
    batch_part: tuple[int, slice] | None = None
    copies: nn.ModuleList  # one module per replica, if it is not stacked
    correlations: Tensor  # (R, k), the canonical correlations of a closed form
    unrelated: Tensor  # (R, 1), the share of pairs that its closed form takes for unrelated

    def __init__(self, replicas: int) -> None:
        super().__init__()
        self.replicas = replicas

    @classmethod
    def for_data(cls, *, wide: bool) -> type[Critic]:
        """The class to make for data with few or with many (`wide`) columns."""
        del wide
        return cls

    @classmethod
    def for_table(cls) -> type[Critic]:
        """The class to make for two columns of many categories."""
        return cls

    @classmethod
    def hidden_for(cls, rows: int, columns: int) -> Sequence[int] | str:
        """Widths of the layers where they are left to the critic; "auto": those of `__init__`.

        columns: of the wider side.
        """
        del rows, columns
        return "auto"

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """Draw initial weights, replica r from ``generators[r]`` alone."""

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Scores of the pairs. x: (R, n, dx), y: (R, n, dy) -> (R, n)."""
        vector_x, vector_y, own_x, own_y = self.factors(x, y)
        scores = (vector_x * vector_y).sum(-1)
        scores = scores if own_x is None else scores + own_x
        return scores if own_y is None else scores + own_y

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        """Scores of all pairs. x: (R, ..., n, dx), y: (R, ..., m, dy) -> (R, ..., n, m)."""
        return inner_matrix(*self.factors(x, y))

    def factors(self, x: Tensor, y: Tensor) -> Factors:
        """What `matrix` is made of: vectors of x and of y, and the terms of each alone.

        x: (R, ..., n, dx), y: (R, ..., m, dy) -> (R, ..., n, e), (R, ..., m, e), (R, ..., n) and
        (R, ..., m), None for a term that is zero.
        """
        vector_x, own_x = self.inner_x(x)
        vector_y, own_y = self.inner_y(y)
        return vector_x, vector_y, own_x, own_y

    @property
    def inner_is_all(self) -> bool:
        """Whether the score is what `inner_x` and `inner_y` give, and nothing besides."""
        return self.has_inner

    def inner_x(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What of x meets y in an inner product, (R, n, e), and the term of x alone, (R, n).

        The score, or the part of it that can be searched, is ``vector_x . vector_y + own_x +
        own_y``. x: (R, n, dx), and (R, ..., n, dx) of a separable critic.
        """
        raise NotImplementedError

    def inner_y(self, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """The same of y: (R, m, dy) -> (R, m, e), and (R, m) or None where there is no own term."""
        raise NotImplementedError

    def closed_form(self, x: Tensor, y: Tensor) -> Tensor:
        """The Gaussian part alone. x: (R, ..., n, dx), y: (R, ..., m, dy) -> (R, ..., n, m)."""
        raise NotImplementedError

    def network(self, x: Tensor, y: Tensor) -> Tensor:
        """What the network alone gives, shapes as of `closed_form`."""
        raise NotImplementedError

    def set_canonical(self, replica: int, found: Canonical) -> None:
        """The correlations of a replica's closed form, and its coordinates if kept here."""
        raise NotImplementedError

    def set_levels(self, levels: Tensor, shares: Tensor) -> None:
        """The mapped rows of a label's levels, (R, L, d), and their frequencies, (R, L)."""

    def set_mixture(self, closed_form: float, network: float, shift: float) -> None:
        """Weights of closed form and network, and a constant, the same in all replicas."""
        raise NotImplementedError

    def silence(self) -> None:
        """Leave the network out: the closed form answers alone."""
        raise NotImplementedError

    @property
    def silent(self) -> bool:
        """Whether there is a closed form and the network adds nothing, in any replica."""
        return False

    def raise_scores(self, amounts: Tensor) -> None:
        """Add a constant to all scores of each replica, amounts: (R,), by the weights."""
        raise NotImplementedError

    def cell_width(self) -> int:
        """How many numbers one cell of `matrix` keeps alive: what block sizes are chosen by."""
        return 1

    def matrix_in_blocks(self, x: Tensor, y: Tensor, budget: int = 1 << 24) -> Tensor:
        """`matrix` of x: (R, n, dx), y: (R, m, dy), with about `budget` numbers alive at a time."""
        cells = max(1, budget // (self.replicas * self.cell_width()))
        # Nearly square and of one width: each row of x and of y is then embedded few times.
        widest = max(1, math.isqrt(cells), cells // max(1, x.shape[1]))
        columns = max(1, math.ceil(y.shape[1] / math.ceil(max(1, y.shape[1]) / widest)))
        rows = max(1, cells // columns)
        parts = torch.split(y, columns, 1)
        found = (torch.cat([self.matrix(a, b) for b in parts], -1) for a in torch.split(x, rows, 1))
        return torch.cat(list(found), -2)

    def select(self, replicas: Sequence[int]) -> Critic:
        """A copy that holds only these replicas."""
        chosen = copy.deepcopy(self)
        index = torch.as_tensor(list(replicas), dtype=torch.long)
        for tensor in (*chosen.parameters(), *chosen.buffers()):
            tensor.data = tensor.data[index.to(tensor.device)].clone()
            tensor.grad = None
        for part in chosen.modules():
            if isinstance(part, Critic):
                part.replicas = len(replicas)
        return chosen


def inner_matrix(x: Tensor, y: Tensor, own_x: Tensor | None, own_y: Tensor | None) -> Tensor:
    """The scores of `Factors`: (R, ..., n, e), (R, ..., m, e) -> (R, ..., n, m)."""
    scores = x @ y.transpose(-1, -2)
    scores = scores if own_x is None else scores + own_x.unsqueeze(-1)
    return scores if own_y is None else scores + own_y.unsqueeze(-2)


# Linear layers and perceptrons with one set of weights per replica.

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
