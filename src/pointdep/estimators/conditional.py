"""`ConditionalDependency`: how dependent x and y are once z is known."""

from __future__ import annotations

import hashlib
import math
import warnings
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from pointdep import errors
from pointdep.core.methods import METHODS, get_method
from pointdep.data import sides, storage
from pointdep.data.atomic import replaced_folder, steady
from pointdep.data.raw import group_codes
from pointdep.data.sides import RawSide, SideEncoder, as_side
from pointdep.errors import DataWarning, Flag, InputError, ModelFileError
from pointdep.estimators.base import DependencyEstimator, plain_copy
from pointdep.estimators.persistence import plain_seed, reading
from pointdep.estimators.pointwise import MANY_OUTSIDE, PointwiseDependency, pair_columns
from pointdep.fitting.progress import show
from pointdep.fitting.splits import random_of
from pointdep.inference.bias import FittingBias
from pointdep.inference.mutual_information import Array, MIEstimate, RowValues, standard_error
from pointdep.inference.out_of_fold import wide_flags

if TYPE_CHECKING:
    import pandas as pd


# Y and Z, each as the user gave it, side by side as one table.


Encoders = tuple[SideEncoder, SideEncoder]
"""How Y and Z are read, the same way in fit and after: the columns that fit has seen."""


def both_tables(
    encoders: Encoders, raw_y: RawSide, raw_z: RawSide
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(rows, dy + dz) the columns of Y and Z together, and (rows, dz) those of Z."""
    import pandas as pd

    z = _table(raw_z, encoders[1])
    return pd.concat([_table(raw_y, encoders[0]), z], axis=1), z


def _table(raw: RawSide, encoder: SideEncoder) -> pd.DataFrame:
    """(rows, d), categories declared as such.

    Columns of a table keep the names they had in fit, those of an array are "Y0", "Y1", ...
    """
    import pandas as pd

    columns: dict[int, Any] = {}
    for position, is_category in enumerate(raw.category_mask):
        values = raw.column(position)
        if values.dtype.kind == "b" and not is_category:
            # Booleans here were declared numbers, and would be read as categories again.
            values = values.astype(np.uint8)
        columns[position] = pd.Categorical(values) if is_category else values
    names = [n if encoder.named else f"{encoder.side}{k}" for k, n in enumerate(encoder.names)]
    return pd.DataFrame(columns).set_axis(pd.Index(names), axis=1)  # which need not be distinct


# The two fits whose difference is taken: alike in everything but the data.

JOINT, MARGINAL = "joint", "marginal"
_KIND = "conditional"  # the key under which model.json says what is only found here
FIT_OF = {JOINT: "X with (Y, Z)", MARGINAL: "X with Z"}
_PROOF = 2.0  # standard errors


def make_parts(
    given: PointwiseDependency, *, random_state: Any, progress: bool
) -> dict[str, PointwiseDependency]:
    """Two copies of the estimator, not yet fitted, that will split the rows alike."""
    if not isinstance(given, PointwiseDependency):
        raise InputError(f"estimator={given!r} must be a PointwiseDependency(...)")
    method = get_method(given.method, given.method_options)
    if not method.is_mean_of_pmi:
        allowed = ", ".join(key for key, other in METHODS.items() if other.is_mean_of_pmi)
        raise InputError(
            f"method {method.key!r} does not infer the mean of PMI over rows, so that its "
            f"difference is no conditional mutual information: choose from {allowed}"
        )
    if not isinstance(given.critic, str | type):
        raise InputError(
            "the estimator has a critic of your own, which takes a y of one width, but it is "
            "fitted to (Y, Z) and to Z: name a critic, such as critic='auto'"
        )
    if given.curve:
        raise InputError("the estimator has curve=True, but a difference has no learning curve")
    state = given.random_state if random_state is None else random_state
    file = given.checkpoint
    if file is not None and state is None:
        raise InputError("checkpoint needs a fixed random_state, to find what to resume")
    shared = {
        # One whole number for both: a generator would go on between the fits.
        "random_state": int(random_of(state).randint(2**31 - 1)),
        "cv": SplitOnce(given.cv) if hasattr(given.cv, "split") else given.cv,
        "progress": bool(progress and given.progress),
    }
    files = {part: None if file is None else Path(f"{file}.{part}") for part in FIT_OF}
    return {part: plain_copy(given, **shared, checkpoint=own) for part, own in files.items()}


class SplitOnce:
    """A splitter that splits once and says the same again: one that shuffles would not."""

    def __init__(self, cv: Any) -> None:
        self.cv = cv
        self.pairs: list[Any] | None = None

    def split(self, X: Any, y: Any = None, groups: Any = None) -> list[Any]:
        """The splits of `cv`, as it gave them first."""
        if self.pairs is None:
            self.pairs = list(self.cv.split(X, y, groups))
        return self.pairs

    def __repr__(self) -> str:
        return repr(self.cv)


def bias_of_difference(
    joint: FittingBias, marginal: FittingBias, values: Array, groups: NDArray[np.int64] | None
) -> tuple[float, float]:
    """What to add to the mean of the differences over unseen rows, and its standard error.

    values: (n,), the differences of the unseen rows. Where they are not above zero beyond chance, y
    tells nothing that z does not, and what the first network learned beyond the second is noise.
    The closed forms are nested, the second having dx dz of the dx (dy + dz) parameters of the
    first: what is wrong with one is wrong with both, and only the excess is in doubt. Two networks
    stop each at their own time, so that their doubts add up as those of independent errors.
    """
    if float(values.mean()) <= _PROOF * standard_error(values, groups):
        joint, marginal = (replace(bias, proven=False) for bias in (joint, marginal))
    excess = FittingBias(
        closed_form=joint.closed_form - marginal.closed_form,
        resolution=math.sqrt(max(joint.resolution**2 - marginal.resolution**2, 0.0)),
    )
    networks = (replace(bias, closed_form=0.0, resolution=0.0) for bias in (joint, marginal))
    doubt = math.hypot(excess.stderr, *(network.stderr for network in networks))
    return joint.correction - marginal.correction, doubt


Array32 = NDArray[np.float32]


@errors.names_options
@dataclass(eq=False, repr=False)
class ConditionalDependency(DependencyEstimator):
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

    estimator: PointwiseDependency | None = None
    _: KW_ONLY
    discrete_z: bool | None = None
    random_state: Any = None
    progress: bool = True

    def fit(
        self, X: Any, Y: Any = None, Z: Any = None, groups: Any = None
    ) -> ConditionalDependency:
        """Fit on rows (x, y, z).

        X, Y, Z: numpy, torch, pandas, polars or lists, (n,) or (n, d), numbers or categories.
        groups: (n,), as of `PointwiseDependency.fit`: rows of one group are no independent draws.
        """
        if Y is None or Z is None:
            raise InputError(f"{'Y' if Y is None else 'Z'} is missing: call fit(X, Y, Z)")
        given = PointwiseDependency() if self.estimator is None else self.estimator
        parts = make_parts(given, random_state=self.random_state, progress=self.progress)
        raw_x = as_side(X, "X", discrete=given.discrete_x)
        raw_y = as_side(Y, "Y", discrete=given.discrete_y)
        raw_z = as_side(Z, "Z", discrete=self.discrete_z)
        if any(raw.front is not None for raw in (raw_x, raw_y, raw_z)):
            raise InputError(
                "ConditionalDependency takes no texts, pictures and sounds: turn them "
                "into numbers first, by pointdep.embed"
            )
        codes = group_codes(groups)
        sides.require_same_length(raw_x, raw_y, codes, raw_z)
        sides.warn_of_other_order(X, Y)
        sides.warn_of_other_order(X, Z, "Z")
        SideEncoder.fit(raw_x, "X")  # for its warnings, which the two fits keep to themselves
        encoders = SideEncoder.fit(raw_y, "Y"), SideEncoder.fit(raw_z, "Z")
        yz, z = both_tables(encoders, raw_y, raw_z)
        of_y, of_z = (encoder.discrete for encoder in encoders)
        parts[JOINT].set_params(discrete_y=of_y if of_y is of_z else None)  # None: by type
        parts[MARGINAL].set_params(discrete_y=of_z)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.PointdepWarning)  # said here, of the right side
            parts[JOINT].fit(X, yz, groups=codes)
            parts[MARGINAL].fit(X, z, groups=codes)
        for model in parts.values():
            model.set_params(cv=given.cv)  # rather than these splits, which are of these rows
        self._set_fitted(parts, encoders)
        self._warn_of_flags()
        return self

    def pmi(self, X: Any, Y: Any, Z: Any) -> Array32:
        """PMI(x; y | z) of each row, (n,) in nats: a function of that row alone.

        Warns where one of the fits meets many pairs unlike any it has seen; `outside` says which.
        """
        values, outside = self._answers(X, Y, Z)
        if max(float(far.mean()) for far in outside) > MANY_OUTSIDE:
            said = "more than 1 % of the rows lie outside the data of the fit: their PMI is an"
            errors.warn_caller(f"{said} extrapolation (outside(X, Y, Z) says which)", DataWarning)
        return values

    def outside(self, X: Any, Y: Any, Z: Any) -> NDArray[np.bool_]:
        """Which rows are unlike any of the fit, (n,): their PMI is an extrapolation."""
        joint, marginal = self._answers(X, Y, Z)[1]
        return joint | marginal

    def _answers(self, X: Any, Y: Any, Z: Any) -> tuple[Array32, list[NDArray[np.bool_]]]:
        """PMI(x; y | z), and whether a pair is outside the data of each of the fits."""
        tables = self._tables(X, Y, Z)
        with warnings.catch_warnings(), show("scoring", enabled=self.progress) as progress:
            warnings.simplefilter("ignore", errors.PointdepWarning)  # said already, of Y and Z
            joint, marginal = (
                pair_columns(model, X, table, progress)
                for model, table in zip((self.joint_, self.marginal_), tables, strict=True)
            )
        return joint["pmi"] - marginal["pmi"], [joint["outside"], marginal["outside"]]

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
        known, codes = ~np.isnan(differences), self.joint_.groups_
        biases, some = (self.joint_.bias_, self.marginal_.bias_), differences[known]
        of_known = None if codes is None else codes[known]
        correction, doubt = bias_of_difference(*biases, some, of_known)
        rows = RowValues(differences, codes, correction, doubt)
        if X is not None or Y is not None or Z is not None:
            values = self.pmi(X, Y, Z).astype(np.float64)
            codes = group_codes(groups, len(values))
            rows = RowValues(values, codes, doubt=math.hypot(correction, doubt))
        method = get_method(self.joint_.method, self.joint_.method_options)
        return rows.estimate(method, confidence=confidence, warnings=self._notes)

    def save(self, path: str | Path) -> None:
        """Write both models, and how Y and Z are read, as one folder of safetensors and JSON."""
        check_is_fitted(self, "joint_")
        path = Path(path)
        storage.check_target(path, FIT_OF)
        given, seed = self.estimator, self.random_state
        if seed is None and given is not None:
            seed = given.random_state
        # The options that the two models do not hold.
        of_y = None if given is None else given.discrete_y
        params = {"discrete_y": of_y, "discrete_z": self.discrete_z}
        about = {
            "params": params | {"random_state": plain_seed(seed)},
            "sides": {s: e.to_dict() for s, e in zip("yz", self.encoders_, strict=True)},
        }
        with replaced_folder(path) as new:
            parts = {part: new.with_name(part) for part in FIT_OF}
            self.joint_.save(parts[JOINT])
            self.marginal_.save(parts[MARGINAL])
            about["sha256"] = {part: _digest(place) for part, place in parts.items()}
            storage.write_model(new, {_KIND: about}, {})
            for part, place in parts.items():
                place.replace(new / part)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> ConditionalDependency:
        """Read what `save` wrote."""
        return steady(Path(path), lambda: cls._load(Path(path), device))

    @classmethod
    def _load(cls, path: Path, device: str) -> ConditionalDependency:
        about, _ = storage.read_model(path)
        if _KIND not in about:
            raise ModelFileError(f"{path} is a model of pairs: use PointwiseDependency.load")
        with reading(path):
            saved = about[_KIND]
            params, digests = dict(saved["params"]), {p: saved["sha256"][p] for p in FIT_OF}
            discrete_y = params.pop("discrete_y")
            storage.require_kinds(params, cls, set(params) - {"discrete_z", "random_state"})
            of_y, of_z = (SideEncoder.from_dict(saved["sides"][side]) for side in "yz")
        models = {part: PointwiseDependency.load(path / part, device=device) for part in FIT_OF}
        for part, digest in digests.items():
            if _digest(path / part) != digest:
                raise ModelFileError(f"{path / part} belongs to another model than {path}")
        prototype = clone(models[JOINT]).set_params(discrete_y=discrete_y, random_state=None)
        made = cls(prototype, **params)
        made._set_fitted(models, (of_y, of_z))
        return made

    def _found(self) -> list[tuple[str, object]]:
        return [("conditional mutual information", self.mutual_information())]

    def _set_fitted(self, models: dict[str, PointwiseDependency], encoders: Encoders) -> None:
        self.joint_, self.marginal_, self.encoders_ = models[JOINT], models[MARGINAL], encoders
        self.oof_pmi_: Array32 = self.joint_.oof_pmi_ - self.marginal_.oof_pmi_
        self.flags_ = tuple(
            Flag(flag.name, flag.replicas, f"in the fit of {FIT_OF[part]}, {flag.message}")
            for part, model in models.items()
            for flag in model.flags_
            if flag.name != "wide_interval"  # that of the difference is another
        )
        self.n_rows_ = self.joint_.n_rows_
        self._set_features(self.joint_.encoder_x_)
        self.flags_ = (*self.flags_, *wide_flags(self.mutual_information()))

    def _tables(self, X: Any, Y: Any, Z: Any) -> tuple[Any, Any]:
        """Of given rows: Y and Z together, and Z."""
        check_is_fitted(self, "joint_")
        if X is None or Y is None or Z is None:
            raise InputError("X, Y and Z are all needed: a row has three parts")
        raw_x = as_side(X, "X", discrete=self.joint_.encoder_x_.discrete)
        raws = []
        for values, encoder in zip((Y, Z), self.encoders_, strict=True):
            raws.append(as_side(values, encoder.side, discrete=encoder.discrete))
            # For its errors alone: the models take Z, or Y and Z together, for their Y, and would
            # name the wrong side.
            encoder.encode(raws[-1])
        sides.require_same_length(raw_x, raws[0], z=raws[1])
        return both_tables(self.encoders_, *raws)


def _digest(part: Path) -> str:
    """Of the file that holds the digests of all else of a model."""
    return hashlib.sha256((part / storage.MODEL_FILES[0]).read_bytes()).hexdigest()
