"""Mutual information from log-ratios, with a standard error that respects the reuse of pairs."""

from __future__ import annotations

import math
import numbers
from dataclasses import asdict, dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.methods import Method
from pointdep.display.html_repr import card
from pointdep.errors import InputError
from pointdep.inference.learning_curve import LearningCurve

Array = NDArray[np.float64]
_SLOWEST = 0.25  # power of the rows: a curve that flattens more slowly is not extrapolated


@dataclass(frozen=True)
class HeldOutBound:
    """A number that the mutual information exceeds on average, whatever the model: nats, stderr.

    rows: that were set against each other; it never exceeds their logarithm.
    """

    nats: float
    stderr: float
    rows: int

    def at(self, confidence: float) -> float:
        """The lower limit that holds with this confidence, at least zero."""
        normal_quantile(confidence)  # refuses what is no level
        return max(0.0, self.nats - NormalDist().inv_cdf(confidence) * self.stderr)


@dataclass(frozen=True)
class MIEstimate:
    """An estimate of mutual information (or what the method estimates) in nats.

    `correction` is what was added to the mean over unseen rows for the bias of fitting, or, if the
    closed form alone answers, how far the mean lies below the estimate from all rows less its known
    bias. `stderr` joins the error of that mean with the doubt about the correction; `ci` is the
    normal interval at `confidence`, cut at zero; it reaches farther up if the models may have
    missed some. `null_p` is the p-value of independence, from `shuffles` shuffled copies of the
    data, where they were asked for. `warnings` are the reasons to trust it less. `lower` is what
    can be claimed without trusting the model: a one-sided limit at `confidence`, from rows that the
    model did not see; no upper limit holds for every distribution. `curve` is how the mean over
    unseen rows has grown with the rows, where that was fitted.
    """

    nats: float
    stderr: float
    ci: tuple[float, float]
    confidence: float = 0.95
    rows: int = 0
    method: str = ""
    estimates: str = "mutual information"
    warnings: tuple[str, ...] = field(default=())
    correction: float = 0.0
    null_p: float | None = None
    shuffles: int = 0
    lower: float | None = None
    curve: LearningCurve | None = None

    @property
    def bits(self) -> float:
        """The estimate in bits."""
        return self.nats / math.log(2.0)

    @property
    def ci_bits(self) -> tuple[float, float]:
        """The interval in bits."""
        return self.ci[0] / math.log(2.0), self.ci[1] / math.log(2.0)

    def rows_needed(self, precision: float) -> int:
        """About how many rows it takes until `ci` reaches no farther than `precision` nats.

        Parameters
        ----------
        precision : float
            Wanted distance of the farther end of the interval from the estimate, in nats.

        Returns
        -------
        int
            At least the rows there are. The error falls with the root of the rows; the part of it
            that the last doubling of the rows has added falls as slowly as the learning curve
            flattens. Beyond the rows at hand that is an extrapolation.

        Examples
        --------
        >>> from pointdep import MIEstimate
        >>> MIEstimate(nats=1.0, stderr=0.05, ci=(0.9, 1.1), rows=1000).rows_needed(0.05)
        4000
        """
        if not isinstance(precision, numbers.Real) or not 0.0 < precision < math.inf:
            raise InputError(f"precision={precision!r} must be a number above 0")
        reach = max(self.ci[1] - self.nats, self.nats - self.ci[0], precision)
        if not math.isfinite(reach):
            raise InputError("the interval has no finite end: no number of rows follows from it")
        trend, power = 0.0, 0.5
        rise, error = (0.0, math.inf) if self.curve is None else self.curve.rise
        earlier = None if self.curve is None else self.curve.earlier
        if earlier is not None and rise > 2 * error:
            slope = math.log2(max(earlier, 1e-9) / rise)
            trend, power = min(rise, reach), min(max(slope, _SLOWEST), power)
        rest = reach**2 - trend**2
        low, high = 0.0, math.log(reach / precision) / power  # log of how many times the rows
        while high - low > 1e-12:
            middle = (low + high) / 2
            left = rest * math.exp(-middle) + trend**2 * math.exp(-2 * power * middle)
            low, high = (middle, high) if left > precision**2 else (low, middle)
        return max(self.rows, math.ceil(self.rows * math.exp(high) * (1.0 - 1e-9)))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON."""
        lists: dict[str, Any] = {"ci": list(self.ci), "warnings": list(self.warnings)}
        lists["curve"] = None if self.curve is None else self.curve.to_dict()
        return asdict(self) | {"bits": self.bits} | lists

    def __str__(self) -> str:
        more = [f"at least {self.at_least()}"] if self.lower is not None else []
        return "\n".join([self.headline, *more, *([str(self.curve)] if self.curve else [])])

    @property
    def headline(self) -> str:
        """The estimate and its interval, in one line."""
        low, high = self.ci
        interval = f"{100 * self.confidence:g}% interval {decimals(low)} to {decimals(high)}"
        if self.estimates != "mutual information":
            return f"{self.estimates} {decimals(self.nats)}, {interval}"
        null = "" if self.null_p is None else f", {self.independence}"
        return f"{decimals(self.nats)} nats ({decimals(self.bits)} bits), {interval}{null}"

    def at_least(self, unit: str = "nats") -> str:
        """`lower` in words, "" where it is None; unit: or "bits"."""
        if self.lower is None:
            return ""
        value = decimals(self.lower / (math.log(2.0) if unit == "bits" else 1.0))
        level = f"{100 * self.confidence:g}% one-sided limit"
        return f"{value} {unit} ({level}, even if the model is wrong)"

    def _repr_html_(self) -> str:
        low, high = self.ci
        of_mi = self.estimates == "mutual information"
        unit = " nats" if of_mi else ""
        rows: list[tuple[str, object]] = [
            (f"{100 * self.confidence:g}% interval", f"{decimals(low)} to {decimals(high)}{unit}"),
            ("standard error", f"{decimals(self.stderr)}{unit}"),
            *([("in bits", decimals(self.bits))] if of_mi else []),
            *([("at least", self.at_least())] if self.lower is not None else []),
            *([("held-out mean", self.curve.in_words())] if self.curve else []),
            *([("independence", self.independence)] if self.independence else []),
            ("from", f"{self.rows:,} rows, method {self.method}"),
        ]
        title = f"{self.estimates.capitalize()} {decimals(self.nats)}{unit}"
        return card(title, rows, notes=self.warnings)

    @property
    def independence(self) -> str:
        """The p-value of independence in words, "" where none was asked for."""
        if self.null_p is None:
            return ""
        least = self.null_p <= 1 / (1 + self.shuffles)
        sign, note = ("<=", ", the least that so many can give") if least else ("=", "")
        return f"p {sign} {self.null_p:.3g} for independence, by {self.shuffles} shuffles{note}"


def decimals(value: float) -> str:
    """Three decimals, and no minus before a zero."""
    return f"{round(value, 3) + 0.0:.3f}"


def pseudo_values(
    method: Method, log_ratio: Tensor, joint: Tensor, product: Tensor, columns: Tensor
) -> Array:
    """One number per row, whose mean is the inference value and whose spread gives its error.

    log_ratio, joint, product: (n, b); columns: (n, b) integers, the row whose y stands in a cell.
    Row i enters as x in its own cells and as y in others', so its influence is the derivative of
    the value with respect to a weight of that row (the infinitesimal jackknife): the objectives
    take weights, and autograd does the rest.
    """
    if method.uses_product and not bool((product > 0).any()):
        raise InputError(f"method {method.key!r} infers from pairs of different rows: give more")
    n = len(log_ratio)
    weight = torch.ones(n, dtype=torch.float64, requires_grad=True)
    value = method.inference(
        method.inverse(log_ratio.double().cpu()),
        joint=joint.double().cpu() * weight[:, None],
        product=product.double().cpu() * weight[:, None] * weight[columns.cpu()],
    )
    (slope,) = torch.autograd.grad(value, weight)
    # For most methods the slopes sum to zero; for cpc, whose value grows with the number of rows,
    # only the relative weight of a row is its influence.
    return (value.detach() + n * (slope - slope.mean())).numpy()


@dataclass(frozen=True, eq=False)
class RowValues:
    """What the mutual information of a model is the mean of.

    values: (n,), NaN for rows without an answer; groups: (n,) codes, or None when every row is its
    own; correction: what is added to the mean for the bias of fitting; doubt: its standard error,
    in addition to that of the rows; digests: of X and Y, to recognise the rows of a fit by, or
    None. bound, curve: of the estimate, where they are known. doubt_above: the doubt for a truth
    above the estimate; inflation: of the error of the mean. neighbours: another estimate and its
    standard error, up to which the interval reaches. ceiling: what the mutual information cannot
    exceed.
    """

    values: Array
    groups: NDArray[np.int64] | None
    correction: float = 0.0
    doubt: float = 0.0
    digests: tuple[str, str] | None = None
    bound: HeldOutBound | None = None
    curve: LearningCurve | None = None
    doubt_above: float | None = None
    inflation: float = 1.0
    neighbours: tuple[float, float] | None = None
    ceiling: float = math.inf

    def estimate(self, method: Any, *, confidence: float = 0.95, **about: Any) -> MIEstimate:
        """The estimate from the pseudo-values; rows of one group are not independent.

        method: has a `key` and says what it `estimates`. about: other fields of the estimate.
        """
        known = ~np.isnan(self.values)
        values, groups = self.values[known], None if self.groups is None else self.groups[known]
        nats, quantile = float(values.mean()) + self.correction, normal_quantile(confidence)
        error = self.inflation * standard_error(values, groups)
        stderr = math.hypot(error, self.doubt)
        above = self.doubt if self.doubt_above is None else self.doubt_above
        reach = quantile * math.hypot(error, above)
        low, high, lower = nats - quantile * stderr, nats + reach, None
        if self.neighbours is not None:
            high = max(high, self.neighbours[0] + quantile * self.neighbours[1])
        if method.estimates == "mutual information":
            # No dependence is below none: the lower end stops at zero, the upper one a reach above
            # it. An estimate that chance has put below zero stays inside its interval.
            low, high = min(max(low, 0.0), nats), max(high, reach)
            nats, low, high = (min(value, self.ceiling) for value in (nats, low, high))
        if self.bound is not None:
            # What holds whatever the model is holds for the interval too.
            lower = self.bound.at(confidence)
            low = max(low, min(lower, nats))
        about |= {"rows": len(values), "method": method.key, "estimates": method.estimates}
        about |= {"correction": self.correction, "lower": lower, "curve": self.curve}
        return MIEstimate(nats, stderr, (low, high), confidence, **about)


def normal_quantile(confidence: float) -> float:
    """Half the width of a normal interval, in standard errors; InputError for a wrong level."""
    if not isinstance(confidence, int | float) or not 0.0 < confidence < 1.0:
        raise InputError(f"confidence={confidence!r} must lie between 0 and 1")
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def standard_error(values: Array, groups: NDArray[np.int64] | None) -> float:
    """Of the mean of the values (n,), from the spread of their sums over groups."""
    sums = values - values.mean()
    if groups is not None:
        sums = np.bincount(groups, weights=sums)[np.bincount(groups) > 0]
    count = len(sums)
    if count < 2:
        return math.inf
    return float(math.sqrt(count / (count - 1) * np.square(sums).sum()) / len(values))
