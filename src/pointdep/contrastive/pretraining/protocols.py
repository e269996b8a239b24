"""What a pre-training run is told, checked before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pointdep.errors import InputError, require_known, require_positive, require_whole

METHOD_OF = {"cpc": "cpc", "pcc": "js", "drfc": "drf", "variational": "variational"}
METHOD_OF |= {name: name for name in ("dm1", "dm2", "rpc")}
"""The estimation method that trains each objective."""

OBJECTIVES = tuple(METHOD_OF)

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


PROTOCOLS = {
    # 21,000 iterations on MNIST; width: of the shift nets; depth: couplings.
    "shallow": Protocol(45, 128, 1e-4, width=512, depth=30),
    # width: ndf, an eighth of n_rkhs; depth: layers of a residual block.
    "amdim": Protocol(300, 480, 2e-4, width=192, depth=8),
    # The rate is for a batch of 512, and scales with the batch unless given; depth: 18 or 50.
    "simclr": Protocol(200, 512, 0.4, width=64, depth=18),
}
MODELS = tuple(PROTOCOLS)


@dataclass(frozen=True)
class Settings:
    """One training run: one network, or for the shallow model one replica per objective and seed.

    Parameters
    ----------
    model : str
        "shallow", "amdim" or "simclr".
    objectives : tuple of str, default=("cpc",)
        Of "cpc", "pcc", "drfc", "variational", "dm1", "dm2" and "rpc".
    seeds : tuple of int, default=(0,)
        One run per objective and seed.
    epochs : int, optional
        Passes over the images. This and the next options default to the paper's protocol.
    iterations : int, optional
        Steps in total, instead of epochs.
    minutes : float, optional
        Training time after which the run ends; the learning rate is brought down by then.
    batch_size : int, optional
        Images per step, of all processes together.
    learning_rate : float, optional
        At its highest; by default scaled with the batch size for simclr.
    width : int, optional
        Units of the shift nets (shallow), or channels (amdim, simclr).
    depth : int, optional
        Couplings (shallow), layers of a residual block (amdim), or 18 or 50 (simclr).
    precision : str, default="auto"
        "32", "bf16" or "16"; "auto" is bf16 on GPUs that have it.
    evaluate_every : int, default=0
        Epochs (or iterations, where the run is counted in these) between two evaluations of the
        features; 0 evaluates at the end only.
    monitor : str, default="knn"
        What evaluations before the end measure: "knn", nearest neighbours on some of the images,
        or "linear", the linear classifier on all of them.
    loss : mapping, optional
        Options of the loss, such as temperature, scale, alpha or negatives.

    Examples
    --------
    >>> from pointdep.contrastive import Settings
    >>> Settings("simclr", batch_size=256).learning_rate
    0.2
    >>> Settings("shallow", objectives=("cpc", "drfc"), seeds=(0, 1)).runs
    (('cpc', 0), ('cpc', 1), ('drfc', 0), ('drfc', 1))
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
        named = [("model", self.model, MODELS), ("precision", self.precision, PRECISIONS)]
        named += [("monitor", self.monitor, MONITORS)]
        named += [("objective", objective, OBJECTIVES) for objective in self.objectives]
        for what, name, known in named:
            require_known(what, name, known)
        if self.epochs is not None and self.iterations is not None:
            raise InputError("a run has epochs or iterations: give one of them")
        scaled = self.model == "simclr" and self.learning_rate is None
        protocol = PROTOCOLS[self.model]
        for name, value in vars(protocol).items():
            counted = name == "epochs" and self.iterations is not None
            if getattr(self, name) is None and not counted:
                object.__setattr__(self, name, value)
        self._check_numbers()
        if scaled:
            rate = protocol.learning_rate / protocol.batch_size * (self.batch_size or 0)
            object.__setattr__(self, "learning_rate", rate)
        if self.precision == "16" and len(self.runs) > 1 and self.model == "shallow":
            raise InputError("precision='16' has one loss scale for all replicas: use bf16 or 32")
        for name, value in self.loss.items():
            if not isinstance(value, int | float | str | list | tuple | None):
                raise InputError(f"loss option {name}={value!r}: options are numbers and words")

    def _check_numbers(self) -> None:
        for seed in self.seeds:
            require_whole("seed", seed, least=0)
        length = "epochs" if self.iterations is None else "iterations"
        least = {length: 1, "width": 1, "depth": 1, "batch_size": 2, "evaluate_every": 0}
        for name, smallest in least.items():
            require_whole(name, getattr(self, name), smallest)
        for name in ("minutes", "learning_rate"):
            if (value := getattr(self, name)) is not None:
                require_positive(name, value)
        if self.model == "simclr" and self.depth not in (18, 50):
            raise InputError(f"depth={self.depth} of simclr must be 18 or 50")

    @property
    def filled(self) -> Protocol:
        """The numbers of the run, none of which is None."""
        return Protocol(*[getattr(self, name) for name in Protocol.__dataclass_fields__])

    @property
    def runs(self) -> tuple[tuple[str, int], ...]:
        """(objective, seed) of each replica."""
        return tuple((objective, seed) for objective in self.objectives for seed in self.seeds)

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {**vars(self), "loss": dict(self.loss)}

    @classmethod
    def from_dict(cls, about: Mapping[str, Any]) -> Settings:
        """The inverse of `as_dict`, also after a round trip through JSON."""
        lists = {name: tuple(about[name]) for name in ("objectives", "seeds")}
        return cls(**{**about, **lists})
