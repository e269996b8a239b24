"""What is trained for Figure 2 or the SimCLR comparison, and in what that is not the paper's."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from pointdep.contrastive.pretraining.protocols import OBJECTIVES, Settings
from pointdep.data.images import DATASETS
from pointdep.errors import InputError, require_whole, unknown_name
from pointdep.experiments.representations.loss_options import check_options

MAIN = ("cpc", "pcc", "drfc")
NAMES = MappingProxyType(
    {
        "cpc": "CPC",
        "pcc": "PCC",
        "drfc": "D-RFC",
        "variational": "Variational",
        "dm1": "DM I",
        "dm2": "DM II",
        "rpc": "RPC",
    }
)
"""Of the objectives, as the paper writes them."""

IMAGES = MappingProxyType({"mnist": (60_000, 10_000), "cifar10": (50_000, 10_000)})
"""To train on and to test on, in the whole sets."""

SETS = MappingProxyType({"mnist": "MNIST", "cifar10": "CIFAR-10", "digits": "8 x 8 digits"})
"""Of the images, as they are written."""


@dataclass(frozen=True)
class Part:
    """One experiment of the paper.

    datasets: the first is the default. unit: what the length of a run is counted in; length, every:
    how long a run is, and between two evaluations. runs: of each objective, None where the paper
    does not say; long: whether the length is the paper's, which prints none for SimCLR. values:
    accuracies that it prints. loss: for each objective, in what its loss is not the default.
    """

    title: str
    model: str
    datasets: tuple[str, ...]
    unit: str
    length: int
    every: int
    runs: int | None
    precision: str = "auto"
    long: bool = True
    values: Mapping[str, float] = field(default_factory=dict)
    loss: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


PARTS: Mapping[str, Part] = MappingProxyType(
    {
        "shallow": Part(
            "Figure 2, shallow",
            "shallow",
            ("mnist", "cifar10"),
            "iterations",
            21_000,
            1_000,
            10,
            precision="32",
        ),
        "deep": Part("Figure 2, deep", "amdim", ("cifar10",), "epochs", 300, 10, None),
        "simclr": Part(
            "SimCLR",
            "simclr",
            ("cifar10",),
            "epochs",
            200,
            20,
            5,
            long=False,
            values={"cpc": 0.9104, "drfc": 0.9151, "pcc": 0.8869},
            # Ours: a point better after 15 epochs than the public recipe's 0.5.
            loss={"cpc": {"temperature": 0.2}},
        ),
    }
)
_QUICK: dict[str, dict[str, Any]] = {
    "shallow": {
        "length": 400, "evaluate_every": 100, "seeds": 3, "depth": 6, "width": 64, "limit": 5000,
    },
    "deep": {
        "length": 2, "evaluate_every": 1, "seeds": 1, "depth": 1, "width": 16, "batch_size": 64,
        "limit": 1000,
    },
    "simclr": {
        "length": 3, "evaluate_every": 1, "seeds": 1, "width": 16, "batch_size": 128,
        "limit": 2000,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Experiment:
    """A part of the paper's Application II on one set of images.

    Left at None, `dataset`, `seeds`, `length`, `evaluate_every` and `precision` are the part's.

    Attributes
    ----------
    seeds, seed: runs of each objective, and the first of their seeds.
    length, evaluate_every: iterations of the shallow part, epochs of the others.
    minutes: training time after which a run ends.
    together: replicas of the shallow model that train at once; None for all.
    loss: for each objective the options of its loss; of objectives that are run.
    limit: images of each split; None for all.
    """

    part: str
    dataset: str | None = None
    objectives: tuple[str, ...] = MAIN
    seeds: int | None = None
    seed: int = 0
    length: int | None = None
    evaluate_every: int | None = None
    minutes: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    width: int | None = None
    depth: int | None = None
    precision: str | None = None
    together: int | None = None
    loss: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.part not in PARTS:
            raise unknown_name("part", self.part, PARTS)
        part = PARTS[self.part]
        defaults = {
            "dataset": part.datasets[0],
            "seeds": part.runs or 1,
            "length": part.length,
            "evaluate_every": part.every,
            "precision": part.precision,
        }
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if self.dataset not in DATASETS:
            raise unknown_name("set of images", self.dataset, DATASETS)
        for name in ("seeds", "length", "evaluate_every"):
            require_whole(name if name != "length" else part.unit, getattr(self, name))
        if self.together is not None:
            require_whole("together", self.together)
        self.pretraining(self.objectives, self.all_seeds)  # refuses the rest
        for objective, options in self.loss.items():
            if objective not in OBJECTIVES:
                raise unknown_name("objective", objective, OBJECTIVES)
            if objective not in self.objectives:
                raise InputError(
                    f"{objective} has options but is not run: name it in --objectives, or leave "
                    "them out"
                )
            check_options(part.model, objective, options)

    @property
    def all_seeds(self) -> tuple[int, ...]:
        assert self.seeds is not None
        return tuple(range(self.seed, self.seed + self.seeds))

    @property
    def unit(self) -> str:
        """What the length of a run is counted in: iterations or epochs."""
        return PARTS[self.part].unit

    @property
    def paper_values(self) -> Mapping[str, float]:
        """Accuracies that the paper prints of this experiment, by objective."""
        part = PARTS[self.part]
        return part.values if self.dataset in part.datasets else {}

    @property
    def name(self) -> str:
        """Of the experiment whose runs may be merged: part and images."""
        return f"{self.part} {self.dataset}"

    def loss_of(self, objective: str) -> dict[str, Any]:
        """In what its loss is not the default."""
        return {**PARTS[self.part].loss.get(objective, {}), **self.loss.get(objective, {})}

    def pretraining(self, objectives: tuple[str, ...], seeds: tuple[int, ...]) -> Settings:
        """How these runs are trained."""
        loss: dict[str, Any] = {}
        for objective in objectives:
            loss |= self.loss_of(objective)
        assert self.evaluate_every is not None
        assert self.precision is not None
        return Settings(
            PARTS[self.part].model,
            objectives,
            seeds,
            **{self.unit: self.length},
            minutes=self.minutes,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            width=self.width,
            depth=self.depth,
            precision=self.precision,
            evaluate_every=self.evaluate_every,
            monitor="linear",
            loss=loss,
        )

    def quick(self) -> Experiment:
        """Smaller networks on fewer images, for a CPU."""
        return replace(self, **_QUICK[self.part])

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        figure2 = self.part != "simclr"
        words = ["pointdep", "reproduce", "figure2" if figure2 else "simclr"]
        words += ["--part", self.part] if figure2 else []
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name in {"part", "loss"} or value is None:
                continue
            option = self.unit if one.name == "length" else one.name.replace("_", "-")
            shown = ",".join(value) if isinstance(value, tuple) else str(value)
            words += [f"--{option}", shown]
        for objective, options in self.loss.items():
            for name, value in options.items():
                words += ["--loss-option", f"{objective}.{name}={value}"]
        return shlex.join(words)

    def with_length(self, iterations: int | None, epochs: int | None) -> Experiment:
        """That of which one was given, in the part's own unit."""
        for unit, given in (("iterations", iterations), ("epochs", epochs)):
            if given is not None and unit != self.unit:
                raise InputError(
                    f"the {self.part} experiment is counted in {self.unit}: give --{self.unit}"
                )
        length = epochs if iterations is None else iterations
        return self if length is None else replace(self, length=length)
