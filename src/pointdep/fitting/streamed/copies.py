"""Whether pairs occur more than once, by a sample of the distinct ones."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.fitting.data_flags import copies_flag
from pointdep.fitting.flags import Flag
from pointdep.fitting.streamed.plan import scrambled

_MOST = 1 << 18  # rows of sampled values
Keys = NDArray[np.uint64]


class DistinctSample:
    """Distinct values are sampled, and of those in the sample every copy is counted.

    A value is in it when its scrambled key is below a limit, which is halved whenever over 262,144
    rows are in it: the share of values that repeat has an error of about 0.002.
    """

    def __init__(self) -> None:
        self.limit, self.keys = 1 << 64, np.empty(0, np.uint64)

    def add(self, keys: Keys) -> None:
        """(n,) scrambled keys of rows."""
        if self.limit < 1 << 64:
            keys = keys[keys < np.uint64(self.limit)]
        self.keys = np.concatenate([self.keys, keys])
        while len(self.keys) > _MOST and self.limit > 1:
            self.limit //= 2
            self.keys = self.keys[self.keys < np.uint64(self.limit)]

    def merge(self, other: DistinctSample) -> None:
        """Take in what another has seen."""
        self.limit = min(self.limit, other.limit)
        kept, self.keys = self.keys, np.empty(0, np.uint64)
        for keys in (kept, other.keys):
            self.add(keys)

    def occurrences(self) -> NDArray[np.int64]:
        """How often each sampled value occurs."""
        return np.unique(self.keys, return_counts=True)[1]

    def distinct(self) -> float:
        """Distinct values in all rows, about."""
        return len(np.unique(self.keys)) * (2.0**64 / self.limit)


class CopyCount:
    """Fed with the rows piece by piece, says what `duplicate_flags` says of all of them."""

    def __init__(self) -> None:
        self.rows = 0
        self.x, self.y, self.pairs = DistinctSample(), DistinctSample(), DistinctSample()
        self.digest = np.uint64(0)  # of all rows, each in its place

    def add(self, x: Tensor, y: Tensor, first: int = 0) -> None:
        """x: (n, dx), y: (n, dy), float64; first: the number of the first of them."""
        x_keys, y_keys = _keys(x), _keys(y)
        both = scrambled(x_keys ^ scrambled(y_keys))
        self.rows += len(x)
        for sample, keys in ((self.x, x_keys), (self.y, y_keys), (self.pairs, both)):
            sample.add(keys)
        places = np.arange(first, first + len(both), dtype=np.uint64)
        self.digest = self.digest ^ np.bitwise_xor.reduce(scrambled(both ^ scrambled(places)))

    def merge(self, other: CopyCount) -> None:
        """Take in what another has seen."""
        self.rows += other.rows
        self.digest = self.digest ^ other.digest
        for own, more in ((self.x, other.x), (self.y, other.y), (self.pairs, other.pairs)):
            own.merge(more)

    def flags(self) -> list[Flag]:
        """The flag of pairs that occur more than once where they should not, or none."""
        one_side = max(self.x.distinct(), self.y.distinct())
        counts = self.pairs.occurrences()
        if self.pairs.limit == 1 << 64:
            return copies_flag(counts, self.rows, one_side)
        scale = 2.0**64 / self.pairs.limit
        return copies_flag(counts, self.rows, one_side, scale)


def _keys(rows: Tensor) -> Keys:
    """(n,): equal for equal rows of (n, d), and for hardly any others, scrambled."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(rows.shape[1], generator=generator, dtype=torch.float64)
    # Not a matrix product, which may round equal rows differently by where they stand.
    sums = (rows * weights.to(rows.device)).sum(1)
    return scrambled(sums.cpu().numpy().view(np.uint64))
