"""Which rows a step sees, and from which numbers its random draws start.

Both are functions of the seed and of the step alone, so that a run that goes on from a checkpoint
sees what it would have seen.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pointdep.errors import InputError


class Order:
    """Every epoch a permutation of the rows, one a seed, cut into batches; the rest is left out."""

    def __init__(
        self, rows: int, batch_size: int, seeds: Sequence[int], device: torch.device
    ) -> None:
        if batch_size > rows:
            raise InputError(f"batch_size={batch_size} is more than the {rows} training images")
        self.rows, self.batch_size, self.seeds, self.device = rows, batch_size, seeds, device
        self.steps = rows // batch_size
        self._epoch, self._permutation = -1, torch.empty(0)

    def batch(self, step: int, rank: int = 0, ranks: int = 1) -> Tensor:
        """(seeds, batch_size / ranks): the part of this rank."""
        epoch, place = divmod(step, self.steps)
        if epoch != self._epoch:
            starts = [mix("order", seed, epoch) for seed in self.seeds]
            drawn = [
                torch.randperm(self.rows, generator=torch.Generator().manual_seed(start))
                for start in starts
            ]
            self._epoch, self._permutation = epoch, torch.stack(drawn).to(self.device)
        share = self.batch_size // ranks
        start = place * self.batch_size + rank * share
        return self._permutation[:, start : start + share]


def mix(purpose: str, *numbers: int) -> int:
    """One number to start a generator from, unlike those of other purposes and numbers."""
    # The count is among them because a seed sequence is filled up with zeros.
    entropy = [zlib.crc32(purpose.encode()), len(numbers), *numbers]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)
