"""Multinomial logistic regression of many replicas at once, on the device of the features.

scikit-learn's fits one replica at a time on the CPU; this one fits all of them where they are, by
an L-BFGS in which each replica has its own steps, memory and end.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pointdep.core.precision import matmul_precision
from pointdep.fitting.progress import Progress

Precondition = Callable[[Tensor], Tensor]
"""A gradient -> times an approximation of the inverse Hessian, symmetric positive."""

Evaluate = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""A point (R, p, q) -> values (R,), gradients (R, p, q) and excesses (R,)."""

_BUDGET = 1 << 25  # logits alive at a time
_WIDEST = 4096  # columns up to which the full covariance is worth its price
_DECREASE, _CURVATURE = 1e-4, 0.9  # of the Wolfe conditions
_SHORTEST = 1e-9  # a line search with less room than this cannot do better in this precision
_NOISE = 1e-6  # relative error of a value, as in the approximate Wolfe conditions
_MEMORY = 10  # moves that L-BFGS keeps


@dataclass(frozen=True)
class LogisticFit:
    """weights: (R, d, classes), bias: (R, classes), of the features as they were given.

    converged: (R,) bool, whether the tolerance was reached, in float64; iterations: (R,) int64.
    """

    weights: Tensor
    bias: Tensor
    converged: Tensor
    iterations: Tensor

    def predict(self, features: Tensor) -> Tensor:
        """The most probable class of each row. features: (R, n, d) -> (R, n)."""
        rows = _rows_at_once(len(features), self.bias.shape[-1])
        weights, bias = (part.to(features.dtype) for part in (self.weights, self.bias[:, None]))
        parts = torch.split(features, rows, dim=1)
        return torch.cat([torch.baddbmm(bias, part, weights).argmax(-1) for part in parts], dim=1)


@torch.no_grad()
def logistic_regression(
    features: Tensor,
    labels: Tensor,
    scale: Tensor,
    *,
    C: float,
    max_iter: int,
    tolerance: float,
    progress: Progress,
) -> LogisticFit:
    """Minimise C x sum of cross-entropies + 1/2 ||W||^2, the bias free, as scikit-learn does.

    As in scikit-learn two classes have one weight vector, the other being its negative.

    Parameters
    ----------
    features : Tensor of shape (R, n, d)
        Of R replicas, float32 or float64, all finite; an expanded view is fine.
    labels : Tensor of shape (n,)
        0 to classes - 1, each of which occurs; at least two classes.
    scale : Tensor of shape (R, d)
        A factor for each column: W belongs to the scaled columns. (A shift would change nothing
        but the bias.) The answer applies to columns as given.
    C : float
        Weight of the summed loss.
    max_iter : int
        Evaluations of the loss; a replica that has converged stays as it is. Features in float32
        are multiplied in float32 until that converges, and then in float64, block by block.
    tolerance : float
        How far the loss may be above its minimum, as a share of it. The weights' part is bounded
        by their penalty, ||gradient||^2 / (2 penalty), however separable the rows are; that of the
        bias, which has none, by its gradient and a distance of 1.
    progress : Progress
        Told of the iterations.

    Returns
    -------
    LogisticFit
        Weights, bias, and how each fit ended.
    """
    # Without autocast and TF32, whose rounding would end the line searches early.
    with torch.autocast(features.device.type, enabled=False), matmul_precision("highest"):
        loss = _MeanLoss(features, labels, scale, C)
        precondition = loss.newton_at_zero()
        point, used = loss.start(), torch.zeros_like(labels[:1])
        # What float32 found is checked in float64, and improved if it was not enough.
        kinds = [torch.float32, torch.float64]
        for loss.products in kinds[kinds.index(features.dtype) :]:
            left = max(1, max_iter - int(used.max()))
            point, converged, more = minimise(loss, point, precondition, tolerance, left, progress)
            used = used + more
    return LogisticFit(*loss.as_given(point), converged, used.clamp(max=max_iter))


class _MeanLoss:
    """Mean cross-entropy + ||W||^2 / (2 C n), of centred and scaled columns.

    A point is (R, d + 1, classes) in float64: W, and below it the bias of centred columns. Features
    are centred and scaled by way of the weights, so that no copy of them is made. Products with
    them are in the type `products`.
    """

    def __init__(self, features: Tensor, labels: Tensor, scale: Tensor, C: float) -> None:
        self.features, self.labels, self.scale = features, labels, scale.double()
        self.products, self.rows = features.dtype, len(labels)
        self.counts = torch.bincount(labels).double()
        self.classes = len(self.counts)
        self.every = torch.arange(self.classes, device=features.device)
        self.mean = features.mean(1).double()
        # Two opposite vectors have half the penalty of the one vector of scikit-learn.
        self.ridge = (2.0 if self.classes == 2 else 1.0) / (C * self.rows)

    def start(self) -> Tensor:
        """No weights, and the frequencies of the classes."""
        point = self.mean.new_zeros(len(self.mean), self.mean.shape[1] + 1, self.classes)
        point[:, -1] = (self.counts / self.rows).log()
        return point

    def as_given(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Weights (R, d, classes) and bias (R, classes) for columns neither centred nor scaled."""
        weights = point[:, :-1] * self.scale[..., None]
        return weights, point[:, -1] - (self.mean[..., None] * weights).sum(1)

    def __call__(self, point: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Value (R,), gradient and excess (R,) of each replica, in one pass over the features."""
        weights, bias = (part.to(self.products) for part in self.as_given(point))
        value, gradient = torch.zeros_like(point[:, 0, 0]), torch.zeros_like(point)
        converted = self.products != self.features.dtype
        size = _rows_at_once(len(point), max(self.classes, self.mean.shape[1] * converted))
        blocks = torch.split(self.features, size, dim=1)
        for given, labels in zip(blocks, torch.split(self.labels, size), strict=True):
            block = given.to(self.products)
            # For rows classified rightly a rounded 1 - p would be all error, and it decides W.
            logits = torch.baddbmm(bias[:, None], block, weights).double()
            logits -= logits.logsumexp(-1, keepdim=True)
            value -= logits.gather(-1, labels[None, :, None].expand(len(logits), -1, 1)).sum((1, 2))
            error = logits.exp_().sub_((labels[:, None] == self.every).double())
            gradient[:, :-1] += _transposed_product(block, error.to(block.dtype))
            gradient[:, -1] += error.sum(1)
        gradient[:, :-1] -= self.mean[..., None] * gradient[:, -1:]
        gradient[:, :-1] *= self.scale[..., None]
        weights = point[:, :-1]
        value = value / self.rows + self.ridge / 2 * weights.square().sum((1, 2))
        gradient = gradient / self.rows
        gradient[:, :-1] += self.ridge * weights
        # A bound of (value - minimum) / value. The loss is convex, and by its penalty strongly so
        # in W: no step dW changes it by less than gradient . dW + ridge / 2 ||dW||^2. The bias is
        # taken to be within 1 of the best.
        size_of_bias = gradient[:, -1].square().sum(1).sqrt()
        of_weights = gradient[:, :-1].square().sum((1, 2)) / (2 * self.ridge)
        return value, gradient, (of_weights + size_of_bias) / value

    def newton_at_zero(self) -> Precondition:
        """A function that multiplies a gradient by the inverse Hessian at zero weights.

        There it is a Kronecker product with the covariance of the columns; only its diagonal is
        used if the whole would cost too much.
        """
        replicas, width = self.mean.shape
        full = width <= _WIDEST
        spread = self.mean.new_zeros(replicas, width, *([width] if full else []))
        mean, scale = (part[:, None].to(self.features.dtype) for part in (self.mean, self.scale))
        for block in torch.split(self.features, max(1, _BUDGET // (replicas * width)), dim=1):
            centred = (block - mean) * scale
            spread += centred.mT @ centred if full else centred.square().sum(1)
        spread /= self.rows * self.classes
        diagonal = spread.diagonal(dim1=1, dim2=2) if full else spread
        diagonal += self.ridge + 1e-6 * diagonal.sum(1, keepdim=True)
        by_diagonal = 1 / diagonal
        inverse: Tensor | None = None
        if full:
            factor, failed = torch.linalg.cholesky_ex(spread)
            inverse = torch.cholesky_inverse(factor)
            inverse = torch.where(failed[:, None, None] > 0, by_diagonal.diag_embed(), inverse)

        def times(gradient: Tensor) -> Tensor:
            weights = gradient[:, :-1]
            weights = by_diagonal[..., None] * weights if inverse is None else inverse @ weights
            return torch.cat([weights, self.classes * gradient[:, -1:]], dim=1)

        return times


def _transposed_product(block: Tensor, error: Tensor) -> Tensor:
    """block (R, n, d), error (R, n, classes) -> (R, d, classes), summed over the rows.

    The rows are many and the answer is small: in pieces, there is work for a whole device.
    """
    if not block.is_contiguous():
        return block.mT @ error
    rows = block.shape[1]
    pieces = max((p for p in range(1, 65) if rows % p == 0 and rows // p >= 512), default=1)
    x, e = (part.view(-1, rows // pieces, part.shape[2]) for part in (block, error))
    products = (x.mT @ e).view(len(block), pieces, x.shape[2], e.shape[2])
    return products.sum(1, dtype=torch.float64)


def _rows_at_once(replicas: int, classes: int) -> int:
    return max(1, _BUDGET // (replicas * classes))


def minimise(
    evaluate: Evaluate,
    start: Tensor,
    precondition: Precondition,
    tolerance: float,
    max_iter: int,
    progress: Progress,
) -> tuple[Tensor, Tensor, Tensor]:
    """Minimise R convex functions by L-BFGS until the excess of each is at most the tolerance.

    start: (R, p, q), float64. evaluate: what is minimised, with an excess that bounds how far from
    the minimum a point is, in whatever unit the caller wants.
    One iteration evaluates one trial point of every problem; each then accepts it or tries another
    step. What has ended stays as it is. The host waits for the device once per iteration.
    Returns the points, (R, p, q), which have converged, (R,), and the evaluations it took, (R,).
    """
    problems = len(start)
    point, (value, gradient, excess) = start, evaluate(start)
    history = _History(start)
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
        flat = no_rise & (new_slope <= -0.9 * slope)
        lower = flat | (new_value <= value + _DECREASE * step * slope)
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
    return point, converged, iterations


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of each problem: (R, p, q) and (R, p, q) -> (R,)."""
    return (a * b).sum((1, 2))


class _History:
    """The last moves of each problem and how they changed its gradient."""

    def __init__(self, start: Tensor) -> None:
        self.moves = start.new_zeros(_MEMORY, *start.shape)
        self.changes = torch.zeros_like(self.moves)
        self.inverse = start.new_zeros(_MEMORY, len(start))  # 1 / move . change; 0 where empty
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
        self.next = torch.where(use, (self.next + 1) % _MEMORY, self.next)

    def times(self, gradient: Tensor, precondition: Precondition) -> Tensor:
        """The inverse Hessian times the gradient, by the two-loop recursion."""
        places = [((self.next - k) % _MEMORY, self.problem) for k in range(1, _MEMORY + 1)]
        out, parts = gradient, []
        for at in places:
            parts.append(self.inverse[at] * dot(self.moves[at], out))
            out = out - parts[-1][:, None, None] * self.changes[at]
        # The factor that makes the preconditioner fit the last change, 1 without one.
        change = self.changes[places[0]]
        size = dot(change, precondition(change)) * self.inverse[places[0]]
        out = precondition(out) * torch.where(size > 0, 1 / size, 1.0)[:, None, None]
        for at, part in zip(reversed(places), reversed(parts), strict=True):
            rest = part - self.inverse[at] * dot(self.changes[at], out)
            out = out + rest[:, None, None] * self.moves[at]
        return out
