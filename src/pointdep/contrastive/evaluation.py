"""How good frozen features are: linear classifiers and nearest neighbours on them."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import normalize

from pointdep.contrastive.multinomial import logistic_regression
from pointdep.errors import InputError, require_known, require_positive, require_whole
from pointdep.fitting.progress import Progress, Silent

Rows = Tensor | ArrayLike

SCALINGS = ("minmax", "standard", "none")
_TOLERANCES = {"device": 1e-4, "sklearn": 1e-5, "saga": 0.1}
_FAR = 100.0  # in ranges of a column: so far from zero, its differences keep only five digits
_BUDGET = 1 << 26  # similarities alive at a time


@torch.no_grad()
def features(encode: Callable[[Tensor], Tensor], images: Tensor, batch_size: int = 1000) -> Tensor:
    """What `encode` makes of the images, in batches: (n, d) or (R, n, d) float32.

    Written into one tensor: a list of the batches would need twice the memory at its end.
    """
    for start in range(0, len(images), batch_size):
        found = encode(images[start : start + batch_size])
        if not start:
            shape = (*found.shape[:-2], len(images), found.shape[-1])
            out = torch.empty(shape, dtype=torch.float32, device=found.device)
        out[..., start : start + batch_size, :] = found
    return out


class _Split(NamedTuple):
    """features: (R, n, d) floating point, all finite; labels: (n,) int64 on their device.

    low, high: (R, d), the range of each column.
    """

    features: Tensor
    labels: Tensor
    low: Tensor
    high: Tensor


def _splits(train: Rows, train_labels: Rows, test: Rows, test_labels: Rows) -> list[_Split]:
    """Training and test rows, checked, on the device of the training features."""
    found: list[_Split] = []
    for name, given, labels in (("train", train, train_labels), ("test", test, test_labels)):
        rows = _as_features(given, name)
        rows = rows.to(found[0].features.device if found else rows.device)
        low, high = torch.aminmax(rows, dim=1)
        finite = (torch.isfinite(low) & torch.isfinite(high)).all(1)
        if not bool(finite.all()):
            replica = int((~finite).nonzero()[0])
            raise InputError(f"{name} features of replica {replica} are not finite")
        target = _as_labels(labels, rows.shape[1], name).to(rows.device)
        found.append(_Split(rows, target, low, high))
    ours, theirs = (split.features.shape for split in found)
    if (ours[0], ours[2]) != (theirs[0], theirs[2]):
        raise InputError(
            f"train features are {ours[0]} replicas of {ours[2]} columns, test features "
            f"{theirs[0]} of {theirs[2]}: encode both with the same encoders"
        )
    return found


def _as_features(features: Rows, name: str) -> Tensor:
    """(n, d) or (R, n, d) -> (R, n, d) in float32, or float64 if given so.

    Features stay on their device, but for Apple's: sums are in float64, which it does not have.
    """
    found = features if isinstance(features, Tensor) else torch.as_tensor(np.asarray(features))
    if found.device.type == "mps":
        found = found.cpu()
    if found.ndim not in (2, 3) or 0 in found.shape:
        fault = f"{name} features have shape {tuple(found.shape)}: give (rows, columns)"
        raise InputError(f"{fault}, or (replicas, rows, columns), none of them 0")
    found = found.detach() if found.ndim == 3 else found.detach()[None]
    return found if found.dtype == torch.float64 else found.float()


def _as_labels(labels: Rows, rows: int, name: str) -> Tensor:
    """(rows,) whole numbers from 0, as int64."""
    given = labels if isinstance(labels, Tensor) else np.asarray(labels)
    if "int" not in str(given.dtype):
        raise InputError(f"{name} labels are {given.dtype}: give whole numbers from 0")
    found = torch.as_tensor(given).to(torch.int64)
    if found.shape != (rows,):
        raise InputError(f"{name} labels have shape {tuple(found.shape)}, for {rows} rows")
    if int(found.min()) < 0:
        raise InputError(f"{name} labels go down to {int(found.min())}: count classes from 0")
    return found


@dataclass(frozen=True, eq=False)
class LinearResult:
    """Per replica, (R,): shares of rows classified rightly, and how the fit ended.

    converged: whether the tolerance was reached. iterations: as the solver counts them.
    """

    accuracy: NDArray[np.float64]
    train_accuracy: NDArray[np.float64]
    converged: NDArray[np.bool_]
    iterations: NDArray[np.int64]


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

    Parameters
    ----------
    train : Tensor or array of shape (R, n, d) or (n, d)
        Features of R encoders, on any device.
    train_labels : Tensor or array of shape (n,)
        Whole numbers from 0, the same for all encoders.
    test, test_labels : Tensor or array
        Like `train` and `train_labels`. Test rows of a class without training rows count as wrong.
    scaling : str, default="minmax"
        Of the columns, by the training rows: "minmax" to [0, 1], "standard" or "none".
    C : float, default=10.0
        Weight of the summed loss against 1/2 ||W||^2.
    solver : str, default="device"
        "device" fits all replicas at once where the features are; "sklearn" is scikit-learn's
        `LogisticRegression`; "saga" is the same as in the paper's protocol, hardly converged.
    max_iter : int, default=1000
        Limit on the iterations of the solver.
    tolerance : float, optional
        By default the solver's own. "device": how far the loss may be above its minimum, as a share
        of it, 1e-4; "sklearn": of the gradient of the mean loss, 1e-5, which says little if C is
        large and the rows are separable; "saga": of the change of weights, 0.1.
    progress : Progress, optional
        Told of the iterations.

    Returns
    -------
    LinearResult
        Accuracies per replica, and how each fit ended.

    Examples
    --------
    >>> import torch
    >>> from pointdep.contrastive import linear_evaluation
    >>> rows = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> linear_evaluation(rows, labels, rows, labels).accuracy.tolist()
    [1.0]
    """
    require_known("scaling", scaling, SCALINGS)
    require_known("solver", solver, _TOLERANCES)
    tolerance = _TOLERANCES[solver] if tolerance is None else tolerance
    require_whole("max_iter", max_iter)
    for name, value in (("C", C), ("tolerance", tolerance)):
        require_positive(name, value)
    fitted, unseen = _splits(train, train_labels, test, test_labels)
    if len(torch.unique(fitted.labels)) < 2:
        raise InputError("all train labels are equal: a classifier needs two classes")
    # What each column is multiplied by, 1 where it is constant: (R, d).
    scale, size = torch.ones_like(fitted.low), fitted.high - fitted.low
    if scaling != "none":
        least = torch.finfo(size.dtype).tiny
        if scaling == "standard":
            size = torch.where(size > least, fitted.features.std(1, correction=0), size)
        scale = torch.where(size > least, 1 / size, 1.0)
    how: dict[str, Any] = {"C": C, "max_iter": max_iter, "progress": progress or Silent()}
    if solver == "device":
        return _on_device(fitted, unseen, scale, tolerance=tolerance, **how)
    solver = "saga" if solver == "saga" else "lbfgs"
    return _by_sklearn(fitted, unseen, scale, solver=solver, tol=tolerance, **how)


def _on_device(train: _Split, test: _Split, scale: Tensor, **how: Any) -> LinearResult:
    present, target = torch.unique(train.labels, return_inverse=True)
    rows, unseen = train.features, test.features
    middle = (train.low + train.high) / 2
    if bool((middle.abs() > _FAR * (train.high - train.low)).any()):
        # The classifier is the same; in float32 differences far from zero are lost in products.
        rows, unseen = rows - middle[:, None], unseen - middle[:, None]
    fit = logistic_regression(rows, target, scale, **how)
    accuracy, train_accuracy = (
        (present[fit.predict(part)] == labels).double().mean(1).cpu().numpy()
        for part, labels in ((unseen, test.labels), (rows, train.labels))
    )
    ended = fit.converged.cpu().numpy(), fit.iterations.cpu().numpy()
    return LinearResult(accuracy, train_accuracy, *ended)


def _by_sklearn(train: _Split, test: _Split, scale: Tensor, **how: Any) -> LinearResult:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    progress: Progress = how.pop("progress")
    accuracies, iterations = [], []
    labels = [split.labels.cpu().numpy() for split in (test, train)]
    for replica in range(len(scale)):
        progress.update(replica, len(scale), "replicas")
        low, factor = train.low[replica], scale[replica]
        # In float32 scikit-learn's solver may never reach its tolerance.
        scaled = ((part.features[replica] - low) * factor for part in (test, train))
        rows = [part.double().cpu().numpy() for part in scaled]
        model = LogisticRegression(random_state=0, **how)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the answer says so
            model.fit(rows[1], labels[1])
        accuracies.append([model.score(*pair) for pair in zip(rows, labels, strict=True)])
        iterations.append(int(model.n_iter_.max()))
    ended = np.array(iterations)
    accuracy, train_accuracy = np.array(accuracies).T
    return LinearResult(accuracy, train_accuracy, ended < how["max_iter"], ended)


@torch.no_grad()
def knn_accuracy(
    train: Rows,
    train_labels: Rows,
    test: Rows,
    test_labels: Rows,
    *,
    k: int = 20,
    temperature: float = 0.1,
    block: int | None = None,
) -> NDArray[np.float64]:
    """The share of test rows whose nearest training rows vote for their class.

    Parameters
    ----------
    train : Tensor or array of shape (R, n, d) or (n, d)
        Features of R encoders, on any device.
    train_labels : Tensor or array of shape (n,)
        Whole numbers from 0, the same for all encoders.
    test, test_labels : Tensor or array
        Like `train` and `train_labels`.
    k : int, default=20
        Training rows of highest cosine similarity that vote.
    temperature : float, default=0.1
        A vote weighs exp(similarity / temperature).
    block : int, optional
        Test rows compared at a time; by default as many as some hundred MB allow.

    Returns
    -------
    ndarray of shape (R,)
        The share of rows classified rightly, per encoder.

    Examples
    --------
    >>> import torch
    >>> from pointdep.contrastive import knn_accuracy
    >>> rows, labels = torch.eye(3), torch.arange(3)
    >>> knn_accuracy(rows, labels, rows, labels, k=1).tolist()
    [1.0]
    """
    require_whole("k", k)
    require_positive("temperature", temperature)
    known, asked = _splits(train, train_labels, test, test_labels)
    count = known.features.shape[1]
    if k > count:
        raise InputError(f"k={k} neighbours of {count} training rows: give at most {count}")
    block = max(1, _BUDGET // count) if block is None else block
    require_whole("block", block)
    present, target = torch.unique(known.labels, return_inverse=True)
    shares = []
    for rows, queries in zip(known.features, asked.features, strict=True):
        anchors = normalize(rows, dim=-1)
        chosen = []
        for part in queries.split(block):
            similarity, nearest = (normalize(part, dim=-1) @ anchors.T).topk(k, dim=-1)
            weights = ((similarity - similarity[:, :1]) / temperature).exp()
            votes = weights.new_zeros(len(part), len(present))
            chosen.append(votes.scatter_add_(-1, target[nearest], weights).argmax(-1))
        shares.append((present[torch.cat(chosen)] == asked.labels).double().mean())
    return torch.stack(shares).cpu().numpy()
