"""The classical estimators as data: what each estimates, and what it cannot give."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from pointdep.errors import InputError, require_whole, unknown_name
from pointdep.estimators.classical import kernels, ksg, likelihood, plug_in
from pointdep.estimators.classical.prepared import Array, PairModel, Side

MOST_CENTRES = 1000
"""Kernel matrices have a column per centre: more than this is no longer a quick comparison."""


@dataclass(frozen=True)
class Rule:
    """An option's default, and what it must be: one of these words, or a positive number.

    whole: no fractions; zero: 0 will do too; most, below: the range's end, with it and without it.
    None will do where it is the default.
    """

    default: Any
    words: tuple[str, ...] = ()
    whole: bool = False
    zero: bool = False
    most: float = math.inf
    below: float = math.inf

    def check(self, name: str, value: Any) -> None:
        """Refuse a wrong value of the option `name`."""
        if value is None and self.default is None:
            return
        if self.words:
            if not isinstance(value, str) or value not in self.words:
                raise unknown_name(f"option {name}", value, self.words)
            return
        if self.whole:
            require_whole(name, value)
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not real or not math.isfinite(value) or value < 0 or (value == 0 and not self.zero):
            raise InputError(f"option {name}={value!r} must be a positive number")
        if value > self.most or value >= self.below:
            end = f"at most {self.most}" if value > self.most else f"below {self.below:g}"
            raise InputError(f"option {name}={value!r} must be {end}")


@dataclass(frozen=True, eq=False)
class ClassicalMethod:
    """One estimator.

    Attributes
    ----------
    key, name: short name, and the name in the literature.
    equation: the model, and how MI comes from it.
    estimates: what `mutual_information` estimates; "" where it gives none.
    cannot: what it cannot give, and where it fails.
    pmi: what `pmi` gives: log r in "nats", a "score" that only ranks pairs, or "none".
    options: option names and their values.
    rules: the default of each option, and what it must be.
    refuses: what a side, or both, must not hold.
    fit: ``(x, y, *, seed, **options) -> PairModel``; None where there is nothing to fit.
    local: ``(x, y, *, seed, progress, **options) -> (n,)``, values whose mean is the MI of these
        very rows.
    dense: whether a side of categories is needed as one-hot columns.
    """

    key: str
    name: str
    equation: str
    cannot: str
    estimates: str = "mutual information"
    pmi: Literal["nats", "score", "none"] = "nats"
    options: Mapping[str, Any] = field(default_factory=dict)
    rules: Mapping[str, Rule] = field(default_factory=dict, repr=False)
    refuses: tuple[str, ...] = field(default=(), repr=False)
    fit: Callable[..., PairModel] | None = field(default=None, repr=False)
    local: Callable[..., Array] | None = field(default=None, repr=False)
    dense: bool = False

    def __post_init__(self) -> None:
        defaults = {name: rule.default for name, rule in self.rules.items()}
        object.__setattr__(self, "options", MappingProxyType(defaults | dict(self.options)))

    def __reduce__(self) -> tuple[Any, ...]:
        # The key and the options are all of it; functions and the mapping are not pickled.
        return get_classical, (self.key, dict(self.options))

    def check_sides(self, x: Side, y: Side) -> None:
        """Refuse sides that the method is not for."""
        for name, side in (("X", x), ("Y", y)):
            kind = "numbers and categories" if side.mixed else "numbers"
            if side.codes is None and kind in self.refuses:
                declare = f"discrete_{name.lower()}=True if these are categories"
                raise InputError(f"method {self.key!r}: {name} holds {kind}; say {declare}")
        both = x.codes is not None and y.codes is not None
        if both and "categories on both sides" in self.refuses:
            raise InputError(f"method {self.key!r}: both sides are categories, use 'counting'")

    def configure(self, **options: Any) -> ClassicalMethod:
        """The same method with other options; a misspelt option names the nearest right one."""
        for name, value in options.items():
            if name not in self.options:
                raise unknown_name(f"option of method {self.key!r}", name, self.options)
            self.rules[name].check(name, value)
        return replace(self, options={**self.options, **options})


_TABLE = (
    ClassicalMethod(
        key="counting",
        name="Counting",
        equation=(
            "r = f(x,y) / (f(x) f(y)), the frequencies with `smoothing` added to every cell; MI: "
            "the plug-in estimate of the bare counts, by `correction` 'miller_madow' with "
            "(outcomes that came - 1) / (2 n) added to each entropy, 'none' as it is, or "
            "'out_of_fold' the mean of smoothed PMI"
        ),
        cannot="anything about numbers; little about categories with few rows per pair",
        rules={
            "smoothing": Rule(0.5, zero=True),
            "correction": Rule("miller_madow", ("miller_madow", "none", "out_of_fold")),
        },
        refuses=("numbers", "numbers and categories"),
        fit=plug_in.count,
    ),
    ClassicalMethod(
        key="phsic",
        name="Pointwise HSIC",
        equation=(
            "(f(x) - mean f)' C (g(y) - mean g), f and g features of Gaussian kernels as wide as "
            "`bandwidth` times the median distance, of `features` landmarks each, C their "
            "covariance; its mean is HSIC"
        ),
        estimates="",
        cannot="nats: its score ranks pairs and has no scale of PMI, so neither r nor MI follow",
        pmi="score",
        rules={"features": Rule(200, whole=True, most=MOST_CENTRES), "bandwidth": Rule(1.0)},
        fit=kernels.fit_phsic,
        dense=True,
    ),
    ClassicalMethod(
        key="ulsif",
        name="Unconstrained least-squares importance fitting (uLSIF, LSMI)",
        equation=(
            "r = sum_l a_l k(x,x_l) k(y,y_l) over `centres` rows, a = (H + `ridge` I)^-1 h, which "
            "minimises 1/2 E_M[r^2] - E_J[r]; `bandwidth` (times the median distance) and `ridge` "
            "cross-validated where None; PMI: log max(r, `floor`); MI: its mean out of fold"
        ),
        cannot="PMI below log floor; much in many dimensions, where kernels see few neighbours",
        rules={
            "centres": Rule(200, whole=True, most=MOST_CENTRES),
            "bandwidth": Rule(None),
            "ridge": Rule(None),
            "floor": Rule(1e-4, below=1.0),
        },
        fit=kernels.fit_ulsif,
        dense=True,
    ),
    ClassicalMethod(
        key="likelihood",
        name="Likelihood (mixtures of Gaussians)",
        equation=(
            "log p(y|x) - log p(y), from a mixture of full-covariance Gaussians for (x,y) and its "
            "exact marginals; where one side is labels, a mixture of the other for each label; as "
            "many `components` as BIC finds, up to `max_components`, where None; `ridge` added to "
            "every variance; MI: the mean of PMI out of fold"
        ),
        cannot="densities far from a few Gaussians; sides that mix numbers and categories",
        rules={
            "components": Rule(None, whole=True),
            "max_components": Rule(5, whole=True),
            "ridge": Rule(1e-6),
        },
        refuses=("numbers and categories", "categories on both sides"),
        fit=likelihood.fit,
    ),
    ClassicalMethod(
        key="ksg",
        name="Kraskov-Stoegbauer-Grassberger nearest neighbours",
        equation=(
            "MI: psi(k) + psi(n) - mean[psi(nx + 1) + psi(ny + 1)], nx and ny counting rows nearer "
            "than the `k`-th neighbour in (x,y), maximum norm (KSG's first estimator); labels on "
            "one side: Ross (2014); numbers and categories in one side: Gao et al. (2017)"
        ),
        cannot="PMI: its terms belong to rows, not to pairs; it reads too low in many dimensions",
        pmi="none",
        rules={"k": Rule(5, whole=True)},
        refuses=("categories on both sides",),
        local=ksg.local_values,
    ),
    ClassicalMethod(
        key="cca",
        name="Canonical correlations (Gaussian)",
        equation=(
            "log r of a Gaussian with the sample's canonical correlations; MI: -1/2 sum "
            "log(1 - rho^2), by `correction` 'wishart' less what chance correlations add to it "
            "(dx dy / (2 n) to first order), 'none' as it is, or 'out_of_fold' the mean of PMI"
        ),
        cannot="any dependence that is not linear",
        rules={"correction": Rule("wishart", ("wishart", "none", "out_of_fold"))},
        fit=plug_in.fit_gaussian,
        dense=True,
    ),
)

CLASSICAL: Mapping[str, ClassicalMethod] = MappingProxyType({m.key: m for m in _TABLE})
"""Every classical estimator by its key."""


def get_classical(key: str, options: Mapping[str, Any] | None = None) -> ClassicalMethod:
    """Look an estimator up by its key, with options."""
    if not isinstance(key, str) or key not in CLASSICAL:
        from pointdep.core.methods import METHODS

        if isinstance(key, str) and key in METHODS:
            raise InputError(f"method {key!r} is neural: use PointwiseDependency(method={key!r})")
        raise unknown_name("classical method", key, CLASSICAL)
    if options is not None and not isinstance(options, Mapping):
        raise InputError(f"method_options={options!r} must be a mapping of names to values")
    return CLASSICAL[key].configure(**(options or {}))
