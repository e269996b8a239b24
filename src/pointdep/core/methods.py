"""Table 1 of the paper as data: what each method learns, reads out and infers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pointdep.core.registry import Registry
from pointdep.errors import InputError, unknown_name

if TYPE_CHECKING:
    from torch import Tensor

    Objective = Callable[..., Tensor]
    ReadOut = Callable[[Tensor], Tensor]
    Gradient = Callable[..., tuple[Tensor, Tensor]]
Reference = Literal["none", "constant", "row"]

_FUNCTIONS = ("objective", "read_out", "inverse", "inference", "gradient")


def identity(values: Tensor) -> Tensor:
    """log r = s, the read-out of most methods and its inverse."""
    return values


@dataclass(frozen=True, eq=False)
class Method:
    """One way to learn r(x,y) and to answer with it.

    Parameters
    ----------
    key : str
        Short name, by which users choose the method.
    name : str
        Name in the paper.
    objective : callable
        ``(scores, *, joint=None, product=None) -> (...,)``, maximised in training.
    read_out : callable, default: the score itself
        score -> log r, elementwise, up to what `reference` names.
    inverse : callable, default: log r itself
        log r -> score, the inverse of `read_out`.
    inference : callable, default: the mean of log r over the pairs
        ``(scores, *, joint=None, product=None) -> (...,)``, the value reported as MI.
    identifies : str
        What the optimal score determines.
    learning, inferring : str
        `objective` and `inference` as formulas, with the number in the paper.
    estimates : str
        Quantity that `inference` estimates.
    reading : str
        `read_out` as a formula, where `inferring` does not spell it out.
    reference : {"none", "constant", "row"}
        What must be stored to finish the read-out: nothing, one constant per model
        (log E_M[exp s]), or a sample of y over which each row is normalised.
    gradient : callable, optional
        For a method whose gradient needs a running state:
        ``(scores, state, *, joint, product) -> (objective, state)``.
    bounded_by_batch : bool
        Whether the inference value cannot exceed log(batch size).
    uses_product : bool
        Whether the inference needs samples of the product, not only of the joint.
    scores_ratio : bool
        Whether the score grows like r rather than like log r.
    options : mapping
        Option names and their values. A function receives those that it takes by name.
    """

    key: str
    name: str
    objective: Objective
    read_out: ReadOut = field(default_factory=lambda: identity)
    inverse: ReadOut = field(default_factory=lambda: identity)
    inference: Objective = None  # type: ignore[assignment]  # set below
    identifies: str = "r"
    learning: str = ""
    inferring: str = "E_J[log r] (Eq. 7)"
    estimates: str = "mutual information"
    reading: str = ""
    reference: Reference = "none"
    gradient: Gradient | None = None
    bounded_by_batch: bool = False
    uses_product: bool = False
    scores_ratio: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.inference is None:
            from pointdep.core.readouts import mean_of

            object.__setattr__(self, "inference", mean_of(self.read_out))
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    @property
    def equation(self) -> str:
        """Learning, read-out and inference in one line."""
        inferring = f"{self.estimates.replace('mutual information', 'MI')}: {self.inferring}"
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
            _check_option(name, value, self.options[name])
        merged = {**self.options, **options}
        made: dict[str, Any] = {
            part: _bind(getattr(self, part), merged)
            for part in _FUNCTIONS
            if getattr(self, part) is not None
        }
        if getattr(self.inference, "__name__", "") == "plug_in":
            made["inference"] = None  # the mean of the read-out with these options
        return replace(self, options=merged, **made)


def _bind(function: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    """Fix those options that `function` takes."""
    while isinstance(function, partial):
        function = function.func
    takes = inspect.signature(function).parameters
    chosen = {name: value for name, value in options.items() if name in takes}
    return partial(function, **chosen) if chosen else function


_POSITIVE = frozenset({"c", "eta", "floor", "lam", "momentum", "tau"})
_NOT_NEGATIVE = frozenset({"a", "alpha", "b"})  # at zero their term is absent
_BELOW_ONE = frozenset({"alpha", "floor", "momentum"})


def _check_option(name: str, value: Any, default: Any) -> None:
    """Refuse a value of another kind than the default, or outside the range of a known option."""
    if isinstance(default, bool) and not isinstance(value, bool):
        raise InputError(f"option {name}={value!r} must be true or false")
    if isinstance(default, bool) or not isinstance(default, int | float):
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"option {name}={value!r} must be a finite number")
    if (value <= 0 and name in _POSITIVE) or (value < 0 and name in _NOT_NEGATIVE):
        raise InputError(f"option {name}={value!r} must be positive")
    if name in _BELOW_ONE and value >= 1:
        raise InputError(f"option {name}={value!r} must be below 1")


_RATIO = {"identifies": "r, where it is above the floor", "scores_ratio": True}
_DRF = {"objective": "drf", "read_out": "drf", **_RATIO}
_UP_TO_A_CONSTANT = "r up to a constant, estimated on held-out product pairs and stored"

# In the order of Table 1, then variants that are not in it. Functions are named as they are in
# `objectives` and `readouts`, by default like the method, and looked up on first use: torch is
# imported only then. A method with a `bound` infers the value of a function of `objectives`.
_TABLE: dict[str, dict[str, Any]] = {
    "cpc": {
        "name": "CPC (InfoNCE)",
        "bound": "cpc",
        "identifies": "r up to a function of x, removed over a stored sample of y",
        "learning": "mean_i [s_ii - log (1/B) sum_j exp s_ij]",
        "inferring": "the same, at most log B (Prop. 7 of the supplement)",
        "reference": "row",
        "bounded_by_batch": True,
    },
    "nwj": {
        "name": "NWJ",
        "bound": "nwj",
        "learning": "E_J[s] - e^-1 E_M[exp s]",
        "inferring": "the same (Prop. 1 of the supplement)",
    },
    "js": {
        "name": "JS",
        "bound": "js_bound",
        "learning": "-E_J[softplus(-s)] - E_M[softplus(s)] (Eq. 1)",
        "inferring": "1 + E_J[s] - E_M[exp s]",
    },
    "dv": {
        "name": "DV (MINE)",
        "bound": "dv",
        "identifies": _UP_TO_A_CONSTANT,
        "learning": "E_J[s] - log E_M[exp s]",
        "inferring": "the same (Prop. 2 of the supplement)",
        "reference": "constant",
    },
    "smile": {
        "name": "SMILE",
        "objective": "js",
        "bound": "smile_bound",
        "learning": "as js (Eq. 1)",
        "inferring": "E_J[s] - log E_M[exp clip(s, -tau, tau)]",
        "options": {"tau": 5.0},
    },
    "variational": {
        "name": "Variational MI Bounds",
        "objective": "js",
        "learning": "as js (Eq. 1)",
        "inferring": "E_J[s] (Eq. 7)",
    },
    "pc": {
        "name": "Probabilistic Classifier",
        "learning": "minus the cross-entropy of the logits s - log(n_M/n_J) (Eq. 4)",
        "reading": "log r = logit + log(n_M/n_J) = s (Eq. 5)",
    },
    "dm1": {
        "name": "Density Matching I",
        "learning": "E_J[s] - lam (E_M[exp s] - 1) (Eq. 2)",
        "inferring": "E_J[s + log lam] (Eq. 7)",
        "options": {"lam": 1.0},
    },
    "dm2": {
        "name": "Density Matching II",
        "identifies": "r times exp(1/(2 eta)), which the corrected read-out takes off",
        "learning": "E_J[s] - eta (log E_M[exp s])^2 (Eq. 3)",
        "inferring": (
            "E_J[s - 1/(2 eta)] (Eq. 7, corrected; corrected=False gives the paper's E_J[s])"
        ),
        "options": {"eta": 1.0, "corrected": True},
    },
    "drf": {
        "name": "Density-Ratio Fitting",
        **_DRF,
        "learning": "E_J[s] - 1/2 E_M[s^2] (Eq. 6)",
        "inferring": "E_J[log max(s, floor)] (Eq. 7)",
        "options": {"alpha": 0.0, "floor": 1e-4},
    },
    "drf_relative": {
        "name": "Density-Ratio Fitting, relative form",
        **_DRF,
        "learning": "E_J[s] - alpha/2 E_J[s^2] - (1-alpha)/2 E_M[s^2]",
        "reading": "r = (1-alpha) s / (1 - alpha s)",
        "inferring": "E_J[log r]",
        "options": {"alpha": 0.01, "floor": 1e-4},
    },
    "rpc": {
        "name": "Relative Predictive Coding",
        **_RATIO,
        "learning": "E_J[s] - a E_M[s] - b/2 E_J[s^2] - c/2 E_M[s^2]",
        "reading": "r = (a + c s) / (1 - b s)",
        "inferring": "E_J[log r]",
        "options": {"a": 1.0, "b": 0.005, "c": 1.0, "floor": 1e-4},
    },
    "smi": {
        "name": "Squared-loss mutual information",
        **_DRF,
        "inference": "squared_loss_mi",
        "learning": "as drf (Eq. 6)",
        "inferring": "1/2 E_J[r] - 1/2",
        "estimates": "squared-loss mutual information",
        "options": {"floor": 1e-4},
    },
    "mine": {
        "name": "DV with MINE's moving-average gradient",
        "objective": "dv",
        "bound": "dv",
        "identifies": _UP_TO_A_CONSTANT,
        "learning": (
            "as dv, the gradient's denominator a moving average of E_M[exp s] that keeps "
            "`momentum` of its past"
        ),
        "inferring": "as dv",
        "reference": "constant",
        "gradient": "dv_moving_average",
        "options": {"momentum": 0.9, "floor": 1e-4},
    },
}


def _make(key: str, entry: Any) -> Method:
    """A method from its row of the table, or as a user has made it."""
    if isinstance(entry, Method):
        return replace(entry, key=key).configure()
    if not isinstance(entry, dict):
        raise TypeError(f"must be a pointdep.Method, got {entry!r}")
    from pointdep.core import objectives, readouts

    row = {"objective": key, **entry}
    if "bound" in row:
        row.update(inference=row.pop("bound"), uses_product=True)
    for part in {"objective", "inference", "gradient"} & row.keys():
        row[part] = getattr(objectives, row[part])
    name = row.pop("read_out", key)
    if hasattr(readouts, name):
        row["read_out"], row["inverse"] = (getattr(readouts, n) for n in (name, f"{name}_inverse"))
    return Method(key, **row).configure()


METHODS: Registry[Method] = Registry("method", _TABLE, _make)
"""Every method by its key: the ten rows of Table 1, then the variants, then those registered."""

PAPER_METHODS = tuple(_TABLE)[:10]
"""The ten rows of Table 1, in the order of Figure 1."""

LOWER_BOUNDS = PAPER_METHODS[:5]
"""The upper part of Table 1: the methods before the paper's own."""

WITHOUT_NETWORKS = ("counting", "ulsif", "likelihood", "ksg", "cca", "phsic")
"""Keys of the estimators of `ClassicalDependency`, for those who ask for them here."""


def get_method(key: str, options: Mapping[str, Any] | None = None) -> Method:
    """Look a method up by its key or import path, with options.

    A misspelt key names the nearest right one.
    """
    if isinstance(key, str) and key in WITHOUT_NETWORKS:
        raise InputError(f"method {key!r} trains no network: use ClassicalDependency({key!r})")
    method = METHODS.find(key)
    if options is not None and not isinstance(options, Mapping):
        raise InputError(f"method_options={options!r} must be a mapping of names to values")
    return method.configure(**(options or {}))


def register_method(method: Method) -> Method:
    """Add a method of yours, which can then be chosen by its key wherever a built-in one can.

    A saved model names its method: register it again before loading the model elsewhere.

    Parameters
    ----------
    method : Method
        The method. Its key must be an identifier that no built-in method has.

    Returns
    -------
    Method
        The method as registered.

    Examples
    --------
    >>> from pointdep import Method, objectives, register_method
    >>> def smoothed(scores, *, joint=None, product=None, weight=0.5):
    ...     pc = objectives.pc(scores, joint=joint, product=product)
    ...     return weight * pc + (1 - weight) * objectives.js(scores, joint=joint, product=product)
    >>> register_method(Method("smoothed", "pc and js", smoothed, options={"weight": 0.5})).key
    'smoothed'
    """
    METHODS.register(getattr(method, "key", ""), method)
    return METHODS[method.key]
