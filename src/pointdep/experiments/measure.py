"""One run: fit an estimator on a task, and compare its answers with the exact ones."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pointdep.data.tasks import make_task
from pointdep.errors import InputError, PointdepError
from pointdep.experiments.estimators import gives_nats, make_estimator
from pointdep.experiments.records import Result, Run

if TYPE_CHECKING:
    from pointdep.inference.mutual_information import MIEstimate

Array = NDArray[np.float64]
_Answer = TypeVar("_Answer")

FRESH_ROWS = 5000
_FRESH_SEED = 1_000_000  # far from the seeds of the rows that are fitted


def measure(run: Run) -> Result:
    """Fit and compare; an estimator that fails gives a result with the reason."""
    task = make_task(run.task, run.rows, run.seed)
    fresh = make_task(run.task, FRESH_ROWS, run.seed + _FRESH_SEED)
    found: dict[str, Any] = {}
    reasons: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the flags are kept in the result
        try:
            model = make_estimator(run.estimator, seed=run.seed, device=run.device)
            start = time.perf_counter()
            model.fit(task.x, task.y)
            information = _ask(lambda: model.mutual_information(confidence=run.confidence), reasons)
            found["seconds"] = time.perf_counter() - start
            found["flags"] = " ".join(flag.name for flag in getattr(model, "flags_", ()))
            if information is not None:
                found |= compare_information(information, task.mutual_information, reasons)
            pmi = _ask(lambda: np.asarray(model.pmi(fresh.x, fresh.y), np.float64), reasons)
            if pmi is not None:
                nats = gives_nats(run.estimator)
                found |= compare_pmi(pmi, fresh.pmi, reasons, nats=nats)
        except Exception as error:  # whatever it is, the other runs are still wanted
            reasons.append(_reason(error))
    return Result(
        **vars(run),
        true_mi=task.mutual_information,
        **found,
        reason="; ".join(dict.fromkeys(reasons)),
    )


def compare_information(found: MIEstimate, true: float, reasons: list[str]) -> dict[str, Any]:
    """The columns of the mutual information; reasons receives why one is missing."""
    if found.estimates != "mutual information":
        reasons.append(f"estimates the {found.estimates}")
        return {}
    if not math.isfinite(found.nats):
        reasons.append(f"the mutual information is {found.nats}")
        return {}
    columns: dict[str, Any] = {"mi": found.nats, "error": found.nats - true}
    if math.isfinite(found.stderr):
        columns["stderr"] = found.stderr
    low, high = found.ci
    if math.isfinite(low) and math.isfinite(high):
        columns |= {"low": low, "high": high, "covered": low <= true <= high}
    return columns


def compare_pmi(
    found: Array, true: Array, reasons: list[str], *, nats: bool = True
) -> dict[str, Any]:
    """The columns of the PMI: found and true are (n,); reasons receives why one is missing.

    Without nats, found is a score that goes with PMI, whose distance from it means nothing.
    """
    from scipy.stats import rankdata

    if np.isnan(found).any():
        reasons.append(f"{int(np.isnan(found).sum())} of {len(found)} PMI are NaN")
        return {}
    columns: dict[str, Any] = {
        # Ranks need no finite numbers: -inf, for pairs never seen together, is the lowest.
        "pmi_spearman": _correlation(rankdata(found), rankdata(true))
    }
    infinite = int(np.isinf(found).sum())
    if infinite:
        reasons.append(f"{infinite} of {len(found)} PMI are infinite")
        return columns
    if nats:
        columns["pmi_rmse"] = float(np.sqrt(np.mean(np.square(found - true))))
    columns["pmi_pearson"] = _correlation(found, true)
    return columns


def _correlation(found: Array, true: Array) -> float | None:
    """None where either is constant, as the PMI of independent pairs is."""
    if np.ptp(found) < 1e-12 or np.ptp(true) < 1e-12:
        return None
    return float(np.corrcoef(found, true)[0, 1])


def _ask(answer: Callable[[], _Answer], reasons: list[str]) -> _Answer | None:
    """The answer, or None and a reason where the estimator does not give it."""
    try:
        return answer()
    except InputError as error:
        reasons.append(_reason(error))
        return None


def _reason(error: Exception) -> str:
    """One line; errors that are not ours are named."""
    text = " ".join(str(error).split())
    return text if isinstance(error, PointdepError) else f"{type(error).__name__}: {text}"
