"""Linear evaluation: a logistic regression on frozen features, and its accuracy on a test split."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.contrastive.evaluation.inputs import Rows, Split, require_alike, split
from pointdep.contrastive.evaluation.logistic import logistic_regression, require_options
from pointdep.errors import InputError, unknown_name
from pointdep.fitting.progress import Progress, Silent

SCALINGS = ("minmax", "standard", "none")
_TOLERANCES = {"device": 1e-4, "sklearn": 1e-5, "saga": 0.1}
_SILENT = Silent()
_FAR = 100.0  # ranges from zero, at which five digits of a column's differences are left


@dataclass(frozen=True, eq=False)
class LinearResult:
    """Of each of R replicas, (R,): shares of rows classified rightly, and how the fit ended.

    converged: whether the tolerance was reached. iterations: as the solver counts them.
    """

    accuracy: NDArray[np.float64]
    train_accuracy: NDArray[np.float64]
    converged: NDArray[np.bool_]
    iterations: NDArray[np.int64]

    def summary(self) -> str:
        """One phrase, for a line of progress or a log."""
        replicas, failed = len(self.accuracy), int((~self.converged).sum())
        spread = f" +- {100 * self.accuracy.std(ddof=1):.2f}" if replicas > 1 else ""
        among = f", mean of {replicas}" if replicas > 1 else ""
        doubt = f"; {failed} of {replicas} did not converge" if failed else ""
        return (
            f"linear accuracy {100 * self.accuracy.mean():.2f}{spread} %{among} "
            f"(train {100 * self.train_accuracy.mean():.2f} %){doubt}"
        )


@torch.no_grad()
def linear_evaluation(
    train: Rows,
    train_labels: Rows,
    test: Rows,
    test_labels: Rows,
    *,
    scaling: str = "minmax",
    C: float = 10.0,
    solver: str = "device",
    max_iter: int = 1000,
    tolerance: float | None = None,
    progress: Progress | None = None,
) -> LinearResult:
    """Fit a multinomial logistic regression on `train`, and classify `test` with it.

    train: (R, n, d) or (n, d) features of R encoders, a tensor on any device or an array;
        train_labels: (n,) whole numbers from 0, the same for all. test, test_labels: likewise.
        Test rows of a class without training rows count as wrong.
    scaling: of the columns, by the training rows: "minmax" to [0, 1], "standard" or "none".
    C: weight of the summed loss against 1/2 ||W||^2.
    solver: "device" fits all replicas at once where the features are; "sklearn" is scikit-learn's
        `LogisticRegression`, "saga" the same as in the paper's protocol: by saga, hardly converged.
    tolerance: None for the solver's own. "device": of how far the loss may be above its minimum, as
        a share of it, 1e-4; "sklearn": of the gradient of the mean loss, 1e-5, which says little
        where C is large and the rows are separable; "saga": of the change of weights, 0.1.
    """
    if scaling not in SCALINGS:
        raise unknown_name("scaling", scaling, SCALINGS)
    if solver not in _TOLERANCES:
        raise unknown_name("solver", solver, _TOLERANCES)
    tolerance = _TOLERANCES[solver] if tolerance is None else tolerance
    require_options(C, max_iter, tolerance)
    fitted = split(train, train_labels, "train")
    unseen = split(test, test_labels, "test", fitted.features.device)
    require_alike(fitted, unseen)
    if len(torch.unique(fitted.labels)) < 2:
        raise InputError("all train labels are equal: a classifier needs two classes")
    task = _Task(fitted, unseen, _scale(fitted, scaling), C, solver, max_iter, tolerance)
    return (_on_device if solver == "device" else _by_sklearn)(task, progress or _SILENT)


@dataclass(frozen=True)
class _Task:
    """train and test, the factor (R, d) of each column, and the options of the solver."""

    train: Split
    test: Split
    scale: Tensor
    C: float
    solver: str
    max_iter: int
    tolerance: float


def _scale(train: Split, scaling: str) -> Tensor:
    """What each column is multiplied by, 1 where it is constant: (R, d)."""
    if scaling == "none":
        return torch.ones_like(train.low)
    size, least = train.high - train.low, torch.finfo(train.low.dtype).tiny
    if scaling == "standard":
        size = torch.where(size > least, train.features.std(1, correction=0), size)
    return torch.where(size > least, 1 / size, 1.0)


def _near_zero(task: _Task) -> tuple[Tensor, Tensor]:
    """The features of train and test, moved where columns are far from zero for their range.

    The classifier is the same; in float32 their differences would be lost in the products.
    """
    middle, size = (task.train.low + task.train.high) / 2, task.train.high - task.train.low
    parts = task.train.features, task.test.features
    if not bool((middle.abs() > _FAR * size).any()):
        return parts
    return parts[0] - middle[:, None], parts[1] - middle[:, None]


def _on_device(task: _Task, progress: Progress) -> LinearResult:
    present, target = torch.unique(task.train.labels, return_inverse=True)
    train_features, test_features = _near_zero(task)
    fit = logistic_regression(
        train_features,
        target,
        C=task.C,
        scale=task.scale,
        max_iter=task.max_iter,
        tolerance=task.tolerance,
        progress=progress,
    )
    sides = (test_features, task.test.labels), (train_features, task.train.labels)
    test, train = (
        (present[fit.predict(part)] == labels).double().mean(1).cpu().numpy()
        for part, labels in sides
    )
    return LinearResult(test, train, fit.converged.cpu().numpy(), fit.iterations.cpu().numpy())


def _by_sklearn(task: _Task, progress: Progress) -> LinearResult:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    labels = [part.labels.cpu().numpy() for part in (task.test, task.train)]
    accuracies, iterations = [], []
    replicas = len(task.scale)
    for replica in range(replicas):
        progress.update(replica, replicas, "replicas")
        test, train = (
            # In float32 scikit-learn's solver may never reach its tolerance.
            ((part.features[replica] - task.train.low[replica]) * task.scale[replica])
            .double()
            .cpu()
            .numpy()
            for part in (task.test, task.train)
        )
        model = LogisticRegression(
            solver="saga" if task.solver == "saga" else "lbfgs",
            C=task.C,
            tol=task.tolerance,
            max_iter=task.max_iter,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the answer says so
            model.fit(train, labels[1])
        accuracies.append([model.score(test, labels[0]), model.score(train, labels[1])])
        iterations.append(int(model.n_iter_.max()))
    ended = np.array(iterations)
    test_accuracy, train_accuracy = np.array(accuracies).T
    return LinearResult(test_accuracy, train_accuracy, ended < task.max_iter, ended)
