"""Table 1 of the paper as data: what each method learns, reads out and infers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from torch import Tensor

from pointdep.core import objectives, readouts
from pointdep.errors import InputError, unknown_name

Objective = Callable[..., Tensor]
ReadOut = Callable[[Tensor], Tensor]
Reference = Literal["none", "constant", "row"]

_SHORT = {"mutual information": "MI", "squared-loss mutual information": "squared-loss MI"}


@dataclass(frozen=True, eq=False)
class Method:
    """One way to learn r(x,y) and to answer with it.

    Attributes
    ----------
    key, name: short name, and the name in the paper.
    objective: ``(scores, *, joint=None, product=None) -> (...,)``, maximised in training.
    read_out: score -> log r, elementwise, up to what `reference` names.
    inverse: log r -> score, the inverse of `read_out`.
    inference: ``(scores, *, joint=None, product=None) -> (...,)``, the value reported as MI.
    identifies: what the optimal score determines.
    learning, inferring: `objective` and `inference` as formulas, with the number in the paper.
    estimates: the quantity that `inference` estimates.
    reading: `read_out` as a formula, where `inferring` does not spell it out.
    reference: what must be stored to finish the read-out: nothing, one constant per model
        (log E_M[exp s]), or a sample of y over which each row is normalised.
    gradient: for a method whose gradient needs a running state,
        ``(scores, state, *, joint, product) -> (objective, state)``.
    bounded_by_batch: the inference value cannot exceed log(batch size).
    uses_product: the inference needs samples of the product, not only of the joint.
    scores_ratio: the score grows like r rather than like log r.
    options: option names and their values.
    """

    key: str
    name: str
    objective: Objective
    read_out: ReadOut
    inverse: ReadOut
    inference: Objective
    identifies: str
    learning: str
    inferring: str
    estimates: str = "mutual information"
    reading: str = ""
    reference: Reference = "none"
    gradient: Callable[..., tuple[Tensor, Tensor]] | None = None
    bounded_by_batch: bool = False
    uses_product: bool = False
    scores_ratio: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def equation(self) -> str:
        """Learning, read-out and inference in one line."""
        inferring = f"{_SHORT[self.estimates]}: {self.inferring}"
        return "; ".join(part for part in (self.learning, self.reading, inferring) if part)

    @property
    def is_mean_of_pmi(self) -> bool:
        """Whether the inference is the mean of log r over joint samples, Eq. (7)."""
        return not self.uses_product and self.estimates == "mutual information"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Method) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        return self.key, tuple(sorted(self.options.items()))

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    def __reduce__(self) -> tuple[Any, ...]:
        # A method is its key and its options: the functions and the read-only mapping are not
        # pickled or copied.
        return get_method, (self.key, dict(self.options))

    def configure(self, **options: Any) -> Method:
        """The same method with other options; a misspelt option names the nearest right one."""
        for name, value in options.items():
            if name not in self.options:
                if not self.options:
                    raise InputError(f"method {self.key!r} has no options, got {name!r}")
                raise unknown_name(f"option of method {self.key!r}", name, self.options)
            _check_option(name, value)
        merged = {**self.options, **options}
        made: dict[str, Any] = {
            part: _bind(getattr(self, part), merged)
            for part in ("objective", "read_out", "inverse", "inference", "gradient")
            if getattr(self, part) is not None
        }
        return replace(self, options=merged, **made)


def _bind(function: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    """Fix those options that `function` takes."""
    while isinstance(function, partial):
        function = function.func
    takes = inspect.signature(function).parameters
    chosen = {name: value for name, value in options.items() if name in takes}
    return partial(function, **chosen) if chosen else function


def _check_option(name: str, value: Any) -> None:
    if name == "corrected":
        if not isinstance(value, bool):
            raise InputError(f"option corrected={value!r} must be true or false")
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"option {name}={value!r} must be a finite number")
    # alpha, a and b may be zero (their term is then absent); the others divide or scale.
    if value < 0 or (value == 0 and name not in {"alpha", "a", "b"}):
        raise InputError(f"option {name}={value!r} must be positive")
    if name in {"alpha", "momentum", "floor"} and value >= 1:
        raise InputError(f"option {name}={value!r} must be below 1")


_IDENTITY: dict[str, Any] = {"read_out": readouts.identity, "inverse": readouts.identity}
_DRF: dict[str, Any] = {
    "objective": objectives.drf,
    "read_out": readouts.drf,
    "inverse": readouts.drf_inverse,
    "identifies": "r, where it is above the floor",
    "scores_ratio": True,
}

_TABLE = (
    Method(
        key="cpc",
        name="CPC (InfoNCE)",
        objective=objectives.cpc,
        **_IDENTITY,
        inference=objectives.cpc,
        identifies="r up to a function of x, removed over a stored sample of y",
        learning="mean_i [s_ii - log (1/B) sum_j exp s_ij]",
        inferring="the same, at most log B (Prop. 7 of the supplement)",
        reference="row",
        bounded_by_batch=True,
        uses_product=True,
    ),
    Method(
        key="nwj",
        name="NWJ",
        objective=objectives.nwj,
        read_out=readouts.nwj,
        inverse=readouts.nwj_inverse,
        inference=objectives.nwj,
        identifies="r",
        learning="E_J[s] - e^-1 E_M[exp s]",
        inferring="the same (Prop. 1 of the supplement)",
        uses_product=True,
    ),
    Method(
        key="js",
        name="JS",
        objective=objectives.js,
        **_IDENTITY,
        inference=readouts.js_inference,
        identifies="r",
        learning="-E_J[softplus(-s)] - E_M[softplus(s)] (Eq. 1)",
        inferring="1 + E_J[s] - E_M[exp s]",
        uses_product=True,
    ),
    Method(
        key="dv",
        name="DV (MINE)",
        objective=objectives.dv,
        **_IDENTITY,
        inference=objectives.dv,
        identifies="r up to a constant, estimated on held-out product pairs and stored",
        learning="E_J[s] - log E_M[exp s]",
        inferring="the same (Prop. 2 of the supplement)",
        reference="constant",
        uses_product=True,
    ),
    Method(
        key="smile",
        name="SMILE",
        objective=objectives.js,
        **_IDENTITY,
        inference=objectives.smile_bound,
        identifies="r",
        learning="as js (Eq. 1)",
        inferring="E_J[s] - log E_M[exp clip(s, -tau, tau)]",
        uses_product=True,
        options={"tau": 5.0},
    ),
    Method(
        key="variational",
        name="Variational MI Bounds",
        objective=objectives.js,
        **_IDENTITY,
        inference=readouts.mean_of(readouts.identity),
        identifies="r",
        learning="as js (Eq. 1)",
        inferring="E_J[s] (Eq. 7)",
    ),
    Method(
        key="pc",
        name="Probabilistic Classifier",
        objective=objectives.pc,
        **_IDENTITY,
        inference=readouts.mean_of(readouts.identity),
        identifies="r",
        learning="minus the cross-entropy of the logits s - log(n_M/n_J) (Eq. 4)",
        reading="log r = logit + log(n_M/n_J) = s (Eq. 5)",
        inferring="E_J[log r] (Eq. 7)",
    ),
    Method(
        key="dm1",
        name="Density Matching I",
        objective=objectives.dm1,
        read_out=readouts.dm1,
        inverse=readouts.dm1_inverse,
        inference=readouts.mean_of(readouts.dm1),
        identifies="r",
        learning="E_J[s] - lam (E_M[exp s] - 1) (Eq. 2)",
        inferring="E_J[s + log lam] (Eq. 7)",
        options={"lam": 1.0},
    ),
    Method(
        key="dm2",
        name="Density Matching II",
        objective=objectives.dm2,
        read_out=readouts.dm2,
        inverse=readouts.dm2_inverse,
        inference=readouts.mean_of(readouts.dm2),
        identifies="r times exp(1/(2 eta)), which the corrected read-out takes off",
        learning="E_J[s] - eta (log E_M[exp s])^2 (Eq. 3)",
        inferring="E_J[s - 1/(2 eta)] (Eq. 7, corrected; corrected=False gives the paper's E_J[s])",
        options={"eta": 1.0, "corrected": True},
    ),
    Method(
        key="drf",
        name="Density-Ratio Fitting",
        **_DRF,
        inference=readouts.mean_of(readouts.drf),
        learning="E_J[s] - 1/2 E_M[s^2] (Eq. 6)",
        inferring="E_J[log max(s, floor)] (Eq. 7)",
        options={"alpha": 0.0, "floor": 1e-4},
    ),
    Method(
        key="drf_relative",
        name="Density-Ratio Fitting, relative form",
        **_DRF,
        inference=readouts.mean_of(readouts.drf),
        learning="E_J[s] - alpha/2 E_J[s^2] - (1-alpha)/2 E_M[s^2]",
        reading="r = (1-alpha) s / (1 - alpha s)",
        inferring="E_J[log r]",
        options={"alpha": 0.01, "floor": 1e-4},
    ),
    Method(
        key="rpc",
        name="Relative Predictive Coding",
        objective=objectives.rpc,
        scores_ratio=True,
        read_out=readouts.rpc,
        inverse=readouts.rpc_inverse,
        inference=readouts.mean_of(readouts.rpc),
        identifies="r, where it is above the floor",
        learning="E_J[s] - a E_M[s] - b/2 E_J[s^2] - c/2 E_M[s^2]",
        reading="r = (a + c s) / (1 - b s)",
        inferring="E_J[log r]",
        options={"a": 1.0, "b": 0.005, "c": 1.0, "floor": 1e-4},
    ),
    Method(
        key="smi",
        name="Squared-loss mutual information",
        **_DRF,
        inference=objectives.squared_loss_mi,
        learning="as drf (Eq. 6)",
        inferring="1/2 E_J[r] - 1/2",
        estimates="squared-loss mutual information",
        options={"floor": 1e-4},
    ),
    Method(
        key="mine",
        name="DV with MINE's moving-average gradient",
        objective=objectives.dv,
        **_IDENTITY,
        inference=objectives.dv,
        identifies="r up to a constant, estimated on held-out product pairs and stored",
        learning=(
            "as dv, the gradient's denominator a moving average of E_M[exp s] that keeps "
            "`momentum` of its past"
        ),
        inferring="as dv",
        reference="constant",
        gradient=objectives.dv_moving_average,
        uses_product=True,
        options={"momentum": 0.9, "floor": 1e-4},
    ),
)

METHODS: Mapping[str, Method] = MappingProxyType({m.key: m.configure() for m in _TABLE})
"""Every method by its key: the ten rows of Table 1, then the variants beside them."""

PAPER_METHODS = ("cpc", "nwj", "js", "dv", "smile", "variational", "pc", "dm1", "dm2", "drf")
"""The ten rows of Table 1, in the order of Figure 1."""

LOWER_BOUNDS = PAPER_METHODS[:5]
"""The upper part of Table 1: the methods before the paper's own."""

# The keys of the estimators that live elsewhere, for those who ask for them here.
_CLASSICAL = ("cca", "counting", "ksg", "likelihood", "phsic", "ulsif")


def get_method(key: str, options: Mapping[str, Any] | None = None) -> Method:
    """Look a method up by its key, with options; a misspelt key names the nearest right one."""
    if isinstance(key, str) and key in _CLASSICAL:
        raise InputError(f"method {key!r} trains no network: use ClassicalDependency({key!r})")
    if not isinstance(key, str) or key not in METHODS:
        raise unknown_name("method", key, METHODS)
    if options is not None and not isinstance(options, Mapping):
        raise InputError(f"method_options={options!r} must be a mapping of names to values")
    return METHODS[key].configure(**(options or {}))
