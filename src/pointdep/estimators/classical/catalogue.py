"""The classical estimators as data: what each estimates, and what it cannot give."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, Protocol

from pointdep.errors import InputError, require_whole, unknown_name
from pointdep.estimators.classical import cca, counting, ksg, likelihood, phsic, ulsif
from pointdep.estimators.classical.prepared import Array, Side

Check = Callable[[str, Any], None]

MOST_CENTRES = 1000
"""Kernel matrices have a column per centre: more than this is no longer a quick comparison."""


class PairModel(Protocol):
    """What a fit gives: PMI (or a score) of pairs, and MI where it is not the mean out of fold."""

    def pairs(self, x: Side, y: Side) -> Array:
        """(n,) of paired rows."""
        ...

    def matrix(self, x: Side, y: Side) -> Array:
        """(n, m) of every x with every y."""
        ...

    def mi_values(self, x: Side, y: Side) -> Array | None:
        """(n,) values of the fitted rows whose mean is the MI; None for PMI out of fold."""
        ...


def _anything(x: Side, y: Side) -> None:
    """Every kind of side will do."""
    del x, y


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
    checks: what each option must be.
    accepts: refuses sides that the method is not for.
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
    checks: Mapping[str, Check] = field(default_factory=dict, repr=False)
    accepts: Callable[[Side, Side], None] = field(default=_anything, repr=False)
    fit: Callable[..., PairModel] | None = field(default=None, repr=False)
    local: Callable[..., Array] | None = field(default=None, repr=False)
    dense: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    def __reduce__(self) -> tuple[Any, ...]:
        # The key and the options are all of it; functions and the mapping are not pickled.
        return get_classical, (self.key, dict(self.options))

    def configure(self, **options: Any) -> ClassicalMethod:
        """The same method with other options; a misspelt option names the nearest right one."""
        for name, value in options.items():
            if name not in self.options:
                raise unknown_name(f"option of method {self.key!r}", name, self.options)
            self.checks[name](name, value)
        return replace(self, options={**self.options, **options})


def _whole(most: float = math.inf) -> Check:
    def check(name: str, value: Any) -> None:
        require_whole(name, value)
        if value > most:
            raise InputError(f"option {name}={value!r} must be at most {most}")

    return check


def _number(*, zero: bool = False, below: float = math.inf) -> Check:
    def check(name: str, value: Any) -> None:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not real or not math.isfinite(value) or value < 0 or (value == 0 and not zero):
            raise InputError(f"option {name}={value!r} must be a positive number")
        if value >= below:
            raise InputError(f"option {name}={value!r} must be below {below:g}")

    return check


def _or_none(inner: Check) -> Check:
    def check(name: str, value: Any) -> None:
        if value is not None:
            inner(name, value)

    return check


def _one_of(*allowed: str) -> Check:
    def check(name: str, value: Any) -> None:
        if not isinstance(value, str) or value not in allowed:
            raise unknown_name(f"option {name}", value, allowed)

    return check


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
        options={"smoothing": 0.5, "correction": "miller_madow"},
        checks={
            "smoothing": _number(zero=True),
            "correction": _one_of("miller_madow", "none", "out_of_fold"),
        },
        accepts=counting.check,
        fit=counting.fit,
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
        options={"features": 200, "bandwidth": 1.0},
        checks={"features": _whole(MOST_CENTRES), "bandwidth": _number()},
        fit=phsic.fit,
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
        options={"centres": 200, "bandwidth": None, "ridge": None, "floor": 1e-4},
        checks={
            "centres": _whole(MOST_CENTRES),
            "bandwidth": _or_none(_number()),
            "ridge": _or_none(_number()),
            "floor": _number(below=1.0),
        },
        fit=ulsif.fit,
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
        options={"components": None, "max_components": 5, "ridge": 1e-6},
        checks={
            "components": _or_none(_whole()),
            "max_components": _whole(),
            "ridge": _number(),
        },
        accepts=likelihood.check,
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
        options={"k": 5},
        checks={"k": _whole()},
        accepts=ksg.check,
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
        options={"correction": "wishart"},
        checks={"correction": _one_of("wishart", "none", "out_of_fold")},
        fit=cca.fit,
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
            raise InputError(
                f"method {key!r} trains networks: use PointwiseDependency(method={key!r})"
            )
        raise unknown_name("classical method", key, CLASSICAL)
    if options is not None and not isinstance(options, Mapping):
        raise InputError(f"method_options={options!r} must be a mapping of names to values")
    return CLASSICAL[key].configure(**(options or {}))
