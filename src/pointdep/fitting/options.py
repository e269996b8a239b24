"""How to train, checked when it is written down."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass

from pointdep.errors import InputError, require_whole


@dataclass(frozen=True)
class TrainingOptions:
    """The engine's settings.

    Attributes
    ----------
    batch_size: rows per step and replica.
    block: rows that are set against each other; a batch is cut into blocks of this size, and each
        row has block - 1 product samples.
    learning_rate, weight_decay: of Adam.
    max_epochs: limit on the number of epochs.
    min_steps: an epoch is one pass over the training rows, but at least this many steps.
    patience: epochs without a better held-out objective after which a replica stops.
    average: decay of the running average of the weights, which is what is evaluated and kept;
        0 keeps the last weights themselves.
    clip: limit on the norm of each replica's gradient.
    seed: of the batches; the initial weights come with the model.
    """

    batch_size: int
    block: int
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    max_epochs: int = 200
    min_steps: int = 20
    patience: int = 8
    average: float = 0.99
    clip: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.block < 2 or self.batch_size < self.block:
            raise InputError(
                f"batch_size={self.batch_size} with {self.block - 1} negatives: each row needs at "
                "least one other row beside it, and no more negatives than batch_size - 1"
            )
        for name in ("learning_rate", "clip", "weight_decay", "average"):
            if not isinstance(getattr(self, name), numbers.Real):
                raise InputError(f"{name}={getattr(self, name)!r} must be a number")
        for name in ("learning_rate", "clip"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name}={value!r} must be a positive number")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise InputError(f"weight_decay={self.weight_decay!r} must not be negative")
        for name in ("max_epochs", "patience", "min_steps"):
            require_whole(name, getattr(self, name))
        if not 0.0 <= self.average < 1.0:
            raise InputError(f"average={self.average!r} must lie in [0, 1)")
