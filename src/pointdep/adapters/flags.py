"""What makes a calibration doubtful."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pointdep.fitting.flags import MEANINGS, Flag
from pointdep.inference.checks import RatioCheck

_FEW, _UNSURE = 200, 0.25  # pairs, and standard error of the slope over the slope
_BLURRED = 0.1  # nats: what a doubtful slope does to log r of mismatched pairs, at least
_SPARE = 10  # candidates that should be like the right one


def pair_flags(
    slope: float, stderr: float, *, spread: float, count: int, grouped: bool
) -> list[Flag]:
    """Whether the pairs are too few to say how far log r is stretched.

    spread: of the logits of mismatched pairs; count: pairs, or groups of them where grouped.
    """
    # Logits that say nothing have no sure slope either, but then log r is known to be about 0.
    unsure = stderr > _UNSURE * slope and stderr * spread > _BLURRED
    if count >= _FEW and not unsure:
        return []
    message = (
        f"{MEANINGS['few_pairs']} (slope {slope:.3g} +- {stderr:.2g}, by {count} "
        f"{'groups' if grouped else 'pairs'}). Give more pairs that the model was not trained on"
    )
    return [Flag("few_pairs", (), message)]


def reference_flags(size: int, pmi: NDArray[np.float32]) -> list[Flag]:
    """Whether the candidates, if any are needed, are too few for the PMI found, (n,)."""
    typical = float(np.median(pmi))
    if not size or typical <= math.log(size / _SPARE):
        return []
    message = (
        f"{MEANINGS['reference_too_small']}: what is a function of the query is found from {size} "
        f"candidates, and with PMI of {typical:.1f} nats fewer than {_SPARE} of them are like the "
        "right one. Give more pairs"
    )
    return [Flag("reference_too_small", (), message)]


def check_flags(check: RatioCheck) -> list[Flag]:
    """Whether held-out pairs speak against the ratio."""
    if check.passed or not check.conclusive:
        return []
    return [Flag("check_fails", (), f"{MEANINGS['check_fails']}. {check.verdict}")]
