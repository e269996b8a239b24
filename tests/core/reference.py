"""Every objective a second time, as double loops in plain Python over the cells of one matrix.

They share no code with the library: floats, the `math` module and the equations of Table 1.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from pointdep.core import objectives

Matrix = list[list[float]]


def mean(scores: Matrix, weights: Matrix, function: Callable[[float], float] = float) -> float:
    total = weight = 0.0
    for row, row_weights in zip(scores, weights, strict=True):
        for score, w in zip(row, row_weights, strict=True):
            if w > 0:
                total += w * function(score)
                weight += w
    return total / weight


def total(weights: Matrix) -> float:
    return sum(sum(row) for row in weights)


def log1pexp(score: float) -> float:
    return math.log1p(math.exp(score))


def square(score: float) -> float:
    return score * score


def cpc(s: Matrix, joint: Matrix, product: Matrix) -> float:
    value = 0.0
    for i in range(len(s)):
        columns = range(len(s[i]))
        negatives = sum(product[i][k] * math.exp(s[i][k]) for k in columns if product[i][k] > 0)
        count = sum(product[i][k] for k in columns)
        for j in columns:
            if joint[i][j] > 0:
                own = joint[i][j]
                average = (own * math.exp(s[i][j]) + negatives) / (own + count)
                value += own * (s[i][j] - math.log(average))
    return value / total(joint)


def nwj(s: Matrix, joint: Matrix, product: Matrix) -> float:
    return mean(s, joint) - math.exp(-1) * mean(s, product, math.exp)


def js(s: Matrix, joint: Matrix, product: Matrix) -> float:
    return -mean(s, joint, lambda v: log1pexp(-v)) - mean(s, product, log1pexp)


def dv(s: Matrix, joint: Matrix, product: Matrix) -> float:
    return mean(s, joint) - math.log(mean(s, product, math.exp))


def smile_bound(s: Matrix, joint: Matrix, product: Matrix, tau: float = 5.0) -> float:
    clipped = mean(s, product, lambda v: math.exp(min(max(v, -tau), tau)))
    return mean(s, joint) - math.log(clipped)


def dm1(s: Matrix, joint: Matrix, product: Matrix, lam: float = 1.0) -> float:
    return mean(s, joint) - lam * (mean(s, product, math.exp) - 1)


def dm2(s: Matrix, joint: Matrix, product: Matrix, eta: float = 1.0) -> float:
    return mean(s, joint) - eta * math.log(mean(s, product, math.exp)) ** 2


def pc(s: Matrix, joint: Matrix, product: Matrix) -> float:
    shift = math.log(total(product) / total(joint))
    loss = total(joint) * mean(s, joint, lambda v: log1pexp(shift - v))
    loss += total(product) * mean(s, product, lambda v: log1pexp(v - shift))
    return -loss / (total(joint) + total(product))


def drf(s: Matrix, joint: Matrix, product: Matrix, alpha: float = 0.0) -> float:
    value = mean(s, joint) - alpha / 2 * mean(s, joint, square)
    return value - (1 - alpha) / 2 * mean(s, product, square)


def rpc(
    s: Matrix, joint: Matrix, product: Matrix, *, a: float = 1.0, b: float = 0.005, c: float = 1.0
) -> float:
    value = mean(s, joint) - a * mean(s, product)
    return value - b / 2 * mean(s, joint, square) - c / 2 * mean(s, product, square)


def squared_loss_mi(s: Matrix, joint: Matrix, product: Matrix) -> float:
    return mean(s, joint) / 2 - 0.5


class Case(NamedTuple):
    """An objective of the library with its options, beside its reference."""

    function: Callable[..., Tensor]
    reference: Callable[..., float]
    options: dict[str, float]

    def __call__(
        self, scores: Tensor, joint: Tensor | None = None, product: Tensor | None = None
    ) -> Tensor:
        return self.function(scores, joint=joint, product=product, **self.options)

    def by_hand(self, scores: Tensor, joint: Tensor, product: Tensor) -> float:
        matrices = (m.double().tolist() for m in (scores, joint, product))
        return self.reference(*matrices, **self.options)


PLAIN = (cpc, nwj, js, dv, smile_bound, dm1, dm2, pc, drf, rpc, squared_loss_mi)
CASES = {
    **{plain.__name__: Case(getattr(objectives, plain.__name__), plain, {}) for plain in PLAIN},
    "smile_bound_tau": Case(objectives.smile_bound, smile_bound, {"tau": 1.5}),
    "dm1_lam": Case(objectives.dm1, dm1, {"lam": 2.5}),
    "dm2_eta": Case(objectives.dm2, dm2, {"eta": 0.3}),
    "drf_alpha": Case(objectives.drf, drf, {"alpha": 0.3}),
    "rpc_options": Case(objectives.rpc, rpc, {"a": 0.7, "b": 0.2, "c": 1.3}),
}
