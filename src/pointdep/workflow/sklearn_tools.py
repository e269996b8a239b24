"""Mutual information as scikit-learn's functions take it: of columns of X, and as a scorer."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from pointdep.data.raw import SparseInputError
from pointdep.errors import InputError
from pointdep.estimators.base import plain_copy
from pointdep.estimators.classical.estimator import ClassicalDependency
from pointdep.estimators.pointwise import PointwiseDependency
from pointdep.fitting.progress import show


def mutual_information_features(
    X: Any,
    y: Any,
    *,
    columns: Sequence[Any] | Mapping[Any, Any] | None = None,
    estimator: Any = None,
    groups: Any = None,
    random_state: Any = None,
    progress: bool = True,
) -> NDArray[np.float64]:
    """Mutual information of y with each column of X, or with each group of columns, in nats.

    Called as scikit-learn's `mutual_info_regression` and `mutual_info_classif`, and never below
    zero either. There is one function for both, and neither `discrete_features` nor `n_jobs`:
    columns and y are read by their types, so class labels must be whole numbers or strings, or
    `estimator` have `discrete_y=True`.

    Parameters
    ----------
    X : array-like, (n, d)
        Rows; not sparse.
    y : array-like, (n,) or (n, k)
        Numbers or categories.
    columns : sequence or mapping, optional
        The groups: a sequence, or a mapping from names, of column numbers or names, or of lists of
        them. A group is judged as a whole. By default each column on its own.
    estimator : PointwiseDependency or ClassicalDependency, optional
        What is fitted to each group; it is cloned. By default `PointwiseDependency()`.
    groups : array-like, (n,), optional
        For rows that are not independent draws.
    random_state : int, optional
        Seed of the fits. By default that of `estimator`.
    progress : bool
        Show progress on standard error.

    Returns
    -------
    ndarray of float64
        One number per column or group.

    Examples
    --------
    >>> import numpy as np
    >>> from pointdep import ClassicalDependency, mutual_information_features
    >>> x = np.random.default_rng(0).normal(size=(300, 2))
    >>> found = mutual_information_features(x, x[:, 0] ** 3, estimator=ClassicalDependency("ksg"))
    >>> bool(found[0] > found[1])
    True
    """
    given = PointwiseDependency() if estimator is None else estimator
    if not isinstance(given, PointwiseDependency | ClassicalDependency):
        raise InputError(
            f"estimator={given!r} must be a PointwiseDependency(...) or a ClassicalDependency(...)"
        )
    changed: dict[str, Any] = {"progress": False}
    if random_state is not None:
        changed["random_state"] = random_state
    chosen = _chosen(X, columns)
    found = np.zeros(len(chosen))
    with show("ranking columns", enabled=progress, left="about") as shown:
        for number, group in enumerate(chosen):
            model = plain_copy(given, **changed)
            found[number] = _of_group(model, _take(X, group), y, groups, str(group)[1:-1])
            shown.update(number + 1, len(chosen), "group(s) of columns")
    return np.maximum(found, 0.0)


def mi_scorer(estimator: Any, X: Any, Y: Any) -> float:
    """The mutual information of the given rows in nats, as `scoring=` of `cross_val_score`.

    Report by it, but choose by `score`, the log-loss: an estimate that is too high is not a better
    one.

    Parameters
    ----------
    estimator : estimator or Pipeline
        A fitted one with `mutual_information(X, Y)`, or a pipeline that ends in one.
    X, Y : array-like
        Paired rows.

    Returns
    -------
    float
        The estimate in nats.

    Examples
    --------
    >>> import numpy as np
    >>> from pointdep import ClassicalDependency, mi_scorer
    >>> from sklearn.model_selection import cross_val_score
    >>> x, noise = np.random.default_rng(0).normal(size=(2, 300, 1))
    >>> model = ClassicalDependency("cca", progress=False)
    >>> cross_val_score(model, x, x + noise, scoring=mi_scorer).mean().round(1)
    np.float64(0.4)
    """
    if isinstance(estimator, Pipeline):
        if len(estimator) > 1:
            X = estimator[:-1].transform(X)
        estimator = estimator[-1]
    return float(estimator.mutual_information(X, Y).nats)


def _of_group(model: Any, x: Any, y: Any, groups: Any, name: str) -> float:
    """The estimate, its warnings naming the columns."""
    values = np.asarray(x)
    if len(values) and (values == values[:1]).all():
        return 0.0  # a constant tells nothing
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nats = float(model.fit(x, y, groups=groups).mutual_information().nats)
    for one in caught:
        warnings.warn(f"column(s) {name}: {one.message}", one.category, stacklevel=3)
    return nats


def _chosen(X: Any, columns: Any) -> list[list[Any]]:
    """The groups of columns, as lists of numbers or names."""
    if hasattr(X, "tocsr"):
        raise SparseInputError("X is a sparse matrix: convert it first, as with X.toarray()")
    if len(np.shape(X)) != 2:
        raise InputError(f"X must be (n, d), rows and columns, not of shape {np.shape(X)}")
    width = np.shape(X)[1]
    if columns is None:
        return [[number] for number in range(width)]
    entries = columns.values() if isinstance(columns, Mapping) else columns
    if isinstance(entries, str):
        raise InputError(f"columns={columns!r} must be a list of columns, or of lists of them")
    groups = [[e] if isinstance(e, str) or not np.iterable(e) else list(e) for e in entries]
    names = _names(X)
    for column in (column for group in groups for column in group):
        whole = isinstance(column, int | np.integer) and not isinstance(column, bool)
        if not isinstance(column, str) and not whole:
            raise InputError(f"columns: {column!r} is neither the number of a column nor a name")
        if not (column in names if isinstance(column, str) else 0 <= column < width):
            raise InputError(f"columns: {column!r} is not among the {width} columns of X")
    if not groups or not all(groups):
        raise InputError("columns must name at least one column in each group")
    return groups


def _names(X: Any) -> list[str]:
    return [str(name) for name in getattr(X, "columns", ())]


def _take(X: Any, group: list[Any]) -> Any:
    """These columns of a table or an array."""
    names = _names(X)
    numbers = [names.index(c) if isinstance(c, str) else int(c) for c in group]
    return getattr(X, "iloc", X if hasattr(X, "shape") else np.asarray(X))[:, numbers]
