"""Replicas with different methods side by side: apply to each what its method says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pointdep.core.methods import Method


class MethodGroups:
    """The replicas of each method, in order of first appearance."""

    def __init__(self, methods: Sequence[Method]) -> None:
        members: dict[Method, list[int]] = {}
        for replica, method in enumerate(methods):
            members.setdefault(method, []).append(replica)
        self.methods = tuple(members)
        self._rows = [_slice_or_list(rows) for rows in members.values()]
        order = [replica for rows in members.values() for replica in rows]
        self._back = torch.as_tensor(order).argsort()

    def apply(self, function: Callable[[Method, Tensor], Tensor], values: Tensor) -> Tensor:
        """function(method, part) of the replicas of each method; values: (R, ...) -> (R, ...)."""
        if len(self.methods) == 1:
            return function(self.methods[0], values)
        parts = [
            function(method, values[rows])
            for method, rows in zip(self.methods, self._rows, strict=True)
        ]
        # Kept where it was used: a copy from the host cannot be part of a CUDA graph.
        self._back = self._back.to(values.device)
        return torch.cat(parts)[self._back]


def _slice_or_list(rows: list[int]) -> slice | list[int]:
    """Equally spaced rows as a slice, which needs no index on the device."""
    step = rows[1] - rows[0] if len(rows) > 1 else 1
    regular = range(rows[0], rows[-1] + 1, step)
    return slice(rows[0], rows[-1] + 1, step) if list(regular) == rows else rows
