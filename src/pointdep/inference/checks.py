"""Is an estimated log-ratio right? Held-out pairs can tell, without knowing the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pointdep.display.html_repr import card
from pointdep.errors import Flag, InputError
from pointdep.inference import moment_tests, verdicts
from pointdep.inference.moment_tests import Balance, Blocks, Recalibration, ReliabilityBin
from pointdep.inference.verdicts import BalanceResult, Origin

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST_ROWS = 50
_CARRIERS = 30  # rows that must carry a balance for its error to be believed
_IN_BIN = 8  # the same of a bin, whose offset is one of counts: fewer do
_QUANTILES = (0.02, 0.1, 0.35, 0.75)  # of log r among the joint pairs: where the steps stand
_ENDS = (0.05, 0.95)  # of the same: where the verdict takes its example
_FAR, _EXCESS = -3.0, 10.0  # nats; times as many pairs below as mismatched ones would be
_SLOPE_LET_PASS = 0.15
_SHOWN = ("name", "threshold", "offset", "stderr", "rows")


@dataclass(frozen=True)
class RatioCheck:
    """The outcome of a check of log-ratios on pairs that they were not fitted to.

    `passed` says that no fault was found; where there was too little to find one with,
    `conclusive` and `passed` are false and `p_value` is 1. `fault` is "none", "cannot_tell",
    "offset", "stretched", "compressed", "depends_on_x", "depends_on_y" or "uneven"; `verdict` says
    it in words. `balances` are the single tests, whose offsets say in nats how far log r is too
    high; `recalibration` what would mend it (None where nothing can be fitted); `reliability` the
    curve that `plot` draws. `at_limit` and `outside` are the shares of pairs at a limit of the
    read-out and unlike any that were trained on. `missed` are the flags of the fit that say that
    the model missed some of the dependence. The test itself cannot see that, so `passed` does not
    depend on them.
    """

    passed: bool
    conclusive: bool
    p_value: float
    verdict: str
    fault: str
    balances: tuple[BalanceResult, ...]
    recalibration: Recalibration | None
    reliability: tuple[ReliabilityBin, ...]
    rows: int
    at_limit: float = 0.0
    outside: float = 0.0
    level: float = 0.05
    tolerance: float = 0.05
    missed: tuple[Flag, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON."""
        fit = self.recalibration
        return asdict(self) | {
            "balances": [asdict(one) for one in self.balances],
            "recalibration": None if fit is None else fit.to_dict(),
            "reliability": [point.to_dict() for point in self.reliability],
            "missed": [{"name": flag.name, "message": flag.message} for flag in self.missed],
        }

    def __str__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [("p-value", f"{self.p_value:.2g}"), ("rows", self.rows)]
        if (fit := self.recalibration) is not None:
            rows.append(("slope", f"{fit.slope:.2f} +- {fit.slope_stderr:.2f}"))
        return card(self.verdict, rows)

    def plot_reliability(self, ax: Axes | None = None) -> Axes:
        """The reliability curve, with the verdict above it."""
        from pointdep.display.plots import plot_reliability

        return plot_reliability(self.reliability, self.verdict, ax)

    plot = plot_reliability
    """The same by a shorter name."""


def check_log_ratio(
    log_ratio: Tensor,
    joint: Tensor,
    product: Tensor,
    *,
    groups: Tensor | None = None,
    at_limit: float = 0.0,
    outside: float = 0.0,
    level: float = 0.05,
    tolerance: float = 0.05,
    origin: Origin | None = None,
    missed: Sequence[Flag] = (),
) -> RatioCheck:
    """Test log_ratio: (G, b, b), blocks of held-out rows set against each other.

    joint and product: (G, b, b) weights of the cells as samples of p(x,y) and of p(x)p(y), zero
    where a cell is neither. groups: (G, b), equal where rows are not independent draws (rows of a
    group, or one row in several blocks). The test errs with probability `level` or less on the
    true log r; offsets up to about twice `tolerance` nats are tolerated. at_limit, outside: shares
    of pairs, which the verdict mentions. origin: where log_ratio comes from, so that the advice
    fits. missed: flags of the fit, named in `verdicts.MISSED`, which the verdict joins.
    """
    for name, value, top in (("level", level, 1.0), ("tolerance", tolerance, math.inf)):
        if not isinstance(value, int | float) or not 0.0 < value < top:
            raise InputError(f"{name}={value!r} must be above 0 and below {top:g}")
    blocks = moment_tests.arrange(log_ratio, joint, product, groups)
    enough = blocks.units >= FEWEST_ROWS
    balances = find_balances(blocks) if enough else []
    middle = _middle(balances)
    fit = None
    if middle is not None:
        fit = moment_tests.recalibrate(blocks, middle.threshold, middle.offset)
    curve = moment_tests.reliability_balances(blocks) if enough else []
    bins = [balance for _, balance in curve if balances and balance.rows >= _IN_BIN]
    p_value = joined_p_value(balances, bins, fit, tolerance)
    results = tuple(_result(balance, tolerance) for balance in balances)
    passed = bool(balances) and p_value >= level
    fault = "none" if balances else "cannot_tell"
    if balances and not passed:
        fault = verdicts.name_fault(results, fit)
    low, high = joint_quantiles(blocks, _ENDS)
    # If log r is right, at most a share e^v of the joint pairs has log r <= v, for the joint is r
    # times the product. Pairs that came together by chance know no such limit. One pair is no
    # share: two must lie there.
    values, share = _joint_shares(blocks)
    many_far_below = ((values < _FAR) & (share > _EXCESS * values.exp()))[1:].any()
    verdict = verdicts.put_into_words(
        fault,
        (*results, *(_result(balance, tolerance) for balance in bins)),
        fit,
        ends=(low, high),
        wrong_pairs=bool(many_far_below),
        origin=origin or Origin(),
        rows=blocks.units,
        p_value=p_value,
        tolerance=tolerance,
        missed=[flag.name for flag in missed],
    )
    return RatioCheck(
        passed=passed,
        conclusive=bool(balances),
        p_value=p_value,
        verdict=verdict + verdicts.limits_in_words(at_limit, outside),
        fault=fault,
        balances=results,
        recalibration=fit,
        reliability=tuple(point for point, _ in curve),
        rows=blocks.units,
        at_limit=float(at_limit),
        outside=float(outside),
        level=float(level),
        tolerance=float(tolerance),
        missed=tuple(missed),
    )


def joined_p_value(
    wide: Sequence[Balance], bins: Sequence[Balance], fit: Recalibration | None, tolerance: float
) -> float:
    """Of three tests, the smallest p-value, raised for having looked at several (Sidak)."""
    if not wide:
        return 1.0
    tests = [combined_p_value(wide, tolerance)]
    if bins:
        # Soft steps average over wide ranges of log r, where a fault one way may cancel one the
        # other way. The bins of the reliability curve are narrow. Their covariance is that of
        # counts, known well from few rows, so it needs no correction.
        tests.append(combined_p_value(bins, tolerance, few=False))
    if fit is not None:
        # Are differences of log r too small? Where log r hardly varies the steps of the balances
        # see the same pairs and cannot tell.
        above = (fit.slope - 1.0 - _SLOPE_LET_PASS) / max(fit.slope_stderr, 1e-12)
        tests.append(1.0 - NormalDist().cdf(above))
    return -math.expm1(len(tests) * math.log1p(-min(*tests, 1.0 - 1e-16)))


def find_balances(blocks: Blocks) -> list[Balance]:
    """Those that enough rows carry: steps along log r, then x and y split in halves."""
    places = sorted(set(joint_quantiles(blocks, _QUANTILES)))
    found = [moment_tests.step_balance(blocks, place) for place in places if math.isfinite(place)]
    steps = [balance for balance in found if balance and balance.rows >= _CARRIERS]
    middle = _middle(steps)
    if middle is None:
        return []
    sides = [moment_tests.side_balance(blocks, middle.threshold, side) for side in ("x", "y")]
    return steps + [balance for balance in sides if balance and balance.rows >= _CARRIERS]


def combined_p_value(balances: Sequence[Balance], tolerance: float, *, few: bool = True) -> float:
    """That all balances hold: a Wald test with the covariance of their influences.

    The tolerance enters as a variance of its own, which also keeps steps that look at the same
    pairs (as they do on few outcomes) from being told apart by rounding. few: the covariance is
    estimated from as few draws as carry a balance.
    """
    influence = np.stack([balance.influence for balance in balances])
    offsets = np.array([balance.offset for balance in balances])
    covariance = influence @ influence.T + tolerance**2 * np.eye(len(balances))
    statistic = float(offsets @ np.linalg.solve(covariance, offsets))
    rows = min(balance.rows for balance in balances)
    shrink = max(0.0, 1 - len(balances) / rows) if few else 1.0  # Hotelling's correction
    half = torch.tensor([len(balances) / 2, shrink * statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def _middle(balances: Sequence[Balance]) -> Balance | None:
    """The step in the middle of those found, where most pairs of both kinds meet."""
    steps = [balance for balance in balances if balance.name == "all"]
    return steps[len(steps) // 2] if steps else None


def _result(balance: Balance, tolerance: float) -> BalanceResult:
    score = abs(balance.offset) / math.hypot(balance.stderr, tolerance)
    numbers = {name: getattr(balance, name) for name in _SHOWN}
    return BalanceResult(**numbers, p_value=math.erfc(score / math.sqrt(2)))


def joint_quantiles(blocks: Blocks, at: Sequence[float]) -> list[float]:
    """log r of the joint pairs at these shares of them."""
    values, share = _joint_shares(blocks)
    # Rounding of the running sum must not move a place by one pair.
    index = torch.searchsorted(share, torch.tensor(at, dtype=torch.float64) - 1e-9)
    return [float(values[i]) for i in index.clamp(max=len(values) - 1)]


def _joint_shares(blocks: Blocks) -> tuple[Tensor, Tensor]:
    """log r of the joint pairs in order, (p,), and the share of them up to each."""
    values, order = blocks.log_ratio[blocks.pairs].sort()
    return values, blocks.joint[blocks.pairs][order].cumsum(0)
