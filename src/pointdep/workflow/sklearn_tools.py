"""What scikit-learn's own tools take: `PMIFeatures`, a score of each column, and a scorer.

`PMIFeatures` gives the PMI of a row with each class, or with some y, as columns for another model.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from pointdep.errors import InputError, names_nearest_option, require_whole
from pointdep.estimators.base import plain_copy
from pointdep.estimators.pointwise import PointwiseDependency, encode_side, fitted_rows
from pointdep.fitting.progress import show
from pointdep.inference.scoring import score_matrix
from pointdep.workflow.ranking import rank_columns


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

    The numbers of `rank_columns` in the order of the columns, which says more about each. Called
    as scikit-learn's `mutual_info_regression` and `mutual_info_classif`, and never below
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
        What is fitted to each group; it is cloned. By default the quick estimates of
        `rank_columns`.
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
    how: dict[str, Any] = {"estimator": estimator, "groups": groups, "progress": progress}
    found = rank_columns(X, y, columns=columns, random_state=random_state, **how).table
    nats = found["nats"].fillna(0.0).to_numpy(dtype=np.float64)
    return nats[np.argsort(found["position"].to_numpy())]


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


Array32 = NDArray[np.float32]

_MOST_CLUSTERED = 10_000  # rows from which anchors are chosen


class PMIFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Columns that say how much a row belongs with each class, or with some y.

    `fit_transform` gives each row the PMI of networks that did not see it, so that a model fitted
    on these columns does not learn to trust what was memorised. `transform`, for other rows, gives
    that of all networks. The two differ, as those of scikit-learn's `TargetEncoder` do; a
    `Pipeline` calls the right one.

    Parameters
    ----------
    estimator : PointwiseDependency, optional
        What to fit; it is cloned. By default one with its defaults. It needs folds that score each
        row: two at least.
    anchors : int or array-like, default 8
        The y that rows are compared with, unless y is one column of categories, which has its
        classes: how many rows of the fit, spread over all, or an array of y.
    append : bool, default True
        Whether the columns of X come first. The result is a table if X is one whose names are
        strings, and an array otherwise.
    random_state : int, optional
        Seed of the fit. By default that of `estimator`.
    progress : bool, default True
        Show progress of fits and scoring; False silences `estimator` too.

    Attributes
    ----------
    estimator_ : PointwiseDependency
        The fitted estimator.
    classes_ : ndarray or None
        The categories of y if it is one column of them.
    anchor_rows_ : ndarray or None
        Numbers of the rows of the fit that were chosen as anchors.
    n_features_in_, feature_names_in_
        Columns of X, and their names if X is a table.

    Examples
    --------
    >>> import numpy as np
    >>> from pointdep import PMIFeatures, PointwiseDependency
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> label = np.where(x[:, 0] > 0, "right", "left")
    >>> features = PMIFeatures(PointwiseDependency(folds=2, random_state=0), progress=False)
    >>> features.fit_transform(x, label).shape
    (200, 4)
    """

    @names_nearest_option
    def __init__(
        self,
        estimator: PointwiseDependency | None = None,
        *,
        anchors: Any = 8,
        append: bool = True,
        random_state: Any = None,
        progress: bool = True,
    ) -> None:
        self.estimator = estimator
        self.anchors = anchors
        self.append = append
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> PMIFeatures:
        """Fit on paired rows; y: (n,) or (n, d), numbers or categories; groups: (n,)."""
        if y is None:
            raise InputError("PMIFeatures requires y to be passed, but the target y is None")
        model = self._estimator().fit(X, y, groups=groups)
        self._choose_anchors(model)
        shared = {*self._own_names()} & {*getattr(model, "feature_names_in_", ())}
        if shared and self.append:
            raise InputError(f"X has a column {min(shared)!r}: rename it, or use append=False")
        self.estimator_, self.n_features_in_ = model, model.n_features_in_
        if hasattr(model, "feature_names_in_"):
            self.feature_names_in_ = model.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit
        return self

    def fit_transform(self, X: Any, y: Any = None, groups: Any = None) -> Any:
        """Fit, and give each row the columns by networks that did not see it."""
        return self._joined(X, self.fit(X, y, groups=groups)._out_of_fold())

    def transform(self, X: Any) -> Any:
        """X: rows that were not fitted on -> (n, d + k), or (n, k) without `append`."""
        check_is_fitted(self, "estimator_")
        model = self.estimator_
        if np.ndim(X) == 1 and self.n_features_in_ > 1:
            raise InputError("X is one-dimensional. Reshape your data: X.reshape(1, -1) is one row")
        x = encode_side(model, X, "x")
        with show("scoring", enabled=model.progress) as progress:
            return self._joined(X, score_matrix(model.model_, x, self._anchors_y, progress))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The columns of X, where they are kept, then pmi_ and the class or the anchor's number."""
        check_is_fitted(self, "estimator_")
        given = _check_feature_names_in(self, input_features)
        own = np.asarray(self._own_names(), dtype=object)
        return np.concatenate([given, own]) if self.append else own

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.multi_output = True
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _estimator(self) -> PointwiseDependency:
        given = PointwiseDependency() if self.estimator is None else self.estimator
        if not isinstance(given, PointwiseDependency):
            raise InputError(f"estimator={given!r} must be a PointwiseDependency(...)")
        if given.cv is None and given.folds == 1:
            raise InputError("estimator has folds=1: give 2, so that none scores a row it saw")
        changed: dict[str, Any] = {"progress": bool(self.progress and given.progress)}
        if "stream" in given.get_params():
            changed["stream"] = False  # the features of all rows are held, and so may be the rows
        if self.random_state is not None:
            changed["random_state"] = self.random_state
        fresh: PointwiseDependency = plain_copy(given, **changed)
        return fresh

    def _out_of_fold(self) -> Array32:
        """(n, k) PMI of the rows of the fit with the anchors; the mean where several report it."""
        model = self.estimator_
        rows = fitted_rows(model, "fit_transform", "transform")
        sums = np.zeros((len(rows.x), len(self._anchors_y)))
        counts = np.zeros((len(rows.x), 1))
        with show("scoring", enabled=model.progress) as progress:
            for replica, split in enumerate(rows.splits):
                x, one = rows.x[torch.from_numpy(split.report)], model.model_.select([replica])
                sums[split.report] += score_matrix(one, x, self._anchors_y)
                counts[split.report] += 1
                progress.update(replica + 1, len(rows.splits), "models")
        if not counts.all():
            fault = f"row {int((counts == 0).argmax())} was seen by every network: use folds"
            raise InputError(f"{fault}, or a cv whose test parts hold every row, such as KFold")
        return (sums / counts).astype(np.float32)

    def _choose_anchors(self, model: PointwiseDependency) -> None:
        """The y that every x is compared with, (k, dy), prepared as the model takes them.

        The classes if y is one column of categories, otherwise given y, or rows of the fit.
        """
        encoder, anchors = model.encoder_y_, self.anchors
        self.classes_ = self.anchor_rows_ = None
        if not isinstance(anchors, int | np.integer) or isinstance(anchors, bool):
            self._anchors_y = encode_side(model, anchors, "y")
            return
        require_whole("anchors", anchors)
        if len(encoder.categories) == 1 and not encoder.numeric_at:
            self.classes_ = encoder.categories[0].values
            self._anchors_y = encode_side(model, self.classes_, "y")
        else:
            rows = fitted_rows(model, "PMIFeatures", "the fitted transformer")
            self.anchor_rows_ = _spread_rows(rows.y.numpy(), int(anchors), rows.seed)
            self._anchors_y = rows.y[self.anchor_rows_]

    def _own_names(self) -> list[str]:
        names = range(len(self._anchors_y)) if self.classes_ is None else self.classes_
        return [f"pmi_{name}" for name in names]

    def _joined(self, X: Any, features: Array32) -> Any:
        """The columns beside those of X: a pandas or polars table stays one, with its types."""
        names = self._own_names()
        library = type(X).__module__.split(".")[0]
        # Names of other types would not mix with ours, and scikit-learn refuses such tables.
        if library == "pandas" and all(isinstance(n, str) for n in getattr(X, "columns", [0])):
            import pandas as pd

            table = pd.DataFrame(features, index=X.index, columns=names)
            return pd.concat([X, table], axis=1) if self.append else table
        if library == "polars" and hasattr(X, "hstack"):
            import polars as pl

            frame = pl.DataFrame(features, schema=names)
            return X.hstack(frame) if self.append else frame
        if not self.append:
            return features
        block = np.asarray(X)
        return np.hstack([block.reshape(len(block), -1), features])


def _spread_rows(y: Any, count: int, seed: int) -> Any:
    """Numbers of at most `count` rows of y: (n, d), each nearest to the middle of a cluster."""
    some = np.sort(np.random.default_rng([seed, 11]).permutation(len(y))[:_MOST_CLUSTERED])
    places, first = np.unique(y[some], axis=0, return_index=True)
    count = min(count, len(places))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # few places, which are all taken
        middles = KMeans(count, n_init=1, random_state=seed % 2**32).fit(y[some]).cluster_centers_
    nearest = np.unique(pairwise_distances_argmin(middles, places))  # sorted, as places are
    return some[first[nearest]]
