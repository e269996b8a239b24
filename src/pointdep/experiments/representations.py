"""Learned representations (Application II): what is trained for Figure 2 and for SimCLR.

An `Experiment` is one part of the paper on one set of images. Its runs are made and read by
`pretraining_runs`; `figure2` judges them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any

from pointdep.contrastive.pretraining.protocols import OBJECTIVES, Settings
from pointdep.data.images import DATASETS
from pointdep.errors import InputError, require_known, require_whole
from pointdep.experiments.reports import PAPER, command_line

Options = Mapping[str, Any]

MAIN = ("cpc", "pcc", "drfc")
_WRITTEN = ("CPC", "PCC", "D-RFC", "Variational", "DM I", "DM II", "RPC")
NAMES = MappingProxyType(dict(zip(OBJECTIVES, _WRITTEN, strict=True)))
"""The objectives as the paper writes them."""
IMAGES = MappingProxyType({"mnist": (60_000, 10_000), "cifar10": (50_000, 10_000)})
"""How many images the whole sets have, to train on and to test on."""
SETS = MappingProxyType({"mnist": "MNIST", "cifar10": "CIFAR-10", "digits": "8 x 8 digits"})
"""The sets of images as they are written."""


PARTS = MappingProxyType({k: SimpleNamespace(**part) for k, part in PAPER["parts"].items()})
"""The experiments of the paper, as paper.json has them.

datasets: the first is the default. unit: what the length of a run is counted in; length, every:
how long a run is, and between two evaluations. runs: of each objective, None if the paper does not
say; long: whether the length is the paper's, which prints none for SimCLR. values: accuracies that
the paper prints; orders: of objectives, best first, that its text gives for a set of images. loss:
for each objective, in what its loss is not the default (CPC's temperature in SimCLR is ours: a
point better after 15 epochs than the public recipe's 0.5). quick: a smaller version, for a CPU.
"""


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
    loss: the options of the loss, for each objective that is run.
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
    loss: Mapping[str, Options] = field(default_factory=dict)
    limit: int | None = None

    def __post_init__(self) -> None:
        require_known("part", self.part, PARTS)
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
        require_known("set of images", self.dataset, DATASETS)
        for name in ("seeds", "length", "evaluate_every"):
            require_whole(name if name != "length" else part.unit, getattr(self, name))
        if self.together is not None:
            require_whole("together", self.together)
        self.pretraining(self.objectives, self.all_seeds)  # refuses the rest
        for objective, options in self.loss.items():
            require_known("objective", objective, OBJECTIVES)
            if objective not in self.objectives:
                raise InputError(f"{objective} has options but is not run: name it in --objectives")
            check_options(part.model, objective, options)

    @property
    def all_seeds(self) -> tuple[int, ...]:
        assert self.seeds is not None
        return tuple(range(self.seed, self.seed + self.seeds))

    @property
    def unit(self) -> str:
        """What the length of a run is counted in: iterations or epochs."""
        return str(PARTS[self.part].unit)

    @property
    def paper_values(self) -> Mapping[str, float]:
        """Accuracies that the paper prints of this experiment, by objective."""
        part = PARTS[self.part]
        values: Mapping[str, float] = part.values if self.dataset in part.datasets else {}
        return values

    @property
    def name(self) -> str:
        """Part and images: runs of experiments with the same name may be merged."""
        return f"{self.part} {self.dataset}"

    @property
    def title(self) -> str:
        """Part and images as they are written."""
        return f"{PARTS[self.part].title}, {SETS[str(self.dataset)]}"

    def loss_of(self, objective: str) -> dict[str, Any]:
        """In what its loss is not the default."""
        return {**PARTS[self.part].loss.get(objective, {}), **self.loss.get(objective, {})}

    def pretraining(self, objectives: tuple[str, ...], seeds: tuple[int, ...]) -> Settings:
        """How these runs are trained."""
        loss: dict[str, Any] = {}
        for objective in objectives:
            loss |= self.loss_of(objective)
        same = ("minutes", "batch_size", "learning_rate", "width", "depth", "precision")
        options: dict[str, Any] = {name: getattr(self, name) for name in same}
        options |= {self.unit: self.length, "evaluate_every": self.evaluate_every}
        model = PARTS[self.part].model
        return Settings(model, objectives, seeds, monitor="linear", loss=loss, **options)

    def quick(self) -> Experiment:
        """Smaller networks on fewer images, for a CPU."""
        return replace(self, **PARTS[self.part].quick)

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        options = {
            self.unit if one.name == "length" else one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name not in {"part", "loss"}
        }
        words = ["simclr"] if self.part == "simclr" else ["figure2", "--part", self.part]
        for objective, own in self.loss.items():
            for name, value in own.items():
                words += ["--loss-option", f"{objective}.{name}={value}"]
        return command_line("reproduce", *words, **options)

    def with_length(self, iterations: int | None, epochs: int | None) -> Experiment:
        """With the length that was given, which must be in the part's own unit."""
        given = {"iterations": iterations, "epochs": epochs}
        length = given.pop(self.unit)
        if any(other is not None for other in given.values()):
            unit = f"the {self.part} experiment is counted in {self.unit}"
            raise InputError(f"{unit}: give --{self.unit}")
        return self if length is None else replace(self, length=length)


def _loss(model: str, objective: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """What makes the loss from its options and refuses wrong values, and their defaults."""
    if model == "shallow":
        from pointdep.contrastive.pretraining.protocols import METHOD_OF
        from pointdep.core.methods import get_method

        method = get_method(METHOD_OF[objective])
        # Options of the read-out alone train nothing.
        takes = inspect.signature(method.objective).parameters
        return method.configure, {k: v for k, v in method.options.items() if k in takes}
    from pointdep.contrastive.losses import LOSSES
    from pointdep.contrastive.pretraining.deep import GlobalToLocal

    simclr = model == "simclr"
    make: Callable[..., Any] = LOSSES[objective] if simclr else partial(GlobalToLocal, objective)
    make = partial(make, negatives="all") if simclr else make
    return make, {one.name: one.default for one in inspect.signature(make).parameters.values()}


def check_options(model: str, objective: str, options: Options) -> None:
    """Refuse names and values that the loss of this objective does not take."""
    if not options:
        return
    make, known = _loss(model, objective)
    if model != "shallow":
        from pointdep.contrastive.pretraining.recipes import check_loss_options

        check_loss_options(Settings(model, (objective,), loss=options))
    for name in options:
        if not known:
            raise InputError(f"{objective} has no options with {model}, got {name!r}")
        require_known(f"option of the loss {objective}", name, known)

    make(**options)


def own_options(model: str, objective: str, of_run: Options) -> dict[str, Any]:
    """Those that are this objective's of what the objectives of a run share."""
    known = _loss(model, objective)[1] if model == "shallow" else of_run
    return {name: value for name, value in of_run.items() if name in known}


def loss_words(model: str, objective: str, options: Options) -> str:
    """ "temperature 0.2": the scale of simclr's score always, then what is not the default."""
    make, defaults = _loss(model, objective)
    told = {k: v for k, v in options.items() if v != defaults.get(k)}
    if model == "simclr":
        loss = make(**options)
        scale = "temperature" if hasattr(loss, "temperature") else "scale"
        told = {scale: f"{getattr(loss, scale):g}", **{k: told[k] for k in told if k != scale}}
    return ", ".join(f"{name} {value}" for name, value in told.items())
