"""What a run of Figure 1 leaves: every value of every curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pointdep.experiments.figure1.settings import Cell, Figure1


@dataclass(frozen=True, eq=False)
class Curves:
    """The inference value of each cell on each training batch, before that batch was learnt from.

    Attributes
    ----------
    values: (iterations, cells), in nats; not finite where a method blew up.
    setup_seconds, train_seconds: compiling and capturing, and training.
    device, precision: what "auto" stood for; of a stored run, the name of its device.
    """

    settings: Figure1
    values: NDArray[np.floating]
    setup_seconds: float
    train_seconds: float
    device: str
    precision: str

    @property
    def cells(self) -> tuple[Cell, ...]:
        return self.settings.cells

    def of(self, cell: Cell) -> NDArray[np.floating]:
        """The curve of one cell, (iterations,)."""
        return self.values[:, self.cells.index(cell)]
