"""`PMIFeatures`: PMI of a row with each class, or with some y, as columns for another model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from pointdep.errors import InputError, names_nearest_option
from pointdep.estimators.pointwise import PointwiseDependency
from pointdep.fitting.progress import show
from pointdep.inference.scoring import score_matrix
from pointdep.workflow.anchors import choose_anchors

if TYPE_CHECKING:
    from sklearn.utils import Tags

Array32 = NDArray[np.float32]


class PMIFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Columns that say how much a row belongs with each class, or with some y.

    `fit_transform` gives each row the PMI of networks that did not see it, so that a model fitted
    on these columns does not learn to trust what was memorised; `transform`, for other rows, that
    of all networks. The two differ, as those of scikit-learn's `TargetEncoder` do: a `Pipeline`
    calls the right one.

    Parameters
    ----------
    estimator : the `PointwiseDependency` to fit, None for one with its defaults; it is cloned and
        itself left alone. It needs folds that score each row: two at least.
    anchors : with which y, where y is not one column of categories: so many rows of the fit that
        are spread over all, or an array of y. One column of categories has its classes.
    append : whether the columns of X come first. With or without them the result is a table
        where X is one whose names are strings, and an array otherwise.
    random_state : int for the same numbers on the same machine; None for that of `estimator`.
    progress : show progress of fits and scoring; False keeps `estimator` quiet too.

    Attributes
    ----------
    estimator_ : the fitted `PointwiseDependency`.
    classes_ : the categories of y, where it is one column of them; else None.
    anchor_rows_ : numbers of the rows of the fit whose y are the anchors, where they were chosen.
    n_features_in_, feature_names_in_ : columns of X, and their names where X is a table.
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
            raise InputError(
                "PMIFeatures requires y to be passed, but the target y is None: call fit(X, y)"
            )
        model = self._estimator().fit(X, y, groups=groups)
        self._anchors = choose_anchors(model, self.anchors)
        self._refuse_equal_names(getattr(model, "feature_names_in_", ()))
        self.estimator_, self.n_features_in_ = model, model.n_features_in_
        of_classes = self._anchors.rows is None and isinstance(self.anchors, int | np.integer)
        self.classes_ = self._anchors.values if of_classes else None
        self.anchor_rows_ = self._anchors.rows
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
            raise InputError(
                f"X is one-dimensional, and {self.n_features_in_} columns were fitted. Reshape "
                "your data: X.reshape(1, -1) is one row"
            )
        x = model._encode_side(X, "x")
        with show("scoring", enabled=model.progress) as progress:
            return self._joined(X, score_matrix(model.model_, x, self._anchors.y, progress))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The columns of X, where they are kept, then pmi_ and the class or the anchor's number."""
        check_is_fitted(self, "estimator_")
        given = _check_feature_names_in(self, input_features)
        own = np.asarray(self._own_names(), dtype=object)
        return np.concatenate([given, own]) if self.append else own

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _estimator(self) -> PointwiseDependency:
        given = PointwiseDependency() if self.estimator is None else self.estimator
        if not isinstance(given, PointwiseDependency):
            raise InputError(f"estimator={given!r} must be a PointwiseDependency(...)")
        if given.cv is None and given.folds == 1:
            raise InputError(
                "estimator has folds=1, and each row needs a network that did not see "
                "it: use folds=2 or more"
            )
        changed: dict[str, Any] = {"progress": bool(self.progress and given.progress)}
        if "stream" in given.get_params():
            changed["stream"] = False  # the features of all rows are held, and so may be the rows
        if self.random_state is not None:
            changed["random_state"] = self.random_state
        fresh: PointwiseDependency = clone(given).set_params(**changed)
        return fresh

    def _out_of_fold(self) -> Array32:
        """(n, k) PMI of the rows of the fit with the anchors; the mean where several report it."""
        model = self.estimator_
        rows = model._fitted_rows("fit_transform", "transform")
        sums = np.zeros((len(rows.x), len(self._anchors.y)))
        counts = np.zeros((len(rows.x), 1))
        with show("scoring", enabled=model.progress) as progress:
            for replica, split in enumerate(rows.splits):
                x = rows.x[torch.from_numpy(split.report)]
                sums[split.report] += score_matrix(
                    model.model_.select([replica]), x, self._anchors.y
                )
                counts[split.report] += 1
                progress.update(replica + 1, len(rows.splits), "models")
        if not counts.all():
            raise InputError(
                f"row {int((counts == 0).argmax())} was seen by every network: use folds, or a cv "
                "whose test parts hold every row, such as KFold"
            )
        return (sums / counts).astype(np.float32)

    def _own_names(self) -> list[str]:
        return [f"pmi_{name}" for name in self._anchors.names]

    def _refuse_equal_names(self, given: Any) -> None:
        shared = sorted({*self._own_names()} & {*given}) if self.append else []
        if shared:
            raise InputError(
                f"X has a column {shared[0]!r}, which is the name of a column of PMI: rename it, "
                "or use append=False"
            )

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
