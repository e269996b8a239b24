"""The k largest of rows of numbers, equal ones in the order of the candidates."""

from __future__ import annotations

import torch
from torch import Tensor


def largest(values: Tensor, k: int) -> Tensor:
    """Positions of the k largest in each row, largest first, the earlier of equal ones first.

    values: (n, m) -> (n, k). torch.topk leaves open which of equal values it takes.
    """
    found, at = values.topk(k, dim=1)
    crowded = (values >= found[:, -1:]).sum(1) > k
    if bool(crowded.any()):
        order = values[crowded].argsort(dim=1, descending=True, stable=True)
        at[crowded] = order[:, :k]
    at = at.sort(dim=1).values
    order = values.gather(1, at).argsort(dim=1, descending=True, stable=True)
    return at.gather(1, order)


def by_value_then_number(values: Tensor, numbers: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest values of each row, and their numbers; of equal ones the lowest numbers.

    values, numbers: (n, m) -> (n, k) each.
    """
    numbers, at = numbers.sort(dim=1)
    values = values.gather(1, at)
    best = largest(values, k)
    return values.gather(1, best), numbers.gather(1, best)


class Best:
    """The k best of candidates that come block by block, in the order of their numbers."""

    def __init__(self, k: int) -> None:
        self.k, self.seen = k, 0
        self.values: Tensor | None = None
        self.numbers: Tensor | None = None

    def add(self, values: Tensor) -> None:
        """values: (n, b), of the next b candidates."""
        numbers = torch.arange(self.seen, self.seen + values.shape[1], device=values.device)
        self.seen += values.shape[1]
        at = largest(values, min(self.k, values.shape[1]))
        values, numbers = values.gather(1, at), numbers[at]
        if self.values is not None and self.numbers is not None:
            # Equal values stay in the order of their numbers: what came before stands before.
            values = torch.cat([self.values, values], 1)
            numbers = torch.cat([self.numbers, numbers], 1)
            at = largest(values, min(self.k, values.shape[1]))
            values, numbers = values.gather(1, at), numbers.gather(1, at)
        self.values, self.numbers = values, numbers

    def result(self) -> tuple[Tensor, Tensor]:
        """Values and numbers, (n, k) each."""
        assert self.values is not None
        assert self.numbers is not None
        return self.values, self.numbers
