"""`ConditionalDependency`: how dependent x and y are once z is known."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from pointdep.cards import EstimatorCard
from pointdep.conditional import persistence
from pointdep.conditional.parts import FIT_OF, JOINT, MARGINAL, bias_of_difference, make_parts
from pointdep.conditional.sides import Conditions, require_same_lengths, warn_of_other_orders
from pointdep.core.methods import get_method
from pointdep.data.groups import group_codes
from pointdep.data.sides import SideEncoder, as_side
from pointdep.errors import (
    DataWarning,
    FitWarning,
    InputError,
    PointdepWarning,
    names_nearest_option,
)
from pointdep.estimator import PointwiseDependency
from pointdep.fitting.flags import Flag
from pointdep.inference.mutual_information import MIEstimate, estimate
from pointdep.inference.out_of_fold import wide_flags

Array32 = NDArray[np.float32]


class ConditionalDependency(EstimatorCard, BaseEstimator):  # type: ignore[misc]
    """Learn PMI(x; y | z) = log p(x,y|z) / (p(x|z) p(y|z)) from rows of three variables.

    By the chain rule it is PMI(x; (y,z)) - PMI(x; z): two `PointwiseDependency` fits, on the same
    splits, whose answers are subtracted row by row. Their errors are much alike, so the difference
    is better known than either.

    Parameters
    ----------
    estimator : the `PointwiseDependency` to fit twice, None for one with its defaults; it is cloned
        and itself left alone. Its `discrete_x` and `discrete_y` are those of X and Y. Its method
        must infer the mean of PMI (such as `pc`, the default): the bounds of `cpc`, `nwj`, `js`,
        `dv`, `mine` and `smile` are no means over rows, and the difference of two bounds bounds
        nothing. Its critic must be a named one, as the two fits have sides of different widths.
    discrete_z : whether Z is categories; None decides by its type.
    random_state : int for the same numbers on the same machine; None for that of `estimator`.
    progress : show progress of fits and scoring; False keeps `estimator` quiet too.

    Attributes
    ----------
    joint_, marginal_ : the fitted models, of X with (Y, Z) and of X with Z.
    oof_pmi_ : (n,) float32, PMI(x; y | z) of each training row by models that did not see it; NaN
        for rows that none reports.
    flags_ : the training problems of both fits, each also raised as a `FitWarning`.
    n_features_in_, feature_names_in_ : columns of X, and their names where X is a table.
    n_rows_ : rows fitted.
    """

    @names_nearest_option
    def __init__(
        self,
        estimator: PointwiseDependency | None = None,
        *,
        discrete_z: bool | None = None,
        random_state: Any = None,
        progress: bool = True,
    ) -> None:
        self.estimator = estimator
        self.discrete_z = discrete_z
        self.random_state = random_state
        self.progress = progress

    def fit(
        self, X: Any, Y: Any = None, Z: Any = None, groups: Any = None
    ) -> ConditionalDependency:
        """Fit on rows (x, y, z).

        X, Y, Z: numpy, torch, pandas, polars or lists, (n,) or (n, d), numbers or categories.
        groups: (n,), as of `PointwiseDependency.fit`: rows of one group are no independent draws.
        """
        if Y is None or Z is None:
            raise InputError(
                f"{'Y' if Y is None else 'Z'} is missing: call fit(X, Y, Z) with three arrays of "
                "rows that belong together; without a condition Z, use PointwiseDependency"
            )
        given = PointwiseDependency() if self.estimator is None else self.estimator
        parts = make_parts(given, random_state=self.random_state, progress=self.progress)
        raw_x = as_side(X, "X", discrete=given.discrete_x)
        raw_y = as_side(Y, "Y", discrete=given.discrete_y)
        raw_z = as_side(Z, "Z", discrete=self.discrete_z)
        codes = group_codes(groups)
        grouped = {} if codes is None else {"groups": len(codes)}
        require_same_lengths(X=raw_x.rows, Y=raw_y.rows, Z=raw_z.rows, **grouped)
        warn_of_other_orders(X, Y, Z)
        SideEncoder.fit(raw_x, "X")  # for its warnings, which the two fits keep to themselves
        conditions = Conditions.fit(raw_y, raw_z)
        yz, z = conditions.tables(raw_y, raw_z)
        parts[JOINT].set_params(discrete_y=conditions.discrete_both)
        parts[MARGINAL].set_params(discrete_y=conditions.z.discrete)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PointdepWarning)  # said here, of the right side
            parts[JOINT].fit(X, yz, groups=codes)
            parts[MARGINAL].fit(X, z, groups=codes)
        for model in parts.values():
            model.set_params(cv=given.cv)  # rather than these splits, which are of these rows
        self._set_fitted(parts[JOINT], parts[MARGINAL], conditions)
        for flag in self.flags_:
            warnings.warn(str(flag), FitWarning, stacklevel=2)
        return self

    def pmi(self, X: Any, Y: Any, Z: Any) -> Array32:
        """PMI(x; y | z) of each row, (n,) in nats: a function of that row alone.

        Warns where one of the fits meets many pairs unlike any it has seen; `outside` says which.
        """
        yz, z = self._tables(X, Y, Z)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DataWarning)
            values: Array32 = self.joint_.pmi(X, yz) - self.marginal_.pmi(X, z)
        for one in caught:
            if not issubclass(one.category, DataWarning):
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        if any(issubclass(one.category, DataWarning) for one in caught):
            warnings.warn(
                "more than 1 % of the rows lie outside the data of the fit: their PMI is an "
                "extrapolation (outside(X, Y, Z) says which)",
                DataWarning,
                stacklevel=2,
            )
        return values

    def outside(self, X: Any, Y: Any, Z: Any) -> NDArray[np.bool_]:
        """Which rows are unlike any of the fit, (n,): their PMI is an extrapolation."""
        yz, z = self._tables(X, Y, Z)
        return self.joint_.outside(X, yz) | self.marginal_.outside(X, z)

    def mutual_information(
        self,
        X: Any = None,
        Y: Any = None,
        Z: Any = None,
        *,
        groups: Any = None,
        confidence: float = 0.95,
    ) -> MIEstimate:
        """I(X; Y | Z): of the training rows out of fold, or of the given rows.

        The standard error is that of the mean of the differences of the rows, joined with the doubt
        about the correction for the bias of fitting. Give rows that were not fitted on: on training
        rows it reads too high; of given rows it is the plain mean, with the bias in the interval.
        """
        check_is_fitted(self, "joint_")
        differences = self.joint_.oof_values_ - self.marginal_.oof_values_
        known = ~np.isnan(differences)
        values, codes = differences[known], self.joint_.groups_
        codes = None if codes is None else codes[known]
        correction, doubt = bias_of_difference(
            self.joint_.bias_, self.marginal_.bias_, values, codes
        )
        if X is not None or Y is not None or Z is not None:
            values, codes = self.pmi(X, Y, Z).astype(np.float64), group_codes(groups)
            grouped = {} if codes is None else {"groups": len(codes)}
            require_same_lengths(X=len(values), **grouped)
            correction, doubt = 0.0, math.hypot(correction, doubt)
        return estimate(
            values,
            get_method(self.joint_.method, self.joint_.method_options),
            confidence=confidence,
            warnings=tuple(str(flag) for flag in self.flags_),
            groups=codes,
            correction=correction,
            doubt=doubt,
        )

    def save(self, path: str | Path) -> None:
        """Write both models, and how Y and Z are read, as one folder of safetensors and JSON."""
        check_is_fitted(self, "joint_")
        persistence.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> ConditionalDependency:
        """Read what `save` wrote."""
        params, joint, marginal, conditions = persistence.load(Path(path), device=device)
        made = cls(**params)
        made._set_fitted(joint, marginal, conditions)
        return made

    def _found(self) -> list[tuple[str, object]]:
        return [("conditional mutual information", self.mutual_information())]

    def _set_fitted(
        self, joint: PointwiseDependency, marginal: PointwiseDependency, conditions: Conditions
    ) -> None:
        self.joint_, self.marginal_, self.conditions_ = joint, marginal, conditions
        self.oof_pmi_: Array32 = joint.oof_pmi_ - marginal.oof_pmi_
        self.flags_ = tuple(
            Flag(flag.name, flag.replicas, f"in the fit of {FIT_OF[part]}, {flag.message}")
            for part, model in ((JOINT, joint), (MARGINAL, marginal))
            for flag in model.flags_
            if flag.name != "wide_interval"  # that of the difference is another
        )
        self.n_rows_, self.n_features_in_ = joint.n_rows_, joint.n_features_in_
        if hasattr(joint, "feature_names_in_"):
            self.feature_names_in_ = joint.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit
        self.flags_ = (*self.flags_, *wide_flags(self.mutual_information()))

    def _tables(self, X: Any, Y: Any, Z: Any) -> tuple[Any, Any]:
        """Of given rows: Y and Z together, and Z."""
        check_is_fitted(self, "joint_")
        if X is None or Y is None or Z is None:
            raise InputError("X, Y and Z are all needed: a row has three parts")
        raw_x = as_side(X, "X", discrete=self.joint_.encoder_x_.discrete)
        raw_y, raw_z = self.conditions_.read(Y, Z)
        require_same_lengths(X=raw_x.rows, Y=raw_y.rows, Z=raw_z.rows)
        return self.conditions_.tables(raw_y, raw_z)
