"""Read-outs (score -> log r) and their inverses, elementwise.

What a score still lacks after its read-out - a constant for `dv`, a function of x for `cpc` - is
named by `Method.reference` and removed by the estimator with what it stored at fitting.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pointdep.core import objectives


def nwj(scores: Tensor) -> Tensor:
    """log r = s - 1."""
    return scores - 1.0


def nwj_inverse(log_ratio: Tensor) -> Tensor:
    """s = log r + 1."""
    return log_ratio + 1.0


def dm1(scores: Tensor, *, lam: float = 1.0) -> Tensor:
    """log r = s + log lambda."""
    return scores + math.log(lam)


def dm1_inverse(log_ratio: Tensor, *, lam: float = 1.0) -> Tensor:
    """s = log r - log lambda."""
    return log_ratio - math.log(lam)


def dm2(scores: Tensor, *, eta: float = 1.0, corrected: bool = True) -> Tensor:
    """log r = s - 1/(2 eta); the paper prints log r = s (``corrected=False``)."""
    return scores - 0.5 / eta if corrected else scores


def dm2_inverse(log_ratio: Tensor, *, eta: float = 1.0, corrected: bool = True) -> Tensor:
    """s = log r + 1/(2 eta)."""
    return log_ratio + 0.5 / eta if corrected else log_ratio


def drf(scores: Tensor, *, alpha: float = 0.0, floor: float = 1e-4) -> Tensor:
    """log r = log s; relative form r = (1-alpha) s / (1 - alpha s). r is kept above the floor.

    In the relative form s ends at 1/alpha, where r is infinite: r is capped at 1/floor.
    """
    if not alpha:
        return scores.clamp(min=floor).log()
    low, high = (1.0 / (alpha + (1.0 - alpha) / ratio) for ratio in (floor, 1.0 / floor))
    positive = scores.clamp(low, high)
    return positive.log() + math.log1p(-alpha) - torch.log1p(-alpha * positive)


def drf_inverse(log_ratio: Tensor, *, alpha: float = 0.0, floor: float = 1e-4) -> Tensor:
    """s = r, or r / (alpha r + 1 - alpha) in the relative form."""
    del floor
    if not alpha:
        return log_ratio.exp()
    return 1.0 / (alpha + (1.0 - alpha) * (-log_ratio).exp())


def rpc(
    scores: Tensor, *, a: float = 1.0, b: float = 0.005, c: float = 1.0, floor: float = 1e-4
) -> Tensor:
    """r = (a + c s) / (1 - b s), kept within [floor, 1/floor]."""
    low, high = ((r - a) / (b * r + c) for r in (floor, 1.0 / floor))
    scores = scores.clamp(low, high)
    return (a + c * scores).log() - torch.log1p(-b * scores)


def rpc_inverse(
    log_ratio: Tensor, *, a: float = 1.0, b: float = 0.005, c: float = 1.0, floor: float = 1e-4
) -> Tensor:
    """s = (r - a) / (b r + c), written so that a large r does not overflow."""
    del floor
    ratio, inverse = log_ratio.sigmoid(), (-log_ratio).sigmoid()  # r and 1, both over 1 + r
    return (ratio - a * inverse) / (b * ratio + c * inverse)


def mean_of(read_out: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """E_J[read_out(s)], Eq. (7): the plug-in estimate."""

    def plug_in(
        scores: Tensor, *, joint: Tensor | None = None, product: Tensor | None = None
    ) -> Tensor:
        del product  # part of the common signature; the plug-in needs joint samples only
        return objectives.joint_mean(read_out(scores), joint)

    return plug_in
