"""What a pre-training run is told, checked before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pointdep.errors import InputError, require_whole, unknown_name

MODELS = ("shallow", "amdim", "simclr")
OBJECTIVES = ("cpc", "pcc", "drfc", "variational", "dm1", "dm2", "rpc")
PRECISIONS = ("auto", "32", "bf16", "16")
MONITORS = ("knn", "linear")


@dataclass(frozen=True)
class Protocol:
    """How a model is trained in the paper, or in the recipe it follows."""

    epochs: int
    batch_size: int
    learning_rate: float
    width: int
    depth: int


PROTOCOLS: Mapping[str, Protocol] = MappingProxyType(
    {
        # 21,000 iterations on MNIST; width: of the shift nets; depth: couplings.
        "shallow": Protocol(45, 128, 1e-4, width=512, depth=30),
        # width: ndf, an eighth of n_rkhs; depth: layers of a residual block.
        "amdim": Protocol(300, 480, 2e-4, width=192, depth=8),
        # The rate is that of a batch of 512, and left alone grows with it; depth: 18 or 50.
        "simclr": Protocol(200, 512, 0.4, width=64, depth=18),
    }
)


@dataclass(frozen=True)
class Settings:
    """One training run: one network, or for the shallow model a replica an objective and seed.

    Left at None, `epochs`, `batch_size`, `learning_rate`, `width` and `depth` are the protocol's.
    iterations: steps in all, in the place of epochs, which are None then.
    minutes: training time after which the run ends, the learning rate brought down by then.
    evaluate_every: epochs between two looks at the features, or iterations where the run is counted
        in these; 0 looks at the end alone.
    monitor: what looks before the end measure: "knn", nearest neighbours on some of the images, or
        "linear", the linear classifier on all of them.
    loss: options of the loss, such as temperature, scale, alpha or negatives.
    """

    model: str
    objectives: tuple[str, ...] = ("cpc",)
    seeds: tuple[int, ...] = (0,)
    epochs: int | None = None
    iterations: int | None = None
    minutes: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    width: int | None = None
    depth: int | None = None
    precision: str = "auto"
    evaluate_every: int = 0
    monitor: str = "knn"
    loss: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("objectives", "seeds"):
            values = getattr(self, name)
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                raise InputError(f"{name}={values!r} must be a tuple, such as ('cpc',) or (0, 1)")
            object.__setattr__(self, name, tuple(values))
            if len(set(values)) < len(values):
                raise InputError(f"{name}={tuple(values)} names one of them twice")
        self._check_names()
        rated = self.learning_rate is not None
        self._fill_in()
        self._check_numbers()
        if self.model == "simclr" and not rated:
            assert self.batch_size is not None
            per_image = PROTOCOLS["simclr"].learning_rate / PROTOCOLS["simclr"].batch_size
            object.__setattr__(self, "learning_rate", per_image * self.batch_size)
        if self.model == "simclr" and self.depth not in (18, 50):
            raise InputError(f"depth={self.depth} of simclr must be 18 or 50")
        if self.precision == "16" and len(self.runs) > 1 and self.model == "shallow":
            raise InputError(
                "precision='16' scales the loss of all replicas by one number, which one of them "
                "could spoil: use bf16 or 32"
            )
        for name, value in self.loss.items():
            if not isinstance(value, int | float | str | list | tuple | None):
                raise InputError(f"loss option {name}={value!r}: options are numbers and words")

    def _check_numbers(self) -> None:
        length = "epochs" if self.iterations is None else "iterations"
        for name in (length, "width", "depth"):
            require_whole(name, getattr(self, name))
        for seed in self.seeds:
            require_whole("seed", seed, least=0)
        require_whole("batch_size", self.batch_size, least=2)
        require_whole("evaluate_every", self.evaluate_every, least=0)
        for name in ("minutes", "learning_rate"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and math.isfinite(value) and value > 0):
                raise InputError(f"{name}={value!r} must be a positive number")

    def _fill_in(self) -> None:
        """What was left at None, from the protocol."""
        if self.epochs is not None and self.iterations is not None:
            raise InputError("a run has epochs or iterations: give one of them")
        for name, value in PROTOCOLS[self.model].__dict__.items():
            counted = name == "epochs" and self.iterations is not None
            if getattr(self, name) is None and not counted:
                object.__setattr__(self, name, value)

    def _check_names(self) -> None:
        named = [("model", self.model, MODELS), ("precision", self.precision, PRECISIONS)]
        named += [("monitor", self.monitor, MONITORS)]
        named += [("objective", objective, OBJECTIVES) for objective in self.objectives]
        for what, name, known in named:
            if name not in known:
                raise unknown_name(what, name, known)

    @property
    def runs(self) -> tuple[tuple[str, int], ...]:
        """(objective, seed) of each replica."""
        return tuple((objective, seed) for objective in self.objectives for seed in self.seeds)

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {**self.__dict__, "loss": dict(self.loss)}

    @classmethod
    def from_dict(cls, about: Mapping[str, Any]) -> Settings:
        """The inverse of `as_dict`, after a journey through JSON."""
        lists = {name: tuple(about[name]) for name in ("objectives", "seeds")}
        return cls(**{**about, **lists})
