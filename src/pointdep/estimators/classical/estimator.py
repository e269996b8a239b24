"""`ClassicalDependency`: the estimators before neural networks, called like the neural ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from pointdep import errors
from pointdep.data.encoder import SideEncoder, part_of
from pointdep.data.raw import RawSide, group_codes
from pointdep.data.sides import as_side, require_same_length, side_digest
from pointdep.errors import MEANINGS, Flag, InputError, ModelFileError
from pointdep.estimators.base import (
    NO_BETTER,
    DependencyEstimator,
    can_be_scored,
    fit_encoders,
    read_pairs,
    reasons_of,
    without_gaps,
)
from pointdep.estimators.classical.catalogue import ClassicalMethod, get_classical
from pointdep.estimators.classical.prepared import Array, Codes, PairModel, Side, SideReader
from pointdep.fitting.data_flags import outlier_flags
from pointdep.fitting.progress import Progress, Silent, show
from pointdep.fitting.splits import make_splits, random_of
from pointdep.inference.mutual_information import MIEstimate, RowValues, normal_quantile
from pointdep.inference.scoring import normalised_pmi, shuffled_log_likelihood

# Answers from a fitted model, tile by tile, and the estimate from one value per row.

Array32 = NDArray[np.float32]

_ROWS, _COLUMNS = 1024, 4096  # of a tile: what is alive at a time
_SEED = 0  # answers about given rows do not depend on the state of any generator


def pair_values(model: PairModel, x: Side, y: Side, progress: Progress) -> Array:
    """(n,) PMI, or the score, of paired rows."""
    values = np.empty(len(x))
    for first in range(0, len(x), _COLUMNS):
        rows = slice(first, first + _COLUMNS)
        values[rows] = model.pairs(x.take(rows), y.take(rows))
        progress.update(min(first + _COLUMNS, len(x)), len(x), "pairs")
    return values


def matrix_values(model: PairModel, x: Side, y: Side, progress: Progress) -> Array32:
    """(n, m) PMI, or the score, of every x with every y."""
    values = np.empty((len(x), len(y)), dtype=np.float32)
    for first in range(0, len(x), _ROWS):
        rows = slice(first, first + _ROWS)
        part = x.take(rows)
        for start in range(0, len(y), _COLUMNS):
            columns = slice(start, start + _COLUMNS)
            values[rows, columns] = model.matrix(part, y.take(columns))
        progress.update(min(first + _ROWS, len(x)), len(x), "rows")
    return values


_MANY_AT_LIMIT = 0.01


class NotGivenError(InputError, AttributeError):
    """The method does not give this; also an AttributeError, so that `hasattr` says so."""


@errors.names_options
@dataclass(eq=False, repr=False)
class ClassicalDependency(DependencyEstimator):
    """Estimate dependence from paired rows as was done before neural networks.

    Parameters
    ----------
    method : key of `pointdep.CLASSICAL`: "counting", "phsic", "ulsif", "likelihood", "ksg", "cca".
    folds : parts of the rows, each answered by a fit on the others; 1 answers a fifth of the rows.
        `ksg`, which fits nothing, makes no use of it.
    method_options : options of the method, such as ``{"k": 3}`` for `ksg`.
    discrete_x, discrete_y : whether a side is categories; None decides by its type.
    missing : "indicator", "drop" or "error", as of `PointwiseDependency`.
    random_state : int for the same numbers on the same machine.
    progress : show progress on standard error when something takes over two seconds.

    Attributes
    ----------
    oof_pmi_ : (n,) float32, PMI of each training row by the fit that did not see it; NaN for rows
        that none reports, as with ``folds=1``. The score of `phsic`, which ranks pairs and is not
        in nats. `ksg` has none.
    mi_values_ : (n,) values of the training rows whose mean is the mutual information, and whose
        spread gives its error; None for `phsic`.
    model_ : the fit on all rows, by which new pairs are answered; None for `ksg`.
    flags_ : the problems found, each also raised as a `FitWarning`.
    n_features_in_, feature_names_in_ : columns of X, and their names where X is a table.
    n_rows_ : what was fitted.
    """

    method: str = "ksg"
    _: KW_ONLY
    folds: int = 5
    method_options: Mapping[str, Any] | None = None
    discrete_x: bool | None = None
    discrete_y: bool | None = None
    missing: str = "indicator"
    random_state: Any = None
    progress: bool = True

    def fit(self, X: Any, Y: Any = None, groups: Any = None) -> ClassicalDependency:
        """Fit on paired rows.

        X, Y: numpy, torch, pandas, polars or lists, (n,) or (n, d), numbers or categories.
        groups: (n,), for rows that are not independent draws: rows of one group stay on one side of
        every split, and the standard error counts groups.
        """
        self._require_y(Y)
        method = get_classical(self.method, self.method_options)
        discrete = self.discrete_x, self.discrete_y
        raw_x, raw_y, codes = read_pairs(X, Y, groups, discrete, self.missing)
        given = raw_x.rows
        raw_x, raw_y, codes, kept = without_gaps(raw_x, raw_y, codes, self.missing)
        self.seed_ = int(random_of(self.random_state).randint(2**31 - 1))
        of_x, of_y = fit_encoders(raw_x, raw_y, self.missing)
        readers = SideReader.fit(raw_x, of_x), SideReader.fit(raw_y, of_y)
        dense = method.dense
        x, y = readers[0].read(raw_x, dense=dense), readers[1].read(raw_y, dense=dense)
        method.check_sides(x, y)
        self._oof: Array32 | None = None
        with show(f"fitting {method.key}", enabled=self.progress) as progress:
            self._fit_sides(method, x, y, codes, progress)
        self.flags_ = (*outlier_flags(reader.encoder for reader in readers), *self.flags_)
        if kept is not None and self._oof is not None:
            whole = np.full(given, np.nan, dtype=np.float32)
            whole[kept] = self._oof
            self._oof = whole
        self.method_, self.groups_, self.n_rows_ = method, codes, len(x)
        self.reader_x_, self.reader_y_ = readers
        self.digests_ = side_digest(raw_x), side_digest(raw_y)
        self._set_features(self.reader_x_.encoder)
        self._warn_of_flags()
        return self

    @property
    def oof_pmi_(self) -> Array32:
        """(n,) PMI of each training row by the fit that did not see it."""
        check_is_fitted(self, "method_")
        if self._oof is None:
            raise NotGivenError(self._no_pmi("out-of-fold PMI"))
        return self._oof

    def mutual_information(
        self, X: Any = None, Y: Any = None, *, groups: Any = None, confidence: float = 0.95
    ) -> MIEstimate:
        """The mutual information of the training rows, or of the given rows.

        Without rows: the mean of `mi_values_`, which is PMI out of fold, the terms of `ksg`, or for
        `counting` and `cca` the closed form of all rows less its bias. With rows, which should be
        others than those of the fit: the mean of their PMI, and for `ksg` its estimate from them.
        """
        check_is_fitted(self, "method_")
        method = self.method_
        if not method.estimates:
            raise InputError(
                f"method {method.key!r} gives no mutual information: its score ranks pairs and is "
                "no number of nats; use another method, such as ClassicalDependency('ulsif')"
            )
        rows = row_values(self, X, Y, groups)
        if np.isinf(rows.values).any():
            raise InputError(
                "some pairs never came together, and their PMI without smoothing is minus "
                "infinity: set smoothing above 0 in method_options"
            )
        found = rows.estimate(method, confidence=confidence, warnings=self._notes)
        # The whole interval, below zero too: nothing is known here of a bias of fitting.
        reach = normal_quantile(confidence) * found.stderr
        return replace(found, ci=(found.nats - reach, found.nats + reach))

    def pmi(self, X: Any, Y: Any) -> Array32:
        """log r of each pair, (n,) in nats; with `phsic` a score that only ranks pairs."""
        x, y = self._sides(X, Y, asked="PMI of new pairs")
        with show("scoring", enabled=self.progress) as progress:
            return pair_values(self.model_, x, y, progress).astype(np.float32)

    def pmi_matrix(self, X: Any, Y: Any) -> Array32:
        """The same for every x with every y, (n, m), computed in blocks."""
        x, y = self._sides(X, Y, paired=False, asked="PMI of new pairs")
        with show("scoring", enabled=self.progress) as progress:
            return matrix_values(self.model_, x, y, progress)

    def score(self, X: Any, Y: Any, groups: Any = None) -> float:
        """Minus the log-loss of the balanced classifier sigmoid(log r) on the rows and shuffles.

        As of `PointwiseDependency`: higher is better, -log 2 calls everything independent.
        """
        check_is_fitted(self, "method_")
        if self.method_.pmi == "score":
            raise InputError(f"method {self.method_.key!r} has no log-loss: its score is not log r")
        if self.method_.pmi == "none":
            raise InputError(self._no_pmi("a score, which needs PMI of new pairs"))
        *raws, reasons = self._read_some(X, Y)
        if not can_be_scored(reasons):
            return NO_BETTER
        codes = group_codes(groups, len(reasons))
        x, y = self._prepared(*raws)
        with show("scoring", enabled=self.progress) as progress:
            return shuffled_log_likelihood(
                lambda a, b: pair_values(self.model_, x.take(a), y.take(b), progress),
                len(x),
                seed=_SEED,
                groups=None if codes is None else codes[reasons == ""],
            )

    @property
    def encoder_x_(self) -> SideEncoder:
        """How the columns of X are read."""
        return self.reader_x_.encoder

    @property
    def encoder_y_(self) -> SideEncoder:
        """How the columns of Y are read."""
        return self.reader_y_.encoder

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the model as a folder of safetensors and JSON.

        overwrite: also in place of a model that was fitted on other data.
        """
        from pointdep.estimators import persistence
        from pointdep.estimators.classical import saving

        check_is_fitted(self, "method_")
        if not overwrite:
            persistence.require_same_data(Path(path), persistence.data_of(self))
        saving.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> ClassicalDependency:
        """Read a saved model."""
        from pointdep.data import storage
        from pointdep.estimators.classical import saving

        about, tensors = storage.read_model(Path(path))
        if about.get("kind") != saving.KIND:
            raise ModelFileError(f"{path} is of another kind: use PointwiseDependency.load")
        made: ClassicalDependency = saving.load(cls(), about, tensors, Path(path))
        return made

    def _found(self) -> list[tuple[str, object]]:
        mi = [("mutual information", self.mutual_information())] if self.method_.estimates else []
        return [*mi, ("method", self.method_.key)]

    def _fit_sides(
        self, method: ClassicalMethod, x: Side, y: Side, codes: Codes | None, progress: Progress
    ) -> None:
        """Set the model, what it says out of fold, and what MI is the mean of."""
        self.flags_ = ()
        self.model_: Any = None
        if method.fit is None:
            self.mi_values_: Array | None = self._local(method, x, y, codes, progress)
            return
        how = {"seed": self.seed_, **method.options}
        splits = make_splits(len(x), folds=self.folds, groups=codes, seed=self.seed_)
        sums, counts = np.zeros(len(x)), np.zeros(len(x))
        for number, split in enumerate(splits):
            # Nothing here stops early, so the rows set aside for that are fitted too.
            rows, report = np.sort(np.concatenate([split.train, split.stop])), split.report
            one = method.fit(x.take(rows), y.take(rows), **how)
            sums[report] += pair_values(one, x.take(report), y.take(report), Silent())
            counts[report] += 1
            progress.update(number + 1, len(splits) + 1, "fits")
        with np.errstate(invalid="ignore"):
            held = sums / counts
        self.model_, self._oof = method.fit(x, y, **how), held.astype(np.float32)
        whole = self.model_.mi_values(x, y, codes)
        self.mi_values_ = (held if whole is None else whole) if method.estimates else None
        self.flags_ = _flags(method, self.model_, held)

    def _local(
        self, method: ClassicalMethod, x: Side, y: Side, codes: Codes | None, progress: Progress
    ) -> Array:
        """(n,) values of a method that fits nothing, whose mean is the MI of these rows."""
        assert method.local is not None
        if codes is not None and len(np.unique(codes)) < len(codes):
            fault = f"method {method.key!r} takes the neighbours of a row from its own group"
            raise InputError(f"{fault}: give one row of each group, or use PointwiseDependency()")
        return method.local(x, y, seed=self.seed_, progress=progress, **method.options)

    def _sides(self, X: Any, Y: Any, *, paired: bool = True, asked: str = "") -> tuple[Side, Side]:
        """Both sides of given rows; asked: what only a method with PMI can answer."""
        check_is_fitted(self, "method_")
        if asked and self.method_.pmi == "none":
            raise InputError(self._no_pmi(asked))
        raw_x, raw_y = self._read(X, Y)
        if paired:
            require_same_length(raw_x, raw_y)
        return self._prepared(raw_x, raw_y)

    def _read(self, X: Any, Y: Any) -> tuple[RawSide, RawSide]:
        if X is None or Y is None:
            raise InputError("both X and Y are needed: a pair has two sides")
        raw_x = as_side(X, "X", known=self.encoder_x_)
        return raw_x, as_side(Y, "Y", known=self.encoder_y_)

    def _prepared(self, raw_x: RawSide, raw_y: RawSide) -> tuple[Side, Side]:
        dense = self.method_.dense
        x = self.reader_x_.read(raw_x, dense=dense)
        return x, self.reader_y_.read(raw_y, dense=dense)

    def _read_some(self, X: Any, Y: Any) -> tuple[RawSide, RawSide, NDArray[np.object_]]:
        """The pairs that can be read, and of all, (n,), why not: "" if they can."""
        raw_x, raw_y = self._read(X, Y)
        require_same_length(raw_x, raw_y)
        faults = [*self.reader_x_.faults(raw_x), *self.reader_y_.faults(raw_y)]
        reasons = reasons_of(faults, raw_x.rows)
        if not faults:
            return raw_x, raw_y, reasons
        fine = np.flatnonzero(reasons == "")
        return part_of(raw_x, fine), part_of(raw_y, fine), reasons

    def _no_pmi(self, asked: str) -> str:
        return (
            f"method {self.method_.key!r} gives no {asked}: its terms belong to rows and are no "
            "function of a pair; use PointwiseDependency(), or ClassicalDependency('ulsif')"
        )


def pair_columns(
    fitted: ClassicalDependency, X: Any, Y: Any, progress: Progress, *, strict: bool
) -> dict[str, NDArray[Any]]:
    """As `pointwise.pair_columns`: there is no standard error, and nothing is called outside."""
    check_is_fitted(fitted, "method_")
    if fitted.method_.pmi == "none":
        raise InputError(fitted._no_pmi("PMI of new pairs"))
    if strict:
        fitted._sides(X, Y)  # for what it refuses
    raw_x, raw_y, reasons = fitted._read_some(X, Y)
    columns = {
        name: np.full(len(reasons), np.nan, np.float32) for name in ("pmi", "npmi", "stderr")
    }
    if raw_x.rows:
        values = pair_values(fitted.model_, *fitted._prepared(raw_x, raw_y), progress)
        columns["pmi"][reasons == ""] = values
        if fitted.method_.pmi == "nats":
            rarity = [
                fitted.encoder_x_.log_frequency(raw_x),
                fitted.encoder_y_.log_frequency(raw_y),
            ]
            columns["npmi"][reasons == ""] = normalised_pmi(values, rarity, fitted.n_rows_)
    found = {**columns, "outside": np.zeros(len(reasons), dtype=bool)}
    return found if strict else {**found, "reason": reasons}


def _flags(method: ClassicalMethod, model: Any, held: Array) -> tuple[Flag, ...]:
    """Whether values sit at a limit of the method: uLSIF's floor, a perfect correlation, zero."""
    known = held[~np.isnan(held)]
    limit = np.log(method.options["floor"]) if "floor" in method.options else -np.inf
    share = float((known <= limit).mean())
    if getattr(model, "at_limit", False):
        message = "Y is in some direction a linear function of X, and the true value infinite"
    elif share > _MANY_AT_LIMIT:
        said = f"{share:.1%} of the out-of-fold pairs have the least PMI that the method can give"
        message = f"{said}; PointwiseDependency() has no such limit"
    else:
        return ()
    return (Flag("saturated", (), f"{MEANINGS['saturated']}: {message}"),)


def row_values(
    model: ClassicalDependency, X: Any = None, Y: Any = None, groups: Any = None
) -> RowValues:
    """What the mutual information of the rows of the fit, or of given rows, is the mean of."""
    if X is None and Y is None:
        assert model.mi_values_ is not None
        return RowValues(model.mi_values_, model.groups_, digests=model.digests_)
    x, y = model._sides(X, Y)
    codes, method = group_codes(groups, len(x)), model.method_
    with show("scoring", enabled=model.progress) as progress:
        if method.local is None:
            return RowValues(pair_values(model.model_, x, y, progress), codes)
        return RowValues(model._local(method, x, y, codes, progress), codes)
