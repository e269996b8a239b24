"""The user's own modules as critics: one copy per replica, run one after another."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pointdep.core.critics.base import Critic
from pointdep.errors import InputError


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
        return torch.stack(
            [
                _as_scores(self._call(c, a, b), len(a))
                for c, a, b in zip(self.copies, x, y, strict=True)
            ]
        )

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        lead, n, m = x.shape[1:-2], x.shape[-2], y.shape[-2]
        out = []
        for module, x_rows, y_rows in zip(self.copies, x, y, strict=True):
            a = x_rows.reshape(-1, n, x_rows.shape[-1])
            b = y_rows.reshape(-1, m, y_rows.shape[-1])
            own = getattr(module, "matrix", None)
            if callable(own):
                scores = torch.stack(
                    [_as_matrix(own(p, q), n, m) for p, q in zip(a, b, strict=True)]
                )
            else:
                p = a.unsqueeze(-2).expand(-1, n, m, -1).reshape(-1, a.shape[-1])
                q = b.unsqueeze(-3).expand(-1, n, m, -1).reshape(-1, b.shape[-1])
                scores = _as_scores(self._call(module, p, q), len(p))
            out.append(scores.view(*lead, n, m))
        return torch.stack(out)

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

    def factors(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        return *self._embeddings(x, y), None, None

    def _embeddings(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        codes = self.embed_x(x), self.embed_y(y)
        if codes[0].shape[-1] != codes[1].shape[-1]:
            raise InputError(
                f"the encoders give vectors of {codes[0].shape[-1]} and {codes[1].shape[-1]} "
                "numbers; an inner product needs equally many"
            )
        return codes

    def _embed(self, side: str, rows: Tensor) -> Tensor:
        out = []
        for pair, part in zip(self.copies, rows, strict=True):
            assert isinstance(pair, nn.ModuleDict)
            code = self._call(pair[side], part.reshape(-1, part.shape[-1]))
            if code.ndim != 2:
                raise InputError(
                    f"the {side} encoder gave shape {tuple(code.shape)}; it must give one vector "
                    "per row, (n, e)"
                )
            out.append(code.view(*part.shape[:-1], -1))
        return torch.stack(out)


def _as_scores(scores: Tensor, rows: int) -> Tensor:
    if scores.numel() != rows:
        raise InputError(
            f"the critic gave scores of shape {tuple(scores.shape)} for {rows} pairs; it must give "
            "one score per pair, (n,)"
        )
    return scores.reshape(rows)


def _as_matrix(scores: Tensor, n: int, m: int) -> Tensor:
    if scores.shape != (n, m):
        raise InputError(
            f"the critic's matrix(x, y) gave shape {tuple(scores.shape)}; it must be ({n}, {m})"
        )
    return scores
