"""From what a user writes as ``critic=`` to a critic with R replicas; their own modules too."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from operator import index
from typing import Any

import torch
from torch import Tensor, nn

from pointdep.core.critics import CRITICS
from pointdep.core.critics.base import ACTIVATIONS, Critic, Factors
from pointdep.errors import InputError, require_whole, unknown_name

# The user's own modules as critics: one copy per replica, run one after another.


class _Copies(Critic):
    """One deep copy of the user's modules per replica, all starting from the given weights."""

    stacked = False
    draws = True
    prepared = " (constant columns dropped, categories one-hot)"  # what was done to its rows

    def __init__(self, replicas: int, module: nn.Module) -> None:
        super().__init__(replicas)
        self.copies = nn.ModuleList(copy.deepcopy(module) for _ in range(replicas))

    def select(self, replicas: Sequence[int]) -> Critic:
        chosen = copy.copy(self)
        chosen.replicas = len(replicas)
        chosen._modules = dict(self._modules)
        chosen.copies = nn.ModuleList(copy.deepcopy(self.copies[r]) for r in replicas)
        return chosen

    def _call(self, module: Any, *inputs: Tensor) -> Tensor:
        """Call the user's module; where it fails, say what it was given."""
        try:
            out: Tensor = module(*inputs)
        except (RuntimeError, TypeError, ValueError) as error:
            given = " and ".join(str(tuple(part.shape)) for part in inputs)
            dtype = str(inputs[0].dtype).removeprefix("torch.")
            raise InputError(
                f"the critic, called with {dtype} of shape {given}{self.prepared}, failed: {error}"
            ) from error
        return out


class ModuleCritic(_Copies):
    """A module called as ``module(x, y)`` on paired rows, (n, dx) and (n, dy), giving (n,) scores.

    All pairs are scored by repeating rows, unless the module has a method ``matrix(x, y)`` of its
    own for (n, dx) and (m, dy), giving (n, m).
    """

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        each = zip(self.copies, x, y, strict=True)
        return torch.stack([self._scores(module, a, b) for module, a, b in each])

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        lead, n, m = x.shape[1:-2], x.shape[-2], y.shape[-2]
        out = []
        for module, x_rows, y_rows in zip(self.copies, x, y, strict=True):
            a = x_rows.reshape(-1, n, x_rows.shape[-1])
            b = y_rows.reshape(-1, m, y_rows.shape[-1])
            own = getattr(module, "matrix", None)
            if callable(own):
                scores = torch.stack([own(p, q) for p, q in zip(a, b, strict=True)])
                if scores.shape[1:] != (n, m):
                    fault = f"the critic's matrix(x, y) gave shape {tuple(scores.shape[1:])}"
                    raise InputError(f"{fault}; it must be ({n}, {m})")
            else:
                p = a.unsqueeze(-2).expand(-1, n, m, -1).reshape(-1, a.shape[-1])
                q = b.unsqueeze(-3).expand(-1, n, m, -1).reshape(-1, b.shape[-1])
                scores = self._scores(module, p, q)
            out.append(scores.view(*lead, n, m))
        return torch.stack(out)

    def _scores(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        scores, rows = self._call(module, x, y), len(x)
        if scores.numel() != rows:
            fault = f"the critic gave scores of shape {tuple(scores.shape)} for {rows} pairs"
            raise InputError(f"{fault}; it must give one score per pair, (n,)")
        return scores.reshape(rows)

    def cell_width(self) -> int:
        return 1024


class EncoderCritic(_Copies):
    """The inner product of the user's two encoders, (n, dx) -> (n, e) and (m, dy) -> (m, e)."""

    has_inner = True
    separable = True

    def __init__(self, replicas: int, encoder_x: nn.Module, encoder_y: nn.Module) -> None:
        super().__init__(replicas, nn.ModuleDict({"x": encoder_x, "y": encoder_y}))

    def embed_x(self, x: Tensor) -> Tensor:
        """x: (R, ..., n, dx) -> (R, ..., n, e)."""
        return self._embed("x", x)

    def embed_y(self, y: Tensor) -> Tensor:
        """y: (R, ..., m, dy) -> (R, ..., m, e)."""
        return self._embed("y", y)

    def inner_x(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.embed_x(x), x.new_zeros(x.shape[:-1])

    def inner_y(self, y: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.embed_y(y), None

    def factors(self, x: Tensor, y: Tensor) -> Factors:
        codes = self.embed_x(x), self.embed_y(y)
        if codes[0].shape[-1] != codes[1].shape[-1]:
            raise InputError(
                f"the encoders give vectors of {codes[0].shape[-1]} and {codes[1].shape[-1]} "
                "numbers; an inner product needs equally many"
            )
        return *codes, None, None

    def _embed(self, side: str, rows: Tensor) -> Tensor:
        out = []
        for pair, part in zip(self.copies, rows, strict=True):
            assert isinstance(pair, nn.ModuleDict)
            code = self._call(pair[side], part.reshape(-1, part.shape[-1]))
            if code.ndim != 2:
                fault = f"the {side} encoder gave shape {tuple(code.shape)}"
                raise InputError(f"{fault}; it must give one vector per row, (n, e)")
            out.append(code.view(*part.shape[:-1], -1))
        return torch.stack(out)


def critic_class(critic: Any, *, wide: bool = False, table: bool = False) -> type[Critic]:
    """The class of a critic as users choose it: by name, import path, class or modules.

    wide: whether the data have many columns. table: whether they are two columns of categories.
    """
    if isinstance(critic, Critic):
        raise InputError(f"give the class, critic={type(critic).__name__}, not an object of it")
    if isinstance(critic, nn.Module):
        return ModuleCritic
    if isinstance(critic, tuple | list):
        if len(critic) != 2 or not all(isinstance(part, nn.Module) for part in critic):
            raise InputError("critic=(encoder_x, encoder_y) takes exactly two torch modules")
        return EncoderCritic
    is_class = isinstance(critic, type) and issubclass(critic, Critic)
    if callable(critic) and not is_class:
        raise InputError("your critic must be a torch.nn.Module or a subclass of pointdep.Critic")
    found = critic if is_class else CRITICS.find(critic)
    return found.for_table() if table else found.for_data(wide=wide)


def build_critic(
    critic: Any,
    replicas: int,
    x_dim: int,
    y_dim: int,
    *,
    hidden: Sequence[int] | str = "auto",
    embedding_dim: int = 64,
    activation: str = "silu",
    wide: bool = False,
    table: bool = False,
    label: str = "",
) -> Critic:
    """A critic by name or class, the user's module, or the product of the user's two encoders.

    wide, table: make "auto" the default critic of data with many columns, of many categories.
    label: the side, "x" or "y", that is one column of categories while the other has numbers.
    """
    kind: Any = critic_class(critic, wide=wide, table=table)
    if not isinstance(critic, str | type):
        modules = (critic,) if isinstance(critic, nn.Module) else critic
        own: Critic = kind(replicas, *modules).float()
        if not any(p.requires_grad for p in own.parameters()):
            raise InputError("the critic has no parameters to train")
        return own
    if activation not in ACTIVATIONS:
        raise unknown_name("activation", activation, ACTIVATIONS)
    options = {"hidden": _widths(hidden), "embedding_dim": embedding_dim, "activation": activation}
    options["label"] = label if kind.has_closed_form and label else None
    takes = inspect.signature(kind).parameters
    options = {n: value for n, value in options.items() if n in takes and value is not None}
    if "embedding_dim" in options:
        require_whole("embedding_dim", embedding_dim)
    made: Critic = kind(replicas, x_dim, y_dim, **options)
    return made


def replica_generators(seed: int, replicas: int) -> list[torch.Generator]:
    """One generator per replica, so that its initial weights do not depend on the others."""
    return [torch.Generator().manual_seed(seed * 1_000_003 + r) for r in range(replicas)]


def _widths(hidden: Sequence[int] | str) -> list[int] | None:
    """Layer widths as whole numbers; None where they are left to the critic."""
    if isinstance(hidden, str):
        if hidden != "auto":
            raise InputError(f"hidden={hidden!r} must be 'auto' or layer widths such as (256, 64)")
        return None
    try:
        widths = [index(width) for width in hidden]
    except TypeError:
        raise InputError(
            f"hidden={hidden!r} must be a sequence of layer widths, such as (256, 256)"
        ) from None
    if not widths or min(widths) < 1:
        raise InputError(f"hidden={hidden!r} must name at least one layer of at least one unit")
    return widths
