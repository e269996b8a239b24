"""L-BFGS on many convex problems at once, each with its own steps, memory and end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pointdep.fitting.progress import Progress

_DECREASE, _CURVATURE = 1e-4, 0.9  # of the Wolfe conditions
_SHORTEST = 1e-9  # a line search with less room than this cannot do better in this precision
_NOISE = 1e-6  # relative error of a value, as in the approximate Wolfe conditions
_MEMORY = 10  # moves that are kept

Evaluate = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""A point (R, p, q) -> values (R,), gradients (R, p, q) and excesses (R,)."""


@dataclass(frozen=True)
class Minimum:
    """point: as the start; converged: (R,) bool; iterations: (R,), evaluations that it took."""

    point: Tensor
    converged: Tensor
    iterations: Tensor


def minimise(
    evaluate: Evaluate,
    start: Tensor,
    precondition: Callable[[Tensor], Tensor],
    *,
    tolerance: float,
    max_iter: int,
    progress: Progress,
) -> Minimum:
    """Minimise R convex functions until the excess of each is at most the tolerance.

    start: (R, p, q), float64. evaluate: what is minimised, with an excess that bounds how far from
    the minimum a point is, in whatever unit the caller wants.
    precondition: a gradient times an approximation of the inverse Hessian, symmetric positive.
    One iteration evaluates one trial point of every problem; each then accepts it or tries another
    step. What has ended stays as it is. The host waits for the device once an iteration.
    """
    problems = len(start)
    point, (value, gradient, excess) = start, evaluate(start)
    history = _History(start, _MEMORY)
    direction = -precondition(gradient)
    low, step = torch.zeros_like(value), torch.ones_like(value)
    high = torch.full_like(value, torch.inf)
    converged = excess <= tolerance
    active, iterations = ~converged, torch.ones_like(value, dtype=torch.int64)
    for done in range(1, max_iter):
        left = int(active.sum())
        progress.update(done, max_iter, f"{problems - left} of {problems} ended")
        if not left:
            break
        move = step[:, None, None] * direction
        new_value, new_gradient, excess = evaluate(point + move)
        slope, new_slope = dot(gradient, direction), dot(new_gradient, direction)
        # Close to the minimum values differ by less than their rounding; slopes still tell.
        no_rise = new_value <= value + _NOISE * value.abs()
        lower = (new_value <= value + _DECREASE * step * slope) | (
            no_rise & (new_slope <= -0.9 * slope)
        )
        settled = no_rise & (excess <= tolerance)
        accept = active & ((lower & (new_slope >= _CURVATURE * slope)) | settled)
        taken = accept[:, None, None]
        history.add(move, new_gradient - gradient, accept)
        point = torch.where(taken, point + move, point)
        value = torch.where(accept, new_value, value)
        gradient = torch.where(taken, new_gradient, gradient)
        direction = torch.where(taken, -history.times(gradient, precondition), direction)
        low, high = torch.where(lower, step, low), torch.where(lower, high, step)
        other = torch.where(high.isinf(), 2 * step, (low + high) / 2)
        step, low = torch.where(accept, 1.0, other), torch.where(accept, 0.0, low)
        high = torch.where(accept, torch.inf, high)
        iterations = iterations + active
        converged = converged | (active & settled)
        active = active & ~settled & (high - low > _SHORTEST)
    return Minimum(point, converged, iterations)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of each problem: (R, p, q) and (R, p, q) -> (R,)."""
    return (a * b).sum((1, 2))


class _History:
    """The last moves of each problem and how they changed its gradient."""

    def __init__(self, start: Tensor, length: int) -> None:
        self.length = length
        self.moves = start.new_zeros(length, *start.shape)
        self.changes = torch.zeros_like(self.moves)
        self.inverse = start.new_zeros(length, len(start))  # 1 / move . change; 0 where empty
        self.problem = torch.arange(len(start), device=start.device)
        self.next = torch.zeros_like(self.problem)

    def add(self, move: Tensor, change: Tensor, where: Tensor) -> None:
        """Replace the oldest entry of the problems where `where` is true."""
        at = self.next, self.problem
        product = dot(move, change)
        use = where & (product > 0)
        kept = use[:, None, None]
        self.moves[at] = torch.where(kept, move, self.moves[at])
        self.changes[at] = torch.where(kept, change, self.changes[at])
        self.inverse[at] = torch.where(use, 1 / product, self.inverse[at])
        self.next = torch.where(use, (self.next + 1) % self.length, self.next)

    def times(self, gradient: Tensor, precondition: Callable[[Tensor], Tensor]) -> Tensor:
        """The inverse Hessian times the gradient, by the two-loop recursion."""
        out, parts = gradient, []
        for back in range(1, self.length + 1):
            at = (self.next - back) % self.length, self.problem
            part = self.inverse[at] * dot(self.moves[at], out)
            out = out - part[:, None, None] * self.changes[at]
            parts.append((at, part))
        out = precondition(out) * self._first_scale(precondition)
        for at, part in reversed(parts):
            rest = part - self.inverse[at] * dot(self.changes[at], out)
            out = out + rest[:, None, None] * self.moves[at]
        return out

    def _first_scale(self, precondition: Callable[[Tensor], Tensor]) -> Tensor:
        """The factor that makes the preconditioner fit the last change, 1 without one."""
        at = (self.next - 1) % self.length, self.problem
        change = self.changes[at]
        size = dot(change, precondition(change)) * self.inverse[at]
        return torch.where(size > 0, 1 / size, 1.0)[:, None, None]
