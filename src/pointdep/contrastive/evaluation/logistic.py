"""Multinomial logistic regression of many replicas at once, on the device of the features."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from pointdep.contrastive.evaluation.inputs import Rows, as_features, as_labels
from pointdep.contrastive.evaluation.lbfgs import minimise
from pointdep.errors import InputError, require_whole
from pointdep.fitting.progress import Progress, Silent

_BUDGET = 1 << 25  # logits alive at a time
_WIDEST = 4096  # columns up to which the full covariance is worth its price
_SILENT = Silent()


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
    features: Rows,
    labels: Rows,
    *,
    C: float = 1.0,
    scale: Tensor | None = None,
    max_iter: int = 1000,
    tolerance: float = 1e-4,
    progress: Progress = _SILENT,
) -> LogisticFit:
    """Minimise C x sum of cross-entropies + 1/2 ||W||^2, the bias free, as scikit-learn does.

    features: (R, n, d) or (n, d), an expanded view included; labels: (n,), 0 to classes - 1, each
    of them there. As in scikit-learn two classes have one weight vector, the other being its
    negative.
    scale: (R, d), a factor for each column: W belongs to the scaled columns. (A shift would change
        nothing but the bias.) The answer applies to columns as given.
    tolerance: of how far the loss may be above its minimum, as a share of it. The weights' part is
        bounded by their penalty, ||gradient||^2 / (2 penalty), however separable the rows are; of
        the bias, which has none, by its gradient and a distance of 1.
    max_iter: evaluations of the loss, a replica that has converged stays as it is. Features in
        float32 are multiplied so until that ends, and then in float64, block by block.
    """
    require_options(C, max_iter, tolerance)
    rows = as_features(features, "the")
    target = as_labels(labels, rows.shape[1], "the").to(rows.device)
    classes = _number_of_classes(target)
    with _full_precision(rows.device):
        loss = _MeanLoss(rows, target, classes, C, scale)
        precondition = loss.newton_at_zero()
        point, used = loss.start(), torch.zeros_like(target[:1])
        # What float32 found is checked in float64, and mended where it was not enough.
        kinds = [torch.float32, torch.float64]
        for kind in kinds[kinds.index(rows.dtype) :]:
            loss.products = kind
            found = minimise(
                loss,
                point,
                precondition,
                tolerance=tolerance,
                max_iter=max(1, max_iter - int(used.max())),
                progress=progress,
            )
            point, used = found.point, used + found.iterations
    return LogisticFit(*loss.as_given(point), found.converged, used.clamp(max=max_iter))


class _MeanLoss:
    """Mean cross-entropy + ||W||^2 / (2 C n), of centred and scaled columns.

    A point is (R, d + 1, classes) in float64: W, and below it the bias of centred columns. Features
    are centred and scaled by way of the weights, so that no copy of them is made. Products with
    them are in the type `products`.
    """

    def __init__(
        self, features: Tensor, labels: Tensor, classes: int, C: float, scale: Tensor | None
    ) -> None:
        self.features, self.labels, self.classes = features, labels, classes
        self.products = features.dtype
        replicas, self.rows, width = features.shape
        self.every = torch.arange(classes, device=features.device)
        self.mean = features.mean(1).double()
        if not bool(self.mean.isfinite().all()):
            raise InputError("the features hold NaN or infinity: check the encoder")
        self.scale = torch.ones_like(self.mean) if scale is None else scale.double()
        if self.scale.shape != (replicas, width):
            raise InputError(f"scale has shape {tuple(self.scale.shape)}: give (replicas, columns)")
        # Two opposite vectors have half the penalty of the one vector of scikit-learn.
        self.ridge = (2.0 if classes == 2 else 1.0) / (C * self.rows)

    def start(self) -> Tensor:
        """No weights, and the frequencies of the classes."""
        counts = torch.bincount(self.labels, minlength=self.classes).double()
        point = self.mean.new_zeros(len(self.mean), self.mean.shape[1] + 1, self.classes)
        point[:, -1] = (counts / self.rows).log()
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
            # Of rows classified rightly a rounded 1 - p would be all error, where it decides W.
            logits = torch.baddbmm(bias[:, None], block, weights).double()
            logits -= logits.logsumexp(-1, keepdim=True)
            right = labels[None, :, None].expand(len(logits), -1, 1)
            value -= logits.gather(-1, right).sum((1, 2))
            error = logits.exp_().sub_((labels[:, None] == self.every).double())
            gradient[:, :-1] += _transposed_product(block, error.to(block.dtype))
            gradient[:, -1] += error.sum(1)
        gradient[:, :-1] -= self.mean[..., None] * gradient[:, -1:]
        gradient[:, :-1] *= self.scale[..., None]
        weights = point[:, :-1]
        value = value / self.rows + self.ridge / 2 * weights.square().sum((1, 2))
        gradient = gradient / self.rows
        gradient[:, :-1] += self.ridge * weights
        return value, gradient, self._excess(value, gradient)

    def _excess(self, value: Tensor, gradient: Tensor) -> Tensor:
        """A bound of (value - minimum) / value, (R,).

        The loss is convex, and by its penalty strongly so in W: no step dW changes it by less than
        gradient . dW + ridge / 2 ||dW||^2. The bias is taken to be within 1 of the best.
        """
        weights, bias = gradient[:, :-1], gradient[:, -1]
        size = bias.square().sum(1).sqrt()
        return (weights.square().sum((1, 2)) / (2 * self.ridge) + size) / value

    def newton_at_zero(self) -> Callable[[Tensor], Tensor]:
        """What multiplies a gradient by the inverse Hessian at zero weights.

        There it is a Kronecker product with the covariance of the columns, of which the diagonal is
        taken alone where that would cost too much.
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
        if not full:
            return lambda gradient: self._with_bias(
                by_diagonal[..., None] * gradient[:, :-1], gradient
            )
        factor, failed = torch.linalg.cholesky_ex(spread)
        inverse = torch.cholesky_inverse(factor)
        inverse = torch.where(failed[:, None, None] > 0, by_diagonal.diag_embed(), inverse)
        return lambda gradient: self._with_bias(inverse @ gradient[:, :-1], gradient)

    def _with_bias(self, weights: Tensor, gradient: Tensor) -> Tensor:
        return torch.cat([weights, self.classes * gradient[:, -1:]], dim=1)


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


@contextmanager
def _full_precision(device: torch.device) -> Iterator[None]:
    """No autocast and no TF32, whose rounding would end the line searches early."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _number_of_classes(labels: Tensor) -> int:
    classes = int(labels.max()) + 1
    missing = (torch.bincount(labels, minlength=classes) == 0).nonzero()
    if len(missing):
        raise InputError(f"no row has label {int(missing[0])}: number the classes that are there")
    if classes < 2:
        raise InputError("all labels are equal: a classifier needs two classes")
    return classes


def require_options(C: float, max_iter: int, tolerance: float) -> None:
    require_whole("max_iter", max_iter)
    for name, number in (("C", C), ("tolerance", tolerance)):
        if not (math.isfinite(number) and number > 0):
            raise InputError(f"{name}={number!r} must be a number above 0")
