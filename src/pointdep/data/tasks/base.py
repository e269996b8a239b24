"""A joint distribution that is known exactly, and draws of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pointdep.data.raw import Array
from pointdep.errors import InputError, require_whole

LogRatio: TypeAlias = Callable[[Array, Array], Array]
Sample: TypeAlias = Callable[[int, np.random.Generator], tuple[Array, Array, Array]]


@dataclass(frozen=True, eq=False)
class Task:
    """Draws of a known joint distribution.

    x, y: (rows, dim), or (rows,) outcomes; pmi: (rows,) nats; mutual_information: nats.
    log_ratio: the exact PMI of any pairs like these, (n, dim) and (n, dim) -> (n,); -inf where a
    pair cannot occur.
    """

    name: str
    x: Array
    y: Array
    pmi: Array
    mutual_information: float
    log_ratio: LogRatio


@dataclass(frozen=True, eq=False)
class Joint:
    """A joint distribution with its mutual information in nats.

    sample: number of rows and a generator -> x, y and their pmi; log_ratio: as in `Task`.
    """

    mutual_information: float
    sample: Sample
    log_ratio: LogRatio

    def draw(self, name: str, rows: int, seed: int = 0) -> Task:
        """Independent rows; the same seed gives the same ones."""
        if rows < 1:
            raise InputError(f"rows must be 1 or more, not {rows}")
        require_whole("seed", seed, least=0)
        x, y, pmi = self.sample(rows, np.random.default_rng(seed))
        return Task(name, x, y, pmi, self.mutual_information, self.log_ratio)
